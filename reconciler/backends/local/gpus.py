"""What the declared GPUs of this machine are partitioned into: kept in the state folder, since there is no driver to ask."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from urllib.parse import quote

import msgspec

from reconciler.backend import GpuPartitioned, PartitionGpu
from reconciler.backends.local.attempts import read_document
from reconciler.supervisor import taskfiles
from solver.world.cluster import DeviceId, Gpu, Node
from solver.world.document import encode
from solver.world.quantities import Instant
from solver.world.workload import TaskPlacement

REAL_GPUS = Path("/proc/driver/nvidia/gpus")
"""There where NVIDIA's driver has found GPUs (its README, "The /proc/driver/nvidia filesystem")."""


class DeclaredGpus:
    """Of each GPU the last order that was done or refused. A GPU that Git declares partitioned is what Git says."""

    def __init__(self, folder: Path, real_gpus: Path) -> None:
        self._folder = folder
        self._real_gpus = real_gpus
        folder.mkdir(mode=0o700, exist_ok=True)

    def reports(self) -> tuple[GpuPartitioned, ...]:
        """Every order that was done or refused, the last one of each GPU."""
        found = (read_document(path, GpuPartitioned) for path in sorted(self._folder.glob("*.json")))
        return tuple(done for done in found if done)

    def as_partitioned(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        """Declared nodes with the instances that their GPUs have."""
        done = {report.device: report for report in self.reports()}
        return tuple(
            msgspec.structs.replace(node, gpus=tuple(_partitioned(gpu, done.get(gpu.id)) for gpu in node.gpus))
            for node in nodes
        )

    def places(self, tasks: Iterable[TaskPlacement], gpus: Iterable[Gpu]) -> dict[DeviceId, int]:
        """The index of each device that the tasks want and that is there; of an instance, its GPU's.

        Instances of real GPUs are left out: their driver has names for them that nobody here knows.
        """
        there, are_real = {gpu.id: gpu for gpu in gpus}, self._real_gpus.exists()
        found: dict[DeviceId, int] = {}
        for task in tasks:
            gpu = there.get(task.mig.gpu) if task.mig and not are_real else None
            if task.mig and gpu and task.mig.instance in (gpu.instances or ()):
                found |= dict.fromkeys(task.devices, gpu.index)
            elif task.mig is None:
                whole = [there[device] for device in task.devices if device in there]
                found |= {known.id: known.index for known in whole if known.instances is None}
        return found

    def lacking(self, devices: Collection[DeviceId]) -> str:
        """Why nothing is started on these."""
        if self._real_gpus.exists() and any("@" in device for device in devices):
            return f"this machine has real GPUs, whose instances Quorate can't use yet: {', '.join(devices)}"
        return f"this machine has no device {', '.join(devices)}"

    def partition(self, order: PartitionGpu, declared: Iterable[Node], used: Collection[DeviceId], at: Instant) -> None:
        """Do an order, or keep why it is refused; one that is no newer than the last changes nothing."""
        path = self._folder / f"{quote(order.device, safe='').replace('.', '%2E')}.json"
        last = read_document(path, GpuPartitioned)
        if last is not None and last.attempt >= order.attempt:
            return
        gpus = {gpu.id: gpu for node in declared if node.name == order.node for gpu in node.gpus}
        refused = self._refusal(order, gpus, used)
        before = last.instances if last else None
        after = before if refused else order.instances
        done = GpuPartitioned(order.device, order.attempt, at, after, refused)
        taskfiles.write_durably(str(path), encode(done).decode())

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
            return "this machine has real GPUs, which Quorate can't partition yet"
        return f"a task uses {gone[0]}" if gone else ""


def _partitioned(gpu: Gpu, done: GpuPartitioned | None) -> Gpu:
    if done is None or gpu.instances is not None:
        return gpu
    return msgspec.structs.replace(gpu, instances=done.instances)
