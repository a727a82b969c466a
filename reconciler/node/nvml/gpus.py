"""The GPUs that NVIDIA's driver finds in this machine: implements NodeGpus, for tasks to be given to and orders to partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

import msgspec

from reconciler.node.local.attempts import read_document
from reconciler.node.local.gpus import PartitionOrders
from reconciler.node.nvml.driver import BusId, Driver, DriverError, GpuUuid, Mig
from reconciler.node.nvml.numbers import Seats, seat_boards
from reconciler.node.nvml.partitioning import PartitionRequest, partition
from reconciler.node.nvml.profiles import Vocabulary, vocabulary_of
from reconciler.protocols.backend import GpuPartitioned, PartitionGpu
from reconciler.supervisor import taskfiles
from solver.model.cluster import DeviceId, Gpu, MigInstance, Node
from solver.model.document import encode
from solver.model.quantities import Instant
from solver.model.workload import TaskPlacement

SEATS: Final = "seats"
"""The file that says which GPU is which number."""


def had_gpus(folder: Path) -> bool:
    """Real GPUs were seen on this machine, whatever its driver shows now."""
    return (folder / SEATS).exists()


class NvmlGpus:
    """What a GPU has is read from the driver each time. Kept in the folder: which GPU is which number, and what came of orders.

    GPU number N of a declared node is the one with seat N here, whatever its declared id.
    """

    def __init__(self, folder: Path, driver: Driver) -> None:
        self._partitions = PartitionOrders(folder)
        self._seats_file = folder / SEATS
        self._driver = driver
        self._vocabularies: dict[GpuUuid, Vocabulary] = {}
        self._slots: dict[GpuUuid, BusId] = {}

    def reports(self) -> tuple[GpuPartitioned, ...]:
        """Every order that was done or refused, the last one of each GPU."""
        return self._partitions.reports()

    def as_partitioned(self, declared: Iterable[Node]) -> tuple[Node, ...]:
        """Declared nodes with what the driver says of their GPUs; one that it has not, or that is lost, is not healthy."""
        seats = self.seats()
        return tuple(
            msgspec.structs.replace(node, gpus=tuple(self._as_it_is(gpu, seats) for gpu in node.gpus))
            for node in declared
        )

    def called(self, tasks: Iterable[TaskPlacement], gpus: Iterable[Gpu]) -> dict[DeviceId, int | str]:
        """UUIDs, of GPUs and of instances: numbers are CUDA's own, and instances have none."""
        there, seats = {gpu.id: gpu for gpu in gpus}, self.seats()
        found: dict[DeviceId, int | str] = {}
        for task in tasks:
            if task.mig:
                for slot in task.slots:
                    gpu = there.get(slot.gpu)
                    uuid = self._uuid_of_instance(gpu, slot.instance, seats) if gpu else ""
                    found |= {slot.instance.id_on(slot.gpu): uuid} if uuid else {}
            else:
                whole = (there[device] for device in task.devices if device in there)
                found |= {gpu.id: seats[gpu.index].uuid for gpu in whole if gpu.healthy and gpu.instances is None}
        return found

    def lacking(self, devices: Collection[DeviceId]) -> str:
        """Why nothing is started on these."""
        return f"this machine's driver shows no {', '.join(devices)} that could be used now"

    def partition(self, order: PartitionGpu, declared: Iterable[Node], used: Collection[DeviceId], at: Instant) -> None:
        """Do an order, or keep why it is refused, with what the GPU has after that."""
        last = self._partitions.last(order.device)
        if last is not None and last.attempt >= order.attempt:
            return
        gpus = {gpu.id: gpu for node in declared if node.name == order.node for gpu in node.gpus}
        gpu, seats = gpus.get(order.device), self.seats()
        if gpu is None or gpu.index >= len(seats):
            refused, after = f"{order.node} has no GPU {order.device}", last.instances if last else None
        elif gpu.instances is not None:
            refused, after = "Git declares what it is partitioned into", gpu.instances
        else:
            refused, after = self._partition(seats[gpu.index].uuid, order, used, last)
        self._partitions.keep(GpuPartitioned(order.device, order.attempt, at, after, refused))

    def seats(self) -> Seats:
        """Which GPU is which number, new ones included. Raises OSError."""
        known = read_document(self._seats_file, Seats) or ()
        now = seat_boards(known, self._found())
        if now != known:
            taskfiles.write_durably(str(self._seats_file), encode(now).decode())
        return now

    def mig(self, uuid: GpuUuid) -> tuple[Mig | None, Vocabulary]:
        """What a GPU is partitioned into, and what its instances are called. Raises DriverError."""
        if uuid not in self._vocabularies:
            self._vocabularies[uuid] = vocabulary_of(self._driver.card(uuid).product, self._driver.profiles(uuid))
        return self._driver.mig(uuid), self._vocabularies[uuid]

    def _found(self) -> dict[GpuUuid, BusId]:
        """Those that answer, with their slots, which are asked for once: no board moves while this runs."""
        try:
            gpus = self._driver.gpus()
        except DriverError:
            # The next question about one of them says so of that GPU.
            return {}
        for uuid in gpus:
            if uuid not in self._slots:
                try:
                    self._slots[uuid] = self._driver.card(uuid).bus
                except DriverError:
                    # It is lost; it keeps its seat, if it has one.
                    continue
        return {uuid: self._slots[uuid] for uuid in gpus if uuid in self._slots}

    def _as_it_is(self, gpu: Gpu, seats: Seats) -> Gpu:
        last = self._partitions.last(gpu.id)
        before = last.instances if last else gpu.instances
        try:
            instances = self._instances(seats[gpu.index].uuid, before)
        except (DriverError, IndexError):
            return msgspec.structs.replace(gpu, healthy=False, instances=before)
        return msgspec.structs.replace(gpu, instances=instances)

    def _instances(self, uuid: GpuUuid, before: tuple[MigInstance, ...] | None) -> tuple[MigInstance, ...] | None:
        """Those that it has, in the order in which an order named them."""
        mig, words = self.mig(uuid)
        if mig is None or not mig.enabled:
            return None
        found = set(words.usable(mig.instances))
        return (
            before if before is not None and found == set(before) else tuple(sorted(found, key=lambda one: one.start))
        )

    def _uuid_of_instance(self, gpu: Gpu, instance: MigInstance, seats: Seats) -> str:
        if not gpu.healthy or instance not in (gpu.instances or ()):
            return ""
        try:
            mig, words = self.mig(seats[gpu.index].uuid)
        except DriverError:
            return ""
        there = words.usable(mig.instances if mig else ()).get(instance)
        return there.uuid if there else ""

    def _partition(
        self, uuid: GpuUuid, order: PartitionGpu, used: Collection[DeviceId], last: GpuPartitioned | None
    ) -> tuple[str, tuple[MigInstance, ...] | None]:
        """Why not, and what it has then; the second is read again, not concluded."""
        try:
            _, words = self.mig(uuid)
            refused = partition(self._driver, uuid, words, PartitionRequest(order.device, order.instances, used))
            after = self._instances(uuid, order.instances)
        except DriverError as error:
            return str(error), last.instances if last else None
        if not refused and after != order.instances:
            return "the driver says that it did it, and shows something else", after
        return refused, after
