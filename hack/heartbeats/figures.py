"""What the benchmark reports."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Served(msgspec.Struct, frozen=True):
    """What the server's process saw between two moments, its memory at the end of it, and the work that went on beside."""

    beats: int
    seconds: float
    cpu_s: float
    work_s: float
    rss_kb: int
    latencies_ms: list[float]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Latency: from the agent's sending to the server's having taken it in.

    `cpu_us_per_beat`: of the server, all told, so also of pings. `rss_kb_per_connection`: what its process grew by.
    `work_cores`: what the work beside it got.
    """

    heartbeats_per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    connections: int
    openings_that_failed: int
    cpu_s_of_server: float
    cores_of_server: float
    cpu_us_per_beat: float
    rss_mb: float
    rss_kb_per_connection: float
    opened_per_s: float
    cpu_ms_per_opening: float
    seconds: float
    every_s: float
    ping_s: float
    work_cores: float


def quantile(sorted_values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed; 0 of none."""
    if not sorted_values:
        return 0.0
    return sorted_values[max(0, -int(-share * len(sorted_values) // 1) - 1)]
