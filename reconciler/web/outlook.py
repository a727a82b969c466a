"""What the last pass expects: until when what runs runs, what is promised and reserved, and when jobs that wait could start.

It is worked out once for a pass, whoever looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, Literal, NamedTuple, Self

from reconciler.api.services import Services
from solver.model.inflight import declared_name
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.estimates import AnyEstimate, EarliestStart
from solver.plan.plan import Verdict, Waits
from solver.policy.policy import Policy
from solver.queueing.durations import expected, expected_of

EndBasis = Literal["limit", "asked", "history", ""]
"""Why a job is expected to end: by its time limit, asked to leave, as most of its queue and class did; "": it is not."""

END_WORDS: Final[Mapping[EndBasis, str]] = {
    "limit": "its time limit",
    "asked": "it was asked to leave",
    "history": "by then most of its queue and class had ended",
    "": "it has no time limit",
}


class ExpectedEnd(NamedTuple):
    """`at` None: it is not known."""

    at: Instant | None
    basis: EndBasis


class PlannedStart(NamedTuple):
    """A job that waits, and where it is known when it may start.

    `kind`: promised (exactly these devices, as soon as they are free), reserved (they are kept for it from then on), or forecast.
    `until` None: it may then run for ever. `told`: on what it rests, in words. `is_vague`: also on how long others took.
    """

    job: Job
    kind: Literal["promised", "reserved", "forecast"]
    at: Instant
    until: Instant | None
    gpus: MilliGpu
    told: str
    is_vague: bool = False


class RunningJob(NamedTuple):
    """A job and what it holds."""

    job: Job
    gpus: MilliGpu


@dataclass(frozen=True, slots=True)
class Outlook:
    """`running`: jobs that hold GPUs, the biggest first; `planned`: jobs that wait, by when they may start; both by their queue.

    `starts`: the same by job. `unknown`: how many jobs of a queue wait, and it can't be said until when. `estimates`: as the plan
    has them.
    """

    snapshot: Snapshot
    ends: Mapping[JobName, ExpectedEnd]
    running: Mapping[QueueName, Sequence[RunningJob]]
    planned: Mapping[QueueName, Sequence[PlannedStart]]
    starts: Mapping[JobName, PlannedStart]
    unknown: Mapping[QueueName, int]
    estimates: Mapping[JobName, AnyEstimate | None]
    jobs: Mapping[JobName, Job]

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, estimates: Mapping[JobName, AnyEstimate | None]) -> Self:
        """Of the world as a pass saw it, and what it said of jobs that wait."""
        running, waiting = list[Job](), list[Job]()
        for job in snapshot.jobs:
            (running if job.placement else waiting).append(job)
        jobs = {job.name: job for job in snapshot.jobs}
        planned = _planned(snapshot, policy, jobs, waiting, estimates)
        unknown = defaultdict[QueueName, int](int)
        for job in waiting:
            unknown[job.spec.queue] += job.name not in planned
        by_queue = defaultdict[QueueName, list[PlannedStart]](list)
        for start in sorted(planned.values(), key=lambda start: start.at):
            by_queue[start.job.spec.queue].append(start)
        held = defaultdict[QueueName, list[RunningJob]](list)
        for each in sorted((RunningJob(job, _gpus(job.placement)) for job in running), key=lambda each: -each.gpus):
            if each.gpus:
                held[each.job.spec.queue].append(each)
        return cls(
            snapshot, _ends(snapshot, running), dict(held), dict(by_queue), planned, dict(unknown), estimates, jobs
        )


class Outlooks:
    """Of one server. Any thread may ask; one works, the others wait for what it finds."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._working = Lock()
        self._latest: tuple[Collection[Verdict] | None, Outlook] | None = None

    def latest(self) -> Outlook:
        """As of now. Raises NotReadyError, NoPolicyError."""
        snapshot, (_, policy) = self._services.snapshot(), self._services.policy()
        with self._working:
            verdicts, known = self._services.verdicts(), self._latest
            if known is None or known[1].snapshot is not snapshot or known[0] is not verdicts:
                # A plan whose second part is still to come says nothing of those that wait: what was said before holds.
                estimates = known[1].estimates if verdicts is None and known else dict(_estimates(verdicts or ()))
                self._latest = known = verdicts, Outlook.of(snapshot, policy, estimates)
            return known[1]


def _estimates(verdicts: Iterable[Verdict]) -> Iterator[tuple[JobName, AnyEstimate | None]]:
    for verdict in verdicts:
        if isinstance(verdict, Waits):
            yield verdict.job, verdict.estimate


def _ends(snapshot: Snapshot, running: Iterable[Job]) -> dict[JobName, ExpectedEnd]:
    """When each is expected to end."""
    leaving = {intent.job: intent.deadline for intent in snapshot.in_flight.intents if intent.kind == "stop"}
    durations, found = expected(snapshot.in_flight.durations), dict[JobName, ExpectedEnd]()
    for job in running:
        since = snapshot.time if job.started_at is None else job.started_at
        usual = expected_of(job, durations) if job.time_limit is None else None
        if job.name in leaving:
            found[job.name] = ExpectedEnd(leaving[job.name], "asked")
        elif job.time_limit is not None:
            found[job.name] = ExpectedEnd(since.after(job.time_limit), "limit")
        elif usual is not None and since.after(usual) > snapshot.time:
            found[job.name] = ExpectedEnd(since.after(usual), "history")
        else:
            found[job.name] = ExpectedEnd(None, "")
    return found


def _planned(
    snapshot: Snapshot,
    policy: Policy,
    jobs: Mapping[JobName, Job],
    waiting: Iterable[Job],
    estimates: Mapping[JobName, AnyEstimate | None],
) -> dict[JobName, PlannedStart]:
    """What is promised before what is reserved, and that before what is forecast."""
    found = dict[JobName, PlannedStart]()

    def begins(job: Job, at: Instant) -> Instant | None:
        limit = policy.time_limit(job)
        return None if limit is None else at.after(limit)

    for job in waiting:
        estimate = estimates.get(job.name)
        if isinstance(estimate, EarliestStart):
            told, vague = str(estimate), estimate.by_history
            found[job.name] = PlannedStart(
                job, "forecast", estimate.at, begins(job, estimate.at), job.spec.gpus, told, vague
            )
    for reserved in snapshot.in_flight.reservations:
        if declared_name(reserved.holder) is None and (held := jobs.get(reserved.holder)) is not None:
            told = f"kept for it from {reserved.start} on"
            until = reserved.until or begins(held, reserved.start)
            found[held.name] = PlannedStart(held, "reserved", reserved.start, until, _gpus(reserved.tasks), told)
    for promise in snapshot.in_flight.nominations:
        if (held := jobs.get(promise.job)) is not None:
            told = f"promised, as soon as they are free; the promise holds until {promise.deadline}"
            until = begins(held, snapshot.time)
            found[held.name] = PlannedStart(held, "promised", snapshot.time, until, _gpus(promise.tasks), told)
    return found


def _gpus(tasks: Iterable[TaskPlacement]) -> MilliGpu:
    return MilliGpu(sum(int(task.gpus) for task in tasks))
