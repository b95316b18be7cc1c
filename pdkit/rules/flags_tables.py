"""Rules about what the other flag rules stand on: tables of a release, or the image's own parsers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdkit.facts.flags import lookup
from pdkit.facts.tables import read_probe
from pdkit.rules.engines import Engines, engines_of
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version


@rule(
    "PD074",
    "The flags of this version are known",
    "pdkit reads flags out of releases. A nightly or a build of a branch may have more of them, or fewer: what the "
    "releases around it agree on is certain, the rest only its own parser knows.",
)
def versions_are_known(case: Case) -> Iterator[Hit]:
    """Free flags and variables on which the tables around the recipe's versions disagree, or which no table covers."""
    engines, engine = engines_of(case), case.plan.recipe.engine
    args = {name for role in case.plan.roles.values() for name in role.settings.args}
    env = {name for role in case.plan.roles.values() for name in role.settings.env if name.startswith("VLLM_")}
    own = {name for name in args if engines.is_dynamos(name)}
    if not engines.tables.vllm.exact:
        open_args = {f"`--{name}`" for name in args - own if not _decided(engines, name)}
        open_env = {
            f"`{name}`" for name in env if not engines.certain or _some(name in one.env for one in engines.vllm)
        }
        if open_args or open_env:
            what = "a build between these two" if engines.certain else "of no release that is known"
            shown = ", ".join(sorted(open_args | open_env))
            yield _note(f"{shown} judged by {engines.vllm_name}: {engine.vllm} is {what}", "vllm")
    own |= set(case.plan.recipe.infra.frontend_args)
    if own and not engines.tables.worker.exact:
        shown = ", ".join(f"`--{name}`" for name in sorted(own))
        release = engines.tables.worker.version
        yield _note(f"{shown} judged by Dynamo {release}: {engine.dynamo} is of no release that is known", "dynamo")


def _decided(engines: Engines, name: str) -> bool:
    """Whether all tables say the same about a flag."""
    return engines.certain and not _some(lookup(name, table) is not None for table in engines.vllm)


def _some(answers: Iterable[bool]) -> bool:
    """Whether some say yes and some no."""
    return len(set(answers)) > 1


def _note(message: str, engine: str) -> Hit:
    return Hit(
        message=message,
        path=("engine", engine),
        fix="run `pdkit doctor --image-probe -o FILE` in the image and name the file as `engine.facts`",
        severity="info",
    )


@rule(
    "PD075",
    "The probed image is the recipe's",
    "Flags of another image are worse than those of a release: they look certain.",
)
def probe_is_of_this_recipe(case: Case) -> Iterator[Hit]:
    """The versions in `engine.facts` against `engine.vllm` and `engine.dynamo`."""
    engines, engine = engines_of(case), case.plan.recipe.engine
    if engines.probed is None:
        return
    versions = read_probe(engines.probed)["versions"]
    for package, wanted in (("vllm", engine.vllm), ("ai-dynamo", engine.dynamo)):
        found = versions.get(package)
        if found is not None and not _same(found, wanted):
            yield Hit(
                message=f"{engines.probed} is of {package} {found}, the recipe says {wanted}",
                path=("engine", "facts"),
                fix="probe the image that the recipe names, or correct the version",
            )


def _same(found: str, wanted: str) -> bool:
    """Whether two versions are one; a local part such as `+cu129` says how it was built, a commit which it is."""
    if found == wanted or wanted.removeprefix("v") == found:
        return True
    exact = version(wanted).lowest == version(wanted).highest
    return exact and found.partition("+")[0] == wanted.removeprefix("v").partition("+")[0]
