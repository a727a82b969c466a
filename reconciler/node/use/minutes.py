"""Samples of GPUs into minutes: pure, told what time it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reconciler.model.gpu_use import MINUTE, GpuMinute, Metric, NodeMinute, UseSource, record_of, use_from
from solver.model.cluster import DeviceId
from solver.model.quantities import Instant


class GpuSample(NamedTuple):
    """What one GPU did since the sample before; a metric that was not measured is left out."""

    gpu: DeviceId
    uuid: str
    source: UseSource
    values: Mapping[Metric, float]


class MinuteAggregator:
    """Of one node. A sample belongs to the minute in which it was taken, whatever it covers."""

    def __init__(self) -> None:
        self._start: Instant | None = None
        self._samples: dict[tuple[DeviceId, str, UseSource], list[Mapping[Metric, float]]] = {}

    def add(self, at: Instant, samples: Iterable[GpuSample]) -> NodeMinute | None:
        """Add what was measured at an instant. Returns the minute before, once another has begun.

        A clock that is set begins another as well, be it an earlier one. Then a minute is told twice, and the fuller one counts.
        """
        start = Instant(at // MINUTE * MINUTE)
        over = self._over() if start != self._start else None
        self._start = start
        for sample in samples:
            self._samples.setdefault((sample.gpu, sample.uuid, sample.source), []).append(sample.values)
        return over

    def _over(self) -> NodeMinute | None:
        samples, self._samples = self._samples, {}
        if self._start is None or not samples:
            return None
        records: dict[tuple[DeviceId, str], bytes] = {}
        for (gpu, uuid, source), values in samples.items():
            record = _record(source, values)
            records[gpu, uuid] = max(record, records.get((gpu, uuid), b""))
        return NodeMinute(self._start, tuple(GpuMinute(*board, record) for board, record in sorted(records.items())))


def _record(source: UseSource, samples: list[Mapping[Metric, float]]) -> bytes:
    by_metric: dict[Metric, list[float]] = {}
    for values in samples:
        for metric, value in values.items():
            by_metric.setdefault(metric, []).append(value)
    return record_of(use_from(source, len(samples), by_metric))
