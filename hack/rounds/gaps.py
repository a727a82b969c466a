"""How far a plan may be from the best there could be: layer by layer, and in GPUs that are in use."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from solver.model.quantities import MILLI_PER_GPU
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import Job, JobName, TaskPlacement
from solver.placement.starts import ENTITLED, FAIR, LEFTOVER
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Release, Shrink, Withdraw


class Gaps(msgspec.Struct, frozen=True):
    """Relative distances from bounds. `layers`: of those that count GPUs; the others have 0 as their bound.

    `worst_entitled`: the largest of those of entitled layers. `gpus_in_use`: once all that the plan says has happened, and
    `gpus_in_use_bound` what no plan exceeds: the GPUs there are, or all that runs, could grow, and waits and may start.
    """

    worst_entitled: float
    worst_entitled_layer: str
    gpus_in_use: float
    gpus_in_use_bound: float
    gpus_in_use_gap: float
    layers: dict[str, float]


def gaps_of(snapshot: Snapshot, plan: Plan) -> Gaps:
    """Those of a plan for a snapshot, by its certificate."""
    results = plan.certificate.layers
    layers = {known.name: _rounded(known.gap) for known in results if known.name.startswith((ENTITLED, FAIR, LEFTOVER))}
    entitled = {name: gap for name, gap in layers.items() if name.startswith(ENTITLED)}
    worst = max(entitled, key=lambda name: entitled[name], default="")
    held = {job.name: tasks for job, tasks in charged(snapshot)}
    in_use, before = _gpus(_afterwards(held, plan)), _gpus(held)
    # A GPU of a layer weighs at least 1, so bounds in weighted GPUs hold for GPUs.
    starts = sum(known.bound for known in results if known.name.startswith(LEFTOVER))
    bound = min(float(_there(snapshot, held)), before + sum(map(_growth, snapshot.jobs)) / MILLI_PER_GPU + starts)
    gap = (bound - in_use) / bound if bound else 0.0
    return Gaps(entitled.get(worst, 0.0), worst, _rounded(in_use), _rounded(bound), _rounded(gap), layers)


def worse(one: Gaps, other: Gaps) -> Gaps:
    """That of two whose entitled work, and else whose GPUs in use, are further from their bounds."""
    return max(one, other, key=lambda known: (known.worst_entitled, known.gpus_in_use_gap))


def _afterwards(held: dict[JobName, tuple[TaskPlacement, ...]], plan: Plan) -> dict[JobName, tuple[TaskPlacement, ...]]:
    """Who holds what once all steps are done. Who moves is asked to leave and promised another place: leaving comes first."""
    after = dict(held)
    for step in plan.steps:
        if isinstance(step, Evict | Release | Withdraw):
            after[step.job] = ()
        elif isinstance(step, Shrink):
            after[step.job] = tuple(task for task in after[step.job] if task not in step.tasks)
    for step in plan.steps:
        if isinstance(step, Bind | Nominate):
            after[step.job] = step.tasks
        elif isinstance(step, Grow):
            after[step.job] += step.tasks
    return after


def _gpus(held: dict[JobName, tuple[TaskPlacement, ...]]) -> float:
    return sum(task.gpus for tasks in held.values() for task in tasks) / MILLI_PER_GPU


def _there(snapshot: Snapshot, held: dict[JobName, tuple[TaskPlacement, ...]]) -> int:
    """GPUs that may be given away, or that somebody has."""
    free = {gpu.id for node in snapshot.nodes if node.schedulable for gpu in node.gpus if gpu.healthy}
    return len(free | {device for tasks in held.values() for task in tasks for device in _devices(task)})


def _devices(task: TaskPlacement) -> Iterator[str]:
    return iter(task.on_gpus)


def _growth(job: Job) -> int:
    """Milli-GPU that a running gang would need beside what it holds to be as large as it wants to be."""
    missing = 0
    for group in job.spec.task_groups:
        tasks = [task for task in job.placement if task.group == group.name]
        missing += (group.replicas - len(tasks)) * tasks[0].gpus if tasks else 0
    return missing


def _rounded(value: float) -> float:
    return round(value, 6) + 0.0
