"""Plots as SVG without a script. Colours come from the page's style sheet; dashes and hatchings differ too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

from reconciler.analysis.backtest.markup import tag

STYLES: Final = 8
"""Lines, areas and bars that can be told apart in one plot."""

_WIDTH, _LEFT, _TOP, _RIGHT, _BOTTOM = 720.0, 64.0, 12.0, 16.0, 40.0


class Tick(NamedTuple):
    """A place on an axis and what is written there."""

    at: float
    label: str


class Bar(NamedTuple):
    """How long a bar is, and what is written at its end; None: there is none."""

    value: float | None
    label: str


@dataclass(frozen=True)
class Axes:
    """A frame with a scale on each side. `x` and `y` give a place between 0 and 1.

    `title` says what is plotted to readers who can't see it.
    """

    title: str
    x: Callable[[float], float]
    y: Callable[[float], float]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    height: float = 240.0

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point lies in the picture; what lies outside the frame is moved to its edge."""
        across, up = (min(1.0, max(0.0, value)) for value in (self.x(x), self.y(y)))
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), self.height - _BOTTOM - up * (self.height - _TOP - _BOTTOM)

    def frame(self, *content: Element) -> Element:
        """The picture with its scales behind what is plotted."""
        left, bottom = self.at(self.x_ticks[0].at, self.y_ticks[0].at)
        right = _WIDTH - _RIGHT
        lines = [
            tag("line", x1=left, x2=right, y1=self.at(0, tick.at)[1], y2=self.at(0, tick.at)[1], class_="grid")
            for tick in self.y_ticks
        ]
        left_of = [
            tag("text", tick.label, x=left - 6, y=self.at(0, tick.at)[1] + 4, text_anchor="end")
            for tick in self.y_ticks
        ]
        below = [
            tag("text", tick.label, x=self.at(tick.at, 0)[0], y=bottom + 18, text_anchor="middle")
            for tick in self.x_ticks
        ]
        return _picture(self.title, self.height, *lines, *left_of, *below, *content)


def line(axes: Axes, points: Sequence[tuple[float, float]], style: int, name: str) -> Element:
    """A line that goes up in steps."""
    placed = [axes.at(x, y) for x, y in points]
    steps = [f"{x:.1f},{y:.1f}" for x, y in placed[:1]]
    for (_, before), (x, y) in pairwise(placed):
        steps += [f"{x:.1f},{before:.1f}", f"{x:.1f},{y:.1f}"]
    return tag("polyline", tag("title", name), points=" ".join(steps), class_=f"line s{style % STYLES}")


def area(axes: Axes, lower: Sequence[float], upper: Sequence[float], style: int, name: str) -> Element:
    """What lies between two heights in each step of time."""
    there = [f"{x:.1f},{y:.1f}" for step, height in enumerate(upper) for x, y in _ends(axes, step, height)]
    back = [f"{x:.1f},{y:.1f}" for step, height in enumerate(lower) for x, y in _ends(axes, step, height)]
    points = " ".join([*there, *reversed(back)])
    return tag("polygon", tag("title", name), points=points, class_=f"area f{style % STYLES}")


def columns(axes: Axes, heights: Sequence[float], style: int, name: str) -> list[Element]:
    """A column for each step of time in which there is something."""
    found = []
    for step, height in enumerate(heights):
        if height:
            (left, top), (right, _) = _ends(axes, step, height)
            bottom = axes.at(step, 0)[1]
            title = tag("title", f"{name}: {height:g}")
            shape = {"x": left, "y": top, "width": max(1.0, right - left - 1), "height": bottom - top}
            found.append(tag("rect", title, class_=f"area f{style % STYLES}", **shape))
    return found


def level(axes: Axes, height: float) -> Element:
    """A line across the frame."""
    (left, y), right = axes.at(axes.x_ticks[0].at, height), _WIDTH - _RIGHT
    return tag("line", x1=left, x2=right, y1=y, y2=y, class_="level")


def bars(title: str, groups: Sequence[tuple[str, Sequence[Bar]]], most: float, mark: float) -> Element:
    """Groups of bars from left to right, one bar in each group for every style, with a line at `mark`."""
    thick, gap, left = 16.0, 10.0, 190.0
    content, top = [], _TOP
    scale = (_WIDTH - left - 90) / most
    for name, group in groups:
        middle = top + len(group) * thick / 2 + 4
        content.append(tag("text", name, x=left - 8, y=middle, text_anchor="end"))
        for style, bar in enumerate(group):
            width, y = (bar.value or 0) * scale, top + style * thick
            shape = {"x": left, "y": y + 1, "width": width, "height": thick - 2}
            content.append(tag("rect", tag("title", f"{name}: {bar.label}"), class_=f"area f{style % STYLES}", **shape))
            content.append(tag("text", bar.label, x=left + width + 6, y=y + thick - 4))
        top += len(group) * thick + gap
    at = left + mark * scale
    content.append(tag("line", x1=at, x2=at, y1=_TOP - 4, y2=top - gap + 4, class_="level"))
    return _picture(title, top + _TOP, *content)


def legend(names: Sequence[str], kind: str) -> Element:
    """Which style stands for what; `kind` is line or area."""
    return tag(
        "ul", *(tag("li", _sample(style, kind), f" {name}") for style, name in enumerate(names)), class_="legend"
    )


def patterns() -> Element:
    """The hatchings that areas are filled with, once for the page."""
    made = []
    for style in range(STYLES):
        ground = tag("rect", width=8, height=8, class_=f"ground s{style}")
        strokes = [tag("path", d=path, class_="hatch") for path in _HATCHES[style]]
        shape: dict[str, str | float] = {"width": 8, "height": 8, "patternUnits": "userSpaceOnUse"}
        made.append(tag("pattern", ground, *strokes, id=f"hatch-{style}", **shape))
    return tag("svg", tag("defs", *made), width=0, height=0, class_="unseen", aria_hidden="true")


_HATCHES: Final = (
    (),
    ("M0,8 L8,0",),
    ("M0,0 L8,8",),
    ("M0,4 L8,4",),
    ("M4,0 L4,8",),
    ("M0,8 L8,0", "M0,0 L8,8"),
    ("M3,4 L5,4",),
    ("M0,4 L8,4", "M4,0 L4,8"),
)


def _sample(style: int, kind: str) -> Element:
    if kind == "line":
        drawn = tag("polyline", points="0,8 36,8", class_=f"line s{style % STYLES}")
    else:
        drawn = tag("rect", width=36, height=16, class_=f"area f{style % STYLES}")
    return tag("svg", drawn, viewBox="0 0 36 16", width=36, height=16, aria_hidden="true")


def _ends(axes: Axes, step: int, height: float) -> tuple[tuple[float, float], tuple[float, float]]:
    return axes.at(step, height), axes.at(step + 1, height)


def _picture(title: str, height: float, *content: Element) -> Element:
    named = tag("title", title)
    return tag("svg", named, *content, viewBox=f"0 0 {_WIDTH:g} {height:g}", role="img", aria_label=title)
