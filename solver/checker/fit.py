"""Counts the last two layers again: how far what a plan starts and promises lies from its wishes, and what its types weigh.

From nodes and documents alone. Part of the checker. It needs every bound job and node to be in
the snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from solver.checker.case import JudgedPlan
from solver.checker.closeness import bundles, units
from solver.model.cluster import GpuType, Level, Node, NodeName
from solver.model.workload import Job, TaskPlacement
from solver.plan.violation import Violation

NVLINK_GB_PER_S = 900


def fit_violations(case: JudgedPlan) -> Iterable[Violation]:
    """The certificate claims another fit than the plan has, or other weights of the types used."""
    jobs, nodes = case.jobs, case.ground.by_name
    # What was promised before is bound as it was promised, and in no layer of this round.
    # And who moves has started before.
    promised = case.promised.keys() - case.withdrawn
    steps = [s for s in case.placing if s.job not in promised and jobs[s.job].phase != "running"]
    weights = dict.fromkeys(_types(nodes), 1.0)
    stated_weights = case.policy.scheduling.gpu_types
    weights |= {stated.gpu_type: stated.weight for stated in stated_weights if stated.gpu_type in weights}
    counted = {
        "fit": 0.0 - sum(_misfit(jobs[step.job], step.tasks, nodes, weights) for step in steps),
        "type-weight": 0.0 - sum(_excess(jobs[step.job], step.tasks, nodes, weights) for step in steps),
    }
    for layer in case.plan.certificate.layers:
        found = counted.get(layer.name)
        if found is not None and abs(layer.value - found) > 1e-5 * max(1.0, abs(found)):
            yield Violation("fit", layer.name, f"the certificate says {layer.value}, the plan has {found}")


def _misfit(
    job: Job, tasks: Sequence[TaskPlacement], nodes: Mapping[NodeName, Node], known: Collection[GpuType]
) -> float:
    """GPUs, times the places down the wish list of types, the data that are not near, and what they pay for being apart.

    `known`: the types that there are.
    """
    down = 0
    for group in job.spec.task_groups:
        used: GpuType | None = next((nodes[task.node].gpu_type for task in tasks if task.group == group.name), None)
        if group.shape.uses_gpus and used in group.shape.gpu_types:
            down += [wish for wish in group.shape.gpu_types if wish in known].index(used)
    milli = sum(task.gpus for task in tasks)
    topology = job.spec.topology
    wishes = job.spec.data or topology.preferred or topology.communication != "normal"
    apart = strain(job, [nodes[task.node] for task in tasks]) if wishes else 0.0
    # A gang without GPUs counts for a thousandth of one, so that its wishes count too.
    inside = _missed_inside(job, tasks, nodes)
    inside = inside if milli else inside / max(1, len(tasks))
    return (milli or 1) / 1000 * (down + apart) + inside / 1000


def _missed_inside(job: Job, tasks: Sequence[TaskPlacement], nodes: Mapping[NodeName, Node]) -> float:
    """The milli-GPU of groups and bundles, once for each level that they prefer and miss; of gangs without GPUs their tasks."""
    has_gpus, missed = any(task.gpus for task in tasks), 0.0
    for levels, which in _preferring(job, tasks):
        for level in levels:
            if len({nodes[task.node].domain(level) for task in which}) > 1:
                missed += sum(task.gpus for task in which) if has_gpus else len(which)
    return missed


def _preferring(job: Job, tasks: Sequence[TaskPlacement]) -> Iterable[tuple[set[Level], list[TaskPlacement]]]:
    for known in job.spec.topology.together:
        yield from ((_levels(known.preferred), unit) for unit in units(job, known, tasks))
    for group in job.spec.task_groups:
        mine = [task for task in tasks if task.group == group.name]
        yield _levels(group.topology.preferred), mine
        for bundle in bundles(job, group):
            if bundle.preferred:
                for number in {task.index // bundle.tasks for task in mine}:
                    yield _levels(bundle.preferred), [task for task in mine if task.index // bundle.tasks == number]


def _levels(preferred: Level | tuple[Level, ...] | None) -> set[Level]:
    return {preferred} if isinstance(preferred, str) else set(preferred or ())


def _excess(
    job: Job, tasks: Sequence[TaskPlacement], nodes: Mapping[NodeName, Node], weights: Mapping[GpuType, float]
) -> float:
    """GPUs of groups that name no type, times what theirs weighs more than the lightest."""
    indifferent = {group.name for group in job.spec.task_groups if not group.shape.gpu_types}
    if not indifferent:
        return 0
    lightest = min(weights.values(), default=0.0)
    return sum(
        task.gpus / 1000 * (weights.get(nodes[task.node].gpu_type, lightest) - lightest)
        for task in tasks
        if task.group in indifferent and task.gpus
    )


def _types(nodes: Mapping[NodeName, Node]) -> set[GpuType]:
    return {node.gpu_type for node in nodes.values() if node.gpu_type}


def strain(job: Job, hosts: Sequence[Node]) -> float:
    """What a gang on these nodes pays per GPU for being further apart, and from its data, than it wishes."""
    return sum(not all(name in host.data for host in hosts) for name in job.spec.data) + _apart(job, hosts)


def _apart(job: Job, hosts: Sequence[Node]) -> float:
    topology, alone = job.spec.topology, sum(group.replicas for group in job.spec.task_groups) == 1
    if alone:
        return 0.0
    order: tuple[Level, ...] = ("island", "rack", "block", "pool")
    together = [level for level in order if len({host.domain(level) for host in hosts}) == 1]
    wanted = _levels(topology.preferred)
    missed = sum(level in order[: len(order) - len(together)] for level in wanted)
    if topology.communication == "normal":
        return missed
    level = together[0] if together else "pool"
    slowest = min((host.links.at(level) for host in hosts), default=NVLINK_GB_PER_S)
    return missed + max(0.0, NVLINK_GB_PER_S / slowest - 1)
