"""Placements and past jobs of pods, in SQL: a placement for each pod, and a row for each gang.

They are the tables that a ledger's transactions write elsewhere (placements.py), so that all that reads these reads both alike.
What is said again finds the pod's uid, and changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, bindparam, func, insert, or_, select, update

from reconciler.model.job_record import JobOutcome, JobRecord
from reconciler.model.job_runs import numbered, run_of
from reconciler.protocols.backend import Epoch
from reconciler.protocols.placements import PlacedTask
from reconciler.protocols.pod_placements import GangEnd, HeldPod, PodChanges, PodRelease, PodUid, RecordedGang
from reconciler.store.database import Database
from reconciler.store.jobs import columns_of
from reconciler.store.placements import HELD, packed_tasks, unpacked_tasks
from reconciler.store.rows import pieces
from reconciler.store.tables import past_gangs, placement_nodes, placements
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import MILLI_PER_GPU, Instant
from solver.model.workload import JobName, JobSpec, QueueName

_ENDED_AS: Final[Mapping[str, Literal["succeeded", "failed", "cancelled"]]] = {
    "succeeded": "succeeded",
    "failed": "failed",
}
"""The state of an outcome; any other is `cancelled`."""
_UNSEEN: Final = "its pods were gone when they were looked for: how it ended is not known"
_WITH_NODES: Final = placements.join(placement_nodes, placement_nodes.c.placement == placements.c.number)


class SqlPodPlacements:
    """Implements PodPlacements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, epoch: Epoch, changes: PodChanges) -> None:
        """Gangs first, whose names placements have; then what is over, whose devices others have."""
        if not changes:
            return
        # No round depends on it: a loop that rests goes on resting.
        with self._database.writing(epoch, counted=False) as connection:
            for gang in changes.gangs:
                _keep_gang(self._database, connection, gang)
            known = _known(connection, (*changes.left, *(pod.uid for pod in changes.came)))
            changes = changes._replace(left=dict(_left(changes, known)))
            _release(connection, changes.left)
            _take(connection, changes, known)
            for name, end in changes.ended.items():
                _end_gang(connection, name, end)

    def held(self) -> dict[PodUid, HeldPod]:
        """By the index of ends."""
        pods = placements.c.until == HELD, placements.c.pod.is_not(None)
        wanted = (placements, placement_nodes.c.node, placement_nodes.c.tasks, past_gangs.c.called)
        with_gangs = _WITH_NODES.join(past_gangs, past_gangs.c.name == placements.c.job)
        with self._database.reading() as connection:
            rows = connection.execute(select(*wanted).select_from(with_gangs).where(*pods)).all()
        return {row.pod: _held(row) for row in rows}

    def on_record(self, pods: Collection[PodUid]) -> frozenset[PodUid]:
        """By the index of pods."""
        found: set[PodUid] = set()
        with self._database.reading() as connection:
            for some in pieces(pods):
                found |= set(connection.execute(select(placements.c.pod).where(placements.c.pod.in_(some))).scalars())
        return frozenset(found)

    def gangs(self) -> dict[JobName, RecordedGang]:
        """Those without an end."""
        with self._database.reading() as connection:
            rows = connection.execute(select(past_gangs).where(past_gangs.c.ended_at.is_(None))).all()
        return {JobName(row.called): self._gang(row) for row in rows}

    def past(self, start: Instant, end: Instant) -> tuple[JobRecord, ...]:
        """By the index of ends."""
        there = or_(past_gangs.c.ended_at.is_(None), past_gangs.c.ended_at > start), past_gangs.c.submitted_at < end
        with self._database.reading() as connection:
            rows = connection.execute(select(past_gangs).where(*there).order_by(past_gangs.c.name)).all()
        return tuple(self._record(row) for row in rows)

    def _gang(self, row: Row[Any]) -> RecordedGang:
        spec = self._database.read_document(row.spec, JobSpec)
        return RecordedGang(JobName(row.called), spec, Instant(row.submitted_at), tuple(row.controllers.split()))

    def _record(self, row: Row[Any]) -> JobRecord:
        outcome = None
        if row.ended_at is not None:
            told = _UNSEEN if row.ended_as == "unseen" else ""
            outcome = JobOutcome(_ENDED_AS.get(row.ended_as, "cancelled"), Instant(row.ended_at), message=told)
        spec = self._database.read_document(row.spec, JobSpec)
        return JobRecord(JobName(row.name), spec, "", Instant(row.submitted_at), outcome=outcome)


