"""What becomes of jobs, counted as it happens: starts and how long they were waited for, evictions, failures, work that is lost.

It is told by what does it, in the threads that do it, and remembers of each job only what the next step needs. No label names a
job, user or node: queues, classes and causes are those of the policy and of the program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple, get_args

from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.control.attempt_counts import FailureFollow, LossCause
from reconciler.model.failure import FailureKind
from reconciler.protocols.history import Event
from reconciler.protocols.rounds import NarrowRecord, RoundRecord
from solver.model.quantities import Instant
from solver.model.workload import Job, JobName
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Bind, Evict, EvictedBy, Plan, Shrink, ShrunkBy, Step, Waits
from solver.policy.policy import Policy

_QUEUE_BUCKETS_S: Final = (
    1, 5, 15, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400, 259_200, 604_800,
)  # fmt: skip
"""From a start beside the round to a week: what is told in seconds, minutes, hours and days."""

_ERROR_BUCKETS_S: Final = (10, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400, 259_200)
"""A forecast is told to the second and judged by people: minutes for short jobs, hours for long ones."""


class _Facts(NamedTuple):
    """Of a job that is to start. `is_first`: it never did before."""

    queue: str
    priority_class: str
    submitted_at: Instant
    is_first: bool


class JobTally(Collector):
    """Tell it what is decided and done. `counts_ends`: failures and lost work are known here, as they are not where jobs are pods.
    `decides` not: what is decided is not done, another scheduler decides.

    Threads may share it.
    """

    def __init__(self, *, counts_ends: bool = True, decides: bool = True) -> None:
        self._lock = Lock()
        self._policy: Policy | None = None
        self._jobs: Sequence[Job] = ()
        self._by_name: Mapping[JobName, Job] | None = None
        self._starting: dict[JobName, _Facts] = {}
        self._foretold: dict[JobName, Instant] = {}
        self._starts = Counter(
            "quorate_job_starts", "Attempts that were given what they need.", ["queue"], registry=None
        )
        self._waits = Histogram(
            "quorate_job_queue_seconds",
            "From the submission of a job to its first start, whatever it waited for.",
            ["priority_class"],
            buckets=_QUEUE_BUCKETS_S,
            registry=None,
        )
        self._evictions = Counter(
            "quorate_evictions",
            "Jobs that rounds asked to leave or to shrink, by why.",
            ["queue", "means"],
            registry=None,
        )
        self._errors = Histogram(
            "quorate_forecast_error_seconds",
            "By how much jobs started earlier or later than they were told first.",
            ["direction"],
            buckets=_ERROR_BUCKETS_S,
            registry=None,
        )
        self._failures = Counter(
            "quorate_job_failures",
            "Failures of jobs by their kind, and what followed.",
            ["kind", "follow"],
            registry=None,
        )
        self._lost = Counter(
            "quorate_gpu_lost_seconds",
            "GPU-seconds of work since the last checkpoint, of attempts that are over.",
            ["cause"],
            registry=None,
        )
        for direction in ("early", "late"):
            self._errors.labels(direction)
        if counts_ends:
            self._begin_at_zero()
        done = (self._starts, self._waits, self._evictions, self._errors) if decides else ()
        self._all: tuple[Collector, ...] = (*done, *((self._failures, self._lost) if counts_ends else ()))

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        for one in self._all:
            yield from one.collect()

    def rules(self, policy: Policy) -> None:
        """Rounds are decided under this policy: its queues and classes begin with 0, so that the first rise is seen."""
        with self._lock:
            is_known, self._policy = self._policy is policy, policy
        if is_known:
            return
        for queue in policy.queues:
            self._starts.labels(queue.name)
            for means in dict.fromkeys((*get_args(EvictedBy), *get_args(ShrunkBy))):
                self._evictions.labels(queue.name, means)
        for priority_class in policy.priority_classes:
            self._waits.labels(priority_class.name)

    def decided(self, record: RoundRecord) -> None:
        """This round is going to be acted on."""
        self.rules(record.policy)
        self._jobs, self._by_name = record.snapshot.jobs, None
        self._note(record.plan.steps, record.snapshot.jobs)

    def decided_beside(self, record: NarrowRecord) -> None:
        """So is this, which was decided on what that round had left."""
        if self._by_name is None:
            self._by_name = {job.name: job for job in self._jobs}
        named = {step.job for step in record.steps}
        came = {job.name: job for job in (*record.taken, *record.waited, *record.unsure, *record.came)}
        known = (came.get(name) or self._by_name.get(name) for name in named)
        self._note(record.steps, [job for job in known if job is not None])

    def _note(self, steps: Collection[Step], jobs: Iterable[Job]) -> None:
        """`jobs`: among which those are that the steps name."""
        starting = {step.job: step.attempt for step in steps if isinstance(step, Bind)}
        leaving = {step.job: step for step in steps if isinstance(step, Evict | Shrink)}
        if not starting and not leaving:
            return
        for job in jobs:
            if job.name in starting:
                facts = _Facts(*self._labels_of(job), job.submitted_at, starting[job.name] == 1)
                with self._lock:
                    self._starting[job.name] = facts
            if job.name in leaving:
                self._evictions.labels(self._labels_of(job)[0], leaving[job.name].means).inc()

    def happened(self, events: Iterable[Event]) -> None:
        """This is on record."""
        for event in events:
            if event.kind == "bound":
                self._started(JobName(event.subject), event.time)
            elif event.kind == "bind-refused":
                with self._lock:
                    self._starting.pop(JobName(event.subject), None)

    def _started(self, name: JobName, at: Instant) -> None:
        with self._lock:
            facts, foretold = self._starting.pop(name, None), self._foretold.pop(name, None)
        if facts is None:
            return
        self._starts.labels(facts.queue).inc()
        if facts.is_first:
            self._waits.labels(facts.priority_class).observe(max(0, at - facts.submitted_at) / 1_000)
        if foretold is not None:
            late_s = (at - foretold) / 1_000
            self._errors.labels("late" if late_s >= 0 else "early").observe(abs(late_s))

    def foretell(self, plan: Plan) -> None:
        """This is told of jobs that wait. What was told first is what is judged."""
        waits = [verdict for verdict in plan.verdicts if isinstance(verdict, Waits)]
        with self._lock:
            before = self._foretold
            self._foretold = {one.job: before[one.job] for one in waits if one.job in before}
            for one in waits:
                if isinstance(one.estimate, EarliestStart):
                    self._foretold.setdefault(one.job, one.estimate.at)

    def failed(self, kind: FailureKind, follow: FailureFollow) -> None:
        """A job, or tasks of it."""
        self._failures.labels(kind, follow).inc()

    def lost(self, cause: LossCause, gpu_s: float) -> None:
        """An attempt is over, and so much of its work is gone."""
        self._lost.labels(cause).inc(gpu_s)

    def _labels_of(self, job: Job) -> tuple[str, str]:
        """Its queue and class; "" for a name that policy does not know: anybody may make one up."""
        policy = self._policy
        if policy is None:
            return "", ""
        priority_class = policy.priority_class(job)
        return job.spec.queue if policy.queue(job.spec.queue) else "", priority_class.name if priority_class else ""

    def _begin_at_zero(self) -> None:
        for kind in get_args(FailureKind):
            for follow in get_args(FailureFollow):
                self._failures.labels(kind, follow)
        for cause in get_args(LossCause):
            self._lost.labels(cause)
