"""`pdkit check` of srt-slurm recipes: every rule over what they would launch, with places in the original file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pdkit.commands import Checked
from pdkit.errors import Finding, RecipeError
from pdkit.facts.models import known_models
from pdkit.interop.srt import read_srt
from pdkit.interop.types import Imported
from pdkit.interop.unknown import STAND_IN, check_without_facts
from pdkit.plan.plan import make_plan
from pdkit.rules.catalogue import check

OF_THE_GATE = frozenset(("PD021", "PD065", "PD085", "PD086", "PD087", "PD088", "PD089", "PD094"))
"""Rules about pdkit's own gate, which a performance recipe of the peer does not have."""
OF_THE_LOAD = frozenset(("PD006", "PD007", "PD009", "PD035", "PD052", "PD091", "PD092", "PD093"))
"""Rules about the load, which can say nothing where a stand-in took its place."""
_SETTING = re.compile(r"\b(prefill|decode|agg|common)\.(args\.|env\.)?([A-Za-z][A-Za-z0-9_-]*)")
FIXES = {
    "PD001": "give both sides the same `block-size`, one that holds the state on both",
    "PD002": "leave `block-size` out on both sides, or make it larger",
    "PD006": "raise `max-num-seqs`, start more workers, or lower `benchmark.concurrencies`",
    "PD009": "raise `max-model-len`, or shorten `isl` and `osl`",
    "PD010": "give prefill the speculative flags of decode",
    "PD011": "give both sides the same `kv-cache-dtype`",
    "PD012": "give both sides the same `mamba-ssm-cache-dtype`",
    "PD013": "set VLLM_SSM_CONV_STATE_LAYOUT: DS in the environment of both sides",
    "PD014": "give both sides the same `kv-transfer-config`",
    "PD018": "give both sides the same `dtype`",
    "PD019": 'say "kv_load_failure_policy": "fail" in `kv-transfer-config`',
}
"""What to do in an srt-slurm recipe where the rule's own advice names a setting of pdkit."""


def findings_of_srt(path: Path) -> list[Finding]:
    """Everything that is wrong with an srt-slurm file, over all its variants; RecipeError when it cannot be read."""
    return list(dict.fromkeys(finding for imported in read_srt(path) for finding in findings_of(imported)))


def findings_of(imported: Imported) -> Iterator[Finding]:
    """The faults that reading found, then those of the rules."""
    yield from imported.findings
    skipped = _not_asked(imported)
    try:
        known = imported.recipe.model.facts in known_models()
        plan = make_plan(imported.loaded, None if known else STAND_IN)
        found = check(plan, imported.source) if known else check_without_facts(plan, imported.loaded)
        yield from (_in_their_words(one) for one in found if one.code not in skipped)
    except RecipeError as error:
        yield from error.findings


def _not_asked(imported: Imported) -> frozenset[str]:
    kind = imported.srt.benchmark.type
    return (frozenset() if kind == "gsm8k" else OF_THE_GATE) | (frozenset() if kind == "sa-bench" else OF_THE_LOAD)


def _in_their_words(finding: Finding) -> Finding:
    """The finding with advice that names srt-slurm's settings: `decode.max_num_seqs` is the flag `max-num-seqs`."""
    fix = FIXES.get(finding.code) or _SETTING.sub(_flag, finding.fix)
    return replace(finding, fix=fix)


def _flag(setting: re.Match[str]) -> str:
    role, kind, name = setting.groups()
    name = name if kind == "env." else name.replace("_", "-")
    return name if role == "common" else f"{name} of {role}"


def checked(file: Path) -> Checked:
    """The outcome of one srt-slurm file, each of its variants counted as a recipe."""
    try:
        variants = read_srt(file)
    except RecipeError as error:
        return Checked(file, 1, list(error.findings))
    found = dict.fromkeys(finding for imported in variants for finding in findings_of(imported))
    return Checked(file, len(variants), list(found))
