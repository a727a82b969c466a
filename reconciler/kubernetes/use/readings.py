"""What dcgm-exporter says of boards: its fields, the shapes in which they come, and what they add up to in a minute. Pure.

Fields, units and labels: NVIDIA/dcgm-exporter 4.5.3-4.8.2, etc/dcp-metrics-included.csv and internal/pkg/rendermetrics. Figures
that it does not have come through as numbers far outside a field's range: they are not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from reconciler.model.gpu_use import Metric, UseFigures, UseSource, use_from
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant

_SM, _ENGINE, _BUSY = "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
_RX, _TX = "DCGM_FI_PROF_NVLINK_RX_BYTES", "DCGM_FI_PROF_NVLINK_TX_BYTES"
_USED, _FREE, _RESERVED = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"
_MIB: Final = 2**20
_OVER: Final = 1.01
"""A counter that was read a little late."""

_LIMITS: Final[Mapping[str, float]] = {
    _SM: _OVER,
    _ENGINE: _OVER,
    _BUSY: 100 * _OVER,
    "DCGM_FI_PROF_SM_OCCUPANCY": _OVER,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _OVER,
    "DCGM_FI_PROF_DRAM_ACTIVE": _OVER,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 100 * _OVER,
    _RX: 2.0**42,
    _TX: 2.0**42,
    _USED: 2.0**24,
    _FREE: 2.0**24,
    _RESERVED: 2.0**24,
}
"""The most that each can be: shares of 1, percent, bytes a second, MiB."""
FIELDS: Final = tuple(_LIMITS)

_ACTIVE: Final[tuple[tuple[str, UseSource], ...]] = ((_SM, "dcgm-sm"), (_ENGINE, "dcgm-engine"), (_BUSY, "utilisation"))
"""What says how active a board was, the best first."""


class BoardReading(NamedTuple):
    """One field of one board at a moment. `pod`: namespace and name of that which has it; None: none is told. `node` "": not told.

    `divided`: it is of an instance, and so the board is partitioned.
    """

    node: NodeName
    uuid: str
    pod: tuple[str, str] | None
    field: str
    at: Instant
    value: float
    divided: bool = False


def from_text(text: str, now: Instant) -> Iterator[BoardReading]:
    """Of an exporter's answer. What has no time of its own is as of now. Raises ValueError for what is no such text."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            at = now if sample.timestamp is None else Instant(int(float(sample.timestamp) * 1_000))
            yield from _read(sample.name, sample.labels, at, sample.value)


def from_matrix(data: Mapping[str, Any], interval: Duration) -> Iterator[BoardReading]:
    """Of Prometheus' answer to a query for a range (`resultType: matrix`): the last of each `interval`, as the others repeat it.

    Raises KeyError, TypeError, ValueError for another answer.
    """
    for series in data["result"]:
        labels = series["metric"]
        last = {round(float(at_s) * 1_000) // interval: (at_s, value) for at_s, value in series["values"]}
        for at_s, value in last.values():
            yield from _read(labels.get("__name__", ""), labels, Instant(round(float(at_s) * 1_000)), float(value))


def _read(field: str, labels: Mapping[str, str], at: Instant, value: float) -> Iterator[BoardReading]:
    limit, uuid = _LIMITS.get(field), labels.get("UUID") or labels.get("uuid")
    if limit is None or not uuid or not (math.isfinite(value) and 0 <= value <= limit):
        return
    node = labels.get("Hostname") or labels.get("hostname") or ""
    yield BoardReading(NodeName(node), uuid, _pod(labels), field, at, value, bool(labels.get("GPU_I_ID")))


def _pod(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Through Prometheus the labels of what was scraped come first, unless it honours those of the exporter."""
    for pod, namespace in (
        ("exported_pod", "exported_namespace"),
        ("pod", "namespace"),
        ("pod_name", "pod_namespace"),
    ):
        if labels.get(pod) and labels.get(namespace):
            return labels[namespace], labels[pod]
    return None


def figures_of(readings: Iterable[BoardReading], interval: Duration) -> UseFigures | None:
    """Of one board in a minute; None: how active it was is not known.

    The exporter has a new value each `interval`, and what is asked more often gets it again: one counts for each. So there are
    percentiles where it collects often enough, and else never.
    """
    values: dict[str, dict[int, tuple[Instant, float]]] = {}
    for one in readings:
        if one.divided:
            return None
        kept = values.setdefault(one.field, {})
        place = one.at // interval
        kept[place] = max(kept.get(place, (one.at, one.value)), (one.at, one.value))
    seen = {field: {place: value for place, (_, value) in kept.items()} for field, kept in values.items()}
    active, source = next(((seen[field], source) for field, source in _ACTIVE if field in seen), (None, None))
    if active is None or source is None:
        return None
    scale = 1.0 if source == "utilisation" else 100.0
    found: dict[Metric, list[float]] = {"active": [scale * value for value in active.values()]}
    if source != "utilisation":
        for metric, field in _SHARES.items():
            found[metric] = [100 * value for value in seen.get(field, {}).values()]
        both = seen.get(_RX, {}).keys() & seen.get(_TX, {}).keys()
        found["nvlink"] = [(seen[_RX][place] + seen[_TX][place]) / _MIB for place in both]
    else:
        found["dram"] = list(seen.get("DCGM_FI_DEV_MEM_COPY_UTIL", {}).values())
    found["memory"] = list(_memory(seen))
    return use_from(source, len(active), found)


_SHARES: Final[Mapping[Metric, str]] = {
    "occupancy": "DCGM_FI_PROF_SM_OCCUPANCY",
    "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "dram": "DCGM_FI_PROF_DRAM_ACTIVE",
}


def _memory(seen: Mapping[str, Mapping[int, float]]) -> Iterator[float]:
    for place, used in seen.get(_USED, {}).items():
        free = seen.get(_FREE, {}).get(place)
        whole = used + (free or 0.0) + seen.get(_RESERVED, {}).get(place, 0.0)
        if free is not None and whole > 0:
            yield 100 * used / whole
