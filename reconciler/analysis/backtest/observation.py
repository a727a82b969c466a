"""What is noted of a replay while its rounds are held: what was held and when, which jobs were evicted, what was forecast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.analysis.backtest.figures import LostBy
from solver.model.quantities import Instant
from solver.model.workload import JobName, TaskPlacement
from solver.plan.estimates import AnyEstimate, EarliestStart
from solver.plan.plan import Bind, Evict, Grow, Inadmissible, Plan, Shrink, Waits
from solver.simulation.trace import ReplayedRound, Run


class Stretch(NamedTuple):
    """A time in which a job held the same number of milli-GPU."""

    start: Instant
    end: Instant
    milli: int


class LostWork(NamedTuple):
    """A job that was evicted, or an elastic gang that was shrunk, and the GPU-seconds of work that it lost by it."""

    at: Instant
    job: JobName
    means: LostBy
    shrunk: bool
    gpu_s: float


class _Held(NamedTuple):
    since: Instant
    milli: int


@dataclass(slots=True)
class Observation:
    """Show it every round, then close it.

    `told`: what each job was told in the first round in which it waited, if that was before its first start.
    """

    stretches: dict[JobName, list[Stretch]] = field(default_factory=dict)
    losses: list[LostWork] = field(default_factory=list)
    told: dict[JobName, AnyEstimate | None] = field(default_factory=dict)
    never: frozenset[JobName] = frozenset()
    stages: Counter[str] = field(default_factory=Counter)
    within_gap: int = 0
    _held: dict[JobName, _Held] = field(default_factory=dict)

    def note(self, decided: ReplayedRound) -> None:
        """One more round."""
        now, plan = decided.snapshot.time, decided.plan
        self.stages[plan.certificate.stage] += 1
        self.within_gap += all(layer.status != "unproven" for layer in plan.certificate.layers)
        self._note_verdicts(plan)
        for step in plan.steps:
            match step:
                case Bind(job, _, tasks):
                    self._held[job] = _Held(now, _milli(tasks))
                case Grow(job, _, tasks):
                    self._resize(job, now, _milli(tasks))
                case Evict():
                    self._lose(step, now)
                    self._stop(step.job, now)
                case Shrink(job, _, tasks):
                    self._lose(step, now)
                    self._resize(job, now, -_milli(tasks))
                case _:
                    pass  # Promises and what is kept hold nothing yet.

    def close(self, runs: Mapping[JobName, Run], end: Instant) -> None:
        """The replay is over: what runs has ended when its run says so, else it is cut at the end."""
        for job in tuple(self._held):
            ended_at = runs[job].ended_at
            self._stop(job, end if ended_at is None else ended_at)

    def _note_verdicts(self, plan: Plan) -> None:
        for verdict in plan.verdicts:
            if isinstance(verdict, Waits) and not self._has_begun(verdict.job):
                self.told.setdefault(verdict.job, verdict.estimate)
        self.never = frozenset(verdict.job for verdict in plan.verdicts if isinstance(verdict, Inadmissible))

    def _has_begun(self, job: JobName) -> bool:
        return job in self._held or job in self.stretches

    def _lose(self, step: Evict | Shrink, now: Instant) -> None:
        self.losses.append(LostWork(now, step.job, step.means, isinstance(step, Shrink), step.lost_gpu_s))

    def _resize(self, job: JobName, now: Instant, more: int) -> None:
        milli = self._held[job].milli + more
        self._stop(job, now)
        self._held[job] = _Held(now, milli)

    def _stop(self, job: JobName, now: Instant) -> None:
        held = self._held.pop(job)
        self.stretches.setdefault(job, []).append(Stretch(held.since, now, held.milli))


def forecast_of(told: AnyEstimate | None) -> Instant | None:
    """The instant that a user was told; None: they were told none."""
    return told.at if isinstance(told, EarliestStart) else None


def _milli(tasks: tuple[TaskPlacement, ...]) -> int:
    return sum(task.gpus for task in tasks)
