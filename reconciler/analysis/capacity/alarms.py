"""What is worth telling of jobs: they wait too long for what is short, past their forecast, inside their guarantee, or end late.

Pure: of one round, and of what jobs were told before. When which of these becomes an event is for the server to say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from reconciler.alerts.kinds import AlertKind
from reconciler.analysis.capacity.bottlenecks import ADDED_BY_NODES, Bottleneck, bottleneck_of
from reconciler.model.late_runs import late_run
from reconciler.model.spans import span
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Plan, Waits
from solver.plan.reason import count
from solver.plan.reasons import AnyReason, HeldReason, QuotaMax
from solver.policy.policy import Policy
from solver.policy.precedence import waiting_since
from solver.policy.tree import QueueTree
from solver.policy.windows import policy_at
from solver.quota.entitlement import gpus_by_type, use_by_line
from solver.quota.guarantees import guarantees


class Alarm(NamedTuple):
    """What is so for `after` or longer. `since`: what was told before does not count as told."""

    kind: AlertKind
    subject: str
    after: Duration
    since: Instant
    cause: str


@dataclass(frozen=True)
class WaitAlarms:
    """Jobs that wait by the plan of a round. `now` may be later than it."""

    snapshot: Snapshot
    plan: Plan
    policy: Policy
    now: Instant

    @cached_property
    def _waits(self) -> list[tuple[Job, Waits]]:
        """Those that have waited longest first."""
        jobs = {job.name: job for job in self.snapshot.pending}
        found = [(jobs[one.job], one) for one in self.plan.verdicts if isinstance(one, Waits) and one.job in jobs]
        return sorted(found, key=lambda pair: (waiting_since(pair[0]), pair[0].name))

    def _waited(self, job: Job) -> int:
        return self.now - waiting_since(job)

    def short(self, thresholds: Collection[Duration]) -> Iterator[Alarm]:
        """What more nodes would bring, and is waited for so long: one for each such thing."""
        there = {node.gpu_type for node in self.snapshot.nodes if node.gpus}
        waiting: dict[Bottleneck, list[Job]] = defaultdict(list)
        for job, verdict in self._waits:
            found = bottleneck_of(verdict.reasons, job.spec, there)
            if found.kind in ADDED_BY_NODES:
                waiting[found].append(job)
        for found, jobs in sorted(waiting.items()):
            for after in sorted(thresholds):
                late = [job for job in jobs if self._waited(job) >= after]
                if late:
                    gpus = MilliGpu(sum(job.spec.gpus for job in late))
                    told = f"{count(len(late), 'job')} of {count(gpus.number, 'GPU')} {'waits' if len(late) == 1 else 'wait'}"
                    cause = f"{told} {after} or longer for {found}: {late[0].name} for {span(self._waited(late[0]))}"
                    since = waiting_since(late[0]).after(after)
                    yield Alarm("capacity", f"capacity:{found}", after, since, cause)

    def overdue(self, foretold: Mapping[JobName, Instant], thresholds: Collection[Duration]) -> Iterator[Alarm]:
        """Jobs that have not started so long after the instant that they were told first."""
        for job, verdict in self._waits:
            at = foretold.get(job.name)
            for after in sorted(thresholds):
                if at is not None and self.now - at >= after:
                    now_told = verdict.estimate
                    next_told = f"not before {now_told.at}" if isinstance(now_told, EarliestStart) else "unknown"
                    cause = f"it was to start at {at}, and waits {span(self.now - at)} longer; now: {next_told}"
                    yield Alarm("forecast-missed", job.name, after, waiting_since(job), cause)

    def at_risk(self) -> Iterator[Alarm]:
        """Jobs with a `finish_by` after which they may end, if they take the whole of their time limit."""
        starts = [(job, job.started_at) for job in self.snapshot.jobs if job.placement]
        starts += [(job, one.estimate.at) for job, one in self._waits if isinstance(one.estimate, EarliestStart)]
        for job, start in starts:
            by, limit = job.finish_by, self.policy.time_limit(job) if job.time_limit is None else job.time_limit
            if told := late_run(by, start, limit, runs=bool(job.placement)):
                cause = f"it may end after its finishBy, {by}: {told}"
                yield Alarm("finish-by-at-risk", job.name, Duration(0), job.submitted_at, cause)

    def unserved(self, thresholds: Collection[Duration]) -> Iterator[Alarm]:
        """Jobs that lie inside the guarantee of every queue on their path and have waited so long."""
        for job, gpu_type in self._inside():
            for after in sorted(thresholds):
                if self._waited(job) >= after:
                    wanted = f"{job.spec.gpus} {gpu_type}, inside the guarantee of queue {job.spec.queue}"
                    cause = f"it waits {span(self._waited(job))} for {wanted}"
                    yield Alarm("guarantee-not-met-for", job.name, after, waiting_since(job), cause)

    def _inside(self) -> Iterator[tuple[Job, GpuType]]:
        """Each counts for those that wait for a shorter time: not more lie inside than the guarantee has room for."""
        policy = policy_at(self.policy, self.snapshot.time)
        tree, capacity = QueueTree.of(policy), gpus_by_type(self.snapshot)
        left = dict(guarantees(tree, capacity))
        for line, milli in use_by_line(self.snapshot, tree).items():
            left[line] = left.get(line, 0) - milli
        for job, verdict in self._waits:
            if not job.spec.gpus or any(map(_is_of_queue, verdict.reasons)):
                continue  # Its queue says that it waits.
            for gpu_type in _accepted(job, capacity):
                lines = tree.lines(job.spec.queue, gpu_type)
                if lines and all(left.get(line, 0) >= job.spec.gpus for line in lines):
                    for line in lines:
                        left[line] -= job.spec.gpus
                    yield job, gpu_type
                    break


def _is_of_queue(reason: AnyReason) -> bool:
    """Whether its queue, or what another one lends, keeps it waiting now."""
    return isinstance(reason, HeldReason) or (isinstance(reason, QuotaMax) and not reason.is_ahead)


def _accepted(job: Job, there: Collection[GpuType]) -> list[GpuType]:
    """The GPU types of the cluster that all task groups with GPUs accept."""
    wishes = [group.shape.gpu_types for group in job.spec.task_groups if group.shape.uses_gpus]
    return [known for known in sorted(there) if all(not types or known in types for types in wishes)]
