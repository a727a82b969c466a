"""Draws how the cost of a round grows: SVG files with two logarithmic axes, the exponents and the goals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, log10
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, tostring

from hack.rounds.curve import AT_GPUS, AT_PENDING, Along, Axis, Figure, Fit, Measured, Point, fits, values
from reconciler.analysis.backtest.markup import tag
from reconciler.analysis.backtest.plots import Axes, Tick

SIZE_NAMES: Final[dict[Axis, str]] = {"gpus": "GPUs", "pending": "gangs that wait"}
FIGURE_NAMES: Final[dict[Figure, str]] = {"cold_s": "first round", "warm_p50_s": "later rounds", "rss_mb": "memory"}
TOGETHER: Final[dict[str, tuple[Figure, ...]]] = {"time": ("cold_s", "warm_p50_s"), "memory": ("rss_mb",)}
UNITS: Final = {"time": "s", "memory": "MB"}
HEIGHT: Final = 360.0
BESIDE: Final = 1.3
"""How much further than the sizes the frame reaches, as a factor."""
_LEGEND, _BELOW = (76.0, 28.0), (330.0, HEIGHT - 6)

Place = tuple[float, float]
"""A size, and a figure there."""


class Goal(NamedTuple):
    """What a figure is to be at most, at a size."""

    gpus: int
    pending: int
    figure: Figure
    most: float


GOALS: Final = (
    Goal(AT_GPUS, AT_PENDING, "cold_s", 0.5),
    Goal(AT_GPUS, 20_000, "cold_s", 1.0),
    Goal(AT_GPUS, AT_PENDING, "warm_p50_s", 0.1),
    Goal(AT_GPUS, AT_PENDING, "rss_mb", 400),
)
STYLE: Final = """
svg { background: #fff; font: 12px sans-serif; fill: #222 }
.grid { stroke: #ddd } .line { fill: none; stroke-width: 2 } .goal { fill: #fff; stroke-width: 2 }
.s0 { stroke: #1b5e9b } .s1 { stroke: #b4540a; stroke-dasharray: 6 3 } .dot { stroke-dasharray: none }
.dot.s0 { fill: #1b5e9b } .dot.s1 { fill: #b4540a }
"""


def draw(folder: Path, known: Sequence[Measured], along: Along) -> list[Path]:
    """Write a plot of time and one of memory for each axis."""
    folder.mkdir(parents=True, exist_ok=True)
    exponents = fits(known, along)
    return [
        _written(folder / f"{kind}-by-{axis}.svg", kind, axis, known, points, exponents)
        for axis, points in along.items()
        for kind in TOGETHER
    ]


def _written(
    file: Path, kind: str, axis: Axis, known: Sequence[Measured], points: Sequence[Point], exponents: Sequence[Fit]
) -> Path:
    figures = TOGETHER[kind]
    lines = {figure: values(known, points, axis, figure) for figure in figures}
    goals = {figure: _goals(points, axis, figure) for figure in figures}
    powers = {fit.figure: fit.exponent for fit in exponents if fit.over == axis}
    axes = _axes(kind, points, axis, [*lines.values(), *goals.values()])
    content: list[Element] = []
    for style, figure in enumerate(figures):
        content += _line(axes, lines[figure], style)
        content += [_dot(axes, place, f"goal s{style}", 6) for place in goals[figure]]
        power = powers.get(figure)
        name = FIGURE_NAMES[figure] if power is None else f"{FIGURE_NAMES[figure]}: grows with the power {power:g}"
        content += _legend(style, name)
    content += [_written_at(_LEGEND[0], _row(len(figures)), "hollow: goals"), _written_at(*_BELOW, SIZE_NAMES[axis])]
    picture = axes.frame(*content)
    picture.set("xmlns", "http://www.w3.org/2000/svg")
    picture.insert(1, tag("style", " ".join(STYLE.split())))
    file.write_text(tostring(picture, encoding="unicode") + "\n")
    return file


def _goals(points: Sequence[Point], axis: Axis, figure: Figure) -> list[Place]:
    sizes = {(point.gpus, point.pending) for point in points}
    there = [goal for goal in GOALS if goal.figure == figure and (goal.gpus, goal.pending) in sizes]
    return [(float(getattr(goal, axis)), goal.most) for goal in there]


def _axes(kind: str, points: Sequence[Point], axis: Axis, drawn: Sequence[Sequence[Place]]) -> Axes:
    """As wide as the sizes, and as high as whole powers of ten that hold all that is drawn."""
    sizes = [getattr(point, axis) for point in points]
    heights = [height for line in drawn for _, height in line] or [1.0]
    decades = [10.0**power for power in range(floor(log10(min(heights))), floor(log10(max(heights))) + 2)]
    left, right = sizes[0] / BESIDE, sizes[-1] * BESIDE
    return Axes(
        f"{kind.capitalize()} of a round by {SIZE_NAMES[axis]}",
        _logarithmic(left, right),
        _logarithmic(decades[0], decades[-1]),
        [Tick(left, ""), *(Tick(size, f"{size:,}") for size in sizes)],
        [Tick(decade, f"{decade:g} {UNITS[kind]}") for decade in decades],
        HEIGHT,
    )


def _logarithmic(lowest: float, highest: float) -> Callable[[float], float]:
    return lambda value: log10(max(value, lowest) / lowest) / log10(highest / lowest)


def _line(axes: Axes, places: Sequence[Place], style: int) -> list[Element]:
    """Straight from place to place, each of them marked with what it is."""
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in (axes.at(*place) for place in places))
    dots = [_dot(axes, place, f"dot s{style}", 4) for place in places]
    return [tag("polyline", points=corners, class_=f"line s{style}"), *dots]


def _dot(axes: Axes, place: Place, kind: str, radius: float) -> Element:
    x, y = axes.at(*place)
    return tag("circle", tag("title", f"{place[0]:,.0f}: {place[1]:g}"), cx=x, cy=y, r=radius, class_=kind)


def _legend(style: int, name: str) -> list[Element]:
    x, y = _LEGEND[0], _row(style)
    sample = tag("line", x1=x, x2=x + 24, y1=y - 4, y2=y - 4, class_=f"line s{style}")
    return [sample, _written_at(x + 30, y, name)]


def _row(number: int) -> float:
    return _LEGEND[1] + 16 * number


def _written_at(x: float, y: float, text: str) -> Element:
    return tag("text", text, x=x, y=y)
