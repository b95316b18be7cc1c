"""What the engines of a recipe accept, as rules ask it: a build between two releases is judged by both of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pdkit.facts.flags import Flag, FlagTable, flag_table, known_versions, lookup
from pdkit.facts.tables import EngineTables, engine_tables
from pdkit.rules.rule import Case
from pdkit.rules.versions import version

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Engines:
    """The tables that a recipe's flags are held against."""

    tables: EngineTables
    vllm: tuple[FlagTable, ...]
    """The release itself; of a build between two releases both, the lower one first; else the nearest that is known."""
    certain: bool
    """Whether what no table of vLLM has is not in this build either."""

    def flag(self, name: str) -> Flag | None:
        """The flag of a worker that a name means; Dynamo's own win, as its parser reads them first."""
        return next((flag for table in (self.tables.worker, *self.vllm) if (flag := lookup(name, table))), None)

    def is_dynamos(self, name: str) -> bool:
        """Whether it is a flag of Dynamo's worker itself."""
        return lookup(name, self.tables.worker) is not None

    def judged(self, name: str, fault: Callable[[Flag], T | None]) -> tuple[T, bool] | None:
        """What is wrong with the use of a flag, and whether that is certain: every table must say so."""
        own = self.is_dynamos(name)
        tables = (self.tables.worker,) if own else self.vllm
        certain = self.tables.worker.exact if own else self.certain
        faults = [fault(flag) for table in tables if (flag := lookup(name, table))]
        found = next((one for one in faults if one), None)
        if found is None:
            return None
        return found, certain and all(faults) and len(faults) == len(tables)

    @property
    def probed(self) -> Path | None:
        """The file of the probe that all of this comes from; None for tables of releases."""
        return self.tables.probed

    @property
    def vllm_name(self) -> str:
        """The tables of vLLM in words: `vLLM 0.26.0`, `vLLM 0.26.0 to 0.27.1`."""
        return "vLLM " + " to ".join(table.version for table in self.vllm)


def engines_of(case: Case) -> Engines:
    """The tables of the recipe of a case."""
    tables = engine_tables(case.plan.recipe.engine, case.source)
    if tables.vllm.exact:
        return Engines(tables, (tables.vllm,), certain=True)
    known, wanted = known_versions(), version(case.plan.recipe.engine.vllm)
    bounds = ["{}.{}".format(*minor) for minor in dict.fromkeys((wanted.lowest, wanted.highest))]
    between = len(bounds) == 2 and all(one in known for one in bounds)
    return Engines(tables, tuple(map(flag_table, bounds)) if between else (tables.vllm,), certain=between)
