"""Keeps what rounds would have done beside what Slurm did: starts matched job by job, evictions, and the GPUs in use by both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from reconciler.model.causes import why_evicted
from reconciler.model.comparison import ComparedJob, EvictedBeside, ObservedComparison, StartCounts, UseBeside
from reconciler.slurm.look import SlurmJobFacts, SlurmLook
from solver.model.document import decode, encode
from solver.model.quantities import MILLI_PER_GPU, Instant
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Bind, Evict, Grow, Inadmissible, Plan, Shrink, Waits

LISTED_MAX: Final = 1_000
"""Of jobs whose comparison is over so many are listed, the newest; all are counted."""
_GAP: Final = 3
"""Looks that are further apart than so many intervals say nothing of the time between."""


class SlurmComparison:
    """Show it every look with the plan that was made of it. `look_ms`: how far apart looks are meant to be.

    `kept`: what it wrote before. Raises ValueError for what is none.
    """

    def __init__(self, look_ms: int, now: Instant, kept: bytes = b"") -> None:
        empty = ObservedComparison(now, now, look_ms, 0, 0, "", StartCounts(), UseBeside())
        before = decode(kept, ObservedComparison) if kept else empty
        self._before = msgspec.structs.replace(before, look_ms=look_ms, doubts=())
        self._waiting = {one.job: one for one in before.starts if one.started_at is None}
        self._over = [one for one in before.starts if one.started_at is not None]
        self._evictions = {one.job: one for one in before.evictions}
        self._told_evicted = set(self._evictions)
        self._running = set[JobName]()
        self._known: set[JobName] | None = None
        """Every job of the look before; None: there was none."""
        self._last: tuple[float, float, float, float] | None = None

    def look(self, now: Instant, monotonic_s: float, seen: SlurmLook, plan: Plan, step_ms: int = 0) -> None:
        """One round is over. `step_ms`: by how much this machine's clock was set since the look before."""
        if step_ms:
            self._waiting = {name: _moved(one, step_ms) for name, one in self._waiting.items()}
        jobs = {job.name: job for job in seen.jobs}
        self._note_starts(now, jobs, seen.facts)
        self._note_plan(now, jobs, plan)
        self._note_use(monotonic_s, seen, plan, jobs)
        self._running = {name for name, job in jobs.items() if job.placement}
        self._known = set(seen.facts)
        counts = self._before.counts
        waiting = sum(one.would_start_at is not None for one in self._waiting.values())
        self._before = msgspec.structs.replace(
            self._before,
            until=now,
            looks=self._before.looks + 1,
            counts=msgspec.structs.replace(counts, would_start=waiting),
            doubts=seen.doubts,
        )

    def fail(self, now: Instant, why: str) -> None:
        """A look came to nothing."""
        self._before = msgspec.structs.replace(self._before, until=now, failed=self._before.failed + 1, failure=why)

    @property
    def summary(self) -> ObservedComparison:
        """All of it, as of the last look: jobs that started, the newest first, and then those that wait."""
        over = sorted(self._over, key=lambda one: (-(one.started_at or 0), one.job))[:LISTED_MAX]
        waiting = sorted(self._waiting.values(), key=lambda one: (one.seen_at, one.job))
        evictions = sorted(self._evictions.values(), key=lambda one: (-one.at, one.job))[:LISTED_MAX]
        return msgspec.structs.replace(self._before, starts=(*over, *waiting), evictions=tuple(evictions))

    def written(self) -> bytes:
        """For the next start."""
        return encode(self.summary)

    def _count(self, **more: int) -> None:
        counts = self._before.counts
        added = {name: getattr(counts, name) + number for name, number in more.items()}
        self._before = msgspec.structs.replace(self._before, counts=msgspec.structs.replace(counts, **added))

    def _note_starts(self, now: Instant, jobs: Mapping[JobName, Job], facts: Mapping[JobName, SlurmJobFacts]) -> None:
        for name, found in facts.items():
            self._count(really_evicted=found.is_preempted and name in self._running)
            if found.standing == "waiting" and name in jobs:
                if name not in self._waiting:
                    job = jobs[name]
                    gpus = job.spec.gpus / MILLI_PER_GPU
                    self._waiting[name] = ComparedJob(name, job.spec.queue, job.user, gpus, now)
            elif name in self._waiting and found.started_at:
                self._start(self._waiting.pop(name), found.started_at)
            elif found.started_at and self._known is not None and name not in self._known:
                self._count(unseen=1)
        waiting = {name: found for name, found in facts.items() if found.standing in ("waiting", "held")}
        for name in self._waiting.keys() - waiting.keys():
            del self._waiting[name]  # It went without having begun, or between two looks.

    def _start(self, waited: ComparedJob, at: Instant) -> None:
        started = msgspec.structs.replace(waited, started_at=max(at, waited.seen_at))
        how = started.start(self._before.look_ms)
        self._count(**{str(how): 1}, earlier_ms=started.ahead_ms if how == "earlier" else 0)
        self._over = [*self._over, started][-LISTED_MAX:]

    def _note_plan(self, now: Instant, jobs: Mapping[JobName, Job], plan: Plan) -> None:
        for step in plan.steps:
            if isinstance(step, Bind) and (one := self._waiting.get(step.job)) and one.would_start_at is None:
                self._waiting[step.job] = msgspec.structs.replace(one, would_start_at=now, waits_for="")
            elif isinstance(step, Evict) and step.job not in self._told_evicted and step.job in jobs:
                job = jobs[step.job]
                of = step.job, job.spec.queue, job.user, step.gpus / MILLI_PER_GPU
                self._evictions[step.job] = EvictedBeside(*of, now, step.beneficiary or "", why_evicted(step))
                self._told_evicted.add(step.job)
                self._count(evicted=1)
        for verdict in plan.verdicts:
            if isinstance(verdict, Waits | Inadmissible) and (one := self._waiting.get(verdict.job)):
                why = "; ".join(map(str, verdict.reasons))
                if one.would_start_at is None and why != one.waits_for:
                    self._waiting[verdict.job] = msgspec.structs.replace(one, waits_for=why)

    def _note_use(self, monotonic_s: float, seen: SlurmLook, plan: Plan, jobs: Mapping[JobName, Job]) -> None:
        """What was so at the look before holds until this one, unless that was long ago."""
        used = sum(_gpus(job.placement) for job in jobs.values())
        planned = used + sum(_change(step, jobs) for step in plan.steps)
        if self._last is not None:
            at_s, *before = self._last
            span_ms, use = round((monotonic_s - at_s) * 1_000), self._before.use
            if span_ms > _GAP * self._before.look_ms:
                use = msgspec.structs.replace(use, unmeasured_ms=use.unmeasured_ms + span_ms)
            else:
                gpu, was, would = (known * span_ms for known in before)
                of = use.gpu_ms + gpu, use.used_ms + was, use.planned_ms + would, use.measured_ms + span_ms
                use = UseBeside(*of, use.unmeasured_ms)
            self._before = msgspec.structs.replace(self._before, use=use)
        self._last = monotonic_s, float(sum(len(node.gpus) for node in seen.nodes)), used, planned


def _moved(one: ComparedJob, step_ms: int) -> ComparedJob:
    """What was noted by the clock as it was, by the clock as it is."""
    would = None if one.would_start_at is None else one.would_start_at.after(step_ms)
    return msgspec.structs.replace(one, seen_at=one.seen_at.after(step_ms), would_start_at=would)


def _gpus(tasks: Iterable[TaskPlacement]) -> float:
    return sum(task.gpus for task in tasks) / MILLI_PER_GPU


def _change(step: object, jobs: Mapping[JobName, Job]) -> float:
    match step:
        case Bind() | Grow():
            return _gpus(step.tasks)
        case Shrink():
            return -_gpus(step.tasks)
        case Evict() if step.job in jobs:
            return -_gpus(jobs[step.job].placement)
        case _:
            return 0.0
