"""The figures of a finished replay: waiting times by queue, utilisation, and what the rounds were like."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Literal

from solver.plan.plan import Plan
from solver.simulate import Replay
from solver.traced import Run, TraceJob
from solver.world.document import API_VERSION, Document
from solver.world.quantities import Instant
from solver.world.workload import QueueName


class QueueWaits(Document, frozen=True, omit_defaults=False):
    """How one queue's jobs fared. Waits in seconds, to the first start, of the jobs that started."""

    queue: QueueName
    jobs: int
    started: int
    gpu_hours: float
    wait_mean_s: float
    wait_p50_s: float
    wait_p90_s: float
    wait_max_s: float
    evictions: int


class SimulationReport(Document, frozen=True, omit_defaults=False):
    """What a replay showed.

    `utilisation`: GPU-hours held of those declared. `rounds_within_gap`: each layer proven or within the policy's gap.
    """

    start: Instant
    end: Instant
    gpus: int
    jobs: int
    started: int
    utilisation: float
    rounds: int
    rounds_within_gap: int
    rounds_by_stage: dict[str, int]
    round_ms_p50: float
    round_ms_p99: float
    queues: tuple[QueueWaits, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["SimulationReport"] = "SimulationReport"


@dataclass(slots=True)
class RoundTally:
    """What the rounds of a replay were like, counted while they are held."""

    ms: list[float] = field(default_factory=list)
    stages: Counter[str] = field(default_factory=Counter)
    within_gap: int = 0

    def count(self, plan: Plan, ms: float) -> None:
        """One more round, and how long it took."""
        self.ms.append(ms)
        self.stages[plan.certificate.stage] += 1
        self.within_gap += all(layer.status != "unproven" for layer in plan.certificate.layers)


def report_of(
    replay: Replay,
    jobs: Sequence[TraceJob],
    start: Instant,
    end: Instant,
    tally: RoundTally,
) -> SimulationReport:
    """The figures of a finished replay."""
    gpus = sum(len(node.gpus) for node in replay.nodes)
    runs = replay.runs.values()
    by_queue: dict[QueueName, list[Run]] = defaultdict(list)
    for run in runs:
        by_queue[run.queue].append(run)
    held_ms = sum(_gpu_ms(run, end) for run in runs)
    return SimulationReport(
        start=start,
        end=end,
        gpus=gpus,
        jobs=len(jobs),
        started=sum(run.started_at is not None for run in runs),
        utilisation=held_ms / (gpus * (end - start)),
        rounds=len(tally.ms),
        rounds_within_gap=tally.within_gap,
        rounds_by_stage=dict(sorted(tally.stages.items())),
        round_ms_p50=quantile(tally.ms, 0.5),
        round_ms_p99=quantile(tally.ms, 0.99),
        queues=tuple(_queue_waits(queue, by_queue[queue], end) for queue in sorted(by_queue)),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest-rank quantile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _gpu_ms(run: Run, end: Instant) -> int:
    return run.stopped(end).held_gpu_ms


def _queue_waits(queue: QueueName, runs: Sequence[Run], end: Instant) -> QueueWaits:
    waits = [run.wait_ms / 1000 for run in runs if run.wait_ms is not None]
    return QueueWaits(
        queue,
        len(runs),
        len(waits),
        sum(_gpu_ms(run, end) for run in runs) / 3_600_000,
        mean(waits) if waits else 0.0,
        quantile(waits, 0.5),
        quantile(waits, 0.9),
        max(waits, default=0.0),
        sum(run.evictions for run in runs),
    )
