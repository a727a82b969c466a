"""Use of GPUs in the past, in SQL: a row for each node and hour of minutes, day of hours and thirty-two days of days."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from reconciler.model.gpu_use import NodeMinute, use_of
from reconciler.protocols.backend import Epoch
from reconciler.protocols.gpu_use import STEPS, ActiveTime, GpuPast, PlaceInUse, UsePoint, UseStep, UseStretch
from reconciler.store.database import Database
from reconciler.store.round_records import BadPackingError
from reconciler.store.rows import pieces
from reconciler.store.tables import gpu_use
from reconciler.store.use_blocks import BlockActivity, Board, UseBlock, block_activity
from solver.model.cluster import NodeName
from solver.model.quantities import Instant

BLOCK_STEPS: Final[Mapping[UseStep, int]] = {"minute": 60, "hour": 24, "day": 32}

_COARSER: Final[Mapping[UseStep, UseStep]] = {"minute": "hour", "hour": "day"}


class _Key(NamedTuple):
    start: int
    node: NodeName


_Blocks = dict[_Key, UseBlock]


class SqlGpuUses:
    """Implements GpuUses."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, epoch: Epoch, minutes: Mapping[NodeName, Sequence[NodeMinute]]) -> None:
        """Rounds read nothing of it: it is no news to them."""
        told: dict[_Key, list[NodeMinute]] = defaultdict(list)
        for node, some in minutes.items():
            for minute in some:
                told[_Key(_block_start("minute", minute.start), node)].append(minute)
        with self._database.writing(epoch, counted=False) as connection:
            self._keep_told(connection, told)

    def of_nodes(self, nodes: Collection[NodeName], step: UseStep, start: Instant, end: Instant) -> tuple[GpuPast, ...]:
        """By the blocks that reach into the window."""
        points: dict[tuple[NodeName, Board], list[UsePoint]] = defaultdict(list)
        within = (gpu_use.c.step == step, gpu_use.c.start >= _block_start(step, start), gpu_use.c.start < end)
        with self._database.reading() as connection:
            for some in pieces(nodes):
                wanted = select(gpu_use.c.start, gpu_use.c.node, gpu_use.c.block).where(*within)
                for row in connection.execute(wanted.where(gpu_use.c.node.in_(some)).order_by(gpu_use.c.start)):
                    node = NodeName(row.node)
                    block = self._unpacked(step, node, row.block)
                    for board in block.boards:
                        found = _points(block, board, step, row.start)
                        points[node, board] += (point for point in found if start <= point.start < end)
        ordered = sorted(points.items(), key=lambda one: one[0])
        return tuple(GpuPast(node, *board, tuple(some)) for (node, board), some in ordered if some)

    def active(
        self, step: UseStep, stretches: Mapping[NodeName, Collection[UseStretch]]
    ) -> Mapping[PlaceInUse, Mapping[UseStretch, ActiveTime]]:
        """By the blocks that have a part of one: of a month most are never read."""
        wanted: dict[int, dict[NodeName, list[_Part]]] = defaultdict(lambda: defaultdict(list))
        for node, some in stretches.items():
            for stretch in some:
                for first, part in _parts(step, stretch):
                    wanted[first][node].append(part)
        found: dict[PlaceInUse, dict[UseStretch, ActiveTime]] = defaultdict(dict)
        minutes_max = STEPS[step] // STEPS["minute"]
        with self._database.reading() as connection:
            for first, nodes in sorted(wanted.items()):
                for few in pieces(nodes):
                    own = (gpu_use.c.step == step, gpu_use.c.start == first, gpu_use.c.node.in_(few))
                    for row in connection.execute(select(gpu_use.c.node, gpu_use.c.block).where(*own)):
                        node = NodeName(row.node)
                        sums = self._active(step, node, row.block, minutes_max)
                        _add(found, node, sums, nodes[node])
        return found

    def _active(self, step: UseStep, node: NodeName, block: bytes, minutes_max: int) -> BlockActivity:
        try:
            return block_activity(node, BLOCK_STEPS[step], block, minutes_max)
        except BadPackingError as error:
            raise self._database.unreadable(UseBlock, error) from error

    def prune(self, epoch: Epoch, step: UseStep, before: Instant, limit: int = 500) -> int:
        """Whole blocks, all of whose steps are over."""
        over = before.after(-STEPS[step] * BLOCK_STEPS[step])
        old = (
            select(gpu_use.c.start, gpu_use.c.node)
            .where(gpu_use.c.step == step, gpu_use.c.start <= over)
            .order_by(gpu_use.c.start, gpu_use.c.node)
            .limit(limit)
        )
        with self._database.writing(epoch, counted=False) as connection:
            nodes: dict[int, list[NodeName]] = defaultdict(list)
            for row in connection.execute(old):
                nodes[row.start].append(NodeName(row.node))
            for start, some in nodes.items():
                for few in pieces(some):
                    there = (gpu_use.c.step == step, gpu_use.c.start == start, gpu_use.c.node.in_(few))
                    connection.execute(delete(gpu_use).where(*there))
        return sum(map(len, nodes.values()))

    def _keep_told(self, connection: Connection, told: Mapping[_Key, Sequence[NodeMinute]]) -> None:
        blocks, there = self._blocks(connection, "minute", told)
        news: dict[_Key, set[Board]] = defaultdict(set)
        for key, minutes in told.items():
            for minute in minutes:
                at = (minute.start - key.start) // STEPS["minute"]
                for gpu in minute.gpus:
                    if blocks[key].tell((gpu.gpu, gpu.uuid), at, gpu.record):
                        news[key].add((gpu.gpu, gpu.uuid))
        step: UseStep = "minute"
        _write(connection, step, {key: blocks[key] for key in news}, there)
        while step in _COARSER:
            step, blocks, news = self._made(connection, step, blocks, news)

    def _made(
        self, connection: Connection, step: UseStep, blocks: _Blocks, news: Mapping[_Key, Collection[Board]]
    ) -> tuple[UseStep, _Blocks, dict[_Key, set[Board]]]:
        """What is coarser by one, made anew of blocks with news: each of them is one step of it."""
        coarser = _COARSER[step]
        above = {key: _Key(_block_start(coarser, key.start), key.node) for key in news}
        made, there = self._blocks(connection, coarser, set(above.values()))
        changed: dict[_Key, set[Board]] = defaultdict(set)
        for key, boards in news.items():
            target = above[key]
            at = (key.start - target.start) // STEPS[coarser]
            for board in boards:
                if made[target].make(board, at, blocks[key].rolled(board, by_cover=step == "hour")):
                    changed[target].add(board)
        _write(connection, coarser, {key: made[key] for key in changed}, there)
        return coarser, made, changed

    def _blocks(self, connection: Connection, step: UseStep, keys: Collection[_Key]) -> tuple[_Blocks, set[_Key]]:
        """Blocks by their keys, and which of them are there; the others are empty."""
        found: _Blocks = {key: UseBlock(BLOCK_STEPS[step]) for key in keys}
        there: set[_Key] = set()
        nodes: dict[int, list[NodeName]] = defaultdict(list)
        for key in keys:
            nodes[key.start].append(key.node)
        for start, some in nodes.items():
            for few in pieces(some):
                wanted = select(gpu_use.c.node, gpu_use.c.block).where(
                    gpu_use.c.step == step, gpu_use.c.start == start, gpu_use.c.node.in_(few)
                )
                for row in connection.execute(wanted):
                    key = _Key(start, NodeName(row.node))
                    found[key] = self._unpacked(step, key.node, row.block)
                    there.add(key)
        return found, there

    def _unpacked(self, step: UseStep, node: NodeName, block: bytes) -> UseBlock:
        try:
            return UseBlock.unpacked(node, BLOCK_STEPS[step], block)
        except BadPackingError as error:
            raise self._database.unreadable(UseBlock, error) from error


