"""Rules about what the other flag rules stand on: tables of a release, or the image's own parsers."""

from __future__ import annotations

from collections.abc import Iterator

from pdkit.facts.tables import read_probe
from pdkit.rules.engines import engines_of
from pdkit.rules.rule import Case, Hit, rule
from pdkit.rules.versions import version


@rule(
    "PD074",
    "The flags of these versions are known",
    "pdkit reads flags out of releases. A nightly or a build of a branch may have more, or fewer, so that flag rules "
    "can only warn where the releases around it disagree; its own parser knows.",
)
def versions_are_known(case: Case) -> Iterator[Hit]:
    """Whether the tables are those of the recipe's versions; if not, which were used instead."""
    engines, engine = engines_of(case), case.plan.recipe.engine
    vllm, dynamo = engines.tables.vllm, engines.tables.worker
    unknown = []
    if not vllm.exact:
        between = engines.vllm_name[5:].replace(" to ", " and ")
        what = f"a build between {between}" if engines.certain else "of no known release"
        unknown.append(f"vLLM {engine.vllm} is {what}")
    if not dynamo.exact:
        unknown.append(f"Dynamo {engine.dynamo} is of no known release")
    if unknown:
        judges = f"{engines.vllm_name} and Dynamo {dynamo.version}"
        yield Hit(
            message=f"{' and '.join(unknown)}: flags are judged by those of {judges}",
            path=("engine", "dynamo" if vllm.exact else "vllm"),
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