# Gangs.


def _keep_gang(database: Database, connection: Connection, gang: RecordedGang) -> None:
    before = _newest(connection, gang.name)
    asked = {name: value for name, value in columns_of(gang.spec).items() if name in past_gangs.c}
    if before is None or not _goes_on(before, gang):
        came = {"submitted_at": gang.submitted_at, "controllers": " ".join(gang.controllers)}
        name = gang.name if before is None else _free_name(connection, JobName(before.name))
        connection.execute(insert(past_gangs).values(name=name, called=gang.name, **came, **asked))
        return
    # Pods that have ended are asked for no more: the gang is what it was at its largest.
    larger = gang.spec.tasks >= database.read_document(before.spec, JobSpec).tasks
    made_by = " ".join(sorted({*before.controllers.split(), *gang.controllers}))
    own = update(past_gangs).where(past_gangs.c.name == before.name)
    connection.execute(own.values(ended_at=None, ended_as="", controllers=made_by, **(asked if larger else {})))


def _newest(connection: Connection, name: JobName) -> Row[Any] | None:
    """The last of those that are called so."""
    rows = connection.execute(select(past_gangs).where(past_gangs.c.called == name)).all()
    return max(rows, key=lambda row: (row.ended_at is None, len(row.name), row.name), default=None)


def _goes_on(before: Row[Any], gang: RecordedGang) -> bool:
    """It is the same job as before."""
    if before.ended_at is None or before.submitted_at == gang.submitted_at or before.ended_as == "failed":
        return True
    return not set(before.controllers.split()).isdisjoint(gang.controllers)


def _free_name(connection: Connection, name: JobName) -> JobName:
    """Annotations may call a gang anything, also what another's second run is called."""
    while connection.execute(select(past_gangs.c.name).where(past_gangs.c.name == name)).first():
        run = run_of(name)
        name = numbered(run.called, run.number + 1)
    return name


def _end_gang(connection: Connection, name: JobName, end: GangEnd) -> None:
    own = update(past_gangs).where(past_gangs.c.called == name, past_gangs.c.ended_at.is_(None))
    at = (
        func.max(past_gangs.c.submitted_at, end.at)
        if connection.dialect.name == "sqlite"
        else func.greatest(past_gangs.c.submitted_at, end.at)
    )
    connection.execute(own.values(ended_at=at, ended_as=end.ended))


# Pods.


class _Known(NamedTuple):
    """What is on record of a pod last."""

    number: int
    held: HeldPod
    until: int
    ended: str


def _known(connection: Connection, uids: Iterable[PodUid]) -> dict[PodUid, _Known]:
    wanted = (placements, placement_nodes.c.node, placement_nodes.c.tasks, past_gangs.c.called)
    with_gangs = _WITH_NODES.join(past_gangs, past_gangs.c.name == placements.c.job)
    found: dict[PodUid, _Known] = {}
    for some in pieces(tuple(uids)):
        of = select(*wanted).select_from(with_gangs).where(placements.c.pod.in_(some))
        for row in connection.execute(of.order_by(placements.c.number)):
            found[row.pod] = _Known(row.number, _held(row), row.until, row.ended)
    return found


def _left(changes: PodChanges, known: Mapping[PodUid, _Known]) -> Iterator[tuple[PodUid, PodRelease]]:
    """What is only known to be over by some time was so when another pod was given its GPUs."""
    new = {pod.uid: pod for pod in changes.came if pod.uid not in known}
    begun: defaultdict[DeviceId, list[Instant]] = defaultdict(list)
    for pod in new.values():
        for gpu in pod.task.on_gpus:
            begun[gpu].append(pod.since)
    for uid, release in changes.left.items():
        held = known[uid].held if uid in known else new.get(uid)
        if held is not None and release.is_at_most:
            later = [at for gpu in held.task.on_gpus for at in begun[gpu] if at > held.since]
            release = release._replace(until=min((release.until, *later)))  # noqa: PLW2901  (as more is known of it)
        yield uid, release


