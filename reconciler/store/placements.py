"""Placements: rows that a transaction of the ledger writes with the claims they tell of, and what is read of them.

One row says what an attempt held of a GPU type, one more for each of its nodes says with which tasks. What is still held is over at
`HELD`, so that one condition finds what lies in a window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from reconciler.model.failure import Failure
from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import Claim
from reconciler.protocols.placements import NodePlacement, PlacedTask, Placement, PlacementEnd, Steps, Use
from reconciler.store.database import Database
from reconciler.store.rows import pieces
from reconciler.store.tables import claims, failures, intents, jobs, past_gangs, placement_nodes, placements
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.inflight import Intent, StopPurpose
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName, JobSpec, QueueName, TaskPlacement

HELD: Final = 2**62
"""Until when what is still held is held."""

_SENT_BACK: Final[Mapping[StopPurpose, PlacementEnd]] = {
    "evict": "evicted",
    "suspend": "suspended",
    "requeue": "requeued",
    "stuck": "stuck",
}
_HELD_BY_CLAIM: Final = (
    (placements.c.job == claims.c.job) & (placements.c.attempt == claims.c.attempt) & (placements.c.until == HELD)
)
_RAW: Final = "="
"""Before the id of a device that does not begin with its node's name."""


class Ending(NamedTuple):
    """Why an attempt holds something no more, and for which other job."""

    ended: PlacementEnd = ""
    beneficiary: str = ""


