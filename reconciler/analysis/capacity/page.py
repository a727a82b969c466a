"""A capacity report as one HTML file with plots: no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from xml.etree.ElementTree import Element

from reconciler.analysis.backtest.markup import table, tag
from reconciler.analysis.backtest.plots import STYLES, Axes, Bar, Tick, area, bars, legend, level
from reconciler.analysis.backtest.rows import written
from reconciler.analysis.backtest.sheet import sheet
from reconciler.analysis.capacity.report import AdditionSearch, CapacityCase, CapacityReport, DemandSeries
from reconciler.analysis.capacity.rows import (
    SHOWN_MAX,
    CapacityTable,
    attempts,
    comparison,
    findings,
    headline,
    tables,
    verdict,
)
from reconciler.model.spans import span
from solver.model.quantities import Instant


def capacity_page(report: CapacityReport) -> str:
    """The whole file. Pure: the same report is the same bytes."""
    return sheet(f"Capacity: {report.source}", *_content(report))


def _content(report: CapacityReport) -> Iterator[Element]:
    yield tag("p", f"{headline(report)}. A round at most every {report.cadence}.")
    notes = [*report.notes, *(f"{case.name}: {note}" for case in report.cases for note in case.notes)]
    if notes:
        yield tag("ul", *(tag("li", note) for note in notes))
    if report.search:
        yield tag("h2", "Target")
        yield from _search(report.search)
    if len(report.cases) > 1:
        yield tag("h2", "What if")
        yield _table(comparison(report.cases))
    for case in report.cases:
        yield tag("h2", case.name)
        yield from (tag("p", said) for said in findings(case))
        yield _demand(case, report.start)
        yield from _bottlenecks(case)
        yield from map(_table, tables(case))


def _table(found: CapacityTable) -> Element:
    return table(found.title, [heading.capitalize() for heading in found.headings], found.rows)


def _search(search: AdditionSearch) -> Iterator[Element]:
    yield tag("p", verdict(search))
    if search.tried:
        limit = search.target.below.seconds
        groups = [
            (f"+{one.nodes}", [Bar(one.wait, "≥" * one.at_least + written("span", one.wait))]) for one in search.tried
        ]
        most = max(limit, *(one.wait for one in search.tried)) * 1.05
        title = f"{search.target.statistic} wait by nodes added; the dotted line is the target"
        yield _figure(bars(title, groups, most, limit), f"{title}.")
        yield _table(attempts(search))


def _figure(picture: Element, said: str, *more: Element) -> Element:
    return tag("figure", tag("figcaption", said), *more, picture)


def _demand(case: CapacityCase, start: Instant) -> Element:
    """GPUs held and waited for over time, by class, against what there is."""
    shown = _stacked(case.over_time)
    steps = len(case.over_time[0].gpus)
    most = max(case.gpus, *(sum(heights) for heights in zip(*(one.gpus for one in shown), strict=True))) * 1.02
    every = max(1, ceil(steps / 6))
    times = [Tick(step, str(start.after(step * case.step))[5:16].replace("T", " ")) for step in range(0, steps, every)]
    heights = [Tick(most * part / 4, f"{most * part / 4:.0f}") for part in range(5)]
    title = f"GPUs that jobs held or waited for, by class: {case.name}"
    axes = Axes(title, lambda step: step / steps, lambda height: height / most, times, heights)
    lower = [0.0] * steps
    areas = []
    for style, one in enumerate(shown):
        upper = [below + gpus for below, gpus in zip(lower, one.gpus, strict=True)]
        areas.append(area(axes, lower, upper, style, one.priority_class or "(no class)"))
        lower = upper
    said = (
        f"GPUs that jobs held or waited for, by class; dotted: the {case.gpus} there are. Each step {span(case.step)}."
    )
    names = [one.priority_class or "(no class)" for one in shown]
    return _figure(axes.frame(*areas, level(axes, case.gpus)), said, legend(names, "area"))


def _stacked(series: Sequence[DemandSeries]) -> list[DemandSeries]:
    """As many as can be told apart, those with most demand; the others together."""
    if len(series) <= STYLES:
        return list(series)
    ordered = sorted(series, key=lambda one: (-sum(one.gpus), one.priority_class))
    rest = [one.gpus for one in ordered[STYLES - 1 :]]
    others = DemandSeries(f"{len(rest)} others", tuple(map(sum, zip(*rest, strict=True))))
    return [*ordered[: STYLES - 1], others]


def _bottlenecks(case: CapacityCase) -> Iterator[Element]:
    found = [line for line in case.bottlenecks if line.gpu_hours][:SHOWN_MAX]
    if found:
        groups = [(str(line.bottleneck), [Bar(line.gpu_hours, written("hours", line.gpu_hours))]) for line in found]
        title = f"GPU-hours waited, by what was waited for: {case.name}"
        said = "GPU-hours waited, by what was waited for."
        yield _figure(bars(title, groups, max(line.gpu_hours for line in found), 0.0), said)
