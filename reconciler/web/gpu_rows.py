"""The GPUs of a node, each with its MIG instances, the jobs that hold it or parts of it, and what is kept on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from reconciler.web.node_faults import NodeFault
from reconciler.web.node_index import KeptTask, TaskOnNode
from solver.model.cluster import DeviceId, Gpu, Node
from solver.model.mig import mig_model
from solver.model.mig_layout import geometry_of, model_of_type
from solver.model.quantities import MILLI_PER_GPU

WIDTH: Final = 240
"""Of the picture of one GPU, in pixels of its own."""

_WHOLE: Final = int(MILLI_PER_GPU)


class GpuPart(NamedTuple):
    """A piece of a GPU, in thousandths of it: the whole, a MIG instance (`profile`), or a share. `of` None: no job holds it."""

    start: int
    size: int
    profile: str
    of: TaskOnNode | None

    @property
    def x(self) -> float:
        """Where it begins in the picture."""
        return self.start * WIDTH / _WHOLE

    @property
    def width(self) -> float:
        """How wide it is there; a gap keeps it apart from the next."""
        return max(1.0, self.size * WIDTH / _WHOLE - 2)


class GpuRow(NamedTuple):
    """One GPU. `faults`: what speaks against it; of its node others."""

    gpu: Gpu
    parts: tuple[GpuPart, ...]
    kept: tuple[KeptTask, ...]
    faults: tuple[NodeFault, ...]

    @property
    def held(self) -> tuple[GpuPart, ...]:
        """The parts that jobs hold."""
        return tuple(part for part in self.parts if part.of is not None)


def gpu_rows(
    node: Node, tasks: Sequence[TaskOnNode], kept: Sequence[KeptTask], faults: Sequence[NodeFault]
) -> Iterator[GpuRow]:
    """One for each GPU, in their order."""
    holders, keepers = _by_gpu(tasks), {gpu.id: list[KeptTask]() for gpu in node.gpus}
    for each in kept:
        for device in each.task.on_gpus:
            if device in keepers:
                keepers[device].append(each)
    for gpu in sorted(node.gpus, key=lambda each: each.index):
        own = tuple(gpu_parts(node, gpu, holders.get(gpu.id, ())))
        yield GpuRow(gpu, own, tuple(keepers[gpu.id]), tuple(fault for fault in faults if fault.part == gpu.id))


def gpu_parts(node: Node, gpu: Gpu, tasks: Sequence[TaskOnNode]) -> Iterator[GpuPart]:
    """The pieces of one GPU, as it is divided; `tasks`: those that are on it."""
    yield from _parts(gpu, _slots(node, gpu), tasks)


def _by_gpu(tasks: Sequence[TaskOnNode]) -> Mapping[DeviceId, list[TaskOnNode]]:
    found: dict[DeviceId, list[TaskOnNode]] = {}
    for each in tasks:
        for device in each.task.on_gpus:
            found.setdefault(device, []).append(each)
    return found


def _slots(node: Node, gpu: Gpu) -> dict[tuple[int, str], tuple[int, int]]:
    """Start and size of each instance that it is partitioned into, in thousandths, by first memory slice and profile."""
    name = model_of_type(node.gpu_type)
    if not gpu.instances or not name:
        return {}
    slices = mig_model(name).memory_slices
    return {
        (placed.start, placed.profile.name): (
            placed.start * _WHOLE // slices,
            placed.profile.memory_slices * _WHOLE // slices,
        )
        for placed in geometry_of(gpu.instances, name)
    }


def _parts(
    gpu: Gpu, slots: Mapping[tuple[int, str], tuple[int, int]], holders: Sequence[TaskOnNode]
) -> Iterator[GpuPart]:
    own = ((each, slot) for each in holders for slot in each.task.slots if slot.gpu == gpu.id)
    in_instance = {(slot.instance.start, slot.instance.profile): (each, slot) for each, slot in own}
    for key, (start, size) in sorted(slots.items(), key=lambda slot: slot[1]):
        each, _ = in_instance.pop(key, (None, None))
        yield GpuPart(start, size, key[1], each)
    # Instances that are still to be made, or of a type whose model is not known, lie one after the other.
    begins = max((start + size for start, size in slots.values()), default=0)
    for (_, profile), (each, slot) in sorted(in_instance.items()):
        yield GpuPart(begins, int(slot.cost), profile, each)
        begins += int(slot.cost)
    for each in holders:
        if each.task.mig is None:
            size = _WHOLE if each.task.share is None else int(each.task.share)
            yield GpuPart(begins, size, "", each)
            begins += size
    if not slots and not in_instance and begins < _WHOLE and gpu.instances is None:
        yield GpuPart(begins, _WHOLE - begins, "", None)