class _Packed(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A PlacedTask as it is kept: ids without the name of their node, GPUs only where they are not whole."""

    group: str
    index: int
    devices: tuple[str, ...] = ()
    gpus: int = -1
    instance_of: str = ""


_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder(tuple[_Packed, ...])


# Written beside claims.


def begin(database: Database, connection: Connection, granted: Sequence[Claim], at: Instant | None = None) -> None:
    """What they hold is held from `at` on; None: since each was claimed. On no node before what is over there was."""
    if not granted:
        return
    owners = _owners(database, connection, [claim.job for claim in granted])
    since = {claim.job: claim.since if at is None else at for claim in granted}
    over = _over_after(connection, (task.node for claim in granted for task in claim.tasks), min(since.values()))
    number = connection.execute(select(func.coalesce(func.max(placements.c.number), 0))).scalar_one()
    rows: list[dict[str, object]] = []
    on_nodes: list[dict[str, object]] = []
    for claim in granted:
        queue, user = owners[claim.job]
        start = max((since[claim.job], *(over[task.node] for task in claim.tasks if task.node in over)))
        for gpu_type, tasks in _by_type(claim):
            number += 1
            by_node = defaultdict[NodeName, list[TaskPlacement]](list)
            for task in tasks:
                by_node[task.node].append(task)
            gpus = sum(int(task.gpus) for task in tasks)
            own = {"number": number, "job": claim.job, "attempt": claim.attempt, "queue": queue, "user": user}
            rows.append({**own, "gpu_type": gpu_type, "gpus": gpus, "since": start, "until": HELD})
            on_nodes += (_node_row(number, node, there) for node, there in by_node.items())
    if rows:
        connection.execute(insert(placements), rows)
        connection.execute(insert(placement_nodes), on_nodes)


def end(connection: Connection, endings: Mapping[JobName, Ending], at: Instant) -> None:
    """What these jobs hold they held until `at`, and why; not until before they began to."""
    held: list[Row[Any]] = []
    for some in pieces(endings):
        own = select(placements.c.number, placements.c.job, placements.c.since)
        held += connection.execute(own.where(placements.c.job.in_(some), placements.c.until == HELD))
    if not held:
        return
    rows = [
        {"of": row.number, "at": max(at, row.since), "as": ending.ended, "for": ending.beneficiary}
        for row in held
        if (ending := endings[JobName(row.job)])
    ]
    own_rows = update(placements).where(placements.c.number == bindparam("of"))
    over: dict[str, ColumnElement[Any]] = {
        "until": bindparam("at"),
        "ended": bindparam("as"),
        "beneficiary": bindparam("for"),
    }
    connection.execute(own_rows.values(over), rows)
    on_nodes = update(placement_nodes).where(placement_nodes.c.placement == bindparam("of"))
    connection.execute(on_nodes.values(until=bindparam("at")), [{"of": row["of"], "at": row["at"]} for row in rows])


def resize(database: Database, connection: Connection, claim: Claim, at: Instant, ended: PlacementEnd) -> None:
    """What the gang held is over, and what it holds from now on begins at the same instant."""
    known = select(func.max(placements.c.since)).where(placements.c.job == claim.job, placements.c.until == HELD)
    since = connection.execute(known).scalar_one()
    at = at if since is None else max(at, Instant(since))
    over = _over_after(connection, (task.node for task in claim.tasks), at)
    at = max((at, *over.values()))
    end(connection, {claim.job: Ending(ended)}, at)
    begin(database, connection, [claim], at)


def endings_of(database: Database, connection: Connection, over: Mapping[JobName, int]) -> dict[JobName, Ending]:
    """Why attempts are over, as far as it is on record before their devices are released."""
    found: dict[JobName, Ending] = dict.fromkeys(over, Ending())
    for some in pieces([f"stop/{job}/{attempt}" for job, attempt in over.items()]):
        for text in connection.execute(select(intents.c.intent).where(intents.c.id.in_(some))).scalars():
            stop = database.read_document(text, Intent)
            found[stop.job] = Ending(_SENT_BACK.get(stop.purpose, ""), stop.beneficiary or "")
    for some in pieces(over):
        failed = select(failures.c.failure, failures.c.job).where(failures.c.job.in_(some), failures.c.outlived == 0)
        for row in connection.execute(failed):
            failure = database.read_document(row.failure, Failure)
            if failure.attempt == over[JobName(row.job)]:
                found[JobName(row.job)] = Ending(failure.kind)
        done = select(jobs.c.name, jobs.c.ended_as).where(jobs.c.name.in_(some), jobs.c.ended_as.is_not(None))
        found |= {JobName(row.name): Ending(row.ended_as) for row in connection.execute(done)}
    return found


def adopt(database: Database, connection: Connection, read: Callable[[Row[Any]], Claim], now: Instant) -> None:
    """What a program that kept no placements did to claims meanwhile is put on record. `read`: a claim from its row."""
    both = claims.outerjoin(placements, _HELD_BY_CLAIM)
    untold = connection.execute(select(claims).select_from(both).where(placements.c.number.is_(None))).all()
    either = placements.outerjoin(claims, _HELD_BY_CLAIM)
    # What pods hold no claim tells of.
    of_claims = placements.c.until == HELD, placements.c.pod.is_(None)
    lost = select(placements.c.job).select_from(either).where(*of_claims, claims.c.job.is_(None))
    end(connection, {JobName(job): Ending("lost") for job in connection.execute(lost).scalars()}, now)
    since = [msgspec.structs.replace(read(row), since=Instant(max(row.since, row.sized_at or 0))) for row in untold]
    begin(database, connection, since)


def _owners(database: Database, connection: Connection, names: Collection[JobName]) -> dict[str, tuple[str, str]]:
    """Queue and user of each."""
    found: dict[str, tuple[str, str]] = {}
    for some in pieces(names):
        for row in connection.execute(select(jobs.c.name, jobs.c.queue, jobs.c.user).where(jobs.c.name.in_(some))):
            found[row.name] = row.queue, row.user
    for name, (queue, user) in found.items():
        if queue is None:  # the release before took it in
            spec = connection.execute(select(jobs.c.spec).where(jobs.c.name == name)).scalar_one()
            found[name] = database.read_document(spec, JobSpec).queue, user
    return found


def _over_after(connection: Connection, nodes: Iterable[NodeName], at: Instant) -> dict[NodeName, Instant]:
    """Until when something was held of nodes that is over, though that is later than `at`: the clock was set back."""
    found: dict[NodeName, Instant] = {}
    for some in pieces(set(nodes)):
        there = (placement_nodes.c.node.in_(some)) & (placement_nodes.c.until > at) & (placement_nodes.c.until < HELD)
        late = select(placement_nodes.c.node, func.max(placement_nodes.c.until)).where(there)
        for node, until in connection.execute(late.group_by(placement_nodes.c.node)):
            found[NodeName(node)] = Instant(until)
    return found


def _by_type(claim: Claim) -> Iterator[tuple[GpuType, list[TaskPlacement]]]:
    types, found = dict(claim.gpu_types), defaultdict[GpuType, list[TaskPlacement]](list)
    for task in claim.tasks:
        found[types.get(task.group, GpuType(""))].append(task)
    yield from found.items()


def _node_row(number: int, node: NodeName, tasks: Sequence[TaskPlacement]) -> dict[str, object]:
    gpus = sum(int(task.gpus) for task in tasks)
    packed = packed_tasks(node, [placed_task(task) for task in tasks])
    return {"placement": number, "node": node, "until": HELD, "gpus": gpus, "tasks": packed}


def placed_task(task: TaskPlacement) -> PlacedTask:
    """As it is put on record."""
    return PlacedTask(task.group, task.index, task.devices, task.gpus, task.mig.gpu if task.mig else None)


def packed_tasks(node: NodeName, tasks: Iterable[PlacedTask]) -> bytes:
    """What of tasks is kept on one node."""
    return _PACK.encode([_packed(node, task) for task in tasks])


def _packed(node: NodeName, task: PlacedTask) -> _Packed:
    is_whole = task.instance_of is None and task.gpus == MilliGpu.gpus(len(task.devices))
    return _Packed(
        task.group,
        task.index,
        tuple(short_device(node, device) for device in task.devices),
        -1 if is_whole else int(task.gpus),
        short_device(node, task.instance_of) if task.instance_of is not None else "",
    )


def short_device(node: NodeName, device: DeviceId) -> str:
    """The id of a device as it is kept, without the name of its node."""
    rest = device.removeprefix(f"{node}/")
    return _RAW + device if rest == device or rest.startswith(_RAW) else rest


def device_of(node: NodeName, short: str) -> DeviceId:
    """What `short_device` made shorter."""
    return DeviceId(short[1:] if short.startswith(_RAW) else f"{node}/{short}")


def unpacked_tasks(node: NodeName, packed: bytes) -> tuple[PlacedTask, ...]:
    """What `packed_tasks` made."""
    return tuple(
        PlacedTask(
            task.group,
            task.index,
            tuple(device_of(node, short) for short in task.devices),
            MilliGpu.gpus(len(task.devices)) if task.gpus < 0 else MilliGpu(task.gpus),
            device_of(node, task.instance_of) if task.instance_of else None,
        )
        for task in _UNPACK.decode(packed)
    )


# Read.

_COLUMNS: Final[tuple[ColumnElement[Any], ...]] = tuple(placements.c[name] for name in Placement.__struct_fields__)
_ON_NODE: Final[tuple[ColumnElement[Any], ...]] = (
    placement_nodes.c.node,
    placement_nodes.c.gpus.label("there"),
    placement_nodes.c.tasks,
)
_WITH_NODES: Final = placements.join(placement_nodes, placement_nodes.c.placement == placements.c.number)


class SqlPlacements:
    """Implements Placements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def on_nodes(
        self, nodes: Collection[NodeName], start: Instant, end: Instant, limit: int
    ) -> tuple[NodePlacement, ...]:
        """By the index of nodes and ends."""
        within = (placement_nodes.c.until > start) & (placements.c.since < end)
        wanted = select(*_COLUMNS, *_ON_NODE).select_from(_WITH_NODES).where(within)
        rows: list[Row[Any]] = []
        with self._database.reading() as connection:
            for some in pieces(nodes):
                rows += connection.execute(wanted.where(placement_nodes.c.node.in_(some)).limit(limit - len(rows)))
        return tuple(_node_placement(row) for row in sorted(rows, key=lambda row: (row.node, row.since, row.number)))

    def in_queues(
        self, queues: Collection[QueueName], start: Instant, end: Instant, limit: int
    ) -> tuple[Placement, ...]:
        """By the index of ends."""
        within = (placements.c.until > start) & (placements.c.since < end)
        rows: list[Row[Any]] = []
        with self._database.reading() as connection:
            for some in pieces(queues):
                wanted = select(*_COLUMNS).where(within, placements.c.queue.in_(some))
                rows += connection.execute(wanted.limit(limit - len(rows)))
        return tuple(_placement(row) for row in sorted(rows, key=lambda row: (row.since, row.number)))

    def in_window(self, start: Instant, end: Instant) -> tuple[NodePlacement, ...]:
        """By the index of ends. Those of one gang are one and the same on all its nodes: a month has many."""
        within = (placements.c.until > start) & (placements.c.since < end)
        on_node = placement_nodes.c.placement, placement_nodes.c.node, placement_nodes.c.gpus, placement_nodes.c.tasks
        lying = select(*on_node).where(placement_nodes.c.placement.in_(select(placements.c.number).where(within)))
        with self._database.reading() as connection:
            whole = {row.number: _placement(row) for row in connection.execute(select(*_COLUMNS).where(within))}
            rows = connection.execute(lying).all()
        found = (
            NodePlacement(whole[number], NodeName(node), MilliGpu(gpus), unpacked_tasks(NodeName(node), tasks))
            for number, node, gpus, tasks in rows
        )
        return tuple(sorted(found, key=lambda one: (one.node, one.placement.since, one.placement.number)))

    def of_job(self, job: JobName, limit: int = 1_000) -> tuple[NodePlacement, ...]:
        """By the index of jobs."""
        own = select(*_COLUMNS, *_ON_NODE).select_from(_WITH_NODES).where(placements.c.job == job)
        newest = own.order_by(placements.c.number.desc(), placement_nodes.c.node).limit(limit)
        with self._database.reading() as connection:
            rows = connection.execute(newest).all()
        return tuple(_node_placement(row) for row in sorted(rows, key=lambda row: (row.since, row.number, row.node)))

    def use_of_nodes(self, nodes: Collection[NodeName], steps: Steps, now: Instant) -> dict[NodeName, Use]:
        """Added up by the database."""
        found: dict[NodeName, Use] = {}
        with self._database.reading() as connection:
            for some in pieces(nodes):
                there = (placement_nodes.c.until > steps.start) & placement_nodes.c.node.in_(some)
                added = _added_up(
                    connection, steps, now, _WITH_NODES, (placement_nodes.c.node,), placement_nodes.c.gpus, there
                )
                found |= {NodeName(node): use for (node,), use in added.items()}
        return found

    def use_of_queues(self, steps: Steps, now: Instant) -> dict[tuple[QueueName, GpuType], Use]:
        """Added up by the database."""
        keys, within = (placements.c.queue, placements.c.gpu_type), placements.c.until > steps.start
        with self._database.reading() as connection:
            added = _added_up(connection, steps, now, placements, keys, placements.c.gpus, within)
        return {(QueueName(queue), GpuType(gpu_type)): use for (queue, gpu_type), use in added.items()}

    def prune(self, epoch: Epoch, before: Instant, limit: int = 500) -> int:
        """What lay on nodes goes with them, and gangs of pods. In pieces: no other writes meanwhile."""
        old = select(placements.c.number).where(placements.c.until <= before).order_by(placements.c.until).limit(limit)
        with self._database.writing(epoch) as connection:
            connection.execute(delete(past_gangs).where(past_gangs.c.ended_at <= before))
            return connection.execute(delete(placements).where(placements.c.number.in_(old))).rowcount


def _added_up(
    connection: Connection,
    steps: Steps,
    now: Instant,
    of: FromClause,
    keys: Sequence[ColumnElement[str]],
    gpus: ColumnElement[int],
    within: ColumnElement[bool],
) -> dict[tuple[str, ...], Use]:
    """Of each key what was held in each step, exactly.

    What begins and what ends in a step is added up, and how much of the step was left then: what was held before goes on.
    """
    start, step, last = int(steps.start), int(steps.step), int(steps.end)
    condition = within & (placements.c.since < min(last, now)) & (gpus > 0)
    since = case((placements.c.since < start, 0), else_=placements.c.since - start)
    until = case((placements.c.until > now, int(now)), else_=placements.c.until)
    begun = _by_step(keys, since, step, gpus).select_from(of).where(condition)
    over = _by_step(keys, until - start, step, gpus).select_from(of).where(condition, until < last)
    change, part = (
        defaultdict[tuple[str, ...], dict[int, int]](dict),
        defaultdict[tuple[str, ...], dict[int, int]](dict),
    )
    for sign, query in ((1, begun), (-1, over)):
        for *names, at, held, rest in connection.execute(query):
            key = tuple(names)
            change[key][at] = change[key].get(at, 0) + sign * int(held)
            part[key][at] = part[key].get(at, 0) + sign * int(rest)
    return {key: _levels(change[key], part[key], steps) for key in change}


def _by_step(
    keys: Sequence[ColumnElement[str]], at: ColumnElement[int], step: int, gpus: ColumnElement[int]
) -> Select[Any]:
    number = at // step
    columns: tuple[ColumnElement[Any], ...] = (
        *keys,
        number,
        func.sum(gpus),
        func.sum(gpus * ((number + 1) * step - at)),
    )
    return select(*columns).group_by(*keys, number)


def _levels(change: Mapping[int, int], part: Mapping[int, int], steps: Steps) -> Use:
    level, found = 0, list[int]()
    for at in range(steps.number):
        found.append(level * steps.step + part.get(at, 0))
        level += change.get(at, 0)
    return tuple(found)


def _placement(row: Row[Any]) -> Placement:
    values = {name: getattr(row, name) for name in Placement.__struct_fields__}
    until = None if row.until == HELD else Instant(row.until)
    return Placement(**{**values, "since": Instant(row.since), "until": until, "gpus": MilliGpu(row.gpus)})


def _node_placement(row: Row[Any]) -> NodePlacement:
    node = NodeName(row.node)
    return NodePlacement(_placement(row), node, MilliGpu(row.there), unpacked_tasks(node, row.tasks))
