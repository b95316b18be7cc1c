"""Reading a Prometheus page: the counters and labels that engines publish."""

from __future__ import annotations

import re
from dataclasses import dataclass

import requests

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """One value with its labels."""

    name: str
    labels: dict[str, str]
    value: float


def parse_page(text: str) -> list[Sample]:
    """All samples of a page."""
    found = (_LINE.match(line) for line in text.splitlines() if not line.startswith("#"))
    return [Sample(one["name"], dict(_LABEL.findall(one["labels"] or "")), float(one["value"])) for one in found if one]


def read_page(url: str, timeout_seconds: float = 5.0) -> list[Sample]:
    """The samples of a live page; raises requests.RequestException when it cannot be read."""
    answer = requests.get(url, timeout=timeout_seconds)
    answer.raise_for_status()
    return parse_page(answer.text)


def total(samples: list[Sample], name: str, **labels: str) -> float:
    """Sum of all samples of a name whose labels hold the given values; 0 when there are none."""
    wanted = labels.items()
    return sum(one.value for one in samples if one.name == name and wanted <= one.labels.items())
