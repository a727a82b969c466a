"""Samples of what the GPUs of a machine do, read through NVIDIA's driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from reconciler.model.gpu_use import METRICS, Metric
from reconciler.node.nvml.driver import Driver, DriverError, GpuActivity, GpuUuid
from reconciler.node.nvml.gpus import NvmlGpus
from reconciler.node.use.minutes import GpuSample
from solver.model.cluster import Node


class NvmlUse:
    """Of the `declared` nodes that this machine is, with GPUs of numbers that NvmlGpus knows."""

    def __init__(
        self,
        gpus: NvmlGpus,
        driver: Driver,
        declared: Callable[[], Iterable[Node]],
        failed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`failed`: hears why a GPU can't be asked, once until there is another reason or it can."""
        self._failed = failed
        self._failures: dict[GpuUuid, str] = {}
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
                activity = self._ask(uuid)
                if activity is not None:
                    yield GpuSample(gpu.id, uuid, activity.source, _values(activity))

    def _ask(self, uuid: GpuUuid) -> GpuActivity | None:
        """What it did; None: that is not known, and if it can't be asked it is told why."""
        try:
            activity = self._driver.usage(uuid)
        except DriverError as error:
            if self._failures.get(uuid) != str(error):
                self._failures[uuid] = str(error)
                self._failed(str(error))
            return None
        self._failures.pop(uuid, None)
        return activity


def _values(activity: GpuActivity) -> dict[Metric, float]:
    found: dict[Metric, float] = {}
    for metric in METRICS:
        value: float | None = getattr(activity, metric)
        if value is not None:
            found[metric] = value
    return found
