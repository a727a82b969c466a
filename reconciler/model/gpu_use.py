"""What a GPU did in a stretch of time, as it was measured: figures, their source, and a record of 27 bytes that has both.

A figure that was not measured is None, and 0 in a record, whose bytes are codes: what is measured as nothing is code 1. Of two
records of one GPU and one minute the greater counts, byte by byte: the better source, then more samples. So it does not matter how
often, in which order or by how many samplers a minute is told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal, get_args

from solver.model.cluster import DeviceId
from solver.model.document import Document
from solver.model.quantities import Duration, Instant

Metric = Literal["active", "occupancy", "tensor", "dram", "nvlink", "memory"]
"""`active`: the share of time in which SMs did something (sources `gpm`, `dcgm-sm`), any engine did (`dcgm-engine`), or any kernel
ran (`utilisation`).
`occupancy`: warps on SMs, of those that could be. `tensor`, `dram`: how busy tensor pipes and memory were. `nvlink`: sent and
received. `memory`: in use. All in percent, but `nvlink` in MiB/s."""

UseSource = Literal["simulated", "utilisation", "dcgm-engine", "dcgm-sm", "gpm"]
"""What figures were read from, the better the later: NVML's utilisation rates, DCGM's profiling fields without and with the
activity of SMs, or NVML's GPM counters. One does not replace the other within a stretch: a kernel that only waits is 100 % by
`utilisation`."""

METRICS: Final[tuple[Metric, ...]] = get_args(Metric)
SOURCES: Final[tuple[UseSource, ...]] = get_args(UseSource)

MINUTE: Final = Duration(60_000)
SAMPLE_EVERY: Final = Duration(5_000)
"""Between two samples, where no policy says otherwise."""

QUANTILE_SAMPLES_MIN: Final = 10
"""Below ten samples a tenth of them is none."""

_SPREAD_FIELDS: Final = ("mean", "min", "p10", "p90")
HEADER_BYTES: Final = 3
"""The source, and of how much a record is, big end first."""
RECORD_BYTES: Final = HEADER_BYTES + len(METRICS) * len(_SPREAD_FIELDS)
UNKNOWN: Final = bytes(RECORD_BYTES)
_RATES_START: Final = HEADER_BYTES + METRICS.index("nvlink") * len(_SPREAD_FIELDS)
_RATES_END: Final = _RATES_START + len(_SPREAD_FIELDS)
"""Around the metric that is no percentage."""
_COVERED_MAX: Final = 2**16 - 1

_PERCENT_CODE_MAX: Final = 201
"""Code 1 is 0 %, and each further one half a per cent more."""
_PERCENT_OVER: Final = 1.0
"""So much above 100 % is a counter that was read a little late, and more is nonsense."""
_OCTAVE: Final = 12
"""Codes of rates for each doubling: to 3 %."""


class UseSpread(Document, frozen=True, omit_defaults=False):
    """One metric over a stretch. `p10`, `p90`: nearest rank; null where there were fewer than ten samples.

    Of an hour they are of its minutes' means, of a day of its hours'.
    """

    mean: float
    min: float | None = None
    p10: float | None = None
    p90: float | None = None


class UseFigures(Document, frozen=True, omit_defaults=False):
    """What is known of one GPU over a stretch; a metric that was not measured is null.

    `covered`: of how much: samples of a minute, minutes of an hour or a day.
    """

    source: UseSource
    covered: int
    active: UseSpread | None = None
    occupancy: UseSpread | None = None
    tensor: UseSpread | None = None
    dram: UseSpread | None = None
    nvlink: UseSpread | None = None
    memory: UseSpread | None = None


class GpuMinute(Document, frozen=True):
    """A GPU in a minute, as a record. `uuid`: of the board; "" where it is simulated."""

    gpu: DeviceId
    uuid: str
    record: bytes


class NodeMinute(Document, frozen=True):
    """What is known of a node's GPUs in the minute that begins at `start`, by the clock of the node."""

    start: Instant
    gpus: tuple[GpuMinute, ...]


def spread_of(values: list[float]) -> UseSpread:
    """Of samples of one metric; of at least one."""
    ranked = sorted(values)
    mean = math.fsum(ranked) / len(ranked)
    if len(ranked) < QUANTILE_SAMPLES_MIN:
        return UseSpread(mean, ranked[0])
    return UseSpread(mean, ranked[0], ranked[rank_of(0.1, len(ranked))], ranked[rank_of(0.9, len(ranked))])


def rank_of(quantile: float, number: int) -> int:
    """Where a quantile stands among so many in order, by nearest rank."""
    # What a float is above a whole number is no next rank: 0.1 * 30 is 3.0000000000000004.
    return max(0, math.ceil(quantile * number - 1e-9) - 1)


def record_of(use: UseFigures) -> bytes:
    """As it is kept and sent: half per cents, rates to 3 %. A value that can't be one is left out, as not measured."""
    found = bytearray((SOURCES.index(use.source) + 1, *min(use.covered, _COVERED_MAX).to_bytes(2)))
    for metric in METRICS:
        spread: UseSpread | None = getattr(use, metric)
        found += bytes(code_of(metric, getattr(spread, name) if spread else None) for name in _SPREAD_FIELDS)
    return bytes(found)


def use_of(record: bytes) -> UseFigures | None:
    """What a record says; None: nothing is known."""
    if not record[0]:
        return None
    spreads: dict[str, UseSpread] = {}
    for at, metric in enumerate(METRICS):
        start = HEADER_BYTES + at * len(_SPREAD_FIELDS)
        mean, *others = (value_of(metric, code) for code in record[start : start + len(_SPREAD_FIELDS)])
        if mean is not None:
            spreads[metric] = UseSpread(mean, *others)
    return UseFigures(SOURCES[record[0] - 1], int.from_bytes(record[1:HEADER_BYTES]), **spreads)


def is_record(record: bytes) -> bool:
    """Whether it can be read: it may come from another machine."""
    if len(record) != RECORD_BYTES or not 0 < record[0] <= len(SOURCES) or record[1:HEADER_BYTES] == b"\0\0":
        return False
    return max(record[HEADER_BYTES:_RATES_START]) <= _PERCENT_CODE_MAX >= max(record[_RATES_END:])


def code_of(metric: Metric, value: float | None) -> int:
    """The byte of a value; 0 where there is none, or it can't be one."""
    if value is None or not math.isfinite(value) or value < 0:
        return 0
    if metric == "nvlink":
        code = 1 + round(_OCTAVE * math.log2(1 + value))
        return code if code < 256 else 0
    return 0 if value > 100 + _PERCENT_OVER else 1 + round(2 * min(value, 100))


def value_of(metric: Metric, code: int) -> float | None:
    """The value of a byte; None: it was not measured."""
    if not code:
        return None
    return round(2 ** ((code - 1) / _OCTAVE) - 1, 2) if metric == "nvlink" else (code - 1) / 2


def use_from(source: UseSource, samples: int, values: Mapping[Metric, list[float]]) -> UseFigures:
    """Of so many samples, those of each metric that were measured."""
    return UseFigures(source, samples, **{metric: spread_of(found) for metric, found in values.items() if found})
