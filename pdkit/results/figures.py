"""The report's figures: matplotlib draws them once, in colours that the page can change between light and dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from pdkit.errors import UsageError
from pdkit.results.pareto import step_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#1b1f26", "#5f6875", "#dde1e7", "#ffffff"
SERIES = ("#2357d6", "#c2410c", "#147a3d", "#7c3aed", "#be1862", "#0d7490", "#8a5a0b", "#4a5568")
VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"} | {c: f"s{n}" for n, c in enumerate(SERIES)}
"""What each colour is called in the page's style sheet."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
GLYPHS = "●■▲◆▼✚✖⬟"
"""The markers as characters, for the page's tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One point of a figure."""

    x: float
    y: float
    tag: str
    """Short text beside the dot when it lies on the frontier."""
    title: str
    """What a reader sees when hovering over the dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The dots of one configuration."""

    label: str
    dots: tuple[Dot, ...]
    style: int
    """Picks colour and marker; the same in every figure and table."""
    published: bool = False
    """Somebody else's figures: drawn hollow and dashed, never part of the frontier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Median and tail of one latency over concurrency, for one configuration."""

    label: str
    style: int
    concurrency: tuple[int, ...]
    p50_ms: tuple[float, ...]
    p99_ms: tuple[float, ...]


def colour(style: int) -> str:
    """The colour of a style on a light page."""
    return SERIES[style % len(SERIES)]


