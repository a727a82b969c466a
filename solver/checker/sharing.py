"""Judges who shares a GPU with whom by plain sums and the policy's own documents; shares no code with the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from solver.checker.case import JudgedPlan
from solver.checker.policy_index import PolicyIndex
from solver.model.cluster import DeviceId
from solver.model.quantities import MilliGpu
from solver.model.shape import Shape
from solver.model.workload import Job, TaskPlacement
from solver.plan.plan import Nominate
from solver.plan.violation import Violation
from solver.policy.division import SharingPolicy


class Owners:
    """Who has which devices, whole or in part."""

    def __init__(self) -> None:
        self._whole: dict[DeviceId, str] = {}
        self._divided: dict[DeviceId, str] = {}

    def add(self, task: TaskPlacement, holder: str) -> None:
        """A holder's task has its devices."""
        for device in task.devices:
            (self._whole if task.share is None else self._divided).setdefault(device, holder)

    def has_free(self, task: TaskPlacement) -> bool:
        """Nobody has any of a task's devices but in part beside it."""
        whole = self._whole.keys().isdisjoint(task.devices)
        return whole and (task.share is not None or self._divided.keys().isdisjoint(task.devices))

    def other(self, device: DeviceId, task: TaskPlacement) -> str | None:
        """Who can't have a device beside a task. Whether those who divide one fit it is for `sharing_violations`."""
        return self._whole.get(device) or (self._divided.get(device) if task.share is None else None)


class GpuShare(NamedTuple):
    """A share of a GPU, and whose it is. `later`: it is only promised; `leaves`: its holder was asked to leave."""

    job: Job
    task: TaskPlacement
    is_new: bool
    later: bool
    leaves: bool


def sharing_violations(case: JudgedPlan) -> Iterator[Violation]:
    """S1 and S7 for divided GPUs: no more than the whole given away, and all who share one may, and trust each other.

    What a GPU held before the plan is not judged: a limit that is already broken is only not made worse. Binds are judged
    beside all who are there now, and with promises beside all who will be there when those leave who were asked to.
    """
    policies = {pool: known for known in case.policy.sharing for pool in known.pools}
    for device, parts in sorted(_parts_by_device(case).items()):
        new = [part for part in parts if part.is_new]
        sharing = policies.get(case.ground.by_name[new[0].task.node].pool)
        now, then = [part for part in parts if not part.later], [part for part in parts if not part.leaves]
        for together in (now, then):
            added = [part for part in together if part.is_new]
            if added:
                yield from _too_many(device, together, added)
                if sharing and len({_domain(case.lookup, sharing, part.job.spec.queue) for part in together}) > 1:
                    yield Violation(
                        "S7", _names(added), f"device {device} would hold jobs that do not trust each other"
                    )
        if sharing is None:
            yield Violation("S7", _names(new), f"no policy lets device {device} be shared")
            continue
        for part in new:
            if part.task.sharing != sharing.mode:
                yield Violation(
                    "S7", part.job.name, f"shares device {device} by {part.task.sharing}, not by {sharing.mode}"
                )
            if sharing.mode == "time-slicing" and _is_latency_critical(case.lookup, part.job):
                yield Violation("S7", part.job.name, f"is latency-critical and would wait for its turn on {device}")


def _too_many(device: DeviceId, together: list[GpuShare], added: list[GpuShare]) -> Iterator[Violation]:
    given = sum(part.task.share or 0 for part in together)
    if given > MilliGpu.gpus(1):
        yield Violation("S1", _names(added), f"device {device} would hold {MilliGpu(given)} of itself")


def has_its_gpus(job: Job, shape: Shape, task: TaskPlacement, case: JudgedPlan) -> bool:
    """S2: the task has exactly the whole GPUs it asked for, or the part of each: of oversubscribed ones as much less."""
    if not shape.is_shared:
        return task.share is None and len(set(task.devices)) == len(task.devices) == shape.gpus
    if task.share is None or not len(set(task.devices)) == len(task.devices) == shape.devices:
        return False
    if shape.gpu_memory is None:
        times = round(_oversubscribed(job, task, case) * MilliGpu.gpus(1))
        asked = (shape.gpu_fraction or 0) * MilliGpu.gpus(1)
        return (task.share - 1) * times < asked <= task.share * times
    least = min(found[1].memory if (found := case.ground.gpus.get(device)) else 0 for device in task.devices)
    return task.share * least >= shape.gpu_memory * MilliGpu.gpus(1)


def _oversubscribed(job: Job, task: TaskPlacement, case: JudgedPlan) -> float:
    """The least of all pools of the GPU's type whose GPUs the job may share."""
    pools = case.ground.pools_of.get(case.ground.gpu_types[task.node], set()) - {
        known.pool for known in case.policy.mig
    }
    turns = not _is_latency_critical(case.lookup, job)
    return min(
        (
            known.oversubscription
            for known in case.policy.sharing
            if pools & set(known.pools) and (turns or known.mode == "mps")
        ),
        default=1.0,
    )


def _parts_by_device(case: JudgedPlan) -> dict[DeviceId, list[GpuShare]]:
    """All parts of each device of which the plan gives a part, or promises one."""
    new = [
        GpuShare(case.jobs[step.job], task, is_new=True, later=isinstance(step, Nominate), leaves=False)
        for step in case.placing
        for task in step.tasks
        if task.share is not None
    ]
    by_device: dict[DeviceId, list[GpuShare]] = {device: [] for part in new for device in part.task.devices}
    for part in (*new, *(_held(case) if new else ())):
        for device in part.task.devices if part.task.share is not None else ():
            if device in by_device:
                by_device[device].append(part)
    return by_device


def _held(case: JudgedPlan) -> Iterable[GpuShare]:
    """What every task that shares a GPU has, and what any was promised before."""
    leaving, replaced = case.evicted | case.stopping, case.bound | case.withdrawn
    held = {
        (job.name, task.group, task.index): GpuShare(job, task, is_new=False, later=False, leaves=job.name in leaving)
        for job in case.snapshot.jobs
        for task in job.placement
        if task.share is not None
    }
    for intent in case.intents:
        later = intent.kind == "nominate"
        if intent.job in case.jobs and not (later and intent.job in replaced):
            for task in intent.tasks:
                part = GpuShare(case.jobs[intent.job], task, is_new=False, later=later, leaves=intent.job in leaving)
                held[intent.job, task.group, task.index] = part
    return held.values()


def _domain(lookup: PolicyIndex, sharing: SharingPolicy, queue: str) -> str:
    path = lookup.path(queue)
    for step in path:
        for group in sharing.trust_domains:
            if step.name in group.queues:
                return f"group {group.name}"
    return f"root {path[-1].name if path else queue}"


def _is_latency_critical(lookup: PolicyIndex, job: Job) -> bool:
    known = lookup.class_of(job)
    return known is not None and known.slo_class == "latency-critical"


def _names(parts: list[GpuShare]) -> str:
    return ", ".join(sorted({part.job.name for part in parts}))
