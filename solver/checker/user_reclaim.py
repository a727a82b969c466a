"""Judges who leaves so that users come to their fair shares of a queue: what lies beyond a share, for what lies inside another's.

Part of the checker: a share ends at the level to which all users have filled up, by weight, once what there is of the queue has
been handed out GPU by GPU. Where plain counts do not tell what users ask for, nothing is judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from solver.checker.case import JudgedPlan
from solver.checker.dues import charged_to
from solver.checker.fair_division import FairDivision
from solver.checker.user_order import user_shares_for
from solver.model.cluster import GpuType
from solver.model.parts import owner_of, shrinking_apart
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import Job, QueueName
from solver.plan.plan import Inadmissible
from solver.policy.policy import PriorityClass

_NO_CLASS = PriorityClass("")

ABOUT = 1e-9
"""By how much numbers may differ that are the same."""


class _Asks(NamedTuple):
    """Milli-GPU of one user: what it holds, and what it asks for beside that."""

    held: int
    wanted: int

    @property
    def gpus(self) -> int:
        """All of it, in whole GPUs."""
        return -(-(self.held + self.wanted) // MILLI_PER_GPU)


def takes_back_share(victim: Job, preemptor: Job, case: JudgedPlan) -> str | None:
    """What is wrong with a running job that leaves for one of another user of its queue; "" where nothing is; None where users do
    not take back their shares there.
    """
    queue = victim.spec.queue
    shares = user_shares_for(case, queue)
    if shares is None or not shares.reclaim:
        return None
    if _grade(victim, case) != _grade(preemptor, case):
        return f"leaves for the share of {preemptor.name}, which is of another SLO class or value"
    return next(filter(None, _UserShares(case, queue).problems(victim, preemptor)), "")


def _grade(job: Job, case: JudgedPlan) -> tuple[str, int]:
    known = case.lookup.class_of(job) or _NO_CLASS
    return known.slo_class, known.value


@dataclass(frozen=True)
class _UserShares:
    """What users of one queue hold, ask for and are due."""

    case: JudgedPlan
    queue: QueueName

    def problems(self, victim: Job, preemptor: Job) -> Iterator[str]:
        """By type that the victim holds: it lies beyond its user's share; all that the other user is promised inside its own.

        Where two users have the same by weight, either may have the last GPU.
        """
        shares = user_shares_for(self.case, self.queue)
        for gpu_type, milli in self.case.ground.charge(victim.placement).items():
            level = self._level(gpu_type) if milli else None
            if level is None or shares is None:
                continue
            before = self._before(victim, gpu_type) / MILLI_PER_GPU
            if before / shares.weight(victim.user) < level - ABOUT:
                yield f"leaves for the share of {preemptor.name}, and lies inside that of user {victim.user or '(none)'}"
            has = self._held(gpu_type).get(preemptor.user, 0) + self._taken(preemptor.user, gpu_type)
            if (-(-has // MILLI_PER_GPU) - 1) / shares.weight(preemptor.user) > level + ABOUT:
                yield f"leaves for {preemptor.name}, which lies beyond the share of user {preemptor.user or '(none)'}"

    def _taken(self, user: str, gpu_type: GpuType) -> int:
        """What the plan promises to the user's jobs at the cost of others of the queue and their value."""
        steps = (step for step in self.case.leaving if step.means == "turn" and step.beneficiary in self.case.promises)
        names = {step.beneficiary for step in steps if step.beneficiary is not None}
        jobs = (self.case.jobs[name] for name in names)
        given = (self.case.promises[job.name] for job in jobs if job.user == user and job.spec.queue == self.queue)
        return sum(self.case.given(step).get(gpu_type, 0) for step in given)

    def _before(self, victim: Job, gpu_type: GpuType) -> int:
        """What its user's jobs hold that stand before it in line."""
        mine, total = self._turn(victim), 0
        for job in self._running():
            if job.user == victim.user and owner_of(job.name) != owner_of(victim.name) and self._turn(job) < mine:
                total += self.case.ground.charge(job.placement).get(gpu_type, 0)
        return total

    def _turn(self, job: Job) -> tuple[bool, int, int, str]:
        known = self.case.lookup.class_of(job) or _NO_CLASS
        return known.preemptible, -known.value, job.started_at or 0, owner_of(job.name)

    def _running(self) -> Iterable[Job]:
        jobs = self.case.of_queue.get(self.queue, ())
        return (job for job in jobs if job.phase != "pending" and job.name not in self.case.sent_back)

    def _held(self, gpu_type: GpuType) -> dict[str, int]:
        held: defaultdict[str, int] = defaultdict(int)
        for job in self._running():
            held[job.user] += self.case.ground.charge(job.placement).get(gpu_type, 0)
        for name, tasks in self.case.promised.items():
            waiting = self.case.jobs.get(name)
            if waiting is not None and waiting.spec.queue == self.queue and waiting.phase == "pending":
                held[waiting.user] += self.case.ground.charge(tasks).get(gpu_type, 0)
        return held

    def _level(self, gpu_type: GpuType) -> float | None:
        """What the user that gets the last GPU has before it, by weight; None: it can't be told."""
        known = self.case.user_levels
        if (self.queue, gpu_type) not in known:
            known[self.queue, gpu_type] = self._found(gpu_type)
        return known[self.queue, gpu_type]

    def _found(self, gpu_type: GpuType) -> float | None:
        asks, shares = self._asks(gpu_type), user_shares_for(self.case, self.queue)
        own = [*charged_to(shrinking_apart(self.case.snapshot), self.case.ground.gpu_types)]
        fair = FairDivision(self.case, own).of(gpu_type)
        if asks is None or fair is None or shares is None:
            return None
        held = -(-sum(one.held for one in asks.values()) // MILLI_PER_GPU)
        there = max(held, min(fair.get(self.queue, 0) // MILLI_PER_GPU, sum(one.gpus for one in asks.values())))
        heads, last = [(0.0, 0, user) for user, one in asks.items() if one.gpus], 0.0
        heapify(heads)
        for _ in range(there):
            last, gpus, user = heappop(heads)
            if gpus + 1 < asks[user].gpus:
                heappush(heads, ((gpus + 1) / shares.weight(user), gpus + 1, user))
        return last

    def _asks(self, gpu_type: GpuType) -> dict[str, _Asks] | None:
        held = self._held(gpu_type)
        wanted: defaultdict[str, int] = defaultdict(int)
        never = {verdict.job for verdict in self.case.verdicts(Inadmissible)}
        for job in self.case.of_queue.get(self.queue, ()):
            if job.phase == "pending" and job.name not in never and job.name not in self.case.promised:
                for group in job.spec.task_groups:
                    shape = group.shape
                    first = [
                        known
                        for known in shape.gpu_types or self.case.ground.capacity
                        if known in self.case.ground.capacity
                    ]
                    if (
                        shape.mig is not None
                        or shape.gpu_memory is not None
                        or (not shape.gpu_types and len(first) > 1)
                    ):
                        return None
                    if first[:1] == [gpu_type]:
                        wanted[job.user] += group.replicas * shape.cost
        return {user: _Asks(held.get(user, 0), wanted[user]) for user in held.keys() | wanted.keys()}