def _shape(style: int) -> int:
    """Which marker a style has: shifted at each round of colours, so that 64 styles differ."""
    return (style + 3 * (style // len(SERIES))) % len(MARKERS)


def marker(style: int) -> str:
    """The marker of a style, as matplotlib names it."""
    return MARKERS[_shape(style)]


def glyph(style: int) -> str:
    """The marker of a style as a character."""
    return GLYPHS[_shape(style)]


def frontier_figure(curves: Sequence[Curve], corners: Sequence[Dot], *, x_label: str, y_label: str) -> Figure:
    """Throughput against interactivity: each configuration's curve, and the frontier of all as a step line."""
    figure, (axes,) = _figure(1, height=4.9)
    line = step_curve([(dot.x, dot.y) for dot in corners])
    across, up = [x for x, _ in line], [y for _, y in line]
    axes.fill_between(across, up, color=INK, alpha=0.045, linewidth=0, zorder=1)
    axes.plot(across, up, color=INK, linewidth=1.3, alpha=0.75, zorder=2, label="frontier")
    for curve in curves:
        _draw_curve(axes, curve)
    everything = [dot for curve in curves for dot in curve.dots]
    right, top = 1.09 * max(dot.x for dot in everything), 1.12 * max(dot.y for dot in everything)
    axes.set_xlim(0, right)
    axes.set_ylim(0, top)
    _ring(axes, corners, right, top)
    axes.yaxis.set_major_formatter("{x:,.10g}")
    _finish(axes, x_label, y_label)
    _legend(figure, axes)
    return figure


def _ring(axes: Axes, corners: Sequence[Dot], right: float, top: float) -> None:
    """Ring the corners of the frontier and tag them, leaving out a tag that would cover the one before."""
    tagged: list[Dot] = []
    for dot in corners:
        axes.plot(dot.x, dot.y, "o", markersize=11, markerfacecolor="none", markeredgecolor=INK, alpha=0.75, zorder=5)
        if all(abs(dot.x - other.x) > 0.035 * right or abs(dot.y - other.y) > 0.05 * top for other in tagged):
            axes.annotate(dot.tag, (dot.x, dot.y), (7, 6), textcoords="offset points", fontsize=8.5, color=MUTED)
            tagged.append(dot)


def _draw_curve(axes: Axes, curve: Curve) -> None:
    paint = colour(curve.style)
    dots = sorted(curve.dots, key=lambda dot: dot.x)
    look: dict[str, Any] = {"color": paint, "linewidth": 1.1, "marker": marker(curve.style)}
    look |= {"markersize": 5.5, "zorder": 4}
    if curve.published:
        look |= {"linestyle": (0, (4, 3)), "markerfacecolor": PAPER}
    axes.plot([dot.x for dot in dots], [dot.y for dot in dots], label=curve.label, **look)
    for number, dot in enumerate(dots):
        # An invisible target larger than the marker carries the hover text.
        (target,) = axes.plot(dot.x, dot.y, "o", markersize=14, color=paint, alpha=0.0, zorder=6)
        target.set_gid(f"dot-{curve.style}-{number}")


def latency_figure(panels: Mapping[str, Sequence[Band]]) -> Figure:
    """One panel per latency, by its axis label: medians as solid lines, p99 as dotted ones."""
    figure, all_axes = _figure(len(panels), height=4.3)
    for axes, (y_label, bands) in zip(all_axes, panels.items(), strict=True):
        for band in bands:
            look: dict[str, Any] = {"color": colour(band.style), "marker": marker(band.style)}
            axes.plot(band.concurrency, band.p50_ms, label=band.label, linewidth=1.3, markersize=4.5, **look)
            axes.plot(band.concurrency, band.p99_ms, linewidth=1.1, linestyle=":", markersize=2.5, **look)
        _log_scales(axes, bands)
        _finish(axes, "concurrency", y_label)
    _legend(figure, all_axes[0])
    return figure


def _log_scales(axes: Axes, bands: Sequence[Band]) -> None:
    """Doubling concurrency and tenfold latency are one step each; ticks are the values that were measured."""
    from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: PLC0415

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    measured = sorted({value for band in bands for value in band.concurrency})
    while len(measured) > 12:
        measured = measured[::2]
    axes.set_xticks(measured, [f"{value:,}" for value in measured])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(log_ticks(*axes.get_ylim()))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def log_ticks(low: float, high: float) -> list[float]:
    """Round values on a logarithmic axis, at least three where a decade is not spanned."""
    from matplotlib.ticker import LogLocator, MaxNLocator  # noqa: PLC0415

    spaced = [LogLocator(base=10, subs=subs) for subs in ((1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0))]
    for locator in (*spaced, MaxNLocator(4)):
        ticks = [float(value) for value in locator.tick_values(low, high) if low <= value <= high]
        if len(ticks) >= 3:
            break
    return ticks


def _figure(panels: int, height: float) -> tuple[Figure, list[Axes]]:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError:
        raise UsageError(
            "drawing the report needs matplotlib, which is not installed", fix="pip install 'pdkit[report]'"
        ) from None
    figure = Figure(figsize=(9.6, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    return figure, list(axes)


def _finish(axes: Axes, x_label: str, y_label: str) -> None:
    axes.set_xlabel(x_label, color=MUTED, fontsize=9.5)
    axes.set_ylabel(y_label, color=MUTED, fontsize=9.5)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelsize=9, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.patch.set_visible(False)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower left",
        ncols=2 if len(labels) < 13 else 3,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=2.6,
    )


def to_svg(figure: Figure, *, salt: str, description: str, titles: Mapping[str, str]) -> str:
    """The figure as an SVG element for a page: colours as variables, hover texts, same bytes each time."""
    from matplotlib import rc_context  # noqa: PLC0415

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(
        r'<svg [^>]*viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{escape(description)}">', text
    )
    # Two figures on one page must not share ids; matplotlib numbers its groups from 1 in each.
    text = re.sub(r' id="(?!dot-)[A-Za-z0-9.]+_\d+"', "", text)
    text = re.sub(r"font: ([0-9.]+px) [^;\"]*", r"font-size: \1", text)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    for value, name in VARIABLES.items():
        text = text.replace(value, f"var(--{name})")
    for gid, title in titles.items():
        text = text.replace(f'<g id="{gid}">', f"<g><title>{escape(title)}</title>")
    return text


def to_png(figure: Figure) -> bytes:
    """The figure as a PNG on white, twice the usual resolution."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=200, facecolor=PAPER, metadata={"Software": None})
    return buffer.getvalue()


def dot_titles(curves: Sequence[Curve]) -> dict[str, str]:
    """The hover texts of a frontier figure by the ids of its dots."""
    return {
        f"dot-{curve.style}-{number}": dot.title
        for curve in curves
        for number, dot in enumerate(sorted(curve.dots, key=lambda dot: dot.x))
    }
