"""Any value anywhere in an srt-slurm recipe: findings with a place, or a recipe whose text says the same."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pdkit.errors import RecipeError
from pdkit.interop.files import checked_files
from pdkit.interop.shorten import shortened
from pdkit.interop.srt import read_srt
from pdkit.recipe.yaml_marks import parse

FILES = [yaml.safe_load(file.read_text()) for file in sorted((Path(__file__).parent / "srt").glob("*.yaml"))]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10**12),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["auto", "nixl", "{x}", '{"a":', "4x8", "none", "colocate", "a\nb", "1:00:00", "sglang", "true", "08"]
    ),
    st.just([]),
    st.just({}),
    st.just([1, "x"]),
    st.just({"a": {"b": [None]}}),
)
PLACE = re.compile(r":\d+:\d+$")


def paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield (*path, key)
        yield from paths(value, (*path, key))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_value_anywhere(data: st.DataObject) -> None:
    changed = copy.deepcopy(data.draw(st.sampled_from(FILES)))
    *parents, last = data.draw(st.sampled_from(list(paths(changed))))
    here = changed
    for parent in parents:
        here = here[parent]
    here[last] = data.draw(ODD)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "theirs.yaml"
        file.write_text(yaml.safe_dump(changed, sort_keys=False))
        for result in checked_files([file]):
            assert all(PLACE.search(finding.at) and finding.message for finding in result.findings)
        try:
            found = read_srt(file)
        except RecipeError:
            return  # its findings are those that were looked at above
        for imported in found:
            assert parse(imported.text, "").data == shortened(imported.source.data)
