"""A back-test as one HTML file with plots: no script, nothing fetched, legible in light, in dark and on paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, log10
from xml.etree.ElementTree import Element

from reconciler.analysis.backtest.figures import PolicyFigures, QueueFigures, QueueSeries, Simulation
from reconciler.analysis.backtest.markup import table, tag
from reconciler.analysis.backtest.plots import (
    STYLES,
    Axes,
    Bar,
    Tick,
    area,
    bars,
    columns,
    legend,
    level,
    line,
)
from reconciler.analysis.backtest.rows import FigureSection, sections
from reconciler.analysis.backtest.sheet import sheet
from reconciler.model.spans import span
from solver.model.quantities import Instant
from solver.model.workload import QueueName
from solver.plan.reason import count

QUEUES_MAX = 20
"""Queues in the plot of fairness, those with the most GPU-hours; the tables have all."""

_SPANS_S = (
    (1, "≤ 1s"),
    (10, "10s"),
    (60, "1m"),
    (600, "10m"),
    (3_600, "1h"),
    (21_600, "6h"),
    (86_400, "1d"),
    (604_800, "7d"),
)


def page(simulation: Simulation) -> str:
    """The whole file. Pure: the same back-test is the same bytes."""
    listed = list(sections(simulation))
    return sheet(f"Back-test: {simulation.source}", *_introduction(simulation), *_body(simulation, listed))


def _introduction(simulation: Simulation) -> Iterator[Element]:
    policies = simulation.policies
    jobs = count(policies[0].jobs, "job")
    yield tag("p", f"{jobs}, {simulation.start} to {simulation.end}, a round at most every {simulation.cadence}.")
    if len(policies) > 1:
        yield tag("p", f"Differences, in brackets, are from {policies[0].name}. ≥ marks what is a lower bound.")
    notes = [*simulation.notes, *(f"{policy.name}: {note}" for policy in policies for note in policy.notes)]
    if notes:
        yield tag("ul", *(tag("li", note) for note in notes))
    rows = [[policy.name, _origin(policy), policy.digest, str(policy.gpus)] for policy in policies]
    yield table("Policies", ["policy", "commit", "digest", "GPUs"], rows)


def _origin(policy: PolicyFigures) -> str:
    return policy.commit[:12] or ("from files" if policy.digest else "the record")


def _body(simulation: Simulation, listed: Sequence[FigureSection]) -> Iterator[Element]:
    policies = simulation.policies
    names = [policy.name for policy in policies]
    yield tag("h2", "All jobs")
    yield _table(listed[0], names)
    yield tag("h2", "How long jobs waited")
    for name in sorted({known.priority_class for policy in policies for known in policy.classes}):
        yield tag("h3", f"Class {name}" if name else "No class")
        yield _waits(name, policies)
        yield from (
            _table(section, names) for section in listed if section.title == (f"Class {name}" if name else "No class")
        )
    yield tag("h2", "GPUs in use")
    for policy in policies:
        yield _use(policy, simulation.start)
    yield _use_table(policies)
    yield tag("h2", "Evictions")
    if any(policy.losses for policy in policies):
        for policy in policies:
            yield _evictions(policy, simulation)
        yield from (_table(section, names) for section in listed if section.title.startswith("Work lost"))
    else:
        yield tag("p", "No job was evicted.")
    yield tag("h2", "Fairness")
    yield from _fairness(policies)
    yield tag("h2", "Queues")
    yield from (_table(section, names) for section in listed if section.title.startswith("Queue "))


def _table(section: FigureSection, names: Sequence[str]) -> Element:
    return table(section.title, ["", *names], ([row.label, *map(str, row.cells)] for row in section.rows))


def _figure(picture: Element, said: str, *more: Element) -> Element:
    return tag("figure", tag("figcaption", said), *more, picture)


def _waits(name: str, policies: Sequence[PolicyFigures]) -> Element:
    """How many had started within which time; the axis of time is logarithmic."""
    found = [next((known for known in policy.classes if known.priority_class == name), None) for policy in policies]
    most = max((known.started_within[-1] for known in found if known and known.started_within), default=1.0)
    ticks = [Tick(seconds, label) for seconds, label in _SPANS_S if seconds <= max(most, 10)]
    longest = log10(max(most, 10))
    axes = Axes(
        f"Share of the jobs that had started within a time, by policy: {name or 'no class'}",
        lambda seconds: log10(max(seconds, 1)) / longest,
        lambda percent: percent / 100,
        ticks,
        [Tick(percent, f"{percent} %") for percent in (0, 25, 50, 75, 100)],
    )
    lines = [
        line(
            axes,
            [(0, 0), *((seconds, percent) for percent, seconds in enumerate(known.started_within, 1))],
            style,
            policy.name,
        )
        for style, (policy, known) in enumerate(zip(policies, found, strict=True))
        if known
    ]
    said = "Jobs that had started within a time (logarithmic). A line that ends below 100 %: the rest had not started by the end."
    return _figure(axes.frame(*lines), said, legend([policy.name for policy in policies], "line"))


def _use(policy: PolicyFigures, start: Instant) -> Element:
    shown = _stacked(policy.over_time.queues)
    steps = len(policy.over_time.evictions)
    axes = _timed(f"GPUs in use over time, by queue: {policy.name}", policy, start, float(policy.gpus))
    lower = [0.0] * steps
    areas = []
    for style, series in enumerate(shown):
        upper = [below + gpus for below, gpus in zip(lower, series.gpus, strict=True)]
        areas.append(area(axes, lower, upper, style, series.queue))
        lower = upper
    said = f"{policy.name}: GPUs in use, of {policy.gpus} (dotted), each step {span(policy.over_time.step)}."
    return _figure(axes.frame(*areas, level(axes, policy.gpus)), said, legend([one.queue for one in shown], "area"))


def _stacked(queues: Sequence[QueueSeries]) -> list[QueueSeries]:
    """As many as can be told apart, those that use most; the others together."""
    if len(queues) <= STYLES:
        return list(queues)
    ordered = sorted(queues, key=lambda series: (-sum(series.gpus), series.queue))
    rest_of = [series.gpus for series in ordered[STYLES - 1 :]]
    others = QueueSeries(QueueName(f"{len(rest_of)} others"), tuple(sum(gpus) for gpus in zip(*rest_of, strict=True)))
    return [*ordered[: STYLES - 1], others]


def _timed(title: str, policy: PolicyFigures, start: Instant, most: float) -> Axes:
    steps = len(policy.over_time.evictions)
    every = max(1, ceil(steps / 6))
    times = [Tick(step, _short(start.after(step * policy.over_time.step))) for step in range(0, steps, every)]
    heights = [Tick(most * part / 4, f"{most * part / 4:g}") for part in range(5)]
    return Axes(title, lambda step: step / steps, lambda height: height / most, times, heights)


def _short(at: Instant) -> str:
    """Like `10-09 06:00`."""
    return str(at)[5:16].replace("T", " ")


def _use_table(policies: Sequence[PolicyFigures]) -> Element:
    rows = [
        [series.queue, policy.name, f"{sum(series.gpus) / len(series.gpus):.1f}", f"{max(series.gpus):.1f}"]
        for policy in policies
        for series in policy.over_time.queues
    ]
    return table("GPUs in use by queue", ["queue", "policy", "mean", "highest step"], rows)


def _evictions(policy: PolicyFigures, simulation: Simulation) -> Element:
    most = max(max(other.over_time.evictions) for other in simulation.policies)
    axes = _timed(f"Evictions over time: {policy.name}", policy, simulation.start, float(-(-max(most, 4) // 4) * 4))
    said = f"{policy.name}: gangs evicted in each {span(policy.over_time.step)}."
    return _figure(axes.frame(*columns(axes, policy.over_time.evictions, 0, policy.name)), said)


def _fairness(policies: Sequence[PolicyFigures]) -> Iterator[Element]:
    names = [policy.name for policy in policies]
    by_queue = [{one.queue: one for one in policy.queues} for policy in policies]
    queues = sorted(by_queue[0], key=lambda queue: (-by_queue[0][queue].gpu_hours, queue))[:QUEUES_MAX]
    slowdowns = [(queue, [_slowdown(of[queue]) for of in by_queue]) for queue in queues]
    most = max([1.5, *(bar.value for _, group in slowdowns for bar in group if bar.value is not None)])
    said = (
        "Finish-time fairness by queue, p90 of its jobs: time from submission to end, by that on a private cluster of the queue's "
        "guaranteed GPUs. Beyond the dotted line at 1 a job would have been better off alone."
    )
    title = "Finish-time fairness by queue and policy; the tables of the queues have the numbers"
    yield _figure(bars(title, slowdowns, most, 1.0), said, legend(names, "area"))
    served = [(queue, [_served(of[queue]) for of in by_queue]) for queue in queues]
    said = "What each queue got of what it was owed: what it wanted, up to its guarantee. Jain's index of it: "
    said += ", ".join(f"{name} {'-' if jain is None else f'{jain:.3f}'}" for name, jain in _jains(policies)) + "."
    yield _figure(bars("What queues got of what they were owed", served, 1.0, 1.0), said, legend(names, "area"))


def _jains(policies: Sequence[PolicyFigures]) -> list[tuple[str, float | None]]:
    return [(policy.name, policy.fairness.jain) for policy in policies]


def _slowdown(queue: QueueFigures) -> Bar:
    found = queue.slowdown
    return Bar(found.p90.value, f"{'≥' * found.p90.at_least}{found.p90.value:.2f}") if found else Bar(None, "none")


def _served(queue: QueueFigures) -> Bar:
    return Bar(queue.served, "nothing owed" if queue.served is None else f"{queue.served:.1%}")