def _write(connection: Connection, step: UseStep, blocks: _Blocks, there: Collection[_Key]) -> None:
    rows = [
        {"of": key.start, "on": key.node, "as": block.pack(key.node), "new": key not in there}
        for key, block in blocks.items()
    ]
    new = [{"step": step, "start": row["of"], "node": row["on"], "block": row["as"]} for row in rows if row["new"]]
    known = [row for row in rows if not row["new"]]
    if new:
        connection.execute(insert(gpu_use), new)
    if known:
        own = (
            gpu_use.c.step == step,
            gpu_use.c.start == bindparam("of"),
            gpu_use.c.node == bindparam("on"),
        )
        connection.execute(update(gpu_use).where(*own).values(block=bindparam("as")), known)


def _points(block: UseBlock, board: Board, step: UseStep, start: int) -> Iterable[UsePoint]:
    for at, record in block.known(board):
        use = use_of(record)
        if use is not None:
            yield UsePoint(Instant(start + at * STEPS[step]), use)


class _Part(NamedTuple):
    """The steps of a block, from one until another, that are of a stretch."""

    since: int
    until: int
    of: UseStretch


def _parts(step: UseStep, stretch: UseStretch) -> Iterator[tuple[int, _Part]]:
    """By the begin of the block."""
    length = STEPS[step]
    first = _block_start(step, stretch.start)
    while first < stretch.end:
        since = max(0, (stretch.start - first) // length)
        until = min(BLOCK_STEPS[step], (stretch.end - first) // length)
        yield first, _Part(since, until, stretch)
        first += length * BLOCK_STEPS[step]


def _add(
    found: dict[PlaceInUse, dict[UseStretch, ActiveTime]], node: NodeName, sums: BlockActivity, parts: Iterable[_Part]
) -> None:
    for part in parts:
        minutes = sums.minutes[:, part.until] - sums.minutes[:, part.since]
        half_percents = sums.half_percents[:, part.until] - sums.half_percents[:, part.since]
        for gpu, known, active in zip(sums.gpus, minutes.tolist(), half_percents.tolist(), strict=True):
            if known:
                of_gpu = found[node, gpu]
                before = of_gpu.get(part.of, ActiveTime(0, 0))
                of_gpu[part.of] = ActiveTime(before.minutes + known, before.half_percents + active)


def _block_start(step: UseStep, at: int) -> int:
    span = STEPS[step] * BLOCK_STEPS[step]
    return at // span * span
