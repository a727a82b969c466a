"""Judges what jobs without GPUs claim of CPU and memory that a queue shares with those below it, by the checker's own arithmetic.

Part of the checker. A claim lies inside what is shared, beside all that jobs without GPUs below that queue hold, and inside what
the queues above it are guaranteed. What runs stands there in line behind what lies inside the guarantees of the queues themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from solver.checker.case import JudgedPlan
from solver.checker.host_fair import HostLoss, beside_of, loss_of
from solver.model.workload import Job, JobName, QueueName
from solver.plan.plan import Evict, Nominate, Shrink

Line = tuple[str, int]
"""A queue; 0: CPU in milli-cores, 1: memory in bytes."""


@dataclass(frozen=True)
class HostCommon:
    """What is shared in one judgement.

    `guaranteed`: by queue, of both; `inside`: jobs inside the guarantees of their own queues; `in_line`: running jobs without GPUs,
    in parts, in line.
    """

    case: JudgedPlan
    guaranteed: Mapping[str, tuple[int, int]]
    inside: frozenset[JobName]
    in_line: Sequence[Job]

    @cached_property
    def is_shared(self) -> bool:
        """Whether any queue shares CPU or memory."""
        return any(entry.shared for queue in self.case.policy.queues for entry in queue.host_quota)

    def keeps(self, victim: JobName, preemptor: Job) -> bool:
        """Whether a running job lies inside what a queue shares that is not above the preemptor."""
        by = self._standing[0].get(victim) if self.is_shared else None
        return by is not None and by not in self.case.lookup.on_path(preemptor.spec.queue)

    def is_claim(self, victim: Job, preemptor: Job) -> bool:
        """Whether a preemptor claims what a queue shares, and the victim is not below that."""
        by = self.claims.get(preemptor.name)
        return by is not None and by not in self.case.lookup.on_path(victim.spec.queue)

    @cached_property
    def claims(self) -> Mapping[JobName, QueueName]:
        """Jobs that are promised something inside what is shared, each with the queue that shares it; in the order of the plan."""
        case, found = self.case, dict[JobName, QueueName]()
        if not self.is_shared:
            return found
        left, used = dict(self._standing[1]), self._used
        for step in case.steps(Nominate):
            job = case.jobs.get(step.job)
            if job is None:
                continue
            if not any(case.ground.charge(step.tasks).values()) and step.job not in case.promised:
                gain = beside_of(job, step.tasks)
                sharing = self._sharing(job.spec.queue, gain)
                fits = all(used[line] + gain[line[1]] <= self._guaranteed(line) for line in sharing)
                may = bool(sharing) and fits and self._lends(job) and self._fits(left, job.spec.queue, gain)
                if may and step.job not in self.inside:
                    found[step.job] = self._highest(job.spec.queue, sharing)
                if may or step.job in self.inside:
                    self._take(left, job.spec.queue, gain)
                used.update(self._on_path(job.spec.queue, gain))
            for loss in self.losses.get(step.job, ()):
                used.subtract(self._on_path(loss.queue, loss.beside))
        return found

    def _lends(self, job: Job) -> bool:
        """Whether it would give back again what it claims."""
        known = self.case.lookup.class_of(job)
        return known is None or known.preemptible or known.may_borrow

    # What runs.

    @cached_property
    def _standing(self) -> tuple[Mapping[JobName, QueueName], Mapping[Line, int]]:
        """Running jobs inside what is shared, each with the highest queue that shares it; and what is left for claims."""
        case = self.case
        left = {(name, place): self._guaranteed((name, place)) for name in case.lookup.queues for place in (0, 1)}
        known = [(job, beside_of(job, job.placement)) for job in self.in_line]
        for job, both in known:
            if job.name in self.inside:
                self._take(left, job.spec.queue, both)
        running = {job.name for job in self.in_line}
        for name, tasks in sorted(case.promised.items()):
            if name in case.jobs and name not in running and not any(case.ground.charge(tasks).values()):
                self._take(left, case.jobs[name].spec.queue, beside_of(case.jobs[name], tasks))
        claiming = [(job, both) for job, both in known if job.name not in self.inside]
        sharing = {job.name: self._sharing(job.spec.queue, both) for job, both in claiming}
        stays = {name for name, lines in sharing.items() if lines}
        for queue in sorted(case.lookup.queues, key=lambda name: (-len(case.lookup.path(name)), name)):
            for job, both in claiming:
                if job.name in stays and queue in case.lookup.on_path(job.spec.queue):
                    lines = [(queue, place) for place in (0, 1) if both[place] and self._counts((queue, place))]
                    if all(both[line[1]] <= left[line] for line in lines):
                        left.update({line: left[line] - both[line[1]] for line in lines})
                    else:
                        stays.discard(job.name)
        by = {job.name: self._highest(job.spec.queue, sharing[job.name]) for job, _ in claiming if job.name in stays}
        return by, left

    @property
    def _used(self) -> Counter[Line]:
        """What jobs without GPUs hold, or were promised, when the round begins."""
        case, found = self.case, Counter[Line]()
        leaves = {(intent.job, intent.attempt) for intent in case.intents if intent.evicts}
        for job in case.snapshot.jobs:
            stays = job.phase != "pending" and (job.name, job.attempt) not in leaves
            tasks = job.placement if stays else tuple(case.promised.get(job.name, ()))
            if not any(case.ground.charge(tasks).values()):
                found.update(self._on_path(job.spec.queue, beside_of(job, tasks)))
        return found

    @cached_property
    def losses(self) -> Mapping[JobName, Sequence[HostLoss]]:
        """What jobs without GPUs leave, by for whom."""
        found = defaultdict[JobName, list[HostLoss]](list)
        for name, step in self.case.parted.steps.items():
            part = self.case.parted.jobs.get(name)
            if part is None or any(self.case.ground.charge(part.placement).values()):
                continue
            if isinstance(step, Evict | Shrink) and step.beneficiary and step.means != "move":
                found[step.beneficiary].append(loss_of(part))
        return found

    # The lines.

    def _guaranteed(self, line: Line) -> int:
        return self.guaranteed.get(line[0], (0, 0))[line[1]]

    def _counts(self, line: Line) -> bool:
        """Whether a line limits what is claimed: below a queue that shares none does."""
        return self.case.lookup.host_shares_from(line[0], "memory" if line[1] else "cpu") is None

    def _sharing(self, queue: QueueName, both: tuple[int, int]) -> list[Line]:
        """The lines above a queue that share any of what is asked."""
        above = ((self.case.lookup.host_shares_from(queue, ("cpu", "memory")[place]), place) for place in (0, 1))
        return [(name, place) for name, place in above if name is not None and both[place]]

    def _highest(self, queue: QueueName, lines: Iterable[Line]) -> QueueName:
        names = {name for name, _ in lines}
        return next(known.name for known in reversed(self.case.lookup.path(queue)) if known.name in names)

    def _fits(self, left: Mapping[Line, int], queue: QueueName, both: tuple[int, int]) -> bool:
        on_path = self._on_path(queue, both).items()
        return all(amount <= left[line] for line, amount in on_path if amount and self._counts(line))

    def _take(self, left: dict[Line, int], queue: QueueName, both: tuple[int, int]) -> None:
        for line, amount in self._on_path(queue, both).items():
            left[line] = left.get(line, 0) - amount

    def _on_path(self, queue: QueueName, both: tuple[int, int]) -> dict[Line, int]:
        return {(known.name, place): both[place] for known in self.case.lookup.path(queue) for place in (0, 1)}
