"""The figures of one policy, from a finished replay and what was noted of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from reconciler.analysis.backtest.fairness import JobDemand, alone, guaranteed_by_queue, jain, within
from reconciler.analysis.backtest.figures import (
    ClassFigures,
    Distribution,
    EtaFigures,
    FairnessFigures,
    LossFigures,
    OverTime,
    PolicyFigures,
    QueueFigures,
    QueueSeries,
    RoundFigures,
    figure,
    spread,
)
from reconciler.analysis.backtest.observation import Observation, Stretch, forecast_of
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant
from solver.model.workload import JobName, QueueName
from solver.simulation.replay import Replay
from solver.simulation.trace import Run, TraceJob

_HOUR = 3_600_000
_MILLI_GPU_HOUR = MILLI_PER_GPU * _HOUR

STEPS = (60_000, 300_000, 900_000, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, 24 * _HOUR, 168 * _HOUR)
STEPS_MAX = 168
"""Steps of time in a report, if one of these lengths makes so few: a week has its hours."""


@dataclass(frozen=True)
class ReplayOutcome:
    """A replay that is over. `jobs` are those of the trace, `end` is when it was cut."""

    replay: Replay
    jobs: Sequence[TraceJob]
    start: Instant
    end: Instant
    seen: Observation

    def figures(self, name: str, commit: str = "", notes: tuple[str, ...] = ()) -> PolicyFigures:
        """All of them."""
        gpus = sum(len(node.gpus) for node in self.replay.nodes)
        runs = self.replay.runs.values()
        held = sum(self._held_milli_ms(job) for job in self.replay.runs)
        losses = self._losses()
        return PolicyFigures(
            name=name,
            digest=self.replay.policy.digest,
            gpus=gpus,
            jobs=len(self.jobs),
            started=sum(run.started_at is not None for run in runs),
            ended=sum(run.ended_at is not None for run in runs),
            never=len(self.seen.never),
            utilisation=held / (gpus * MILLI_PER_GPU * (self.end - self.start)),
            evictions=sum(loss.evictions for loss in losses),
            lost_gpu_hours=sum(loss.lost_gpu_hours for loss in losses),
            waits=self._waits(self.jobs),
            queues=tuple(self._queue(queue, losses) for queue in sorted(self._by_queue)),
            classes=self._classes(),
            losses=losses,
            over_time=self._over_time(),
            fairness=self._fairness(),
            rounds=RoundFigures(self.seen.stages.total(), self.seen.within_gap, dict(sorted(self.seen.stages.items()))),
            eta=self._eta() if self.replay.policy.scheduling.estimated_jobs else None,
            commit=commit,
            notes=notes,
        )

    @cached_property
    def _by_queue(self) -> Mapping[QueueName, list[TraceJob]]:
        found: dict[QueueName, list[TraceJob]] = defaultdict(list)
        for known in sorted(self.jobs, key=lambda known: (known.job.submitted_at, known.job.name)):
            found[known.job.spec.queue].append(known)
        return found

    @cached_property
    def _guaranteed(self) -> Mapping[QueueName, int]:
        return guaranteed_by_queue(self.replay.policy, self.replay.nodes)

    @cached_property
    def _slowdowns(self) -> Mapping[QueueName, tuple[list[float], list[float]]]:
        """Finish-time fairness of each queue's jobs with GPUs: of those that have ended, and bounds of the others."""
        return {queue: self._slowdowns_of(queue, jobs) for queue, jobs in self._by_queue.items()}

    def _slowdowns_of(self, queue: QueueName, jobs: Sequence[TraceJob]) -> tuple[list[float], list[float]]:
        milli, known, bounds = self._guaranteed.get(queue, 0), list[float](), list[float]()
        with_gpus = [one for one in self._able(jobs) if one.job.spec.gpus and one.duration]
        if milli:
            wanted = [JobDemand(one.job.submitted_at, one.job.spec.gpus, one.duration) for one in with_gpus]
            for one, ideal in zip(with_gpus, alone(wanted, milli), strict=True):
                ended_at = self._run(one).ended_at
                took = (self.end if ended_at is None else ended_at) - one.job.submitted_at
                (bounds if ended_at is None else known).append(took / ideal)
        return known, bounds

    def _able(self, jobs: Sequence[TraceJob]) -> list[TraceJob]:
        """Without those that can never run: no queue is owed what can't be."""
        return [one for one in jobs if one.job.name not in self.seen.never]

    def _run(self, one: TraceJob) -> Run:
        """What became of it; one that came after the last round has no run yet."""
        job = one.job
        return self.replay.runs.get(job.name) or Run(job.name, job.spec.queue, job.spec.gpus, job.submitted_at)

    def _stretches(self, job: JobName) -> Sequence[Stretch]:
        return self.seen.stretches.get(job, ())

    def _held_milli_ms(self, job: JobName) -> int:
        return sum(stretch.milli * (stretch.end - stretch.start) for stretch in self._stretches(job))

    def _waits(self, jobs: Sequence[TraceJob]) -> Distribution:
        """Seconds to the first start; of a job that has not started, until the end of the replay at least."""
        runs = [self._run(one) for one in jobs]
        known = [run.wait_ms / 1000 for run in runs if run.wait_ms is not None]
        return spread(known, [(self.end - run.submitted_at) / 1000 for run in runs if run.wait_ms is None])

    def _queue(self, queue: QueueName, losses: Sequence[LossFigures]) -> QueueFigures:
        jobs = self._by_queue[queue]
        mine = [loss for loss in losses if loss.queue == queue]
        return QueueFigures(
            queue=queue,
            waits=self._waits(jobs),
            gpu_hours=sum(self._held_milli_ms(one.job.name) for one in jobs) / _MILLI_GPU_HOUR,
            guaranteed=self._guaranteed.get(queue, 0) / MILLI_PER_GPU,
            evictions=sum(loss.evictions for loss in mine),
            lost_gpu_hours=sum(loss.lost_gpu_hours for loss in mine),
            served=self._served(queue),
            slowdown=_spread_of_any(*self._slowdowns[queue]),
        )

    def _served(self, queue: QueueName) -> float | None:
        """The part that it got of what it was owed: what it wanted from submissions to ends, up to its guarantee."""
        jobs, milli = self._by_queue[queue], self._guaranteed.get(queue, 0)
        wanted = (
            Stretch(one.job.submitted_at, self._run(one).ended_at or self.end, one.job.spec.gpus)
            for one in self._able(jobs)
        )
        held = (stretch for one in jobs for stretch in self._stretches(one.job.name))
        owed = within(wanted, milli)
        return within(held, milli) / owed if owed else None

    def _classes(self) -> tuple[ClassFigures, ...]:
        by_class: dict[str, list[TraceJob]] = defaultdict(list)
        for one in self.jobs:
            by_class[self.replay.policy.priority_class_name(one.job)].append(one)
        return tuple(
            ClassFigures(name, self._waits(jobs), self._started_within(jobs)) for name, jobs in sorted(by_class.items())
        )

    def _started_within(self, jobs: Sequence[TraceJob]) -> tuple[float, ...]:
        waited = sorted(run.wait_ms / 1000 for run in map(self._run, jobs) if run.wait_ms is not None)
        ranks = (-(-percent * len(jobs) // 100) for percent in range(1, 101))
        return tuple(waited[rank - 1] for rank in ranks if rank <= len(waited))

    def _losses(self) -> tuple[LossFigures, ...]:
        found: dict[tuple[QueueName, str], LossFigures] = {}
        for loss in self.seen.losses:
            queue = self.replay.runs[loss.job].queue
            known = found.get((queue, loss.means)) or LossFigures(queue, loss.means, 0, 0, 0.0)
            found[queue, loss.means] = LossFigures(
                queue,
                loss.means,
                known.evictions + (not loss.shrunk),
                known.shrinks + loss.shrunk,
                known.lost_gpu_hours + loss.gpu_s / 3600,
            )
        return tuple(loss for _, loss in sorted(found.items()))

    def _over_time(self) -> OverTime:
        step, count = steps_of(self.start, self.end)
        evictions = [0] * count
        for loss in self.seen.losses:
            evictions[min(count - 1, (loss.at - self.start) // step)] += not loss.shrunk
        series = (QueueSeries(queue, self._series(queue)) for queue in sorted(self._by_queue))
        return OverTime(step, tuple(series), tuple(evictions))

    def _series(self, queue: QueueName) -> tuple[float, ...]:
        held = (stretch for one in self._by_queue[queue] for stretch in self._stretches(one.job.name))
        return averages(held, self.start, self.end)

    def _fairness(self) -> FairnessFigures:
        served = [part for queue in sorted(self._by_queue) if (part := self._served(queue)) is not None]
        known = [value for of, _ in self._slowdowns.values() for value in of]
        bounds = [value for _, of in self._slowdowns.values() for value in of]
        return FairnessFigures(jain(served), _spread_of_any(known, bounds))

    def _eta(self) -> EtaFigures:
        known, bounds, in_time = list[float](), list[float](), 0
        undecided = untold = 0
        for job, told in self.seen.told.items():
            forecast, started_at = forecast_of(told), self.replay.runs[job].started_at
            if forecast is None:
                untold += 1
            elif started_at is not None:
                known.append((started_at - forecast) / 1000)
                in_time += started_at <= forecast.after(self.replay.cadence)
            elif forecast < self.end:
                bounds.append((self.end - forecast) / 1000)
            else:
                undecided += 1
        judged = len(known) + len(bounds)
        if not judged:
            return EtaFigures(0, undecided, untold)
        return EtaFigures(
            judged,
            undecided,
            untold,
            figure(known, bounds, 50),
            figure([abs(error) for error in known], bounds, 90),
            in_time / judged,
        )


def steps_of(start: Instant, end: Instant) -> tuple[Duration, int]:
    """The length of the steps of time in a report, and how many there are."""
    length = end - start
    step = next((step for step in STEPS if -(-length // step) <= STEPS_MAX), STEPS[-1])
    return Duration(step), -(-length // step)


def averages(stretches: Iterable[Stretch], start: Instant, end: Instant) -> tuple[float, ...]:
    """Average GPUs in each step; the last one may be shorter than the others."""
    step, count = steps_of(start, end)
    held = [0] * count
    for stretch in stretches:
        for number in range(max(0, stretch.start - start) // step, count):
            begins = start + number * step
            if begins >= stretch.end:
                break
            held[number] += stretch.milli * (min(stretch.end, begins + step) - max(stretch.start, begins))
    lengths = (min(step, end - start - number * step) for number in range(count))
    return tuple(round(milli_ms / MILLI_PER_GPU / of, 3) for milli_ms, of in zip(held, lengths, strict=True))


def _spread_of_any(known: Sequence[float], bounds: Sequence[float]) -> Distribution | None:
    return spread(known, bounds) if known or bounds else None
