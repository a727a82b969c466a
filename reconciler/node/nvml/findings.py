"""What an agent reads of its node's hardware each time that it reports, and what it reads to see that a device is free again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.model.facts import GpuFacts, NodeFacts
from reconciler.node.agent.nics import SYS, read_nics
from reconciler.node.local.cleanup import GpuUnreadableError
from reconciler.node.nvml.driver import Driver, DriverError, GpuUuid
from reconciler.node.nvml.gpus import NvmlGpus
from reconciler.node.nvml.xids import XidWatch
from solver.model.cluster import DeviceId, Gpu, MigInstance, Node
from solver.model.quantities import Instant, Memory


def ports_alone(node: Node | None, at: Instant, sys: Path = SYS) -> NodeFacts | None:
    """Of a node without a driver of NVIDIA; None: it is not known yet which node this machine is."""
    return NodeFacts(node.name, at, nics=read_nics(sys)) if node else None


class Findings:
    """Of the `declared` node, with GPUs of numbers that NvmlGpus knows; None: it is not known yet which node this machine is."""

    def __init__(
        self,
        gpus: NvmlGpus,
        driver: Driver,
        watch: XidWatch,
        declared: Callable[[], Node | None],
        sys: Path = SYS,
    ) -> None:
        self._gpus = gpus
        self._driver = driver
        self._watch = watch
        self._declared = declared
        self._sys = sys

    def read(self, at: Instant) -> NodeFacts | None:
        """All of it, as it is now. Raises OSError where the numbers of GPUs can't be read or kept."""
        node = self._declared()
        if node is None:
            return None
        gpus = sorted((self._of_gpu(gpu) for gpu in node.gpus), key=lambda facts: facts.id)
        return NodeFacts(node.name, at, tuple(gpus), read_nics(self._sys))

    def _of_gpu(self, gpu: Gpu) -> GpuFacts:
        seats = self._gpus.seats()
        if gpu.index >= len(seats):
            return GpuFacts(gpu.id, lost=True)
        uuid = seats[gpu.index].uuid
        xids = self._watch.heard(uuid)
        try:
            vitals = self._driver.vitals(uuid)
            return GpuFacts(
                gpu.id,
                uuid,
                xids=xids,
                uncorrectable_errors=vitals.uncorrectable_errors,
                remap_failed=vitals.remap_failed,
                remap_pending=vitals.remap_pending,
                throttle_reasons=vitals.throttle_reasons,
                temperature_c=vitals.temperature_c,
                processes=tuple(dict.fromkeys(each.pid for each in self._driver.processes(uuid))),
                memory_used=self._driver.memory_used(uuid),
                clique=self._driver.clique(uuid),
            )
        except DriverError:
            return GpuFacts(gpu.id, uuid, lost=True, xids=xids)


class DeviceUse:
    """Which processes use a device and how much of its memory: whether it is free again once its tasks have ended.

    Implements GpuUse. Raises GpuUnreadableError for a device that is not there or can't be asked: it may not be free.
    """

    def __init__(self, gpus: NvmlGpus, driver: Driver, declared: Callable[[], Iterable[Node]]) -> None:
        self._gpus = gpus
        self._driver = driver
        self._declared = declared

    def processes(self, device: DeviceId) -> tuple[int, ...]:
        """Pids of the processes in it, sorted; of a GPU those in its instances too."""
        with _unreadable():
            uuid, instance = self._find(device)
            inside = None if instance is None else self._instance(uuid, instance)[0]
            found = (each for each in self._driver.processes(uuid) if inside is None or each.instance == inside)
            return tuple(dict.fromkeys(each.pid for each in found))

    def memory_used(self, device: DeviceId) -> Memory:
        """What is in use of it, the driver's own part included: compare it with what it was before a task."""
        with _unreadable():
            uuid, instance = self._find(device)
            return self._driver.memory_used(uuid if instance is None else self._instance(uuid, instance)[1])

    def _find(self, device: DeviceId) -> tuple[GpuUuid, MigInstance | None]:
        seats = self._gpus.seats()
        for node in self._gpus.as_partitioned(self._declared()):
            for gpu in node.gpus:
                uuid = seats[gpu.index].uuid if gpu.index < len(seats) else None
                if uuid and gpu.id == device:
                    return uuid, None
                for instance in gpu.instances or ():
                    if uuid and instance.id_on(gpu.id) == device:
                        return uuid, instance
        raise DriverError(f"{device}: the driver shows no such device")

    def _instance(self, uuid: GpuUuid, wanted: MigInstance) -> tuple[int, str]:
        mig, words = self._gpus.mig(uuid)
        found = words.usable(mig.instances if mig else ()).get(wanted)
        if found is None:
            raise DriverError(f"{wanted.profile}@{wanted.start} of {uuid}: it has just gone")
        return found.id, found.uuid


@contextmanager
def _unreadable() -> Iterator[None]:
    try:
        yield
    except DriverError as error:
        raise GpuUnreadableError(str(error)) from error