def _release(connection: Connection, left: Mapping[PodUid, PodRelease]) -> None:
    """What these pods hold they held until then; not until before they began to."""
    rows: list[dict[str, object]] = []
    for some in pieces(left):
        own = select(placements.c.number, placements.c.pod, placements.c.since)
        held = connection.execute(own.where(placements.c.pod.in_(some), placements.c.until == HELD))
        rows += [_ending(row.number, row.since, left[row.pod]) for row in held]
    _write_ends(connection, rows)


def _ending(number: int, since: int, release: PodRelease) -> dict[str, object]:
    at = max(since, release.until)
    return {"of": number, "at": at, "as": release.ended, "for": release.beneficiary, "saved": release.saved_at}


def _write_ends(connection: Connection, rows: Sequence[dict[str, object]]) -> None:
    if not rows:
        return
    own = update(placements).where(placements.c.number == bindparam("of"))
    ends: dict[str, ColumnElement[Any]] = {
        "until": bindparam("at"),
        "ended": bindparam("as"),
        "beneficiary": bindparam("for"),
    }
    connection.execute(own.values(**ends, saved_at=bindparam("saved")), rows)
    on_nodes = update(placement_nodes).where(placement_nodes.c.placement == bindparam("of"))
    connection.execute(on_nodes.values(until=bindparam("at")), [{"of": row["of"], "at": row["at"]} for row in rows])


def _take(connection: Connection, changes: PodChanges, known: Mapping[PodUid, _Known]) -> None:
    """What pods hold that are new, or hold something else than before: these from now on."""
    moved = {
        pod.uid: known[pod.uid]
        for pod in changes.came
        if pod.uid in known and pod.uid not in changes.left and _is_new(known[pod.uid], pod)
    }
    moves = [
        _ending(one.number, one.held.since, PodRelease(changes.at, "restarted"))
        for one in moved.values()
        if one.until == HELD
    ]
    _write_ends(connection, moves)
    # Those whose devices are known before those that take what is left; the earlier ones first, so that others begin behind them.
    coming = sorted(
        (
            msgspec.structs.replace(pod, since=Instant(max(pod.since, changes.at))) if pod.uid in moved else pod
            for pod in changes.came
            if pod.uid not in known or pod.uid in moved
        ),
        key=lambda pod: (not pod.task.devices, pod.since, pod.uid),
    )
    if coming:
        _Taking(connection, coming).write(changes.left)


def _is_new(before: _Known, pod: HeldPod) -> bool:
    """One that was thought to be gone, and is there, goes on: also where the release before took it for `lost`."""
    return not before.held.holds_as(pod) if before.until == HELD else before.ended in ("unseen", "lost")


class _Hold(NamedTuple):
    """So much of a GPU is held."""

    since: int
    until: int
    milli: int


class _Attempt(NamedTuple):
    """The last of a gang, and until when a pod of it holds something."""

    number: int
    until: int


