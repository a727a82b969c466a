"""One case of a capacity report, from a replay that is over: demand, what was held, what was waited for, and the peaks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

from reconciler.analysis.backtest.backtest import Backtest, Follow, PolicyCandidate
from reconciler.analysis.backtest.figures import Distribution, spread
from reconciler.analysis.backtest.observation import Stretch
from reconciler.analysis.backtest.summary import ReplayOutcome, averages, steps_of
from reconciler.analysis.capacity.bottlenecks import Bottleneck, in_words, types_of
from reconciler.analysis.capacity.report import (
    BottleneckLine,
    CapacityCase,
    DemandLine,
    DemandSeries,
    PeakLine,
    TypeLine,
    WaitLine,
)
from reconciler.analysis.capacity.wait_record import WaitingRecord, followed
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU, Instant
from solver.model.workload import JobName
from solver.simulation.trace import TraceJob

_HOUR_MS = 3_600_000
_MILLI_GPU_HOUR = MILLI_PER_GPU * _HOUR_MS


def case_of(backtest: Backtest, candidate: PolicyCandidate, follow: Follow) -> tuple[CapacityCase, ReplayOutcome]:
    """Replay the jobs under a policy on its cluster, and account for it."""
    record = WaitingRecord(candidate.policy, {node.name: node.gpu_type for node in candidate.nodes})
    outcome, notes = backtest.replayed(candidate, lambda name, rounds: follow(name, followed(record, rounds)))
    record.close(outcome.replay.runs, outcome.jobs, outcome.end)
    return CapacityAccount(outcome, record).case(candidate, notes), outcome


@dataclass(frozen=True)
class CapacityAccount:
    """A replay and what was noted of it."""

    outcome: ReplayOutcome
    record: WaitingRecord

    def case(self, candidate: PolicyCandidate, notes: tuple[str, ...]) -> CapacityCase:
        """All of it."""
        runs, nodes = self.outcome.replay.runs.values(), candidate.nodes
        step, _ = steps_of(self.outcome.start, self.outcome.end)
        return CapacityCase(
            name=candidate.name,
            nodes=len(nodes),
            gpus=sum(len(node.gpus) for node in nodes),
            jobs=len(self.outcome.jobs),
            started=sum(run.started_at is not None for run in runs),
            never=len(self.outcome.seen.never),
            waits=self._waits(self.outcome.jobs),
            demand=tuple(self._demand()),
            types=tuple(self._types()),
            bottlenecks=tuple(self._bottlenecks()),
            waiting=tuple(self._waiting()),
            peaks=tuple(self._peaks()),
            step=step,
            over_time=tuple(self._over_time()),
            digest=candidate.policy.digest,
            notes=notes,
        )

    @cached_property
    def _jobs(self) -> Mapping[JobName, TraceJob]:
        return {one.job.name: one for one in self.outcome.jobs}

    @cached_property
    def _by_class(self) -> Mapping[str, list[TraceJob]]:
        found: dict[str, list[TraceJob]] = defaultdict(list)
        for one in self.outcome.jobs:
            found[self._class_of(one)].append(one)
        return dict(sorted(found.items()))

    def _class_of(self, one: TraceJob) -> str:
        return self.record.policy.priority_class_name(one.job)

    def _waits(self, jobs: Iterable[TraceJob]) -> Distribution:
        waits = [(self._started_at(one), one.job.submitted_at) for one in jobs]
        known = [(at - submitted) / 1000 for at, submitted in waits if at is not None]
        return spread(known, [(self.outcome.end - submitted) / 1000 for at, submitted in waits if at is None])

    def _started_at(self, one: TraceJob) -> Instant | None:
        run = self.outcome.replay.runs.get(one.job.name)
        return None if run is None else run.started_at

    def _wanted(self, one: TraceJob) -> Stretch:
        """From when until when it was there, waiting or running."""
        run = self.outcome.replay.runs.get(one.job.name)
        ended_at = None if run is None else run.ended_at
        return Stretch(one.job.submitted_at, self.outcome.end if ended_at is None else ended_at, one.job.spec.gpus)

    def _demand(self) -> Iterator[DemandLine]:
        for name, jobs in self._by_class.items():
            alike: dict[str, list[TraceJob]] = defaultdict(list)
            for one in jobs:
                alike[in_words(types_of(one.job.spec), wants_gpus=one.job.spec.gpus > 0)].append(one)
            for types, those in sorted(alike.items()):
                peak, at = _peak(map(self._wanted, those))
                hours = sum(one.job.spec.gpus * one.duration for one in those) / _MILLI_GPU_HOUR
                yield DemandLine(name, types, len(those), hours, peak / MILLI_PER_GPU, at, self._waits(those))

    def _types(self) -> Iterator[TypeLine]:
        of_type = Counter[GpuType]()
        for node in self.outcome.replay.nodes:
            of_type[node.gpu_type] += len(node.gpus)
        length = self.outcome.end - self.outcome.start
        for gpu_type, gpus in sorted(of_type.items()):
            if gpus:
                held = self.record.held.get(gpu_type, [])
                hours = sum(one.milli * (one.end - one.start) for one in held) / _MILLI_GPU_HOUR
                full_ms = _time_at(held, gpus * MILLI_PER_GPU)
                yield TypeLine(gpu_type, gpus, hours, hours * _HOUR_MS / gpus / length, full_ms / length)

    def _bottlenecks(self) -> Iterator[BottleneckLine]:
        """The one with the most GPU-hours first."""
        lines = [self._bottleneck(of, jobs) for of, jobs in self._spent(self.record.spent).items()]
        yield from sorted(lines, key=lambda line: (-line.gpu_hours, -line.job_hours, line.bottleneck))

    def _bottleneck(self, of: Bottleneck, jobs: Mapping[JobName, int]) -> BottleneckLine:
        longest = min(jobs, key=lambda job: (-jobs[job], self._jobs[job].job.submitted_at, job))
        told = self.record.told.get((longest, of), "")
        example = f"{longest}: {told}" if told else ""
        return BottleneckLine(of, len(jobs), sum(jobs.values()) / _HOUR_MS, self._gpu_hours(jobs), example)

    def _waiting(self) -> Iterator[WaitLine]:
        found = []
        for name, members in self._by_class.items():
            mine = {one.job.name: self.record.spent.get(one.job.name, Counter()) for one in members}
            for of, jobs in self._spent(mine).items():
                hours = sum(jobs.values()) / _HOUR_MS
                found.append(WaitLine(of, name, len(jobs), hours, self._gpu_hours(jobs)))
        yield from sorted(
            found, key=lambda line: (-line.gpu_hours, -line.job_hours, line.priority_class, line.bottleneck)
        )

    def _gpu_hours(self, jobs: Mapping[JobName, int]) -> float:
        return sum(self._jobs[job].job.spec.gpus * spent for job, spent in jobs.items()) / _MILLI_GPU_HOUR

    @staticmethod
    def _spent(by_job: Mapping[JobName, Counter[Bottleneck]]) -> Mapping[Bottleneck, dict[JobName, int]]:
        found: dict[Bottleneck, dict[JobName, int]] = defaultdict(dict)
        for job, spent in by_job.items():
            for of, milliseconds in spent.items():
                if milliseconds:
                    found[of][job] = milliseconds
        return found

    def _peaks(self) -> Iterator[PeakLine]:
        for name, peak in sorted(self.record.peaks.items(), key=lambda item: (-item[1].milli, item[0])):
            until, gpus = self.record.started_by(peak), peak.milli / MILLI_PER_GPU
            yield PeakLine(name, peak.at, len(peak.jobs), gpus, peak.bottleneck, until)

    def _over_time(self) -> Iterator[DemandSeries]:
        for name, jobs in self._by_class.items():
            yield DemandSeries(name, averages(map(self._wanted, jobs), self.outcome.start, self.outcome.end))


def _levels(stretches: Iterable[Stretch]) -> Sequence[tuple[Instant, int]]:
    """The height of stretches on top of each other from each instant on at which it changes."""
    changes = sorted(change for one in stretches for change in ((one.start, one.milli), (one.end, -one.milli)))
    height, found = 0, list[tuple[Instant, int]]()
    for at, together in groupby(changes, key=lambda change: change[0]):
        height += sum(change for _, change in together)
        found.append((Instant(at), height))
    return found


def _peak(stretches: Iterable[Stretch]) -> tuple[int, Instant]:
    """The highest that they stand on top of each other, and when first. There is at least one."""
    at, height = max(_levels(stretches), key=lambda level: (level[1], -level[0]))
    return height, at


def _time_at(stretches: Iterable[Stretch], milli: int) -> int:
    """Milliseconds in which they stand as high as that, or higher."""
    levels = _levels(stretches)
    return sum(after - at for (at, height), (after, _) in pairwise(levels) if height >= milli)
