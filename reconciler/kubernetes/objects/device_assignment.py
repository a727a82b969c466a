"""Which devices of their nodes Quorate's pods have: those that their binding wrote down, else the first that are free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.kubernetes.objects.nodes import SeenNode
from reconciler.kubernetes.objects.pods import PodTask
from solver.model.cluster import DeviceId, Gpu, Node
from solver.model.mig import cost_milli_gpu, mig_model
from solver.model.mig_layout import find_profile, model_of_type
from solver.model.quantities import MilliGpu
from solver.model.workload import MigSlot

Held = dict[tuple[str, str], tuple[DeviceId, ...]]
"""Devices by namespace and name of a pod."""


def devices_on(node: SeenNode, tasks: Iterable[PodTask]) -> Held:
    """The devices of every task on a node.

    A binding's annotation can be lost, or written by others: devices that are not of this node, that another pod has, that are not
    what the pod asks for or more than that, are not believed.
    """
    ordered = sorted(tasks, key=lambda task: (not task.devices, task.pod.key))
    if (simple := _as_written(node, ordered)) is not None:
        return simple
    there = [device for gpu in node.gpus for device in _devices(gpu)]
    taken: dict[DeviceId, MilliGpu] = {}
    held: Held = {}
    for task in ordered:
        part = share_of(task) or MilliGpu.gpus(1)
        free = [device for device in there if taken.get(device, 0) + part <= MilliGpu.gpus(1)]
        fitting = _fitting(node, task, free)
        wanted = task.shape.gpus or task.shape.devices * task.shape.uses_gpus
        written = {device for device in task.devices if device in fitting}
        devices = task.devices if len(written) == len(task.devices) == wanted else fitting[:wanted]
        for device in devices:
            taken[device] = MilliGpu(taken.get(device, 0) + part)
        held[task.pod.key] = devices
    return held


def _as_written(node: SeenNode, tasks: Sequence[PodTask]) -> Held | None:
    """What bindings wrote down, where all of it is whole GPUs of the node, each once, as it mostly is; else None."""
    left = {gpu.id for gpu in node.gpus if gpu.instances is None}
    for task in tasks:
        shape, devices = task.shape, task.devices
        if shape.is_shared or shape.mig is not None or len(devices) != shape.gpus or not left.issuperset(devices):
            return None
        before = len(left)
        left.difference_update(devices)
        if before - len(left) != len(devices):
            return None
    return {task.pod.key: task.devices for task in tasks}


def share_of(task: PodTask) -> MilliGpu | None:
    """What part of its only device a task has: what it asks for, or, where that is memory, what its binding made of it."""
    if task.shape.gpu_fraction is not None:
        return task.shape.gpu_fraction
    return task.share if task.shape.is_shared else None


def slots_of(node: SeenNode | Node, devices: Iterable[DeviceId]) -> tuple[MigSlot, ...]:
    """The MIG instances that devices are; GPUs are none."""
    found = (_slot_of(node, device) for device in devices)
    return tuple(slot for slot in found if slot is not None)


def _slot_of(node: SeenNode | Node, device: DeviceId) -> MigSlot | None:
    for gpu in node.gpus:
        for instance in gpu.instances or ():
            if instance.id_on(gpu.id) == device:
                model = mig_model(model_of_type(node.gpu_type))
                profile = find_profile(model, instance.profile)
                cost = cost_milli_gpu(model, profile) if profile else 0
                return MigSlot(gpu.id, instance, MilliGpu(cost))
    return None


def _devices(gpu: Gpu) -> Sequence[DeviceId]:
    return (gpu.id,) if gpu.instances is None else [instance.id_on(gpu.id) for instance in gpu.instances]


def _fitting(node: SeenNode, task: PodTask, free: Sequence[DeviceId]) -> tuple[DeviceId, ...]:
    """The free devices that are what a task asks for: instances of its profile, or GPUs that are not partitioned."""
    if task.shape.mig is None:
        return tuple(gpu.id for gpu in node.gpus if gpu.instances is None and gpu.id in free)
    return tuple(
        instance.id_on(gpu.id)
        for gpu in node.gpus
        for instance in gpu.instances or ()
        if instance.profile == task.shape.mig and instance.id_on(gpu.id) in free
    )
