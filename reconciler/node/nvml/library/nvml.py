"""NVIDIA's driver through NVML: implements Driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any, Final

import pynvml

from reconciler.node.nvml.driver import (
    Card,
    Driver,
    GpuActivity,
    GpuLostError,
    GpuUuid,
    InstancePlacement,
    Mig,
    OfferedProfile,
    Process,
    Vitals,
    Wiring,
)
from reconciler.node.nvml.library import partitions, queries
from reconciler.node.nvml.library.calls import as_ours, ask, name_of, open_library, sorted_errors
from reconciler.node.nvml.library.usage import UsageReader
from solver.model.quantities import Memory

_LOOK_MS: Final = 1_000
"""How long one wait for an event lasts: so late a stop is noticed."""


def find_driver() -> Driver | str:
    """The driver of this machine, or why it has none. Raises DriverUnusableError where a person has to repair it."""
    return open_library() or NvmlDriver()


class NvmlDriver:
    """Threads may share it: NVML itself allows that, and all that is kept here are handles, and samples for `usage` alone.

    Handles are found by number and kept. NVML can find one by its UUID too, but says then that a GPU is lost if any is.
    """

    def __init__(self) -> None:
        self._handles: dict[GpuUuid, Any] = {}
        self._usage = UsageReader()

    def version(self) -> str:
        """Of the driver, such as 580.95.05."""
        with sorted_errors("NVIDIA's driver"):
            return str(pynvml.nvmlSystemGetDriverVersion())

    def gpus(self) -> tuple[GpuUuid, ...]:
        """In the order of NVML, which is that of the PCI bus."""
        with sorted_errors("NVIDIA's driver"):
            count = pynvml.nvmlDeviceGetCount()
        found: dict[GpuUuid, Any] = {}
        for index in range(count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                found[name_of(handle)] = handle
            except (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_NotFound, pynvml.NVMLError_IrqIssue):
                # It has no name any more. A caller that knows which ones there were sees which is missing.
                continue
            except pynvml.NVMLError as error:
                raise as_ours(f"GPU number {index}", error) from error
        self._handles = found
        return tuple(found)

    def card(self, gpu: GpuUuid) -> Card:
        """What it is."""
        with self._asking(gpu) as handle:
            return queries.read_card(handle)

    def vitals(self, gpu: GpuUuid) -> Vitals:
        """How it is."""
        with self._asking(gpu) as handle:
            return queries.read_vitals(handle)

    def wiring(self, gpu: GpuUuid) -> Wiring:
        """Its NVLinks that are up."""
        with self._asking(gpu) as handle:
            return queries.read_wiring(handle)

    def clique(self, gpu: GpuUuid) -> str:
        """Its NVLink domain beyond this machine."""
        with self._asking(gpu) as handle:
            return queries.read_clique(handle)

    def processes(self, gpu: GpuUuid) -> tuple[Process, ...]:
        """What uses it."""
        with self._asking(gpu) as handle:
            return queries.read_processes(handle)

    def memory_used(self, device: str) -> Memory:
        """Of a GPU or of an instance."""
        if not device.startswith("MIG-"):
            with self._asking(GpuUuid(device)) as handle:
                return queries.read_memory_used(handle)
        with sorted_errors(device):
            return queries.read_memory_used(pynvml.nvmlDeviceGetHandleByUUID(device))

    def usage(self, gpu: GpuUuid) -> GpuActivity | None:
        """By GPM, or by rates where it has none."""
        with self._asking(gpu) as handle:
            return self._usage.read(gpu, handle)

    def mig(self, gpu: GpuUuid) -> Mig | None:
        """Mode and instances."""
        with self._asking(gpu) as handle:
            return partitions.read_mig(handle)

    def profiles(self, gpu: GpuUuid) -> tuple[OfferedProfile, ...]:
        """Listed whether it is in MIG mode or not."""
        with self._asking(gpu) as handle:
            return partitions.read_profiles(handle)

    def set_mig(self, gpu: GpuUuid, on: bool) -> None:
        """Switch MIG mode. NVML may reset an idle Ampere for it; Hopper and newer need no reset."""
        with self._asking(gpu) as handle:
            partitions.switch(handle, on)

    def create(self, gpu: GpuUuid, place: InstancePlacement) -> None:
        """Make a GPU instance exactly there."""
        with self._asking(gpu) as handle:
            partitions.make(handle, place)

    def create_compute(self, gpu: GpuUuid, instance: int) -> None:
        """Make one compute instance that has all of it."""
        with self._asking(gpu) as handle:
            partitions.make_compute(handle, instance)

    def destroy_compute(self, gpu: GpuUuid, instance: int, compute: int) -> None:
        """Destroy a compute instance that nothing runs in."""
        with self._asking(gpu) as handle:
            partitions.unmake_compute(handle, instance, compute)

    def destroy(self, gpu: GpuUuid, instance: int) -> None:
        """Destroy a GPU instance that has no compute instances left."""
        with self._asking(gpu) as handle:
            partitions.unmake(handle, instance)

    def listen(self, stopped: Event, heard: Callable[[GpuUuid, int], None]) -> None:
        """Hear XIDs of all GPUs that are there now and can tell of them."""
        with sorted_errors("errors of GPUs"):
            events = pynvml.nvmlEventSetCreate()
            try:
                for gpu in self.gpus():
                    with self._asking(gpu) as handle:
                        ask(pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, events)
                while not stopped.is_set():
                    _hear(events, stopped, heard)
            finally:
                pynvml.nvmlEventSetFree(events)

    @contextmanager
    def _asking(self, gpu: GpuUuid) -> Iterator[Any]:
        if gpu not in self._handles:
            self.gpus()
        handle = self._handles.get(gpu)
        if handle is None:
            raise GpuLostError(f"{gpu}: the driver does not list it. Restart the node")
        with sorted_errors(gpu):
            yield handle


def _hear(events: Any, stopped: Event, heard: Callable[[GpuUuid, int], None]) -> None:
    try:
        event = pynvml.nvmlEventSetWait(events, _LOOK_MS)
    except pynvml.NVMLError_Timeout:
        return
    except pynvml.NVMLError_GpuIsLost:
        # It answers so at once, and again each time, while one of them is lost.
        stopped.wait(_LOOK_MS / 1_000)
        return
    if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
        heard(name_of(event.device), int(event.eventData))
