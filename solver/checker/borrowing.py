"""Which part of running work is borrowed: where each job stands towards the guarantees of the queues on its path.

Part of the checker. In each queue and type, all that run below it stand in line for the guarantee.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from solver.checker.case import Charge, JudgedPlan
from solver.model.cluster import GpuType
from solver.model.parts import owner_of
from solver.model.workload import Job, JobName, QueueName
from solver.policy.tree import QuotaLine


@dataclass(frozen=True)
class Borrowing:
    """How much of each live job is borrowed, elastic ones in parts. Each line is worked out once, when it is first asked for.

    `gone`: parts that do not stand in line any more.
    """

    case: JudgedPlan
    gone: frozenset[JobName] = frozenset()
    _in_line: dict[QuotaLine, Mapping[JobName, str]] = field(default_factory=dict)
    _turns: dict[QuotaLine, list[tuple[int, _Member]]] = field(default_factory=dict)
    _gpus: dict[JobName, Charge] = field(default_factory=dict)
    _of_queue: dict[QueueName, Mapping[GpuType, Sequence[_Member]]] = field(default_factory=dict)

    def towards(self, victim: Job, preemptor: Job) -> str:
        """Inside, straddling or borrowed: the worst of the lines that the victim's queue does not share with the preemptor's."""
        shared = self.case.lookup.on_path(preemptor.spec.queue)
        lines = [queue.name for queue in self.case.lookup.path(victim.spec.queue) if queue.name not in shared]
        found = {self._stands(victim, QuotaLine(queue, gpu_type)) for queue in lines for gpu_type in self.gpus(victim)}
        return next((worst for worst in ("inside", "straddles") if worst in found), "borrowed")

    def is_inside(self, job: Job, queue: QueueName) -> bool:
        """Whether a job, or a part of one, lies inside the guarantee of one queue on its path, in any type that it holds."""
        held = self.gpus(job)
        return any(
            milli and self._stands(job, QuotaLine(queue, gpu_type)) == "inside" for gpu_type, milli in held.items()
        )

    def reach(self, job: Job) -> QueueName | None:
        """The highest queue below which jobs could have it leave: it is borrowed at each queue from its own to below that."""
        for queue in self.case.lookup.path(job.spec.queue):
            if any(
                milli and self._stands(job, QuotaLine(queue.name, kind)) != "borrowed"
                for kind, milli in self.gpus(job).items()
            ):
                return queue.name
        return None

    def gpus(self, job: Job) -> Charge:
        """What a job, or a part of one, holds."""
        if job is self.case.jobs.get(job.name):
            return self.case.held.get(job.name, {})
        if job.name not in self._gpus:
            self._gpus[job.name] = self.case.ground.charge(job.placement)
        return self._gpus[job.name]

    def _stands(self, job: Job, line: QuotaLine) -> str:
        return self._standings(line).get(job.name, "borrowed")

    def _standings(self, line: QuotaLine) -> Mapping[JobName, str]:
        """Where each stands by the place in line of all that run below a queue and hold the type."""
        if line not in self._in_line:
            self._in_line[line] = dict(self._worked_out(line))
        return self._in_line[line]

    def _worked_out(self, line: QuotaLine) -> Iterator[tuple[JobName, str]]:
        left = self.case.guaranteed.get(line, 0)
        for _, (_, name, gpus, preemptible) in self._in_turn(line):
            fits, crosses = gpus <= left, 0 < left < gpus
            yield name, "inside" if fits else "straddles" if crosses and preemptible else "borrowed"
            left -= gpus if fits or preemptible else 0

    def _in_turn(self, line: QuotaLine) -> list[tuple[int, _Member]]:
        """Who stands in a line: who lies inside the guarantee of the next queue on its way down before whoever does not."""
        if line not in self._turns:
            turns = [(0, member) for member in self._members(line)]
            for queue in self.case.lookup.siblings.get(line.queue, ()):
                below = QuotaLine(queue, line.gpu_type)
                stands = self._standings(below)
                turns += [(_ORDER[stands[member[1]]], member) for _, member in self._in_turn(below)]
            turns.sort()
            self._turns[line] = turns
        return self._turns[line]

    def _members(self, line: QuotaLine) -> Sequence[_Member]:
        """The jobs of the queue itself that stand in a line, in its order: not preemptible ones, then by value and by start."""
        if line.queue not in self._of_queue:
            self._of_queue[line.queue] = self._standing_in(line.queue)
        return self._of_queue[line.queue].get(line.gpu_type, ())

    def _standing_in(self, queue: QueueName) -> Mapping[GpuType, Sequence[_Member]]:
        """By type, the jobs of one queue.

        A gang that shrinks stands there as what it will be, and none that a rule has leave.
        """
        leaving, members = self._leaving, defaultdict[GpuType, list[_Member]](list)
        for job in self.case.parts_of_queue(queue):
            if job.phase == "running" and job.name not in leaving and (owner := owner_of(job.name)) not in leaving:
                known = self.case.lookup.class_of(job)
                preemptible, value = (known.preemptible, known.value) if known else (True, 0)
                place = preemptible, -value, job.started_at or 0, owner, job.name
                for gpu_type, milli in self.gpus(job).items():
                    if milli:
                        members[gpu_type].append((place, job.name, milli, preemptible))
        return members

    @cached_property
    def _leaving(self) -> frozenset[JobName]:
        departing = {name for name, step in self.case.parted.steps.items() if step.beneficiary is None}
        return self.case.stopping | departing | self.gone


_Place = tuple[bool, int, int, str, str]
"""Whether it is preemptible, its priority (negative), its start, its gang and its name: in this order jobs stand in line."""

_Member = tuple[_Place, JobName, int, bool]
"""Its place in line, who it is, what it holds of the type, and whether it is preemptible."""

_ORDER = {"inside": 0, "straddles": 1, "borrowed": 2}
