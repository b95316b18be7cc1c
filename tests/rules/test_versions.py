"""A rule knows what a version has, and knows when it cannot know."""

from __future__ import annotations

import pytest

from pdkit.rules.versions import version


@pytest.mark.parametrize(
    ("text", "since", "has"),
    [
        ("0.24.0", "0.24", True),
        ("0.24", "0.24", True),
        ("v0.24.1", "0.24", True),
        ("0.24.0.post1", "0.24", True),
        ("0.24.0+cu129", "0.24", True),
        ("0.23.1", "0.24", False),
        ("0.23.1rc1.dev12+g0123abcd4", "0.24", None),
        ("0.23.1rc1.dev12+g0123abcd4", "0.23", True),
        ("0.23.1rc1.dev12+g0123abcd4", "0.25", False),
        ("0.24.0rc1", "0.24", None),
        ("0.24.0rc1", "0.23", True),
        ("0.24.0rc1", "0.25", False),
        ("0.26.1rc1.dev1177+ga9a17e709", "0.26", True),
        ("1.2.0.dev20260526", "1.2", None),
        ("1.2.0.dev20260526", "1.1", True),
        ("1.0.0", "0.99", True),
    ],
)
def test_what_a_version_has(text: str, since: str, has: bool | None) -> None:
    assert version(text).has(since) is has


def test_versions_later_than_all_facts() -> None:
    assert version("9.9.0").newer_than_known()
    assert version("9.9.0").newer_than_known("dynamo")
    assert not version("0.26.1rc1.dev1177+ga9a17e709").newer_than_known()


def test_what_is_no_version() -> None:
    with pytest.raises(ValueError, match="is not a version"):
        version("latest")
