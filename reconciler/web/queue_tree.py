"""The queue tree as rows of a table, depth first, with all GPU types of a queue added up and beside it each type.

And as rows of CPU and memory, if any queue has a quota of either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.api.payloads import QueueView
from reconciler.model.queue_line import HostQueueLine, QueueLine, amount_number
from reconciler.web.origins import document_link
from solver.model.cluster import GpuType
from solver.model.workload import QueueName
from solver.policy.host_share import Resource
from solver.policy.policy import Policy, Queue

BAR_WIDTH = 300
"""Of the longest bar of a level, in pixels of its own picture."""

_LIMITS = ("guaranteed", "lendable", "max", "per_user")
"""What a row of CPU or memory may say."""


@dataclass(frozen=True, slots=True)
class QueueBar:
    """What a queue holds, as lengths: inside its guarantee, borrowed, and where guarantee and fair share lie."""

    inside: float
    borrowed: float
    guaranteed: float
    fair_share: float


@dataclass(frozen=True, slots=True)
class GpuTotals:
    """Thousandths of GPUs, of one type or of all. `max` None: no ceiling on one of them at least.

    `guaranteed_link`, `max_link`: the address of the line in Git that says so; "": none does, or more than one.
    """

    gpu_type: str
    guaranteed: int
    held: int
    borrowed: int
    fair_share: int
    waiting: int
    max: int | None
    bar: QueueBar
    guaranteed_link: str = ""
    max_link: str = ""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue at its depth; `total` over all GPU types, `lines` for each, () where there is but one. `link`: of its document."""

    view: QueueView
    depth: int
    total: GpuTotals
    lines: tuple[GpuTotals, ...]
    link: str = ""


@dataclass(frozen=True, slots=True)
class HostFigures:
    """CPU or memory of a queue, as its line tells it; `bar`: of jobs without GPUs, for whom guarantees are.

    `links`: the address of the line in Git that says a limit, by its name; "": none does.
    """

    line: HostQueueLine
    bar: QueueBar
    links: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HostRow:
    """A queue at its depth, with what it has of CPU and of memory."""

    view: QueueView
    depth: int
    lines: tuple[HostFigures, ...]
    link: str = ""


def queue_rows(views: Iterable[QueueView], policy: Policy) -> list[QueueRow]:
    """Each queue after its parent; bars of one depth have one scale, so that they can be compared. `policy` has their places."""
    queues = {queue.name: queue for queue in policy.queues}
    below = defaultdict[QueueName | None, list[QueueView]](list)
    for view in views:
        below[view.parent].append(view)
    ordered = list(_depth_first(below, None, 0))
    longest = defaultdict[int, int](int)
    for view, depth in ordered:
        longest[depth] = max(longest[depth], _longest(view.gpus))
    scales = {depth: BAR_WIDTH / most if most else 0.0 for depth, most in longest.items()}
    return [_row(view, depth, scales[depth], queues.get(view.name)) for view, depth in ordered]


def host_rows(views: Iterable[QueueView], policy: Policy) -> list[HostRow]:
    """The same of CPU and memory; [] where no queue has a quota of either."""
    queues = {queue.name: queue for queue in policy.queues}
    below = defaultdict[QueueName | None, list[QueueView]](list)
    for view in views:
        below[view.parent].append(view)
    ordered = [(view, depth) for view, depth in _depth_first(below, None, 0) if view.host]
    longest = defaultdict[tuple[int, Resource], float](float)
    for view, depth in ordered:
        for line in view.host:
            most = max(
                amount_number(line.resource, each) for each in (line.without_gpus, line.guaranteed, line.fair_share)
            )
            longest[depth, line.resource] = max(longest[depth, line.resource], most)
    rows = list[HostRow]()
    for view, depth in ordered:
        queue = queues.get(view.name)
        scales = {line.resource: BAR_WIDTH / (longest[depth, line.resource] or BAR_WIDTH) for line in view.host}
        lines = tuple(_host_figures(line, scales[line.resource], queue) for line in view.host)
        rows.append(HostRow(view, depth, lines, document_link(queue.origin) if queue else ""))
    return rows


def _host_figures(line: HostQueueLine, scale: float, queue: Queue | None) -> HostFigures:
    of_bar = (line.without_gpus, line.borrowed, line.guaranteed, line.fair_share)
    held, borrowed, guaranteed, fair = (amount_number(line.resource, each) * scale for each in of_bar)
    entry, links = queue.host_quota_for(line.resource) if queue else None, dict.fromkeys(_LIMITS, "")
    if entry is not None:
        stated = [name for name in _LIMITS if getattr(entry, name) is not None]
        links |= dict.fromkeys(stated, document_link(entry.origin))
    return HostFigures(line, QueueBar(held - borrowed, borrowed, guaranteed, fair), links)


def _depth_first(
    below: dict[QueueName | None, list[QueueView]], parent: QueueName | None, depth: int
) -> Iterator[tuple[QueueView, int]]:
    for view in below.get(parent, ()):
        yield view, depth
        yield from _depth_first(below, view.name, depth + 1)


def _longest(lines: Sequence[QueueLine]) -> int:
    return max(
        sum(line.held for line in lines), sum(line.guaranteed for line in lines), sum(line.fair_share for line in lines)
    )


def _row(view: QueueView, depth: int, scale: float, queue: Queue | None) -> QueueRow:
    lines = tuple(_totals(line.gpu_type, (line,), scale, queue) for line in view.gpus)
    link = document_link(queue.origin) if queue else ""
    if len(lines) == 1:
        return QueueRow(view, depth, lines[0], (), link)
    return QueueRow(view, depth, _totals("", view.gpus, scale, None), lines, link)


def _totals(gpu_type: str, lines: Sequence[QueueLine], scale: float, queue: Queue | None) -> GpuTotals:
    guaranteed, held = sum(line.guaranteed for line in lines), sum(line.held for line in lines)
    borrowed, fair = sum(line.borrowed for line in lines), sum(line.fair_share for line in lines)
    ceilings = [line.max for line in lines if line.max is not None]
    highest = sum(ceilings) if len(ceilings) == len(lines) else None
    bar = QueueBar((held - borrowed) * scale, borrowed * scale, guaranteed * scale, fair * scale)
    waiting, said = sum(line.waiting for line in lines), queue.quota_for(GpuType(gpu_type)) if queue else None
    links = (
        document_link(said.origin) if said and said.guaranteed is not None else "",
        document_link(said.origin) if said and said.max is not None else "",
    )
    return GpuTotals(gpu_type, guaranteed, held, borrowed, fair, waiting, highest, bar, *links)
