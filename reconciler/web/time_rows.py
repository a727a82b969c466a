"""Rows of a picture of time: nodes with the GPUs that jobs hold, or queues with their biggest jobs. Each row is bounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge, nsmallest
from itertools import islice
from typing import Final, NamedTuple

from reconciler.protocols.placements import NodePlacement, PlacedTask, Placement
from reconciler.web.node_index import KeptTask, NodeRows, TaskOnNode
from reconciler.web.outlook import Outlook
from reconciler.web.past import HeldOverTime, PastReader, held_in_all
from reconciler.web.time_bars import Area, BarMaker, BarSpot, DrawnBar, TimeBar, area_of, drawn
from reconciler.web.time_window import ShownWindow
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import MILLI_PER_GPU, Instant, MilliGpu
from solver.model.workload import JobName, QueueName, TaskPlacement

BARS_MAX: Final = 24
"""In one row; the rest is counted."""
HELD_LANES_MAX: Final = 6
"""Of jobs that ran or run, below the area of a queue."""
PLANNED_LANES_MAX: Final = 4
"""Of jobs that wait, below those."""
LANE: Final = 14
AREA: Final = 26
CANDIDATES_MAX: Final = 120
"""Jobs of a queue that are looked at, to find those that have room."""
_WHOLE: Final = int(MILLI_PER_GPU)


class TimeRow(NamedTuple):
    """A node or a queue. `left_out`: bars that found no place. `area`: what was held, where it is added up; else None.

    `line`: how far from the top the guarantee lies, in pixels; None: there is none to show. `note`: what stands below its name.
    """

    name: str
    height: int
    bars: tuple[DrawnBar, ...]
    left_out: int
    area: Area | None = None
    area_height: int = 0
    line: float | None = None
    note: str = ""


class _Piece(NamedTuple):
    """Something on a node. `devices`: GPUs that it has whole, or parts of."""

    bar: TimeBar
    whole: frozenset[DeviceId]
    parts: frozenset[DeviceId]


# Nodes.


def node_rows(
    names: Sequence[NodeName], index: NodeRows, past: PastReader, outlook: Outlook, maker: BarMaker, shown: ShownWindow
) -> list[TimeRow]:
    """One for each of these nodes, in this order. Where not all bars are drawn, what was held is added up behind them."""
    found = past.on_nodes(names, shown)
    on = defaultdict[NodeName, list[NodePlacement]](list)
    for placed in found or ():
        on[placed.node].append(placed)
    pieces_on = dict[NodeName, list[_Piece]]()
    for name in names:
        pieces = [*_past_pieces(on[name], maker), *_kept_pieces(index.kept.get(name, ()), outlook, maker)]
        if found is None or not past.is_kept:
            pieces += _running_pieces(index.tasks.get(name, ()), maker)
        pieces_on[name] = [each for each in pieces if _is_in(each.bar, shown)]
    crowded = [name for name in names if found is None or len(pieces_on[name]) > BARS_MAX]
    used = past.use_of_nodes(crowded, shown) if crowded else None
    return [_node_row(index.nodes[name], pieces_on[name], used if name in crowded else None, shown) for name in names]


def _past_pieces(placed: Iterable[NodePlacement], maker: BarMaker) -> Iterator[_Piece]:
    for each in placed:
        if each.gpus:
            yield _Piece(maker.held(each.placement, each.gpus), *_devices(each.tasks))


def _devices(tasks: Iterable[PlacedTask]) -> tuple[frozenset[DeviceId], frozenset[DeviceId]]:
    whole, parts = set[DeviceId](), set[DeviceId]()
    for task in tasks:
        is_whole = task.instance_of is None and task.gpus == _WHOLE * len(task.devices)
        (whole if is_whole else parts).update(task.on_gpus)
    return frozenset(whole), frozenset(parts)


def _running_pieces(tasks: Iterable[TaskOnNode], maker: BarMaker) -> Iterator[_Piece]:
    of = defaultdict[JobName, list[TaskOnNode]](list)
    for each in tasks:
        if each.task.gpus:
            of[each.job.name].append(each)
    for own in of.values():
        placed = [each.task for each in own]
        yield _Piece(maker.running(own[0].job, _gpus(placed)), *_places(placed))


def _kept_pieces(kept: Iterable[KeptTask], outlook: Outlook, maker: BarMaker) -> Iterator[_Piece]:
    of = defaultdict[tuple[JobName, bool], list[KeptTask]](list)
    for each in kept:
        of[each.holder, each.is_promise].append(each)
    for (holder, _), own in of.items():
        tasks, first = [each.task for each in own], own[0]
        if first.document:
            bar = maker.document(first.document, _gpus(tasks), first.since, first.until)
        elif (start := outlook.starts.get(holder)) is not None:
            bar = maker.planned(start, _gpus(tasks))
        else:  # The job is no more, and what was kept for it is let go next.
            continue
        yield _Piece(bar, *_places(tasks))


def _places(tasks: Iterable[TaskPlacement]) -> tuple[frozenset[DeviceId], frozenset[DeviceId]]:
    whole, parts = set[DeviceId](), set[DeviceId]()
    for task in tasks:
        (whole if task.mig is None and task.share is None else parts).update(task.on_gpus)
    return frozenset(whole), frozenset(parts)


def _gpus(tasks: Iterable[TaskPlacement]) -> MilliGpu:
    return MilliGpu(sum(int(task.gpus) for task in tasks))


def _is_in(bar: TimeBar, shown: ShownWindow) -> bool:
    return bar.since < shown.end and max(bar.end, bar.known) > shown.start


def _node_row(node: Node, pieces: Sequence[_Piece], used: HeldOverTime[NodeName] | None, shown: ShownWindow) -> TimeRow:
    lane = next(height for most, height in ((1, 16), (2, 10), (4, 8), (8, 6), (10**9, 4)) if len(node.gpus) <= most)
    lanes = {gpu.id: number for number, gpu in enumerate(sorted(node.gpus, key=lambda gpu: gpu.index))}
    kept = sorted(pieces, key=lambda piece: (piece.bar.kind == "ran", -piece.bar.end))[:BARS_MAX]
    parts = _part_spots(kept, lanes, lane)
    bars = []
    for number, piece in enumerate(kept):
        spots = (*_runs([lanes[each] for each in piece.whole if each in lanes], lane), *parts.get(number, ()))
        bars.append(piece.bar._replace(spots=spots))
    bars.sort(key=lambda bar: (bar.since, bar.name))
    area, height = None, lane * len(lanes)
    if used is not None:
        held = used.of.get(node.name, (MilliGpu(0),) * used.steps.number)
        area = area_of(held, _WHOLE * len(lanes), used, shown)
    shown_bars = tuple(drawn(bar, shown) for bar in bars)
    return TimeRow(node.name, height, shown_bars, len(pieces) - len(kept), area, height)


def _runs(lanes: Iterable[int], lane: int) -> Iterator[BarSpot]:
    """Lanes beside each other are one."""
    begins, last = -1, -2
    for each in (*sorted(lanes), 10**9):
        if each != last + 1:
            if begins >= 0:
                yield BarSpot(begins * lane, (last - begins + 1) * lane - 1)
            begins = each
        last = each


def _part_spots(pieces: Sequence[_Piece], lanes: Mapping[DeviceId, int], lane: int) -> dict[int, list[BarSpot]]:
    """Parts of one GPU share its lane: each has a slice that is free from its beginning to its end."""
    of = defaultdict[DeviceId, list[int]](list)
    for number, piece in enumerate(pieces):
        for device in piece.parts & lanes.keys():
            of[device].append(number)
    found = defaultdict[int, list[BarSpot]](list)
    for device, numbers in of.items():
        slices = packed(
            [(pieces[number].bar.since, max(pieces[number].bar.end, pieces[number].bar.known)) for number in numbers]
        )
        size = lane / (max(slices) + 1)
        for number, at in zip(numbers, slices, strict=True):
            found[number].append(BarSpot(round(lanes[device] * lane + at * size, 2), round(max(size - 0.5, 1), 2)))
    return found


def packed(spans: Sequence[tuple[Instant, Instant]]) -> list[int]:
    """For each span the first lane that is free when it begins."""
    free, found = list[Instant](), [0] * len(spans)
    for number in sorted(range(len(spans)), key=lambda each: spans[each]):
        since, end = spans[number]
        at = next((lane for lane, over in enumerate(free) if over <= since), len(free))
        if at == len(free):
            free.append(end)
        free[at] = end
        found[number] = at
    return found


# Queues.


def queue_rows(
    row_of: Mapping[QueueName, QueueName],
    guaranteed: Mapping[QueueName, MilliGpu],
    past: PastReader,
    outlook: Outlook,
    maker: BarMaker,
    shown: ShownWindow,
) -> list[TimeRow]:
    """One for each row that these queues count to, with what was held in it, and its biggest jobs."""
    below = defaultdict[QueueName, list[QueueName]](list)
    for queue, row in row_of.items():
        below[row].append(queue)
    used = past.use_of_queues(row_of, shown)
    held, found = held_in_all(used), past.in_queues(tuple(row_of), shown)
    ended = defaultdict[QueueName, list[Placement]](list)
    for placement in found or ():
        ended[row_of[placement.queue]].append(placement)
    rows = []
    for row, queues in below.items():
        bars, left_out = _queue_bars(queues, ended[row], found is None or not past.is_kept, outlook, maker, shown)
        values = held.get(row, ())
        most = max((guaranteed.get(row, MilliGpu(0)), *values, 1))
        area = area_of(values, most, used, shown) if values else None
        line = max(1.0, AREA * (1 - guaranteed[row] / most)) if guaranteed.get(row) else None
        unknown = sum(outlook.unknown.get(queue, 0) for queue in queues)
        note = f"{unknown:,} wait, until when is not known" if unknown else ""
        height = max((int(bar.spots[0].y) + LANE for bar in bars), default=AREA + 4)
        rows.append(TimeRow(row, height, tuple(drawn(bar, shown) for bar in bars), left_out, area, AREA, line, note))
    return rows


def _queue_bars(
    queues: Sequence[QueueName],
    placements: Sequence[Placement],
    from_snapshot: bool,
    outlook: Outlook,
    maker: BarMaker,
    shown: ShownWindow,
) -> tuple[list[TimeBar], int]:
    """The biggest jobs that run, what was held longest, and the first jobs that are to start; and how many more there are.

    As many are looked at as could be drawn, however many there are.
    """
    held, left_out = (
        _running_bars(queues, outlook, maker, shown) if from_snapshot else _ended_bars(placements, maker, shown)
    )
    bars, more = _laid(held, HELD_LANES_MAX, AREA + 4)
    below = max((int(bar.spots[0].y) + LANE for bar in bars), default=AREA + 4)
    planned = [outlook.planned.get(queue, ()) for queue in queues]
    starts = islice(merge(*planned, key=lambda start: start.at), CANDIDATES_MAX)
    ahead = [bar for bar in (maker.planned(start, start.gpus) for start in starts) if _is_in(bar, shown)]
    later, even_more = _laid(ahead, PLANNED_LANES_MAX, below)
    if shown.end > shown.now:
        left_out += max(0, sum(map(len, planned)) - CANDIDATES_MAX)
    return bars + later, left_out + more + even_more


def _running_bars(
    queues: Sequence[QueueName], outlook: Outlook, maker: BarMaker, shown: ShownWindow
) -> tuple[list[TimeBar], int]:
    running = [outlook.running.get(queue, ()) for queue in queues]
    biggest = islice(merge(*running, key=lambda each: -each.gpus), CANDIDATES_MAX)
    bars = [bar for bar in (maker.running(*each) for each in biggest) if _is_in(bar, shown)]
    # Of a window that is over it is not known how many of the others had begun.
    return bars, max(0, sum(map(len, running)) - CANDIDATES_MAX) if shown.end > shown.now else 0


def _ended_bars(placements: Sequence[Placement], maker: BarMaker, shown: ShownWindow) -> tuple[list[TimeBar], int]:
    longest = nsmallest(CANDIDATES_MAX, (each for each in placements if each.gpus), key=_weight)
    bars = [maker.held(each, each.gpus) for each in longest]
    left_out = sum(each.gpus > 0 for each in placements) - len(longest)
    return [bar for bar in bars if _is_in(bar, shown)], left_out


def _weight(placement: Placement) -> tuple[bool, int]:
    """What is still held comes first, then what was held in all."""
    if placement.until is None:
        return False, -placement.gpus
    return True, -placement.gpus * (placement.until - placement.since)


def _laid(bars: Sequence[TimeBar], lanes_max: int, top: int) -> tuple[list[TimeBar], int]:
    """Bars in lanes below `top`, the first of them as long as there is room; and how many found none."""
    lanes, found, left_out = list[list[tuple[Instant, Instant]]](), list[TimeBar](), 0
    for bar in bars:
        span = bar.since, Instant(max(bar.end, bar.known))
        at = next((lane for lane, taken in enumerate(lanes) if all(_apart(span, each) for each in taken)), len(lanes))
        if at >= lanes_max or len(found) == BARS_MAX:
            left_out += 1
            continue
        if at == len(lanes):
            lanes.append([])
        lanes[at].append(span)
        found.append(bar._replace(spots=(BarSpot(top + at * LANE, LANE - 2),)))
    return found, left_out


def _apart(one: tuple[Instant, Instant], other: tuple[Instant, Instant]) -> bool:
    return one[1] <= other[0] or other[1] <= one[0]
