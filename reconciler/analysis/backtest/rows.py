"""The figures as rows for people: what is measured, a cell for each policy, and in it the difference from the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

from reconciler.analysis.backtest.figures import Distribution, Figure, PolicyFigures, RoundFigures, Simulation
from reconciler.model.spans import span

Name = TypeVar("Name", str, tuple[str, str])
Thing = TypeVar("Thing")

Unit = Literal["count", "hours", "part", "ratio", "span"]


class TableCell(NamedTuple):
    """A value as text, and by how much it is above (+) or below (-) that of the first policy; "": the same, or none to compare."""

    value: str
    difference: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.difference})" if self.difference else self.value


class Row(NamedTuple):
    """One figure, under every policy."""

    label: str
    cells: tuple[TableCell, ...]


class FigureSection(NamedTuple):
    """Rows that belong together: about all jobs, a queue, a class, or a way of losing work."""

    title: str
    rows: tuple[Row, ...]


Found = float | Figure | None


def sections(simulation: Simulation) -> Iterator[FigureSection]:
    """Everything there is to say in numbers."""
    policies = simulation.policies
    yield FigureSection("All jobs", tuple(_of_all(policies)))
    for queue in _named(policies, lambda policy: (one.queue for one in policy.queues)):
        of = [next((one for one in policy.queues if one.queue == queue), None) for policy in policies]
        yield FigureSection(
            f"Queue {queue}",
            (
                *_spread_rows("wait", "span", [one.waits if one else None for one in of]),
                _row_of("GPU-hours", "hours", of, lambda one: one.gpu_hours),
                _row_of("guaranteed GPUs", "count", of, lambda one: one.guaranteed),
                _row_of("got of what it was owed", "part", of, lambda one: one.served),
                _row_of(
                    "finish-time fairness, p90", "ratio", of, lambda one: one.slowdown.p90 if one.slowdown else None
                ),
                _row_of("evictions", "count", of, lambda one: one.evictions),
                _row_of("GPU-hours lost", "hours", of, lambda one: one.lost_gpu_hours),
            ),
        )
    for name in _named(policies, lambda policy: (one.priority_class for one in policy.classes)):
        waits = [next((one.waits for one in policy.classes if one.priority_class == name), None) for policy in policies]
        yield FigureSection(f"Class {name}" if name else "No class", tuple(_spread_rows("wait", "span", waits)))
    losses = tuple(_losses(policies))
    if losses:
        yield FigureSection("Work lost, by queue and means", losses)


def row(label: str, unit: Unit, values: Sequence[Found]) -> Row:
    """One figure with its differences; a dash where there is none."""
    return Row(label, tuple(_cell(unit, value, values[0], first=not place) for place, value in enumerate(values)))


def _row_of(label: str, unit: Unit, things: Sequence[Thing | None], of: Callable[[Thing], Found]) -> Row:
    """The same of things that some policies do not have."""
    return row(label, unit, [None if thing is None else of(thing) for thing in things])


def _of_all(policies: Sequence[PolicyFigures]) -> Iterator[Row]:
    yield row("jobs", "count", [one.jobs for one in policies])
    yield row("started", "count", [one.started for one in policies])
    yield row("ended", "count", [one.ended for one in policies])
    yield row("could never run", "count", [one.never for one in policies])
    yield from _spread_rows("wait", "span", [one.waits for one in policies])
    yield row("GPUs", "count", [one.gpus for one in policies])
    yield row("of them in use on average", "part", [one.utilisation for one in policies])
    yield row("evictions", "count", [one.evictions for one in policies])
    yield row("GPU-hours lost", "hours", [one.lost_gpu_hours for one in policies])
    yield row("Jain's index of what queues were owed", "ratio", [one.fairness.jain for one in policies])
    yield from _spread_rows("finish-time fairness", "ratio", [one.fairness.slowdown for one in policies])
    if any(one.eta for one in policies):
        yield from _of_forecasts(policies)
    yield from _of_rounds([one.rounds for one in policies])


def _of_rounds(rounds: Sequence[RoundFigures | None]) -> Iterator[Row]:
    yield _row_of("rounds", "count", rounds, lambda one: one.held)
    yield _row_of("rounds proven or within the gap", "count", rounds, lambda one: one.within_gap)
    for stage in sorted({stage for one in rounds if one for stage in one.by_stage}):
        label = "rounds with nothing to decide" if stage == "none" else f"rounds decided by {stage}"
        yield row(label, "count", [one.by_stage.get(stage, 0) if one else None for one in rounds])


def _of_forecasts(policies: Sequence[PolicyFigures]) -> Iterator[Row]:
    etas = [one.eta for one in policies]
    yield _row_of("forecasts judged", "count", etas, lambda one: one.judged)
    yield _row_of("jobs that waited and were told none", "count", etas, lambda one: one.untold)
    yield _row_of("started later than forecast, p50", "span", etas, lambda one: one.error_p50)
    yield _row_of("error of a forecast, p90", "span", etas, lambda one: one.error_abs_p90)
    yield _row_of("started by the time forecast", "part", etas, lambda one: one.started_by)


def _spread_rows(what: str, unit: Unit, spreads: Sequence[Distribution | None]) -> Iterator[Row]:
    yield _row_of(f"{what}, mean", unit, spreads, lambda one: one.mean)
    yield _row_of(f"{what}, p50", unit, spreads, lambda one: one.p50)
    yield _row_of(f"{what}, p90", unit, spreads, lambda one: one.p90)
    yield _row_of(f"{what}, p99", unit, spreads, lambda one: one.p99)
    yield _row_of(f"{what}, max", unit, spreads, lambda one: one.max)


def _losses(policies: Sequence[PolicyFigures]) -> Iterator[Row]:
    for queue, means in _named(policies, lambda policy: ((loss.queue, loss.means) for loss in policy.losses)):
        of = [
            next((loss for loss in policy.losses if (loss.queue, loss.means) == (queue, means)), None)
            for policy in policies
        ]
        yield row(f"{queue}, {means}: evictions", "count", [one.evictions if one else 0 for one in of])
        yield row(f"{queue}, {means}: shrunk", "count", [one.shrinks if one else 0 for one in of])
        yield row(f"{queue}, {means}: GPU-hours", "hours", [one.lost_gpu_hours if one else 0 for one in of])


def _named(policies: Iterable[PolicyFigures], of: Callable[[PolicyFigures], Iterable[Name]]) -> list[Name]:
    return sorted({name for policy in policies for name in of(policy)})


def _cell(unit: Unit, found: Found, reference: Found, *, first: bool) -> TableCell:
    if found is None:
        return TableCell("-")
    known = found if isinstance(found, Figure) else Figure(found)
    text = "≥" * known.at_least + written(unit, known.value)
    if first or reference is None:
        return TableCell(text)
    return TableCell(text, _difference(unit, known, reference if isinstance(reference, Figure) else Figure(reference)))


def _difference(unit: Unit, known: Figure, reference: Figure) -> str:
    """Of two lower bounds nothing is known; of one it is a bound itself."""
    change = known.value - reference.value
    size = written(unit, abs(change))
    if (known.at_least and reference.at_least) or size == written(unit, 0):
        return ""
    mark = "≥" if known.at_least else "≤" if reference.at_least else ""
    return f"{mark}{'+' if change > 0 else '-'}{size}"


def written(unit: Unit, value: float) -> str:
    """A value as people read it; spans are of seconds."""
    match unit:
        case "count":
            return f"{value:,.10g}"
        case "hours":
            return f"{value:,.1f}"
        case "part":
            return f"{value:.1%}"
        case "ratio":
            return f"{value:.3f}"
        case "span":
            return f"-{_span_of(-value)}" if value < 0 else _span_of(value)


def _span_of(seconds: float) -> str:
    return span(1000 * round(seconds))
