"""The GPUs of this machine: what they are partitioned into, what CUDA calls them, and how an order to partition one is done."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Protocol
from urllib.parse import quote
from uuid import NAMESPACE_OID, uuid5

import msgspec

from reconciler.node.local.attempts import read_document
from reconciler.protocols.backend import GpuPartitioned, PartitionGpu
from reconciler.supervisor import taskfiles
from solver.model.cluster import DeviceId, Gpu, Node
from solver.model.document import encode
from solver.model.quantities import Instant
from solver.model.workload import TaskPlacement

REAL_GPUS = Path("/proc/driver/nvidia/gpus")
"""There where NVIDIA's driver has found GPUs (its README, "The /proc/driver/nvidia filesystem")."""

_GET_NVML = "Install `quorate[agent]` on it and start Quorate again"


class NodeGpus(Protocol):
    """The GPUs that tasks of this machine may be given. `declared` nodes, and their GPUs, are those of Git, in its numbering."""

    def reports(self) -> tuple[GpuPartitioned, ...]:
        """Every order that was done or refused, the last one of each GPU."""

    def as_partitioned(self, declared: Iterable[Node]) -> tuple[Node, ...]:
        """Declared nodes as their GPUs are now: there and well or not, and with the instances that they have."""

    def called(self, tasks: Iterable[TaskPlacement], gpus: Iterable[Gpu]) -> dict[DeviceId, int | str]:
        """What CUDA_VISIBLE_DEVICES calls each device that the tasks want and that is there: a number or a UUID.

        `gpus` are as `as_partitioned` has them.
        """

    def lacking(self, devices: Collection[DeviceId]) -> str:
        """Why nothing is started on these, which `called` left out."""

    def partition(self, order: PartitionGpu, declared: Iterable[Node], used: Collection[DeviceId], at: Instant) -> None:
        """Do an order, or keep why it is refused; one that is no newer than the last changes nothing.

        `used`: devices of tasks that run or will.
        """


class PartitionOrders:
    """A folder with the last order of each GPU, as it was done or refused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def reports(self) -> tuple[GpuPartitioned, ...]:
        """All of them, in a fixed order."""
        found = (read_document(path, GpuPartitioned) for path in sorted(self._folder.glob("*.json")))
        return tuple(done for done in found if done)

    def last(self, device: DeviceId) -> GpuPartitioned | None:
        """That of one GPU."""
        return read_document(self._path(device), GpuPartitioned)

    def keep(self, done: GpuPartitioned) -> None:
        """In place of the one before."""
        taskfiles.write_durably(str(self._path(done.device)), encode(done).decode())

    def _path(self, device: DeviceId) -> Path:
        return self._folder / f"{quote(device, safe='').replace('.', '%2E')}.json"


class DeclaredGpus:
    """GPUs that are declared and not looked for: their instances are kept in the folder, since there is no driver to ask.

    Of each GPU the last order that was done or refused. A GPU that Git declares partitioned is what Git says.
    """

    def __init__(self, folder: Path, real_gpus: Path = REAL_GPUS) -> None:
        self._partitions = PartitionOrders(folder)
        self._real_gpus = real_gpus

    def reports(self) -> tuple[GpuPartitioned, ...]:
        """Every order that was done or refused, the last one of each GPU."""
        return self._partitions.reports()

    def as_partitioned(self, declared: Iterable[Node]) -> tuple[Node, ...]:
        """Declared nodes with the instances that their GPUs have."""
        done = {report.device: report for report in self.reports()}
        return tuple(
            msgspec.structs.replace(node, gpus=tuple(_partitioned(gpu, done.get(gpu.id)) for gpu in node.gpus))
            for node in declared
        )

    def called(self, tasks: Iterable[TaskPlacement], gpus: Iterable[Gpu]) -> dict[DeviceId, int | str]:
        """GPUs by their numbers. Instances of real GPUs are left out: their driver has names for them that are not known here."""
        there, are_real = {gpu.id: gpu for gpu in gpus}, self._real_gpus.exists()
        found: dict[DeviceId, int | str] = {}
        for task in tasks:
            for slot in () if are_real else task.slots:
                gpu = there.get(slot.gpu)
                if gpu and slot.instance in (gpu.instances or ()):
                    device = slot.instance.id_on(slot.gpu)
                    found[device] = mig_name(device)
            if task.mig is None:
                whole = [there[device] for device in task.devices if device in there]
                found |= {known.id: known.index for known in whole if known.instances is None}
        return found

    def lacking(self, devices: Collection[DeviceId]) -> str:
        """Why nothing is started on these."""
        if self._real_gpus.exists() and any("@" in device for device in devices):
            return f"this machine has real GPUs. {_GET_NVML}, so that their instances can be used: {', '.join(devices)}"
        return f"this machine has no device {', '.join(devices)}"

    def partition(self, order: PartitionGpu, declared: Iterable[Node], used: Collection[DeviceId], at: Instant) -> None:
        """Do an order, or keep why it is refused; one that is no newer than the last changes nothing."""
        last = self._partitions.last(order.device)
        if last is not None and last.attempt >= order.attempt:
            return
        gpus = {gpu.id: gpu for node in declared if node.name == order.node for gpu in node.gpus}
        refused = self._refusal(order, gpus, used)
        before = last.instances if last else None
        after = before if refused else order.instances
        self._partitions.keep(GpuPartitioned(order.device, order.attempt, at, after, refused))

    def _refusal(self, order: PartitionGpu, gpus: dict[DeviceId, Gpu], used: Collection[DeviceId]) -> str:
        stays = {one.id_on(order.device) for one in order.instances or ()}
        gone = sorted(
            device
            for device in used
            if device == order.device or (device.startswith(f"{order.device}/") and device not in stays)
        )
        if order.device not in gpus:
            return f"{order.node} has no GPU {order.device}"
        if gpus[order.device].instances is not None:
            return "Git declares what it is partitioned into"
        if self._real_gpus.exists():
            return f"this machine has real GPUs. {_GET_NVML}, so that they can be partitioned"
        return f"a task uses {gone[0]}" if gone else ""


def mig_name(instance: DeviceId) -> str:
    """How CUDA_VISIBLE_DEVICES names an instance of a declared GPU: as a driver names its own, and the same every time.

    CUDA sees the first instance that is named and no second one (NVIDIA, "MIG User Guide", CUDA Device Enumeration).
    """
    return f"MIG-{uuid5(NAMESPACE_OID, instance)}"


def _partitioned(gpu: Gpu, done: GpuPartitioned | None) -> Gpu:
    if done is None or gpu.instances is not None:
        return gpu
    return msgspec.structs.replace(gpu, instances=done.instances)
