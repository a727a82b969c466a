"""Figures of what jobs report of their own work: operations a second beside what their GPUs could do, so that MFU is a division."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.api.problems import NotReadyError
from reconciler.control.control import NoPolicyError
from reconciler.control.model_flops import ReportedWork, WorkLine, together
from solver.model.cluster import GpuType
from solver.model.workload import QueueName

_LABELS = ["queue", "gpu_type"]


@dataclass(frozen=True, eq=False)
class WorkFigures(Collector):
    """`lines`: what is reported now; it raises before there was a pass, or a policy."""

    lines: Callable[[], tuple[WorkLine, ...]]

    def collect(self) -> Iterator[Metric]:
        """By queue and type, as far as the peak of the GPUs is known."""
        found = defaultdict[tuple[QueueName, GpuType], list[ReportedWork]](list)
        with suppress(NotReadyError, NoPolicyError):
            for line in self.lines():
                found[line.queue, line.gpu_type].append(line.work)
        flops = GaugeMetricFamily(
            "quorate_reported_flops",
            "Floating point operations a second that jobs report of their models, where their GPUs' peak is known.",
            labels=_LABELS,
        )
        peak = GaugeMetricFamily(
            "quorate_reported_flops_peak", "What the GPUs of those jobs could do a second at most.", labels=_LABELS
        )
        for (queue, gpu_type), some in sorted(found.items()):
            work = together(some)
            if work is not None and work.peak is not None:
                flops.add_metric([queue, gpu_type], work.flops)
                peak.add_metric([queue, gpu_type], work.peak)
        yield from (flops, peak)
