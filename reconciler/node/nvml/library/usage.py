"""What GPUs do, read through NVML: by the counters of its GPU performance monitoring (GPM), or, where there are none, its rates.

A pair of GPM samples covers all that happened between them. So the first sample of a GPU says nothing yet, nor does one after a
gap, or after it was partitioned.
"""

from __future__ import annotations

from time import monotonic
from typing import Any, Final

import pynvml

from reconciler.node.nvml.driver import GpuActivity, GpuUuid
from reconciler.node.nvml.library.calls import ask

APART_MIN_S: Final = 0.1
"""The counters are refreshed that often (NVML, nvmlGpmMetricsGet)."""
APART_MAX_S: Final = 90.0
"""After a longer gap it is not known for which minutes figures would be."""

_PERCENT: Final = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: "active",
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: "occupancy",
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor",
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram",
}
_LINKS: Final = (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC)
_WANTED: Final = (*_PERCENT, *_LINKS)


class UsageReader:
    """Remembers a sample of each GPU. One thread at a time."""

    def __init__(self) -> None:
        self._counters: dict[GpuUuid, GpmCounters | None] = {}

    def read(self, gpu: GpuUuid, handle: Any) -> GpuActivity | None:
        """What it did since it was last asked so; None: that is not known. Raises NVMLError."""
        try:
            return self._read(gpu, handle)
        except pynvml.NVMLError:
            # Counters may begin anew with whatever repairs it.
            self._forget(gpu)
            raise

    def _read(self, gpu: GpuUuid, handle: Any) -> GpuActivity | None:
        mode = ask(pynvml.nvmlDeviceGetMigMode, handle)
        if mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
            # Figures of the whole would be those of several jobs. A sample from before pairs with none from after.
            self._forget(gpu)
            return None
        if gpu not in self._counters:
            self._counters[gpu] = GpmCounters() if _has_gpm(handle) else None
        counters = self._counters[gpu]
        if counters is None:
            return _rates(handle)
        try:
            figures = counters.read(handle)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NoPermission):
            # As of the fraction of a GPU that a hypervisor gives, which says all the same that it has counters.
            self._forget(gpu)
            self._counters[gpu] = None
            return _rates(handle)
        if figures is None:
            return None
        links = [figures[link] for link in _LINKS if link in figures]
        return GpuActivity(
            "gpm",
            **{name: figures.get(metric) for metric, name in _PERCENT.items()},
            nvlink=sum(links) if len(links) == len(_LINKS) else None,
            memory=_memory(handle),
        )

    def _forget(self, gpu: GpuUuid) -> None:
        counters = self._counters.pop(gpu, None)
        if counters is not None:
            counters.free()


class GpmCounters:
    """Two samples of one GPU, which take turns. The structure with room for all metrics has 19 kB, and is made once."""

    def __init__(self) -> None:
        self._left = pynvml.nvmlGpmSampleAlloc()
        self._right = pynvml.nvmlGpmSampleAlloc()
        self._left_s: float | None = None
        self._asked = pynvml.c_nvmlGpmMetricsGet_t()
        self._asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._asked.numMetrics = len(_WANTED)
        for at, metric in enumerate(_WANTED):
            self._asked.metrics[at].metricId = metric

    def read(self, handle: Any) -> dict[int, float] | None:
        """By metric, since the last time; those that NVML can't say are left out. Raises NVMLError."""
        now_s = monotonic()
        if self._left_s is not None and now_s - self._left_s < APART_MIN_S:
            return None
        pynvml.nvmlGpmSampleGet(handle, self._right)
        before_s, self._left_s = self._left_s, now_s
        self._left, self._right = self._right, self._left
        if before_s is None or now_s - before_s > APART_MAX_S:
            return None
        self._asked.sample1, self._asked.sample2 = self._right, self._left
        pynvml.nvmlGpmMetricsGet(self._asked)
        # A metric of which NVML has an error of its own has the value 0.
        return {
            one.metricId: float(one.value)
            for one in self._asked.metrics[: len(_WANTED)]
            if one.nvmlReturn == pynvml.NVML_SUCCESS
        }

    def free(self) -> None:
        """Give the samples back."""
        for sample in (self._left, self._right):
            pynvml.nvmlGpmSampleFree(sample)


def _has_gpm(handle: Any) -> bool:
    support = ask(pynvml.nvmlGpmQueryDeviceSupport, handle)
    return support is not None and bool(support.isSupportedDevice)


def _rates(handle: Any) -> GpuActivity | None:
    rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
    if rates is None:
        return None
    return GpuActivity("utilisation", active=float(rates.gpu), dram=float(rates.memory), memory=_memory(handle))


def _memory(handle: Any) -> float | None:
    known = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return 100.0 * known.used / known.total if known is not None and known.total else None
