"""Judges whether a plan starts only what the queues let in: no queue on hold, no class it does not take, no user above a cap.

Part of the checker, and as slow and obvious. It needs every bound job and node to be in the snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from solver.plan.plan import Bind, Evict, Nominate, Plan, Withdraw
from solver.plan.violation import Violation
from solver.rules.policy import Policy, Queue
from solver.world.cluster import GpuType
from solver.world.quantities import MilliGpu
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, TaskPlacement

UserUse = Counter[tuple[str, GpuType, str]]
"""GPUs by queue, type and user."""

Holders = Sequence[tuple[str, str, tuple[TaskPlacement, ...]]]
"""Placements, each with its queue and user."""


def entry_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    """Every start that a queue on the job's path does not let in."""
    jobs = {job.name: job for job in snapshot.jobs}
    bound = [(jobs[step.job], step.tasks) for step in plan.steps if isinstance(step, Bind | Nominate)]
    for job, _ in bound:
        known = policy.priority_class(job)
        for queue in path_of(policy, job.spec.queue):
            if queue.stop_policy != "None":
                yield Violation("hold", job.name, f"starts although queue {queue.name} is on hold")
            if queue.priority_classes is not None and (known is None or known.name not in queue.priority_classes):
                problem = f"starts with a priority class that queue {queue.name} does not take"
                yield Violation("class", job.name, problem)
    stays = [(job.spec.queue, job.user, tasks) for job, tasks in staying(snapshot, plan)]
    yield from _users(snapshot, policy, stays, [(job.spec.queue, job.user, tasks) for job, tasks in bound])


def staying(snapshot: Snapshot, plan: Plan) -> Iterable[tuple[Job, tuple[TaskPlacement, ...]]]:
    """Who counts beside what a plan gives: not who is evicted, but who was promised its devices and keeps the promise."""
    leaving = {intent.job for intent in snapshot.in_flight.intents if intent.evicts}
    leaving |= {step.job for step in plan.steps if isinstance(step, Evict)}
    settled = {step.job for step in plan.steps if isinstance(step, Bind | Nominate | Withdraw)}
    promised = {intent.job: intent.tasks for intent in snapshot.in_flight.nominations if intent.job not in settled}
    for job in snapshot.jobs:
        goes_on = job.phase != "pending" and job.name not in leaving
        yield job, job.placement if goes_on else promised.get(job.name, ())


def path_of(policy: Policy, name: str) -> list[Queue]:
    """A queue and those above it."""
    path: list[Queue] = []
    queue = policy.queue(name)
    while queue is not None and queue not in path:
        path.append(queue)
        queue = policy.queue(queue.parent) if queue.parent else None
    return path


def _users(snapshot: Snapshot, policy: Policy, stays: Holders, started: Holders) -> Iterable[Violation]:
    """S3 for users: no start lifts a user above a queue's perUser; a cap already broken is not made worse."""
    before = _use(snapshot, policy, stays)
    added = _use(snapshot, policy, started)
    for (name, gpu_type, user), milli in sorted(added.items()):
        queue = policy.queue(name)
        entry = queue.quota_for(gpu_type) if queue else None
        held = before[name, gpu_type, user]
        if milli and entry and entry.per_user is not None and held + milli > entry.per_user:
            holds = f"{MilliGpu(held)} + {MilliGpu(milli)} {gpu_type} of user {user or '(none)'}"
            problem = f"{holds} is above perUser {entry.per_user}"
            yield Violation("S3", name, problem)


def _use(snapshot: Snapshot, policy: Policy, holders: Holders) -> UserUse:
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    use: UserUse = Counter()
    for name, user, tasks in holders:
        for queue in path_of(policy, name):
            for task in tasks:
                use[queue.name, types.get(task.node, GpuType("")), user] += task.gpus
    return use
