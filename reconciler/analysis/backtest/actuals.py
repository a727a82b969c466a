"""What really happened to recorded jobs, in the figures of a back-test: the column beside the policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from reconciler.analysis.backtest.backtest import PolicyCandidate, with_queues_of
from reconciler.analysis.backtest.figures import PolicyFigures
from reconciler.analysis.backtest.history_file import Attempt, RecordedJob
from reconciler.analysis.backtest.observation import LostWork, Observation, Stretch
from reconciler.analysis.backtest.past import saved_ms
from reconciler.analysis.backtest.summary import ReplayOutcome
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant
from solver.model.workload import JobName
from solver.plan.reason import count
from solver.simulation.replay import Replay
from solver.simulation.trace import Run, TraceJob

AS_IT_WAS: Final = "as it was"


@dataclass(frozen=True)
class Actuals:
    """What is on record of the jobs that are replayed, within the same time. `until`: when the record was written."""

    recorded: Mapping[JobName, RecordedJob]
    jobs: Sequence[TraceJob]
    start: Instant
    end: Instant
    until: Instant

    def figures(self, beside: PolicyCandidate, cadence: Duration) -> PolicyFigures:
        """All that a record can say. GPUs, classes, and what queues were owed are those of the policy that it is held against."""
        policy, _ = with_queues_of(self.jobs, beside.policy)
        replay = Replay(beside.nodes, policy, None, cadence)
        seen = Observation()
        for one in self.jobs:
            name, attempts = one.job.name, self._attempts(one)
            replay.runs[name] = self._run(one, attempts)
            seen.stretches[name] = [
                Stretch(begun.started_at, self._ended_at(begun), one.job.spec.gpus) for begun in attempts
            ]
            seen.losses += self._losses(one, attempts)
        found = ReplayOutcome(replay, self.jobs, self.start, self.end, seen).figures(AS_IT_WAS)
        notes = tuple(self._notes(beside.name))
        return msgspec.structs.replace(found, digest="", never=None, rounds=None, eta=None, notes=notes)

    def _attempts(self, one: TraceJob) -> list[Attempt]:
        """Those that began within the time; none began before the job was there."""
        return [
            Attempt(max(begun.started_at, one.job.submitted_at), begun.ended_at, begun.stopped_for)
            for begun in self.recorded[one.job.name].attempts
            if begun.started_at < self.end
        ]

    def _run(self, one: TraceJob, attempts: Sequence[Attempt]) -> Run:
        job, ended_at = one.job, self.recorded[one.job.name].ended_at
        return Run(
            job.name,
            job.spec.queue,
            job.spec.gpus,
            job.submitted_at,
            started_at=attempts[0].started_at if attempts else None,
            ended_at=ended_at if ended_at is not None and ended_at <= self.end else None,
        )

    def _ended_at(self, attempt: Attempt) -> Instant:
        ended_at = self.until if attempt.ended_at is None else attempt.ended_at
        return max(attempt.started_at, min(ended_at, self.end))

    def _losses(self, one: TraceJob, attempts: Sequence[Attempt]) -> Iterator[LostWork]:
        record = self.recorded[one.job.name]
        for attempt in attempts:
            if attempt.stopped_for == "evict" and attempt.ended_at is not None and attempt.ended_at <= self.end:
                lost_ms = attempt.ended_at - attempt.started_at - saved_ms(record, attempt)
                gpu_s = record.spec.gpus / MILLI_PER_GPU * lost_ms / 1000
                yield LostWork(attempt.ended_at, record.name, "recorded", shrunk=False, gpu_s=gpu_s)

    def _notes(self, beside: str) -> Iterator[str]:
        yield f"GPUs of the cluster and guarantees, by which fairness is measured, are those of {beside}"
        yield "GPU-hours lost are without starting again, which no record tells, and by the jobs' own schedules of checkpoints"
        yield "no rounds, no forecasts, and not which jobs could never have run: these were not recorded"
        sent_back = sum(
            attempt.stopped_for == "requeue" and (attempt.ended_at or self.end) < self.end
            for one in self.jobs
            for attempt in self._attempts(one)
        )
        if sent_back:
            yield f"not counted as evictions: {count(sent_back, 'attempt')} sent back without a word of why"
