"""Judges what a plan says of earliest starts by plain counts that share no code with the forecast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from solver.plan.estimates import EarliestStart
from solver.plan.known_ends import KnownEnds
from solver.plan.plan import Bind, Evict, Plan, Waits
from solver.rules.policy import Policy
from solver.world.cluster import Node
from solver.world.quantities import Instant, MilliGpu
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName, JobSpec, TaskPlacement


def false_estimates(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[tuple[JobName, str]]:
    """Jobs that are told a start in the past, beyond the horizon, or before as many GPUs as they need can be free."""
    jobs: Mapping[JobName, Job] = {job.name: job for job in snapshot.jobs}
    nodes: Mapping[str, Node] = {node.name: node for node in snapshot.nodes}
    future = _Future(nodes, snapshot, plan, jobs, KnownEnds.of(snapshot))
    for verdict in plan.verdicts:
        if isinstance(verdict, Waits) and isinstance(verdict.estimate, EarliestStart) and verdict.job in jobs:
            at, spec = verdict.estimate.at, jobs[verdict.job].spec
            if not snapshot.time < at <= snapshot.time + policy.scheduling.eta_horizon:
                yield verdict.job, f"{at} is in the past or beyond the horizon"
            free = future.most_free(at, spec)
            least = MilliGpu(
                sum((group.min_replicas or group.replicas) * group.shape.cost for group in spec.task_groups)
            )
            if least > free:
                yield verdict.job, f"needs {least} GPUs; at most {MilliGpu(free)} can be free at {at}"


@dataclass(frozen=True, slots=True)
class _Future:
    """What is there, what runs, and what the plan binds."""

    nodes: Mapping[str, Node]
    snapshot: Snapshot
    plan: Plan
    jobs: Mapping[JobName, Job]
    known: KnownEnds

    def most_free(self, at: Instant, spec: JobSpec) -> int:
        """Milli-GPU of the types a job accepts that nobody is known to hold at an instant."""
        accepted = {gpu_type for group in spec.task_groups for gpu_type in group.shape.gpu_types}
        picky = all(group.shape.gpu_types for group in spec.task_groups if group.shape.uses_gpus)
        usable = {
            node.name: MilliGpu.gpus(len(node.gpus))
            for node in self.nodes.values()
            if node.ready and not node.cordoned and (not picky or node.gpu_type in accepted)
        }
        held = sum(task.gpus for task in self._held(at) if task.node in usable)
        return sum(usable.values()) - held

    def _held(self, at: Instant) -> Iterable[TaskPlacement]:
        """Whoever nobody asked to stop runs until its limit; a start that is not confirmed is given the benefit of the doubt."""
        gone = {
            step.job for step in self.plan.steps if isinstance(step, Evict) and self.snapshot.time + step.grace <= at
        }
        for job in self.snapshot.jobs:
            limit = self.known.limit(job, job.time_limit)
            limited = limit is not None and (job.started_at is None or job.started_at + limit <= at)
            if (
                job.phase != "stopping"
                and not limited
                and job.name not in gone
                and not self.known.gives_back(job.placement, at)
            ):
                yield from job.placement
        for step in self.plan.steps:
            if isinstance(step, Bind) and not self._ended(step, at):
                yield from () if self.known.gives_back(step.tasks, at) else step.tasks

    def _ended(self, step: Bind, at: Instant) -> bool:
        limit = self.known.limit(self.jobs[step.job], step.time_limit)
        return limit is not None and self.snapshot.time + limit <= at
