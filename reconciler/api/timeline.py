"""What was held over time, of nodes and in queues: placements as a caller may see them, and added up where they are too many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from reconciler.access.rights import Rights
from reconciler.api.payloads import Payload
from reconciler.protocols.placements import (
    NodePlacement,
    PlacedTask,
    Placement,
    PlacementEnd,
    Placements,
    Steps,
    Use,
)
from solver.model.cluster import GpuType, NodeName
from solver.model.document import Document
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.policy.policy import Policy

SPANS_MAX: Final = 2_000
"""In one answer. Where there are more, rows say how much was held in each step."""
STEPS_MAX: Final = 500
_STEPS_AIMED_AT: Final = 120

_MINUTE: Final = 60_000
_NICE: Final = tuple(
    minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 10_080)
)
"""Steps that people count in."""


class TimelineSpan(Document, frozen=True, omit_defaults=False):
    """What an attempt held here from `since` until `until` (null: it still does), and why no longer.

    `gpus`: on this node, or in this queue on `nodes` nodes. `tasks`: those on this node. `redacted`: which job it was is for
    those that may see it; its names are left out.
    """

    job: JobName
    attempt: int
    queue: QueueName
    user: str
    gpu_type: GpuType
    gpus: MilliGpu
    since: Instant
    until: Instant | None
    ended: PlacementEnd
    beneficiary: str
    tasks: tuple[PlacedTask, ...] = ()
    redacted: bool = False


class TimelineRow(Document, frozen=True, omit_defaults=False):
    """One node or queue: its `spans`, or, where the answer has `step`, GPUs held in each step on average (`held`)."""

    name: str
    spans: tuple[TimelineSpan, ...] = ()
    held: tuple[MilliGpu, ...] = ()


class Timeline(Payload, frozen=True, kw_only=True):
    """What was held of nodes or in queues from `start` to `end`. `step`: rows are added up in steps of that length.

    `next`: the cursor of the page after this one; "": there is none.
    """

    by: Literal["node", "queue"]
    start: Instant
    end: Instant
    step: Duration | None = None
    rows: tuple[TimelineRow, ...]
    next: str = ""


class QueueUseRow(Document, frozen=True, omit_defaults=False):
    """GPUs of one type held in a queue and below it: on average in each step, and `gpu_seconds` in all of them, exactly."""

    queue: QueueName
    gpu_type: GpuType
    held: tuple[MilliGpu, ...]
    gpu_seconds: float


class QueueUseOverTime(Payload, frozen=True, kw_only=True):
    """What the queues right below `queue` held from `start` on, in steps of `step`; "": the queues without a parent.

    What the queue holds itself, beside those below it, is a row of its own name. The last step may be short: it ends now.
    """

    queue: QueueName
    start: Instant
    end: Instant
    step: Duration
    rows: tuple[QueueUseRow, ...]


class TimeWindow(NamedTuple):
    """From when to when, as of now."""

    start: Instant
    end: Instant
    now: Instant

    def steps(self, step: Duration | None = None) -> Steps:
        """In steps of a length, or of one that people count in."""
        length = self.end - self.start
        step = step or Duration(next((nice for nice in _NICE if length <= nice * _STEPS_AIMED_AT), -(-length // 120)))
        return Steps(self.start, step, max(1, -(-length // step)))

    def averages(self, steps: Steps, use: Use) -> tuple[MilliGpu, ...]:
        """GPUs in each step, of which the last may not be over."""
        until = min(self.end, self.now)
        found: list[MilliGpu] = []
        for number, held in enumerate(use):
            begun = steps.start.after(steps.step * number)
            lasted = min(begun.after(steps.step), until) - begun
            found.append(MilliGpu((held + lasted // 2) // lasted if lasted > 0 else 0))
        return tuple(found)


def timeline_of_nodes(
    placements: Placements, rights: Rights, nodes: Sequence[NodeName], window: TimeWindow
) -> Timeline:
    """A row for each node, in this order."""
    found = placements.on_nodes(nodes, window.start, window.end, SPANS_MAX + 1)
    if len(found) > SPANS_MAX:
        steps = window.steps()
        used = placements.use_of_nodes(nodes, steps, window.now)
        nothing = (0,) * steps.number
        rows = (TimelineRow(node, held=window.averages(steps, used.get(node, nothing))) for node in nodes)
        return Timeline(by="node", start=window.start, end=window.end, step=steps.step, rows=tuple(rows))
    on = defaultdict[NodeName, list[TimelineSpan]](list)
    for placed in found:
        on[placed.node].append(span_on_node(placed, rights))
    rows = (TimelineRow(node, tuple(on[node])) for node in nodes)
    return Timeline(by="node", start=window.start, end=window.end, rows=tuple(rows))


def timeline_of_queues(
    placements: Placements, rights: Rights, policy: Policy, queue: QueueName | None, window: TimeWindow
) -> Timeline:
    """A row for each queue right below one (None: above all), with what those below it hold."""
    row_of = rows_below(policy, queue)
    names = list(dict.fromkeys(row_of.values()))
    found = placements.in_queues(row_of, window.start, window.end, SPANS_MAX + 1)
    if len(found) > SPANS_MAX:
        steps = window.steps()
        used = added_up(row_of, placements.use_of_queues(steps, window.now), steps)
        totals = {name: [0] * steps.number for name in names}
        for (name, _), use in used.items():
            totals[name] = [before + more for before, more in zip(totals[name], use, strict=True)]
        rows = (TimelineRow(name, held=window.averages(steps, tuple(use))) for name, use in totals.items())
        return Timeline(by="queue", start=window.start, end=window.end, step=steps.step, rows=tuple(rows))
    below = defaultdict[QueueName, list[TimelineSpan]](list)
    for placement in found:
        below[row_of[placement.queue]].append(span_of(placement, rights))
    rows = (TimelineRow(name, tuple(below[name])) for name in names)
    return Timeline(by="queue", start=window.start, end=window.end, rows=tuple(rows))


def use_over_time(
    placements: Placements, policy: Policy, queue: QueueName | None, window: TimeWindow, step: Duration | None = None
) -> QueueUseOverTime:
    """What each queue right below one held, by GPU type, by name."""
    steps, row_of = window.steps(step), rows_below(policy, queue)
    found = placements.use_of_queues(steps, window.now)
    if queue is None:  # Queues that are no more have no parent either.
        row_of |= {gone: gone for gone, _ in found if gone not in row_of}
    used = added_up(row_of, found, steps)
    rows = (
        QueueUseRow(name, gpu_type, window.averages(steps, used[name, gpu_type]), sum(used[name, gpu_type]) / 1_000_000)
        for name, gpu_type in sorted(used)
    )
    end = min(window.end, window.now)
    return QueueUseOverTime(
        queue=queue or QueueName(""), start=window.start, end=end, step=steps.step, rows=tuple(rows)
    )


def rows_below(policy: Policy, queue: QueueName | None) -> dict[QueueName, QueueName]:
    """Of each queue in a subtree the one right below its top that it counts to; the top to itself."""
    parents = {each.name: each.parent for each in policy.queues}
    found = {name: row for name in parents if (row := _row_of(parents, name, queue)) is not None}
    return found if queue is None else {**found, queue: queue}


def _row_of(parents: Mapping[QueueName, QueueName | None], name: QueueName, top: QueueName | None) -> QueueName | None:
    above = parents[name]
    while above != top:
        if above is None:
            return None
        name, above = above, parents.get(above)
    return name


def added_up(
    row_of: Mapping[QueueName, QueueName], used: Mapping[tuple[QueueName, GpuType], Use], steps: Steps
) -> dict[tuple[QueueName, GpuType], Use]:
    """Use of queues, by the rows that they count to; others are left out."""
    found: dict[tuple[QueueName, GpuType], Use] = {}
    nothing = (0,) * steps.number
    for (queue, gpu_type), use in used.items():
        row = row_of.get(queue)
        if row is not None:
            before = found.get((row, gpu_type), nothing)
            found[row, gpu_type] = tuple(map(int.__add__, before, use))
    return found


def span_of(placement: Placement, rights: Rights) -> TimelineSpan:
    """As the caller may see it."""
    may = rights.may("see-job", placement.queue, placement.user)
    return TimelineSpan(
        placement.job if may else JobName(""),
        placement.attempt if may else 0,
        placement.queue,
        placement.user if may else "",
        placement.gpu_type,
        placement.gpus,
        placement.since,
        placement.until,
        placement.ended if may else "",
        placement.beneficiary if may else "",
        redacted=not may,
    )


def span_on_node(placed: NodePlacement, rights: Rights) -> TimelineSpan:
    """What of it lies on the node."""
    whole = span_of(placed.placement, rights)
    tasks = tuple(_bare(placed.tasks)) if whole.redacted else placed.tasks
    values = {name: getattr(whole, name) for name in TimelineSpan.__struct_fields__}
    return TimelineSpan(**{**values, "gpus": placed.gpus, "tasks": tasks})


def _bare(tasks: Iterable[PlacedTask]) -> Iterator[PlacedTask]:
    """Which devices, not for what."""
    return (PlacedTask("", 0, task.devices, task.gpus, task.instance_of) for task in tasks)
