"""Work that leaves where other work of its node could leave in its place with less harm. Part of the checker.

It accuses only where every reading of the order of harm agrees: another means that is milder; or work of the same queue and means,
of no higher value, no more GPUs and less that is lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from solver.checker.case import JudgedPlan
from solver.checker.end_state import EndState
from solver.checker.protection import too_soon
from solver.model.amounts import CPU, MEMORY, AmountsLeft
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.parts import owner_of
from solver.model.shape import beside_of
from solver.model.workload import Job, JobName
from solver.plan.plan import Evict
from solver.plan.violation import Violation
from solver.policy.policy import PriorityClass
from solver.policy.tree import QuotaLine

COMPARED_MAX = 2000
"""Pairs of jobs, one of which leaves, that are compared."""

_MEANS = {"borrowed": 0, "straddles": 1, "own": 2}
"""The mildest first; what lies inside other guarantees never leaves."""


def milder_evictions(case: JudgedPlan, state: EndState) -> Iterator[Violation]:
    """Every job that leaves, though another of its node would have to leave first."""
    if case.leaving:
        yield from _Evictions(case, state).findings()


class _Part(NamedTuple):
    """A running job, or a task that its gang can do without, that is on one node, and its class."""

    job: Job
    known: PriorityClass
    node: NodeName
    gpu_type: GpuType
    milli: int
    lost: float

    @property
    def is_whole(self) -> bool:
        """All of a job."""
        return owner_of(self.job.name) == self.job.name


@dataclass(frozen=True)
class _Evictions:
    case: JudgedPlan
    state: EndState

    def findings(self) -> Iterator[Violation]:
        """Each that leaves by itself, beside the others that do."""
        compared = 0
        for step in self.case.steps(Evict):
            leaves, preemptor = self._leaves(step), self.case.jobs.get(step.beneficiary or JobName(""))
            if leaves is None or preemptor is None or not self._could_stay(leaves):
                continue
            for other in self._on_node[leaves.node]:
                compared += 1
                if compared > COMPARED_MAX:
                    return
                if other.gpu_type == leaves.gpu_type and self._is_milder(other, leaves, preemptor):
                    told = (
                        f"leaves for {preemptor.name}, for which {owner_of(other.job.name)} could leave with less harm"
                    )
                    yield Violation("harm", step.job, told)
                    break

    def _leaves(self, step: Evict) -> _Part | None:
        job = self.case.jobs[step.job]
        promised = step.beneficiary in self.case.promises and step.means != "move"
        return self._part(job) if promised and not any(task.mig for task in job.placement) else None

    def _part(self, job: Job) -> _Part | None:
        """None where it is on several nodes, or has no GPUs."""
        nodes, known = {task.node for task in job.placement}, self.case.lookup.class_of(job)
        milli = sum(self.case.ground.charge(job.placement).values())
        if len(nodes) != 1 or known is None or not milli:
            return None
        node = next(iter(nodes))
        if node not in self.state.hosts:
            return None
        lost = milli / 1000 * (self._unsaved_ms(job) + self.case.policy.scheduling.evictions.restart_cost)
        return _Part(job, known, node, self.case.ground.gpu_types[node], milli, lost)

    def _unsaved_ms(self, job: Job) -> int:
        """What leaving throws away: since the last checkpoint, or as the job says how often it makes one."""
        ran = 0 if job.started_at is None else max(0, self.case.snapshot.time - job.started_at)
        if job.spec.type == "service":
            return 0
        if job.saved_at is not None:
            return min(ran, max(0, self.case.snapshot.time - job.saved_at))
        return ran % job.spec.checkpoint.interval if job.spec.checkpoint else ran

    # Which could leave.

    @cached_property
    def _on_node(self) -> Mapping[NodeName, Sequence[_Part]]:
        """What stays on nodes that something leaves, and may be evicted."""
        nodes = {task.node for step in self.case.steps(Evict) for task in self.case.jobs[step.job].placement}
        busy = {intent.job for intent in self.case.intents} | {step.job for step in self.case.leaving}
        divided = {owner_of(name) for name in self.case.parted.jobs if owner_of(name) != name}
        found = defaultdict[NodeName, list[_Part]](list)
        for name, job in self.case.parted.jobs.items():
            if job.phase != "running" or not job.placement or job.placement[0].node not in nodes:
                continue
            if owner_of(name) in busy or name in divided or job.leaves != "freely":
                continue
            if any(task.mig for task in job.placement):
                continue
            part = self._part(job)
            if part is not None and part.known.preemptible and not too_soon(job, part.known, self.case.snapshot.time):
                found[part.node].append(part)
        return found

    def _is_milder(self, other: _Part, leaves: _Part, preemptor: Job) -> bool:
        if other.milli > leaves.milli or (other.is_whole and not leaves.is_whole):
            return False
        is_alike = leaves.job.spec.queue == other.job.spec.queue and other.known.value <= leaves.known.value
        loses_less = is_alike and other.lost + ABOUT_MS < leaves.lost
        if not (loses_less or self._is_inside(preemptor, leaves.gpu_type)) or not self._leaves_room(other, leaves):
            return False
        mine, theirs = self._means(leaves, preemptor), self._means(other, preemptor)
        if mine is None or theirs is None:
            return False
        return loses_less if mine == theirs else theirs < mine and self._is_inside(preemptor, leaves.gpu_type)

    def _means(self, part: _Part, preemptor: Job) -> int | None:
        """By which means it leaves; None: it may not."""
        if part.job.spec.queue == preemptor.spec.queue:
            taker = self.case.lookup.class_of(preemptor)
            is_lower = taker is not None and (part.is_whole or part.known.value < taker.value)
            yields = is_lower and self.case.lookup.yields_inside(part.job.spec.queue, part.job, preemptor)
            return _MEANS["own"] if yields else None
        # What leaves by the plan stands in line no more: so others count as what they are at best.
        return _MEANS.get(self.state.standing.towards(part.job, preemptor))

    def _is_inside(self, preemptor: Job, gpu_type: GpuType) -> bool:
        """Whether the preemptor lies inside its guarantees beside all that is held then, and all of its queue that leaves."""
        lines = self.case.lookup.lines(preemptor.spec.queue, gpu_type)
        beside = self._leaving[QuotaLine(preemptor.spec.queue, gpu_type)]
        return all(self.state.used[line] + beside <= self.case.guaranteed.get(line, 0) for line in lines)

    @cached_property
    def _leaving(self) -> Counter[QuotaLine]:
        """What of each queue itself leaves by the plan."""
        found = Counter[QuotaLine]()
        for step in self.case.leaving:
            job = self.case.jobs[step.job]
            tasks = job.placement if isinstance(step, Evict) else step.tasks
            for gpu_type, milli in self.case.ground.charge(tasks).items():
                found[QuotaLine(job.spec.queue, gpu_type)] += milli
        return found

    # Whether there would be room.

    def _could_stay(self, leaves: _Part) -> bool:
        """Whether no limit on its path, nor what others do not lend, might make it leave."""
        lookup = self.case.lookup
        if leaves.gpu_type in lookup.lent_in_part or lookup.limits_host(leaves.job.spec.queue):
            return False
        for queue in self.case.lookup.path(leaves.job.spec.queue):
            entry, held = queue.quota_for(leaves.gpu_type), self.state.used[QuotaLine(queue.name, leaves.gpu_type)]
            if entry and (entry.per_user is not None or (entry.max is not None and held + leaves.milli > entry.max)):
                return False
        return True

    def _leaves_room(self, other: _Part, leaves: _Part) -> bool:
        """Whether the node has whole GPUs, and all beside them, for all, if the one leaves in the place of the other."""
        host, needs, gives = self.state.hosts[leaves.node], self._whole(leaves.job), self._whole(other.job)
        if needs is None or gives is None:
            return False
        mine, theirs = self._beside(leaves.job), self._beside(other.job)
        left = AmountsLeft({CPU: host.cpu, MEMORY: host.memory, **host.others})
        left.take(theirs, -1)
        return host.gpus + gives >= needs and all(left[name] >= need for name, need in mine.items())

    def _whole(self, job: Job) -> int | None:
        """How many whole GPUs it has by itself; None: it shares one with another."""
        devices = {device for task in job.placement for device in task.devices}
        if any(self._holders[device] > sum(device in task.devices for task in job.placement) for device in devices):
            return None
        return len(devices)

    @cached_property
    def _holders(self) -> Counter[DeviceId]:
        """By GPU, how many tasks have it or a part of it."""
        return Counter(d for job in self.case.snapshot.jobs for task in job.placement for d in task.devices)

    @staticmethod
    def _beside(job: Job) -> Counter[str]:
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        return beside_of(shapes[task.group] for task in job.placement if task.group in shapes)


ABOUT_MS = 1000
"""What is lost is told in seconds."""
