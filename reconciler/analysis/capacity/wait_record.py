"""How long each job of a replay waited for what: every millisecond from submission to a start counts for exactly one thing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.analysis.backtest.observation import Stretch
from reconciler.analysis.capacity.bottlenecks import NEXT_ROUND, Bottleneck, bottleneck_of
from solver.model.cluster import GpuType, NodeName
from solver.model.quantities import Instant
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Bind, Evict, Grow, Inadmissible, Shrink, Step, Waits
from solver.policy.policy import Policy
from solver.simulation.trace import ReplayedRound, Run, TraceJob


class _Spell(NamedTuple):
    """A job that waits since then for this; None: no round has said yet for what."""

    since: Instant
    bottleneck: Bottleneck | None


class WaitingPeak(NamedTuple):
    """Most milli-GPU of a class that were waited for at once, by which jobs, and what most of it waited for."""

    at: Instant
    milli: int
    jobs: tuple[JobName, ...]
    bottleneck: Bottleneck


@dataclass(slots=True)
class WaitingRecord:
    """Show it every round, then close it.

    `spent`: milliseconds that a job waited for each thing. `told`: what it was told of it last. `starts`: all of them, not only
    the first. `held`: what was held of each GPU type, and when.
    """

    policy: Policy
    types: Mapping[NodeName, GpuType]
    spent: dict[JobName, Counter[Bottleneck]] = field(default_factory=lambda: defaultdict(Counter))
    told: dict[tuple[JobName, Bottleneck], str] = field(default_factory=dict)
    starts: dict[JobName, list[Instant]] = field(default_factory=lambda: defaultdict(list))
    held: dict[GpuType, list[Stretch]] = field(default_factory=lambda: defaultdict(list))
    peaks: dict[str, WaitingPeak] = field(default_factory=dict)
    _waiting: dict[JobName, _Spell] = field(default_factory=dict)
    _holding: dict[JobName, dict[tuple[str, int], tuple[Instant, TaskPlacement]]] = field(default_factory=dict)

    def note(self, decided: ReplayedRound) -> None:
        """One more round."""
        now, plan = decided.snapshot.time, decided.plan
        for job in decided.snapshot.pending:
            self._waiting.setdefault(job.name, _Spell(job.submitted_at, None))
        jobs = {job.name: job for job in decided.snapshot.jobs}
        for step in plan.steps:
            self._take(step, now)
        there = {gpu_type for gpu_type in self.types.values() if gpu_type}
        for verdict in plan.verdicts:
            if isinstance(verdict, Waits | Inadmissible) and verdict.job in self._waiting:
                refused = isinstance(verdict, Inadmissible)
                found = bottleneck_of(verdict.reasons, jobs[verdict.job].spec, there, is_refused=refused)
                self._go_on(verdict.job, now, found)
                if verdict.reasons:
                    self.told[verdict.job, found] = str(verdict.reasons[0])
        self._note_peaks(now, jobs)

    def close(self, runs: Mapping[JobName, Run], jobs: Collection[TraceJob], end: Instant) -> None:
        """The replay is over: what still waits has waited until the end, and what runs is cut there."""
        for one in jobs:
            if one.job.name not in self.starts and one.job.name not in self._waiting:
                self._waiting[one.job.name] = _Spell(one.job.submitted_at, None)
        for job, spell in self._waiting.items():
            self.spent[job][spell.bottleneck or NEXT_ROUND] += end - spell.since
        for job in tuple(self._holding):
            ended_at = runs[job].ended_at
            self._give_back(job, list(self._holding[job]), end if ended_at is None else ended_at)

    def started_by(self, peak: WaitingPeak) -> Instant | None:
        """When the last of the jobs that waited at a peak had started; None: not all have."""
        found = [next((at for at in self.starts.get(job, ()) if at > peak.at), None) for job in peak.jobs]
        known = [at for at in found if at is not None]
        return max(known) if len(known) == len(found) else None

    def _take(self, step: Step, now: Instant) -> None:
        match step:
            case Bind(job, _, tasks):
                self._start(job, now)
                self._hold(job, tasks, now)
            case Grow(job, _, tasks):
                self._hold(job, tasks, now)
            case Shrink(job, _, tasks):
                self._give_back(job, [(task.group, task.index) for task in tasks], now)
            case Evict(job):
                self._give_back(job, list(self._holding.get(job, ())), now)
                self._waiting[job] = _Spell(now, None)
            case _:
                pass  # Promises and what is kept hold nothing yet.

    def _start(self, job: JobName, now: Instant) -> None:
        spell = self._waiting.pop(job)
        self.spent[job][spell.bottleneck or NEXT_ROUND] += now - spell.since
        self.starts[job].append(now)

    def _go_on(self, job: JobName, now: Instant, bottleneck: Bottleneck) -> None:
        """What it waited for until now is what it was told before, and now that."""
        spell = self._waiting[job]
        self.spent[job][spell.bottleneck or bottleneck] += now - spell.since
        self._waiting[job] = _Spell(now, bottleneck)

    def _hold(self, job: JobName, tasks: tuple[TaskPlacement, ...], now: Instant) -> None:
        held = self._holding.setdefault(job, {})
        for task in tasks:
            held[task.group, task.index] = (now, task)

    def _give_back(self, job: JobName, tasks: Collection[tuple[str, int]], now: Instant) -> None:
        held = self._holding.get(job, {})
        for key in tasks:
            since, task = held.pop(key)
            if task.gpus:
                self.held[self.types[task.node]].append(Stretch(since, now, task.gpus))
        if not held:
            self._holding.pop(job, None)

    def _note_peaks(self, now: Instant, jobs: Mapping[JobName, Job]) -> None:
        for name, waiting in self._by_class(jobs).items():
            milli = sum(jobs[job].spec.gpus for job in waiting)
            known = self.peaks.get(name)
            if known is None or (milli, len(waiting)) > (known.milli, len(known.jobs)):
                most = Counter[Bottleneck]()
                for job in waiting:
                    most[self._waiting[job].bottleneck or NEXT_ROUND] += max(1, jobs[job].spec.gpus)
                leading = min(most, key=lambda one: (-most[one], one))
                self.peaks[name] = WaitingPeak(now, milli, tuple(waiting), leading)

    def _by_class(self, jobs: Mapping[JobName, Job]) -> Mapping[str, list[JobName]]:
        found: dict[str, list[JobName]] = defaultdict(list)
        for job, spell in self._waiting.items():
            if spell.bottleneck is not None and spell.bottleneck.kind != "refused" and job in jobs:
                found[self.policy.priority_class_name(jobs[job])].append(job)
        return found


def followed(record: WaitingRecord, rounds: Iterator[ReplayedRound]) -> Iterator[ReplayedRound]:
    """The same rounds, each noted as it is held."""
    for decided in rounds:
        record.note(decided)
        yield decided
