"""What really happened to gangs, as a history to be replayed: kept by looking again and again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from operator import is_not
from typing import Final, NamedTuple

import msgspec

from reconciler.analysis.backtest.history_file import Attempt, RecordedJob
from reconciler.kubernetes.binder.intents import Pods
from reconciler.kubernetes.control.signs import all_run_since, controllers_of, ended_as, ended_at, is_evicted, ran_from
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.wire import Pod
from solver.model.inflight import Ended, StopPurpose
from solver.model.quantities import Duration, Instant
from solver.model.workload import Job, JobName, JobSpec

KEPT: Final = Duration(7 * 86_400_000)
"""So long a job stays in the history after its end: a record that only grows would fill memory and disk in the end."""

FROM_THE_BEGINNING: Final = Instant(0)


class _Known(NamedTuple):
    """A gang when it was looked at last. `holding`: uids of its pods on nodes; `evicted`: some were sent away, and it is not whole
    since; `controllers`: what made its pods.
    """

    gang: PodGang
    holding: frozenset[str] = frozenset()
    evicted: bool = False
    controllers: frozenset[str] = frozenset()


class JobHistory:
    """Shown every look, it knows of each gang when it came, ran, was sent away and ended, as far as pods say it.

    `jobs` is what was recorded `until` then. Gangs that are there at the very first look count from then on, or from
    `since` on. A job that comes back under its name after it was evicted or failed, or from the same controller, is in its next
    attempt; any other is another job, `NAME#2`.
    """

    def __init__(
        self, jobs: Iterable[RecordedJob] = (), until: Instant | None = None, since: Instant | None = None
    ) -> None:
        self._jobs = {job.name: job for job in jobs}
        # In the order in which they came, so that the last of a name is the newest.
        self._newest = {_gang_of(name): name for name in self._jobs}
        self._since = min((job.submitted_at for job in self._jobs.values()), default=since)
        self._until = until
        self._there = {
            name: _Known(PodGang(name, (), 0, None)) for name in self._newest if not self._record(name).is_over
        }
        self._seen: dict[JobName, PodGang] = {}
        """All gangs at the last look, whether or not rounds can be asked about them."""
        self._gone: dict[JobName, frozenset[str]] = {}
        """The controllers of gangs that are gone."""
        self._makers: set[str] = set()
        """All controllers whose gangs are in the record."""
        self._changed = False
        self._ended: list[JobName] = []

    def jobs(self) -> tuple[RecordedJob, ...]:
        """Every job, in the order in which they came."""
        return tuple(self._jobs.values())

    def look(self, now: Instant, gangs: Mapping[JobName, PodGang], pods: Pods) -> bool:
        """One look at everything; whether the record has changed."""
        self._changed = False
        self._since = now if self._since is None else self._since
        # Of tens of thousands few have changed, and a pass is not to go through the others one by one.
        for gang in compress(gangs.values(), map(is_not, gangs.values(), map(self._seen.get, gangs))):
            self._see(now, gang, self._there.get(gang.name), pods)
        self._seen = dict(gangs)
        for name in self._there.keys() - gangs.keys():
            self._end(now, self._there.pop(name), pods)
        return self._changed

    def take_ended(self) -> tuple[RecordedJob, ...]:
        """Those that were found to have ended since this was asked last, as they are now; some may be there again."""
        ended, self._ended = self._ended, []
        return tuple(job for name in ended if (job := self._jobs.get(name)) and job.is_over)

    def forget(self, now: Instant) -> None:
        """Let go of what ended long ago."""
        old = [name for name, job in self._jobs.items() if job.ended_at is not None and job.ended_at.after(KEPT) < now]
        for name in old:
            del self._jobs[name]
            gang = _gang_of(name)
            if self._newest[gang] == name:
                del self._newest[gang]
                self._gone.pop(gang, None)
        known = (*self._gone.values(), *(there.controllers for there in self._there.values()))
        self._makers = set().union(*known)

    def _see(self, now: Instant, gang: PodGang, known: _Known | None, pods: Pods) -> None:
        here = [pod for member in gang.members if (pod := pods.get((member.namespace, member.name)))]
        seen = _Known(
            gang,
            frozenset(pod.metadata.uid for pod in here if pod.holds),
            any(is_evicted(pod) for pod in here),
            controllers_of(here),
        )
        if known is not None:
            self._put(self._left(self._record(gang.name), seen, known, here, now, pods))
        elif gang.job is not None:
            self._put(self._arrived(gang.job, seen.controllers, here))
        else:
            return  # it is not whole yet, or refused: no round can be asked about it
        if gang.job is not None:
            self._put(_carried_on(self._record(gang.name), gang, gang.job, all_run_since(here) or now))
        self._makers |= seen.controllers
        self._there[gang.name] = seen._replace(
            evicted=seen.evicted or bool(known and known.evicted and not _runs(gang)),
            controllers=seen.controllers or (known.controllers if known else frozenset()),
        )

    def _left(
        self, record: RecordedJob, seen: _Known, known: _Known, here: Iterable[Pod], now: Instant, pods: Pods
    ) -> RecordedJob:
        """Its attempt is over where none of its pods is on a node any more, be it that others are there in their place."""
        if not record.is_running:
            return record
        if not known.gang.members and self._until is not None and _began_after(self._until, here):
            return _closed(record, self._until, "requeue")
        if seen.holding and (not known.holding or seen.holding & known.holding):
            return record
        last = _last_of(known.gang, pods)
        if known.evicted or any(pod and is_evicted(pod) for pod in last):
            return _closed(record, now, "evict")
        return _closed(record, now, None if any(pod and pod.status.phase == "Failed" for pod in last) else "requeue")

    def _end(self, now: Instant, known: _Known, pods: Pods) -> None:
        """No pod of it lives any more."""
        record, last = self._record(known.gang.name), _last_of(known.gang, pods)
        is_evicted_now = known.evicted or any(pod and is_evicted(pod) for pod in last)
        at = max(ended_at(last, now), _free_from(record))
        from_then = ran_from(last)
        if record.is_running:
            record = _closed(record, at, "evict" if is_evicted_now else None)
        elif from_then is not None and from_then >= _free_from(record):
            # It began and ended between two looks.
            record = msgspec.structs.replace(
                record, attempts=(*record.attempts, Attempt(from_then, max(at, from_then)))
            )
        # It is not known how a gang ended that was never seen by this process.
        how = None if not last else "failed" if is_evicted_now else ended_as(last)
        self._put(msgspec.structs.replace(record, ended_at=max(at, _free_from(record)), ended_as=how))
        self._gone[known.gang.name] = known.controllers
        self._ended.append(record.name)

    def _arrived(self, job: Job, controllers: frozenset[str], here: Iterable[Pod]) -> RecordedJob:
        """The record of a gang that was not there at the last look: a new one, or one that goes on."""
        newest = self._newest.get(job.name)
        if newest is not None:
            before, made_by = self._jobs[newest], self._gone.pop(job.name, frozenset())
            if before.ended_as == "failed":
                return msgspec.structs.replace(before, ended_at=None, ended_as=None)
            if before.ended_as == "cancelled" and made_by & controllers:
                return msgspec.structs.replace(_sent_back(before), ended_at=None, ended_as=None)
        number = int(newest.partition("#")[2] or 1) + 1 if newest else 1
        name = JobName(f"{job.name}#{number}") if newest else job.name
        self._newest[job.name] = name
        # Of a controller that made others before, these were not asked for when it was created.
        came = _created(here, job.submitted_at) if controllers & self._makers else job.submitted_at
        return RecordedJob(name, _told(job.spec), job.user, came if self._since is None else max(came, self._since))

    def _record(self, gang: JobName) -> RecordedJob:
        return self._jobs[self._newest[gang]]

    def _put(self, record: RecordedJob) -> None:
        if self._jobs.get(record.name) != record:
            self._jobs[record.name] = record
            self._changed = True


def _gang_of(name: JobName) -> JobName:
    return JobName(name.partition("#")[0])


def _told(spec: JobSpec) -> JobSpec:
    """What a replay can use: the nodes that a task group is limited to are named anew in every snapshot."""
    groups = tuple(msgspec.structs.replace(group, nodes="") for group in spec.task_groups)
    return msgspec.structs.replace(spec, task_groups=groups)


def _runs(gang: PodGang) -> bool:
    """All of it, not merely all that is there."""
    return gang.job is not None and gang.job.phase == "running" and gang.missing is None


def _carried_on(record: RecordedJob, gang: PodGang, job: Job, since: Instant) -> RecordedJob:
    """The gang as it is now: its full size, since tasks that have ended are not asked for any more; and an attempt if it runs.

    `since`: when that began, if it does.
    """
    told = _told(job.spec)
    if told.tasks > record.spec.tasks:
        record = msgspec.structs.replace(record, spec=told)
    if not _runs(gang) or record.is_running:
        return record
    return msgspec.structs.replace(record, attempts=(*record.attempts, Attempt(max(since, _free_from(record)))))


def _free_from(record: RecordedJob) -> Instant:
    """No further attempt began before."""
    return max([record.submitted_at, *(one.ended_at for one in record.attempts if one.ended_at is not None)])


def _closed(record: RecordedJob, at: Instant, why: StopPurpose | None) -> RecordedJob:
    *earlier, last = record.attempts
    last = Attempt(last.started_at, max(at, last.started_at), why)
    return msgspec.structs.replace(record, attempts=(*earlier, last))


def _sent_back(record: RecordedJob) -> RecordedJob:
    """Its pods were deleted without a word and are made anew: it was sent back, and it is not known by what."""
    if not record.attempts or record.attempts[-1].stopped_for is not None:
        return record
    *earlier, last = record.attempts
    return msgspec.structs.replace(
        record, attempts=(*earlier, Attempt(last.started_at, last.ended_at, stopped_for="requeue"))
    )


def _created(here: Iterable[Pod], otherwise: Instant) -> Instant:
    return min((Instant.parse(made) for pod in here if (made := pod.metadata.creation_timestamp)), default=otherwise)


def _began_after(at: Instant, here: Iterable[Pod]) -> bool:
    """Whether all that are on nodes began only then, so that they are not those that were there."""
    started = [pod.status.start_time for pod in here if pod.holds]
    return bool(started) and all(time and Instant.parse(time) > at for time in started)


def _last_of(gang: PodGang, pods: Pods) -> list[Pod | None]:
    """The pods that it had, as they are now; None for those that are gone, be it that others have their names."""
    found = [(member.uid, pods.get((member.namespace, member.name))) for member in gang.members]
    return [pod if pod and pod.metadata.uid == uid else None for uid, pod in found]


class EndedGangs:
    """Looks at the cluster in every pass of one leader; a gang that ended while none led is not known.

    Gangs that run at the first look count from when their kubelets began them, without attempts that were over by then.
    """

    def __init__(self) -> None:
        self._history = JobHistory(since=FROM_THE_BEGINNING)

    def look(self, now: Instant, gangs: Mapping[JobName, PodGang], pods: Pods) -> tuple[Ended, ...]:
        """Gangs that have ended since the last look. One that comes back and ends again is told again, with what it ran in all."""
        self._history.look(now, gangs, pods)
        ended = tuple(found for job in self._history.take_ended() for found in _ended(job))
        if ended:
            self._history.forget(now)
        return ended


def _ended(job: RecordedJob) -> Iterator[Ended]:
    """Not one that was sent away, and has not done its work by that; nor one that never ran, or has no GPUs."""
    if not job.attempts or job.attempts[-1].stopped_for is not None or not job.spec.gpus:
        return
    ran = sum(one.ended_at - one.started_at for one in job.attempts if one.ended_at is not None)
    spec = job.spec
    yield Ended(spec.queue, spec.gpus, job.submitted_at, job.name, Duration(ran), spec.priority_class)
