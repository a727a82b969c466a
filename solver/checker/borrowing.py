"""Which part of running work is borrowed: where each job stands towards the guarantees of the queues on its path.

Part of the checker. In each queue and type, all that run below it stand in line for the guarantee.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from solver.checker.case import Charge, JudgedPlan
from solver.model.parts import owner_of
from solver.model.workload import Job, JobName, QueueName
from solver.policy.tree import QuotaLine


@dataclass(frozen=True)
class Borrowing:
    """How much of each live job is borrowed, elastic ones in parts. Each line is worked out once, when it is first asked for."""

    case: JudgedPlan
    _in_line: dict[QuotaLine, dict[JobName, str]] = field(default_factory=dict)
    _gpus: dict[JobName, Charge] = field(default_factory=dict)

    def towards(self, victim: Job, preemptor: Job) -> str:
        """Inside, straddling or borrowed: the worst of the lines that the victim's queue does not share with the preemptor's."""
        shared = self.case.lookup.on_path(preemptor.spec.queue)
        lines = [queue.name for queue in self.case.lookup.path(victim.spec.queue) if queue.name not in shared]
        found = {self._stands(victim, QuotaLine(queue, gpu_type)) for queue in lines for gpu_type in self.gpus(victim)}
        return next((worst for worst in ("inside", "straddles") if worst in found), "borrowed")

    def gpus(self, job: Job) -> Charge:
        """What a job, or a part of one, holds."""
        if job is self.case.jobs.get(job.name):
            return self.case.held.get(job.name, {})
        if job.name not in self._gpus:
            self._gpus[job.name] = self.case.ground.charge(job.placement)
        return self._gpus[job.name]

    def _stands(self, job: Job, line: QuotaLine) -> str:
        if line not in self._in_line:
            self._in_line[line] = dict(self._line(line))
        return self._in_line[line].get(job.name, "borrowed")

    def _line(self, line: QuotaLine) -> Iterator[tuple[JobName, str]]:
        """Where each stands by the place in line of all that run below a queue and hold the type."""
        below = [job for job in self._running[line.queue] if self.gpus(job).get(line.gpu_type, 0)]
        below.sort(key=lambda job: (self._rank_below(job, line), self._place_in_line(job)))
        left = self.case.guaranteed.get(line, 0)
        for job in below:
            gpus, whole = self.gpus(job)[line.gpu_type], not self._is_preemptible(job)
            fits, crosses = gpus <= left, 0 < left < gpus
            yield job.name, "inside" if fits else "straddles" if crosses and not whole else "borrowed"
            left -= gpus if fits or not whole else 0

    def _rank_below(self, job: Job, line: QuotaLine) -> int:
        """Who lies inside the guarantee of the next queue on its way down comes before whoever does not."""
        path = [known.name for known in self.case.lookup.path(job.spec.queue)]
        at = path.index(line.queue)
        return _ORDER.index(self._stands(job, QuotaLine(path[at - 1], line.gpu_type))) if at else 0

    def _place_in_line(self, job: Job) -> tuple[bool, int, int, str, str]:
        known = self.case.lookup.class_of(job)
        preemptible, value = (known.preemptible, known.value) if known else (True, 0)
        return preemptible, -value, job.started_at or 0, owner_of(job.name), job.name

    def _is_preemptible(self, job: Job) -> bool:
        known = self.case.lookup.class_of(job)
        return known is None or known.preemptible

    @cached_property
    def _running(self) -> Mapping[QueueName, list[Job]]:
        """By queue, who stands in line there: a gang that shrinks as what it will be, and nobody whom a rule has leave."""
        departing = {name for name, step in self.case.parted.steps.items() if step.beneficiary is None}
        leaving = self.case.stopping | departing
        below: defaultdict[QueueName, list[Job]] = defaultdict(list)
        for job in self.case.parted.jobs.values():
            if job.phase == "running" and leaving.isdisjoint((job.name, owner_of(job.name))):
                for queue in self.case.lookup.path(job.spec.queue):
                    below[queue.name].append(job)
        return below


_ORDER = ("inside", "straddles", "borrowed")
