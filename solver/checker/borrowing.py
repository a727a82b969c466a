"""Which part of running work is borrowed: where each job stands towards the guarantees of the queues on its path.

Part of the checker. In each queue and type, all that run below it stand in line for the guarantee.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

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
    _places: dict[JobName, _Place] = field(default_factory=dict)

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
        below = [
            (self._rank_below(job, line), self._place_in_line(job), milli, job)
            for job in self._running[line.queue]
            if (milli := self.gpus(job).get(line.gpu_type, 0))
        ]
        below.sort(key=itemgetter(0, 1))
        left = self.case.guaranteed.get(line, 0)
        for _, (preemptible, *_), gpus, job in below:
            fits, crosses = gpus <= left, 0 < left < gpus
            yield job.name, "inside" if fits else "straddles" if crosses and preemptible else "borrowed"
            left -= gpus if fits or preemptible else 0

    def _rank_below(self, job: Job, line: QuotaLine) -> int:
        """Who lies inside the guarantee of the next queue on its way down comes before whoever does not."""
        path = self.case.lookup.lines(job.spec.queue, line.gpu_type)
        at = path.index(line)
        return _ORDER.index(self._stands(job, path[at - 1])) if at else 0

    def _place_in_line(self, job: Job) -> _Place:
        if job.name not in self._places:
            known = self.case.lookup.class_of(job)
            preemptible, value = (known.preemptible, known.value) if known else (True, 0)
            place = _Place(preemptible, -value, job.started_at or 0, owner_of(job.name), job.name)
            self._places[job.name] = place
        return self._places[job.name]

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


class _Place(NamedTuple):
    """Sorts jobs in the line for a guarantee: not preemptible ones first, then by value and by start."""

    preemptible: bool
    lower: int
    started_at: int
    owner: JobName
    name: JobName
