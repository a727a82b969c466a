"""Samples of what the GPUs of a machine do, read through NVIDIA's driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from reconciler.model.gpu_use import METRICS, Metric
from reconciler.node.nvml.driver import Driver, DriverError, GpuActivity
from reconciler.node.nvml.gpus import NvmlGpus
from reconciler.node.use.minutes import GpuSample
from solver.model.cluster import Node


class NvmlUse:
    """Of the `declared` nodes that this machine is, with GPUs of numbers that NvmlGpus knows."""

    def __init__(self, gpus: NvmlGpus, driver: Driver, declared: Callable[[], Iterable[Node]]) -> None:
        self._gpus = gpus
        self._driver = driver
        self._declared = declared

    def read(self) -> Iterator[GpuSample]:
        """A sample of each GPU of which something is known. Raises OSError where the numbers of GPUs can't be read or kept."""
        seats = self._gpus.seats()
        for node in self._declared():
            for gpu in node.gpus:
                if gpu.index >= len(seats):
                    continue
                uuid = seats[gpu.index].uuid
                try:
                    usage = self._driver.usage(uuid)
                except DriverError:
                    # What is wrong with it is among the facts that the agent tells (findings.py); its use is not known.
                    continue
                if usage is not None:
                    yield GpuSample(gpu.id, uuid, usage.source, _values(usage))


def _values(usage: GpuActivity) -> dict[Metric, float]:
    found: dict[Metric, float] = {}
    for metric in METRICS:
        value: float | None = getattr(usage, metric)
        if value is not None:
            found[metric] = value
    return found
