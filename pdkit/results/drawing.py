"""Which figures the report shows: from configurations to curves, bands and finished pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pdkit.results import figures
from pdkit.results.figures import Band, Curve, Dot
from pdkit.results.imported import ImportedPoint
from pdkit.results.pareto import frontier
from pdkit.results.points import Latency, Point
from pdkit.results.runs import Configuration

Corner = tuple[Configuration, Point]
Value = Callable[[Point], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The finished figures."""

    frontier_svg: str
    frontier_png: bytes
    mlperf_svg: str
    latency_svg: str
    latency_png: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of a frontier figure."""

    label: str
    value: Value
    unit: str


USER = Axis(label="tok/s per user (1000 / median TPOT)", value=lambda point: point.tok_s_user_median, unit="tok/s/user")
TOTAL = Axis(label="total tok/s per GPU", value=lambda point: point.total_tok_s_gpu, unit="total tok/s/GPU")
USER_P90 = Axis(label="tok/s per user (1000 / p90 TPOT)", value=lambda point: point.tok_s_user_p90, unit="tok/s/user")
OUTPUT = Axis(label="output tok/s per GPU", value=lambda point: point.output_tok_s_gpu, unit="output tok/s/GPU")


def frontier_of(configurations: Sequence[Configuration], x: Axis = USER, y: Axis = TOTAL) -> tuple[Corner, ...]:
    """The points of all configurations that no other one beats on both axes."""
    pairs = [(each, point) for each in configurations for point in each.run.valid_points if x.value(point)]
    return frontier(pairs, x=lambda pair: x.value(pair[1]) or 0.0, y=lambda pair: y.value(pair[1]) or 0.0)


def draw(configurations: Sequence[Configuration], imported: Sequence[ImportedPoint]) -> Drawing | None:
    """All figures, or None when there is no valid point to draw."""
    measured = [each for each in configurations if any(map(USER.value, each.run.valid_points))]
    if not measured:
        return None
    main, main_png = _frontier(measured, imported, USER, TOTAL, "frontier")
    mlperf, _ = _frontier(measured, (), USER_P90, OUTPUT, "mlperf")
    panels = {
        "TTFT, ms": [_band(each, lambda point: point.ttft) for each in measured],
        "TPOT, ms": [_band(each, lambda point: point.tpot) for each in measured],
    }
    latency = figures.latency_figure(panels)
    return Drawing(
        frontier_svg=main,
        frontier_png=main_png,
        mlperf_svg=mlperf,
        latency_svg=figures.to_svg(latency, salt="latency", description="TTFT and TPOT over concurrency", titles={}),
        latency_png=figures.to_png(latency),
    )


def _frontier(
    measured: Sequence[Configuration], imported: Sequence[ImportedPoint], x: Axis, y: Axis, salt: str
) -> tuple[str, bytes]:
    curves = [_curve(each, x, y) for each in measured] + _published(imported, len(measured))
    corners = [_dot(each, point, x, y) for each, point in frontier_of(measured, x, y)]
    figure = figures.frontier_figure(curves, corners, x_label=x.label, y_label=y.label)
    svg = figures.to_svg(figure, salt=salt, description=f"{y.label} over {x.label}", titles=figures.dot_titles(curves))
    return svg, figures.to_png(figure)


def _curve(each: Configuration, x: Axis, y: Axis) -> Curve:
    points = [point for point in each.run.valid_points if x.value(point)]
    return Curve(label=each.label, style=each.style, dots=tuple(_dot(each, point, x, y) for point in points))


def _dot(each: Configuration, point: Point, x: Axis, y: Axis) -> Dot:
    across, up = x.value(point) or 0.0, y.value(point) or 0.0
    title = f"{each.label}, concurrency {point.concurrency}: {up:,.0f} {y.unit}, {across:,.1f} {x.unit}"
    return Dot(x=across, y=up, tag=f"{point.concurrency:,}", title=title)


def _published(imported: Sequence[ImportedPoint], first_style: int) -> list[Curve]:
    labels = list(dict.fromkeys(point.label for point in imported))
    return [
        Curve(
            label=f"{label} (published)",
            style=first_style + number,
            published=True,
            dots=tuple(_published_dot(point) for point in imported if point.label == label),
        )
        for number, label in enumerate(labels)
    ]


def _published_dot(point: ImportedPoint) -> Dot:
    at = f", concurrency {point.concurrency}" if point.concurrency else ""
    title = f"{point.label}{at}: {point.tok_s_gpu:,.0f} tok/s/GPU, {point.tok_s_user:,.1f} tok/s/user, as published"
    return Dot(x=point.tok_s_user, y=point.tok_s_gpu, tag="", title=title)


def _band(each: Configuration, latency: Callable[[Point], Latency | None]) -> Band:
    found = [(point.concurrency, value) for point in each.run.valid_points if (value := latency(point))]
    return Band(
        label=each.label,
        style=each.style,
        concurrency=tuple(concurrency for concurrency, _ in found),
        p50_ms=tuple(value.p50_ms for _, value in found),
        p99_ms=tuple(value.p99_ms for _, value in found),
    )
