"""A capacity report as sentences and tables for people, the same in text and in HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from reconciler.analysis.backtest.figures import Figure
from reconciler.analysis.backtest.rows import row, written
from reconciler.analysis.capacity.bottlenecks import ADDED_BY_NODES
from reconciler.analysis.capacity.report import AdditionSearch, CapacityCase, CapacityReport, TriedAddition
from solver.plan.reason import count

SHOWN_MAX: Final = 20
"""Rows of a table of what was waited for; what is left is one more row. JSON has all."""


class CapacityTable(NamedTuple):
    """Rows under headings; columns named in `right` hold numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[str, ...]


def headline(report: CapacityReport) -> str:
    """What is looked at."""
    case = report.cases[0]
    there = f"{count(case.nodes, 'node')}, {count(case.gpus, 'GPU')}"
    return f"{report.start} to {report.end}, {count(case.jobs, 'job')} of {report.source}; {there}"


def findings(case: CapacityCase) -> Iterator[str]:
    """What is short most, in sentences."""
    waited = [line for line in case.bottlenecks if line.bottleneck.kind not in ("round", "refused")]
    total = sum(line.gpu_hours for line in waited)
    if not waited:
        yield "No job waited longer than for the next round."
        return
    first = waited[0]
    if total:
        share = f"{_hours(first.gpu_hours)} of the {_hours(total)} GPU-hours waited"
    else:
        share = (
            f"{_hours(first.job_hours)} of the {_hours(sum(line.job_hours for line in waited))} hours that jobs waited"
        )
    yield f"Most was waited for: {first.bottleneck} ({share})."
    if first.example:
        yield f"Longest for it: {first.example}."
    if first.bottleneck.kind not in ADDED_BY_NODES:
        yield "More nodes need not change that: it is the policy that says so."


def tables(case: CapacityCase) -> Iterator[CapacityTable]:
    """What one case has to say."""
    demand = tuple(
        (
            _class(line.priority_class),
            line.gpu_types,
            f"{line.jobs:,}",
            _hours(line.gpu_hours),
            f"{line.peak_gpus:g}",
            _span(line.waits.p50),
            _span(line.waits.p90),
        )
        for line in case.demand
    )
    headings: tuple[str, ...] = ("CLASS", "GPU TYPES", "JOBS", "GPU-HOURS", "PEAK GPUS", "WAIT P50", "WAIT P90")
    yield CapacityTable("Demand", headings, demand, headings[2:])
    headings = ("GPU TYPE", "GPUS", "HELD GPU-HOURS", "HELD", "ALL HELD FOR")
    types = tuple(
        (line.gpu_type, f"{line.gpus:,}", _hours(line.held_gpu_hours), _part(line.held_part), _part(line.full_part))
        for line in case.types
    )
    yield CapacityTable("GPU types", headings, types, headings[1:])
    yield _waits(case)
    headings = ("CLASS", "PEAK", "JOBS", "GPUS", "WAITED FOR", "NOT BEFORE")
    peaks = tuple(
        (
            _class(line.priority_class),
            _minute(str(line.at)),
            f"{line.jobs:,}",
            f"{line.gpus:g}",
            str(line.bottleneck),
            _minute(str(line.until)) if line.until is not None else "unknown",
        )
        for line in case.peaks
    )
    yield CapacityTable("At the peak of each class", headings, peaks, ("JOBS", "GPUS"))


def _waits(case: CapacityCase) -> CapacityTable:
    shown = case.waiting if len(case.waiting) <= SHOWN_MAX else case.waiting[: SHOWN_MAX - 1]
    rows = [
        (
            str(line.bottleneck),
            _class(line.priority_class),
            f"{line.jobs:,}",
            _hours(line.gpu_hours),
            _hours(line.job_hours),
        )
        for line in shown
    ]
    rest = case.waiting[len(shown) :]
    if rest:
        gpu_hours, job_hours = sum(line.gpu_hours for line in rest), sum(line.job_hours for line in rest)
        rows.append((f"({count(len(rest), 'more row')})", "", "", _hours(gpu_hours), _hours(job_hours)))
    headings = ("WAITED FOR", "CLASS", "JOBS", "GPU-HOURS", "JOB-HOURS")
    return CapacityTable("What was waited for", headings, tuple(rows), headings[2:])


def comparison(cases: Sequence[CapacityCase]) -> CapacityTable:
    """The cases side by side, each with its difference from the first."""
    names = tuple(case.name for case in cases)
    found = [
        row("nodes", "count", [case.nodes for case in cases]),
        row("GPUs", "count", [case.gpus for case in cases]),
        row("jobs started", "count", [case.started for case in cases]),
        row("could never run", "count", [case.never for case in cases]),
        row("wait, p50", "span", [case.waits.p50 for case in cases]),
        row("wait, p90", "span", [case.waits.p90 for case in cases]),
        row("GPU-hours waited", "hours", [sum(line.gpu_hours for line in case.bottlenecks) for case in cases]),
    ]
    found += [
        row(f"{gpu_type} held", "part", [_held(case, gpu_type) for case in cases])
        for gpu_type in sorted({line.gpu_type for case in cases for line in case.types})
    ]
    rows = tuple((one.label, *map(str, one.cells)) for one in found)
    return CapacityTable("What if", ("", *names), rows, names)


def _held(case: CapacityCase, gpu_type: str) -> float | None:
    return next((line.held_part for line in case.types if line.gpu_type == gpu_type), None)


def verdict(search: AdditionSearch) -> str:
    """What came of the search, in a sentence."""
    if search.note:
        return f"Target {search.told}: {search.note}."
    waits = {one.nodes: one for one in search.tried}
    if search.nodes == 0:
        return f"Target {search.told}: met as it is ({_tried(waits[0])})."
    if search.nodes is None:
        most = max(waits)
        return f"Target {search.told}: not met with {most} more {search.of} ({_tried(waits[most])})."
    less = search.nodes - 1
    found = f"met with {search.nodes} more {search.of} ({_tried(waits[search.nodes])})"
    return f"Target {search.told}: {found}, and not with {less} ({_tried(waits[less])})."


def attempts(search: AdditionSearch) -> CapacityTable:
    """Each number of nodes that was tried."""
    what = search.target.statistic.upper()
    rows = tuple((f"+{one.nodes}", _tried(one), _fate(one, search)) for one in search.tried)
    return CapacityTable("Nodes tried", ("NODES", f"{what} WAIT", "TARGET"), rows, ("NODES", f"{what} WAIT"))


def _fate(one: TriedAddition, search: AdditionSearch) -> str:
    """A lower bound that is below the limit proves nothing."""
    return "met" if one.met else "missed" if one.wait >= search.target.below.seconds else "unknown"


def _tried(one: TriedAddition) -> str:
    return "≥" * one.at_least + written("span", one.wait)


def _class(name: str) -> str:
    return name or "(none)"


def _hours(hours: float) -> str:
    return written("hours", hours)


def _part(part: float) -> str:
    return written("part", part)


def _span(found: Figure) -> str:
    return "≥" * found.at_least + written("span", found.value)


def _minute(at: str) -> str:
    """Like `11-20 08:00`."""
    return at[5:16].replace("T", " ")
