"""Which devices of their nodes Quorate's pods have: those that their binding wrote down, else the first that are free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.backends.kubernetes.objects.nodes import SeenNode
from reconciler.backends.kubernetes.objects.pods import PodTask
from solver.world.cluster import DeviceId, Gpu
from solver.world.mig import cost_milli_gpu, mig_model
from solver.world.mig_layout import find_profile, model_of_type
from solver.world.quantities import MilliGpu
from solver.world.workload import MigSlot

Held = dict[tuple[str, str], tuple[DeviceId, ...]]
"""Devices by namespace and name of a pod."""


def devices_on(node: SeenNode, tasks: Iterable[PodTask]) -> Held:
    """The devices of every task on a node.

    A binding's annotation can be lost, or edited: devices that are not of this node, or that another pod has, are not believed.
    """
    ordered = sorted(tasks, key=lambda task: (not task.devices, task.pod.key))
    there = [device for gpu in node.gpus for device in _devices(gpu)]
    taken: dict[DeviceId, MilliGpu] = {}
    held: Held = {}
    for task in ordered:
        part = task.share or task.shape.gpu_fraction or (MilliGpu(0) if not task.shape.uses_gpus else MilliGpu.gpus(1))
        free = [device for device in there if taken.get(device, 0) + part <= MilliGpu.gpus(1)]
        written = tuple(device for device in task.devices if device in free)
        devices = written if written and written == task.devices else _first_free(node, task, free)
        for device in devices:
            taken[device] = MilliGpu(taken.get(device, 0) + part)
        held[task.pod.key] = devices
    return held


def slot_of(node: SeenNode, device: DeviceId) -> MigSlot | None:
    """The MIG instance that a device is; None: it is a GPU."""
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


def _first_free(node: SeenNode, task: PodTask, free: Sequence[DeviceId]) -> tuple[DeviceId, ...]:
    if task.shape.mig is not None:
        fitting = [
            instance.id_on(gpu.id)
            for gpu in node.gpus
            for instance in gpu.instances or ()
            if instance.profile == task.shape.mig and instance.id_on(gpu.id) in free
        ]
        return tuple(fitting[:1])
    whole = [gpu.id for gpu in node.gpus if gpu.instances is None and gpu.id in free]
    return tuple(whole[: task.shape.gpus or int(task.shape.is_shared)])
