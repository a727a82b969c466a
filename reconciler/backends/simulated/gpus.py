"""How the simulated cluster partitions GPUs: late, in two strokes, sometimes only half, and never under a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from reconciler.protocols.backend import GpuPartitioned, PartitionGpu
from solver.model.cluster import DeviceId, Gpu, MigInstance
from solver.model.quantities import Instant
from solver.model.workload import TaskPlacement

if TYPE_CHECKING:
    from reconciler.backends.simulated.cluster import SimulatedCluster

RETRY_PAUSE_MS = 1_000
"""A GPU whose node is down is partitioned once the node is up again, looked at this often."""

Instances = tuple[MigInstance, ...]


class SimulatedGpus:
    """The GPUs of one cluster. It remembers the newest order of each; an older one that comes later changes nothing."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._newest: dict[DeviceId, int] = {}

    def accept(self, order: PartitionGpu, at: Instant) -> None:
        """An order has arrived; its effect follows."""
        if order.attempt > self._newest.get(order.device, 0):
            self._newest[order.device] = order.attempt
            self._cluster.schedule(self._cluster.soon(at), lambda then: self._clear(order, then))

    def missing(self, task: TaskPlacement) -> str:
        """What a task would begin on and is not there, in words; "": all is."""
        gpus = {gpu.id: gpu for gpu in self._cluster.node(task.node).gpus}
        if task.mig is not None:
            gpu = gpus.get(task.mig.gpu)
            there = gpu is not None and task.mig.instance in (gpu.instances or ())
            return "" if there else f"instance {task.devices[0]}"
        partitioned = [device for device in task.devices if device in gpus and gpus[device].instances is not None]
        return f"whole GPU {partitioned[0]}" if partitioned else ""

    def _clear(self, order: PartitionGpu, at: Instant) -> None:
        """The first stroke: what is not to stay goes, unless a task is on it."""
        if self._is_old(order):
            return
        if not self._cluster.node(order.node).ready:
            self._cluster.schedule(at.after(RETRY_PAUSE_MS), lambda then: self._clear(order, then))
            return
        gpu = self._gpu(order)
        if any(self._in_the_way(order)):
            self._done(order, gpu.instances, at, "a task uses what would go")
            return
        if gpu.instances != order.instances:
            wanted = order.instances or ()
            self._put(order, tuple(one for one in gpu.instances or () if one in wanted), at)
        self._cluster.schedule(self._cluster.soon(at), lambda then: self._fill(order, then))

    def _fill(self, order: PartitionGpu, at: Instant) -> None:
        """The second stroke: what is to come is made, or the GPU is whole."""
        if self._is_old(order):
            return
        if self._cluster.chance.random() < self._cluster.faults.unpartitioned:
            self._done(order, self._gpu(order).instances, at, "the simulated driver gave up")
            return
        self._put(order, order.instances, at)
        self._done(order, order.instances, at)

    def _is_old(self, order: PartitionGpu) -> bool:
        return order.attempt < self._newest[order.device]

    def _in_the_way(self, order: PartitionGpu) -> Iterator[DeviceId]:
        stays = {one.id_on(order.device) for one in order.instances or ()}
        for task in self._cluster.running():
            if order.device in task.devices:
                yield order.device
            yield from (used for used in task.devices if used.startswith(f"{order.device}/") and used not in stays)

    def _gpu(self, order: PartitionGpu) -> Gpu:
        return next(gpu for gpu in self._cluster.node(order.node).gpus if gpu.id == order.device)

    def _put(self, order: PartitionGpu, instances: Instances | None, at: Instant) -> None:
        node = self._cluster.node(order.node)
        changed = msgspec.structs.replace(self._gpu(order), instances=instances)
        gpus = tuple(changed if gpu.id == order.device else gpu for gpu in node.gpus)
        self._cluster.put_node(msgspec.structs.replace(node, gpus=gpus), at)

    def _done(self, order: PartitionGpu, instances: Instances | None, at: Instant, refused: str = "") -> None:
        self._cluster.report(GpuPartitioned(order.device, order.attempt, at, instances, refused), at)
