"""What import-linter (`make layers`) cannot say: which packages a part may use at all."""

from __future__ import annotations

import sys

import grimp
import pytest

# All of these are inside the image of the engines.
IN_THE_IMAGE = {"pydantic", "pydantic_core", "requests", "yaml"}
# A process of its own beside a worker, which speaks to it through Dynamo's runtime.
ENGINES_OWN = {("pdkit.job.exact", "dynamo"), ("pdkit.job.exact", "transformers")}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        "pdkit", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def test_the_job_needs_only_what_the_image_has(graph: grimp.ImportGraph) -> None:
    inside = {"pdkit.job", *graph.find_descendants("pdkit.job")}
    for module in list(inside):
        inside |= {name for name in graph.find_upstream_modules(module) if name.startswith("pdkit")}
    # importing a.b.c runs a and a.b too
    inside |= {name.rsplit(".", depth)[0] for name in inside for depth in range(1, name.count(".") + 1)}
    found = {
        (module, used)
        for module in inside
        for used in graph.find_modules_directly_imported_by(module)
        if not used.startswith("pdkit") and used.partition(".")[0] not in sys.stdlib_module_names | IN_THE_IMAGE
    }
    assert found - ENGINES_OWN == set(), "these run in the job and may not import that"
    assert found >= ENGINES_OWN, "no longer imported: remove it"


def test_errors_files_and_paths_stand_alone(graph: grimp.ImportGraph) -> None:
    for module in ("pdkit.errors", "pdkit.files", "pdkit.paths"):
        others = {name for name in graph.find_upstream_modules(module) if name.startswith("pdkit")}
        assert others == set(), module