class _Taking:
    """Puts pods on record one after the other. What a GPU holds in all is at no time more than the GPU is."""

    def __init__(self, connection: Connection, coming: Sequence[HeldPod]) -> None:
        self._connection = connection
        self._coming = coming
        self._jobs = dict(_job_ids(connection, {pod.gang for pod in coming}))
        self._attempts = dict(_attempts(connection, self._jobs.values()))
        self._holds = _holds_on(connection, {pod.node for pod in coming}, min(pod.since for pod in coming))

    def write(self, left: Mapping[PodUid, PodRelease]) -> None:
        number = self._connection.execute(select(func.coalesce(func.max(placements.c.number), 0))).scalar_one()
        rows: list[dict[str, object]] = []
        on_nodes: list[dict[str, object]] = []
        for pod in self._coming:
            job = self._jobs.get(pod.gang)
            if job is None:
                continue  # what it was is not known, and so not whose time it was
            number += 1
            release = left.get(pod.uid) or PodRelease(Instant(HELD), "")
            task, since, until = self._placed(pod, int(release.until))
            rows.append(
                {
                    "number": number,
                    "job": job,
                    "attempt": self._attempt(job, since, until),
                    "queue": pod.queue,
                    "user": "",
                    "gpu_type": pod.gpu_type,
                    "gpus": int(task.gpus),
                    "since": since,
                    "until": until,
                    "ended": release.ended,
                    "beneficiary": release.beneficiary,
                    "pod": pod.uid,
                    "saved_at": release.saved_at,
                }
            )
            of = {"placement": number, "node": pod.node, "until": until, "gpus": int(task.gpus)}
            on_nodes.append({**of, "tasks": packed_tasks(pod.node, [task])})
        if rows:
            self._connection.execute(insert(placements), rows)
            self._connection.execute(insert(placement_nodes), on_nodes)

    def _placed(self, pod: HeldPod, until: int) -> tuple[PlacedTask, int, int]:
        """On which devices, from when to when: from when those are free."""
        task, since, until = pod.task, int(pod.since), max(int(pod.since), until)
        if not task.devices:
            number = int(task.gpus) // MILLI_PER_GPU
            by_time = sorted(pod.slots, key=lambda gpu: self._free_from(gpu, since, until, MILLI_PER_GPU))
            task = msgspec.structs.replace(task, devices=tuple(sorted(by_time[:number])))
        each = int(task.gpus) // max(1, len(task.devices))
        gpus = task.on_gpus
        begins = max((since, *(self._free_from(gpu, since, until, each) for gpu in gpus)))
        since = since if begins >= HELD else begins
        for gpu in gpus:
            self._holds[gpu].append(_Hold(since, until, each))
        return task, since, until

    def _free_from(self, gpu: DeviceId, since: int, until: int, milli: int) -> int:
        holds = [one for one in self._holds[gpu] if one.until > since and one.since < until]
        bounds = sorted({since, until, *(at for one in holds for at in (one.since, one.until) if since < at < until)})
        free = since
        for begun, over in pairwise(bounds):
            level = sum(one.milli for one in holds if one.since < over and one.until > begun)
            if level + milli > MILLI_PER_GPU:
                free = over
        return free

    def _attempt(self, job: JobName, since: int, until: int) -> int:
        """What begins once nothing is held any more is the next one."""
        last = self._attempts.get(job, _Attempt(0, 0))
        if since >= last.until:
            last = _Attempt(last.number + 1, until)
        self._attempts[job] = _Attempt(last.number, max(last.until, until))
        return last.number


def _job_ids(connection: Connection, gangs: Collection[JobName]) -> Iterator[tuple[JobName, JobName]]:
    """Under which name each is on record; of those that are not, none."""
    for some in pieces(gangs):
        rows = connection.execute(select(past_gangs).where(past_gangs.c.called.in_(some))).all()
        newest: dict[str, Row[Any]] = {}
        for row in sorted(rows, key=lambda row: (row.ended_at is None, len(row.name), row.name)):
            newest[row.called] = row
        yield from ((JobName(called), JobName(row.name)) for called, row in newest.items())


def _attempts(connection: Connection, jobs: Iterable[JobName]) -> Iterator[tuple[JobName, _Attempt]]:
    for some in pieces(tuple(jobs)):
        columns = placements.c.job, placements.c.attempt, func.max(placements.c.until).label("until")
        of = select(*columns).where(placements.c.job.in_(some)).group_by(placements.c.job, placements.c.attempt)
        yield from (
            (JobName(row.job), _Attempt(row.attempt, row.until))
            for row in connection.execute(of.order_by(placements.c.job, placements.c.attempt))
        )


def _holds_on(connection: Connection, nodes: Collection[NodeName], since: int) -> defaultdict[DeviceId, list[_Hold]]:
    """What was held of these nodes after an instant, by GPU."""
    found = defaultdict[DeviceId, list[_Hold]](list)
    wanted = select(placement_nodes.c.node, placement_nodes.c.tasks, placements.c.since, placements.c.until)
    for some in pieces(nodes):
        there = placement_nodes.c.node.in_(some), placement_nodes.c.until > since
        for row in connection.execute(wanted.select_from(_WITH_NODES).where(*there)):
            for task in unpacked_tasks(NodeName(row.node), row.tasks):
                for gpu in task.on_gpus:
                    found[gpu].append(_Hold(row.since, row.until, int(task.gpus) // max(1, len(task.devices))))
    return found


def _held(row: Row[Any]) -> HeldPod:
    node = NodeName(row.node)
    (task,) = unpacked_tasks(node, row.tasks)
    of = JobName(row.called), QueueName(row.queue), GpuType(row.gpu_type)
    return HeldPod(row.pod, *of, node, task, Instant(row.since))
