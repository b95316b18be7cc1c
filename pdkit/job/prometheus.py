"""Reading a Prometheus page: the counters and labels that engines publish."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import requests

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_LINE = re.compile(
    rf"(?P<name>[a-zA-Z_:][\w:]*)(?:\{{(?P<labels>(?:[^\"}}]|{_QUOTED})*)\}})?\s+"
    r"(?P<value>[+-]?(?:Inf|NaN|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))(?:\s|$)",
    re.IGNORECASE,
)
_LABEL = re.compile(rf"(\w+)=({_QUOTED})")
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One value with its labels."""

    name: str
    labels: dict[str, str]
    value: float


def parse_page(text: str) -> list[Sample]:
    """All samples of a page; a line that is none is left out."""
    found = (_LINE.match(line) for line in text.split("\n"))
    return [Sample(one["name"], _labels(one["labels"] or ""), float(one["value"])) for one in found if one]


def _labels(text: str) -> dict[str, str]:
    """By name, with \\n, \\" and \\\\ read as what they stand for."""
    return {
        name: _ESCAPE.sub(lambda one: "\n" if one[1] == "n" else one[1], quoted[1:-1])
        for name, quoted in _LABEL.findall(text)
    }


def read_page(url: str, timeout_seconds: float = 5.0) -> list[Sample]:
    """The samples of a live page; raises requests.RequestException when it cannot be read."""
    answer = requests.get(url, timeout=timeout_seconds)
    answer.raise_for_status()
    return parse_page(answer.text)


def total(samples: Iterable[Sample], name: str, **labels: str) -> float:
    """Sum of all samples of a name whose labels hold the given values; 0 when there are none."""
    wanted = labels.items()
    return sum(one.value for one in samples if one.name == name and wanted <= one.labels.items())
