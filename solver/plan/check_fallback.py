"""Judges whether GPU types further down a wish list are used only in time, or inside a guarantee.

Part of the checker, and as slow and obvious. It needs every bound job and node to be in the snapshot. Whether a preferred type
could ever serve a job it knows only of plain ones (`_sure_to_serve`), and of others it says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from solver.plan.check_entry import path_of
from solver.plan.check_moves import moving
from solver.plan.plan import Bind, Evict, Nominate, Plan, Withdraw
from solver.plan.violation import Violation
from solver.rules.entitlement import gpus_by_type, guarantees
from solver.rules.policy import Policy
from solver.rules.tree import Line, QueueTree
from solver.world.cluster import GpuType
from solver.world.quantities import MilliGpu
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, TaskPlacement


def fallback_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    """Every early use of a fallback type, outside what its queue is guaranteed of it."""
    jobs = {job.name: job for job in snapshot.jobs}
    promised = {intent.job for intent in snapshot.in_flight.nominations}
    # Who was promised its devices before was early, or not, when that was decided.
    # Who moves stays on its type.
    known = promised | moving(plan)
    steps = [step for step in plan.steps if isinstance(step, Bind | Nominate) and step.job not in known]
    types = snapshot.gpu_types
    early = [
        (jobs[step.job], step.tasks)
        for step in steps
        if _is_early(jobs[step.job], {types[task.node] for task in step.tasks if task.devices}, snapshot, policy)
    ]
    if not early:
        return
    guaranteed = guarantees(QueueTree.of(policy), gpus_by_type(snapshot))
    use = _use(snapshot, policy, [*_stays(snapshot, plan), *early])
    for job, tasks in early:
        for line in _use(snapshot, policy, [(job, tasks)]):
            if use[line] > guaranteed.get(line, 0):
                held, most = MilliGpu(use[line]), MilliGpu(guaranteed.get(line, 0))
                said = f"is early on {line.gpu_type}: queue {line.queue} would hold {held} of {most} guaranteed"
                yield Violation("fallback", job.name, said)


def _is_early(job: Job, used: set[GpuType], snapshot: Snapshot, policy: Policy) -> bool:
    known = policy.priority_class(job)
    after = job.spec.fallback_after
    if after is None and known is not None:
        after = known.fallback_after
    if after is None:
        after = policy.scheduling.fallback_after
    if snapshot.time >= job.submitted_at + after or len(job.spec.task_groups) > 1:
        return False
    wishes = job.spec.task_groups[0].shape.gpu_types
    return any(
        wishes.index(gpu_type) > 0
        and any(_sure_to_serve(job, better, snapshot, policy) for better in wishes[: wishes.index(gpu_type)])
        for gpu_type in used & set(wishes)
    )


def _sure_to_serve(job: Job, gpu_type: GpuType, snapshot: Snapshot, policy: Policy) -> bool:
    """Whole GPUs, nothing asked of topology, no ceiling in the way, all lent, and enough nodes, were they empty."""
    (group,) = job.spec.task_groups
    shape, least = group.shape, group.replicas if group.min_replicas is None else group.min_replicas
    topology, known = job.spec.topology, policy.priority_class(job)
    if any(entry.lendable is not None for queue in policy.queues for entry in queue.quota):
        return False
    asks = topology.required or topology.group or topology.spread
    own = group.topology.required or group.topology.group or group.topology.spread
    if asks or own or not shape.gpus or (known and not known.preemptible):
        return False
    for queue in path_of(policy, job.spec.queue):
        entry = queue.quota_for(gpu_type)
        limits = (entry.max, entry.per_user) if entry else ()
        if any(limit is not None and limit < least * MilliGpu.gpus(shape.gpus) for limit in limits):
            return False
    room = 0
    for node in snapshot.nodes:
        # A GPU that is partitioned may never be whole again.
        whole = [gpu for gpu in node.gpus if gpu.healthy and gpu.instances is None]
        if node.gpu_type == gpu_type and node.ready and not node.cordoned:
            hosts = [have // need for have, need in ((node.cpu, shape.cpu), (node.memory, shape.memory)) if need]
            room += min((len(whole) // shape.gpus, *hosts))
    return room >= least


def _stays(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[Job, tuple[TaskPlacement, ...]]]:
    """Who holds GPUs and keeps them, or was promised some."""
    leaving = {intent.job for intent in snapshot.in_flight.intents if intent.evicts}
    leaving |= {step.job for step in plan.steps if isinstance(step, Evict)} - moving(plan)
    withdrawn = {step.job for step in plan.steps if isinstance(step, Withdraw)}
    promised = {intent.job: intent.tasks for intent in snapshot.in_flight.nominations}
    for job in snapshot.jobs:
        if job.placement and job.name not in leaving:
            yield job, job.placement
        elif job.name in promised and job.name not in withdrawn:
            yield job, promised[job.name]


def _use(snapshot: Snapshot, policy: Policy, holders: Iterable[tuple[Job, tuple[TaskPlacement, ...]]]) -> Counter[Line]:
    types = {node.name: node.gpu_type for node in snapshot.nodes}
    use: Counter[Line] = Counter()
    for job, tasks in holders:
        for queue in path_of(policy, job.spec.queue):
            for task in tasks:
                use[Line(queue.name, types.get(task.node, GpuType("")))] += task.gpus
    return use
