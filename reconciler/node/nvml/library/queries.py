"""What a GPU is and how it is, read through NVML."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import pynvml

from reconciler.node.nvml.driver import BusId, Card, Process, Vitals, Wiring
from reconciler.node.nvml.library.calls import ask, name_of
from solver.model.quantities import Memory

_NO_INSTANCE: Final = 0xFFFFFFFF
"""In place of an instance's id where a process uses the GPU as a whole (NVML, nvmlProcessInfo_t)."""

_THROTTLING: Final = {
    pynvml.nvmlClocksEventReasonSwPowerCap: "power-cap",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hardware-slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync-boost",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "thermal",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hardware-thermal",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power-brake",
}
"""Being idle, and clocks that were set on purpose, hold nothing down."""


def read_card(handle: Any) -> Card:
    """What it is. Raises NVMLError, as all here."""
    return Card(
        uuid=name_of(handle),
        product=str(pynvml.nvmlDeviceGetName(handle)),
        bus=_bus_id(pynvml.nvmlDeviceGetPciInfo(handle)),
        memory=Memory(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        minor=ask(pynvml.nvmlDeviceGetMinorNumber, handle),
    )


def read_vitals(handle: Any) -> Vitals:
    """How it is."""
    reasons = _clock_reasons(handle)
    remapped = ask(pynvml.nvmlDeviceGetRemappedRows, handle)
    return Vitals(
        temperature_c=ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=tuple(sorted(name for bit, name in _THROTTLING.items() if reasons & bit)),
        uncorrectable_errors=ask(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_AGGREGATE_ECC,
        ),
        remap_pending=bool(remapped[2]) if remapped else None,
        remap_failed=bool(remapped[3]) if remapped else None,
    )


def read_wiring(handle: Any) -> Wiring:
    """Where its NVLinks lead that are up. It has none from the first number on that NVML does not know."""
    peers: set[BusId] = set()
    switched = False
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            state = ask(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        except pynvml.NVMLError_InvalidArgument:
            break
        if state != pynvml.NVML_FEATURE_ENABLED:
            continue
        kind = ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            switched = True
        elif kind == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU:
            peers.add(_bus_id(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)))
    return Wiring(frozenset(peers), switched, read_clique(handle))


def read_processes(handle: Any) -> tuple[Process, ...]:
    """What uses it, whichever way."""
    found: set[tuple[int, int | None]] = set()
    for ways in (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
    ):
        for process in ask(ways, handle) or ():
            instance = None if process.gpuInstanceId == _NO_INSTANCE else int(process.gpuInstanceId)
            found.add((int(process.pid), instance))
    return tuple(Process(*each) for each in sorted(found, key=lambda each: (each[0], each[1] is not None, each[1])))


def read_memory_used(handle: Any) -> Memory:
    """Bytes in use."""
    return Memory(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def _clock_reasons(handle: Any) -> int:
    """As bits; drivers before R535 know them by the older name alone."""
    for name in (pynvml.nvmlDeviceGetCurrentClocksEventReasons, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons):
        bits = ask(name, handle)
        if bits is not None:
            return int(bits)
    return 0


def _bus_id(pci: Any) -> BusId:
    return BusId(str(pci.busId))


def read_clique(handle: Any) -> str:
    """The NVLink clique beyond this machine, spelled as GPU feature discovery does: cluster UUID, dot, number.

    A GPU with a fabric of its own machine alone says so by a UUID of zeros.
    """
    fabric = pynvml.c_nvmlGpuFabricInfoV_t()
    if ask(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(fabric)) is None:
        return ""
    cluster = bytes(fabric.clusterUuid)
    if fabric.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED or not any(cluster):
        return ""
    written = cluster.hex()
    parts = (written[:8], written[8:12], written[12:16], written[16:20], written[20:])
    return f"{'-'.join(parts)}.{fabric.cliqueId}"
