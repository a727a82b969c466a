"""The cluster once a plan is carried out and all who were asked to leave have left: what is free, and what each queue holds.

Part of the checker. It counts rather too little as free: whole GPUs of open nodes that nobody holds, is promised, or has reserved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from solver.checker.borrowing import Borrowing
from solver.checker.case import JudgedPlan
from solver.checker.dues import InsideLedger
from solver.model.amounts import Amounts, AmountsLeft
from solver.model.cluster import DeviceId, GpuType, Level, Node, NodeName
from solver.model.parts import without
from solver.model.shape import Shape
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Grow, Repartition, Reserve, Shrink, Unreserve
from solver.policy.tree import QuotaLine


@dataclass(slots=True)
class FreeHost:
    """What is free of one node: whole GPUs, CPU, memory, and `others` by name."""

    node: Node
    gpus: int
    cpu: int
    memory: int
    others: AmountsLeft

    def slots(self, shape: Shape, more: int = 0) -> int:
        """How many tasks of a shape it takes, with so many more GPUs."""
        beside = [have // need for have, need in ((self.cpu, shape.cpu), (self.memory, shape.memory)) if need]
        beside += [self.others[name] // need for name, need in shape.resources.items()]
        return min([(self.gpus + more) // shape.gpus, *beside])


def slots_on(hosts: Iterable[FreeHost], shape: Shape, gpu_type: GpuType, level: Level | None) -> Counter[str]:
    """For how many tasks some nodes have room, by domain."""
    free = Counter[str]()
    for host in hosts:
        if host.gpus >= shape.gpus and host.node.gpu_type == gpu_type:
            free[host.node.domain(level) if level else ""] += max(0, host.slots(shape))
    return free


@dataclass(frozen=True)
class EndState:
    """What a plan leaves behind."""

    case: JudgedPlan

    @cached_property
    def hosts(self) -> Mapping[NodeName, FreeHost]:
        """The nodes that take new work, and of which nothing is reserved."""
        found: dict[NodeName, FreeHost] = {}
        for node in self.case.ground.nodes:
            if node.ready and not node.cordoned and node.name not in self._reserved:
                whole = sum(gpu.healthy and gpu.instances is None for gpu in node.gpus)
                found[node.name] = FreeHost(node, whole, int(node.cpu), int(node.memory), AmountsLeft(node.resources))
        # GPUs that are shared, or are to be partitioned, each with its node.
        lost: dict[DeviceId, NodeName] = {step.device: step.node for step in self.case.steps(Repartition)}
        for job, tasks in self.held:
            shapes = {group.name: group.shape for group in job.spec.task_groups}
            for task in tasks:
                host, shape = found.get(task.node), shapes.get(task.group, _NOTHING)
                if host is None:
                    continue
                host.cpu -= shape.cpu
                host.memory -= shape.memory
                host.others.take(shape.resources)
                if task.share is None and task.mig is None:
                    host.gpus -= len(task.devices)
                elif task.mig is None:
                    lost.update(dict.fromkeys(task.devices, task.node))
        for name in lost.values():
            if name in found:
                found[name].gpus -= 1
        return found

    @cached_property
    def held(self) -> list[tuple[Job, Sequence[TaskPlacement]]]:
        """Who holds what, or is to: each job with its tasks."""
        return list(self._holders())

    def _holders(self) -> Iterator[tuple[Job, Sequence[TaskPlacement]]]:
        case = self.case
        leaving, joining = self._asked("shrink"), self._asked("start", "grow")
        for shrink in (step for step in case.steps(Shrink) if step.beneficiary not in case.for_growth):
            leaving.setdefault(shrink.job, []).extend(shrink.tasks)
        for job in case.snapshot.jobs:
            if job.phase != "pending" and job.name not in self.gone:
                yield job, without(job.placement, leaving[job.name]) if job.name in leaving else job.placement
                if job.name in joining:
                    yield job, without(joining[job.name], job.placement)
        provided = case.bound | case.promises.keys() | case.withdrawn
        for name, tasks in case.promised.items():
            if name not in provided and name in case.jobs:
                yield case.jobs[name], tasks
        for step in case.placing:
            yield case.jobs[step.job], step.tasks
        for growth in case.steps(Grow):
            yield case.jobs[growth.job], growth.tasks

    def _asked(self, *kinds: str) -> dict[JobName, list[TaskPlacement]]:
        """The tasks of intents of these kinds, by job."""
        found: dict[JobName, list[TaskPlacement]] = {}
        for intent in self.case.intents:
            if intent.kind in kinds and intent.beneficiary not in self.case.for_growth:
                found.setdefault(intent.job, []).extend(intent.tasks)
        return found

    @cached_property
    def gone(self) -> frozenset[JobName]:
        """Who has left where it was: by the plan or before; what leaves for the growth of a gang is the gang's."""
        for_growth = self.case.for_growth
        stays = {step.job for step in self.case.leaving if step.beneficiary in for_growth}
        stays |= {intent.job for intent in self.case.intents if intent.evicts and intent.beneficiary in for_growth}
        return (self.case.sent_back | self.case.evicted) - stays

    @cached_property
    def _reserved(self) -> frozenset[NodeName]:
        """Nodes of which something is kept for a gang, or by a document."""
        given_up = {step.job for step in self.case.steps(Unreserve)}
        held = [known for known in self.case.snapshot.in_flight.reservations if known.holder not in given_up]
        tasks = [known.tasks for known in held] + [step.tasks for step in self.case.steps(Reserve)]
        return frozenset(task.node for known in tasks for task in known)

    def slots(self, shape: Shape, gpu_type: GpuType, level: Level | None) -> Counter[str]:
        """For how many tasks there is room in each domain of a level, None: all nodes are one; whole GPUs alone."""
        key = gpu_type, level, shape.gpus, int(shape.cpu), int(shape.memory), shape.resources
        if key not in self._slots:
            self._slots[key] = slots_on(self.hosts.values(), shape, gpu_type, level)
        return self._slots[key]

    @cached_property
    def _slots(self) -> dict[tuple[GpuType, Level | None, int, int, int, Amounts], Counter[str]]:
        return {}

    # What queues hold.

    @cached_property
    def standing(self) -> Borrowing:
        """Where what stays stands towards guarantees, once what the plan has leave has left the line."""
        return Borrowing(self.case, self.case.parted.leaving)

    @cached_property
    def inside(self) -> InsideLedger:
        """What lies inside guarantees then."""
        return self._ledger(self._own.all)

    @cached_property
    def beside_leaving(self) -> InsideLedger:
        """The same, as if what leaves by the plan stayed: what a queue may have for its leaving can be given in the next round."""
        own = Counter(self._own.all)
        for step in self.case.leaving:
            job = self.case.jobs[step.job]
            _add(own, job, self.case.ground.charge(step.tasks if isinstance(step, Shrink) else job.placement))
        return self._ledger(own)

    @cached_property
    def before(self) -> InsideLedger:
        """What lies inside guarantees then of what was held before."""
        return self._ledger(self._own.before)

    @cached_property
    def firm(self) -> InsideLedger:
        """What lies inside guarantees of what is not preemptible, by itself."""
        return self._ledger(self._own.firm)

    @cached_property
    def used(self) -> Counter[QuotaLine]:
        """What each queue and those below it hold then."""
        return self.case.lookup.added_up((*line, milli) for line, milli in self._own.all.items())

    @cached_property
    def _own(self) -> _Own:
        """What queues hold by themselves."""
        own, given = _Own(), {step.job for step in self.case.placing}
        for job, tasks in self.held:
            held = tasks is job.placement and job.name in self.case.held
            charge = self.case.held[job.name] if held else self.case.ground.charge(tasks)
            _add(own.all, job, charge)
            if job.name not in given:
                _add(own.before, job, charge)
            known = self.case.lookup.class_of(job)
            if known is not None and not known.preemptible:
                _add(own.firm, job, charge)
        return own

    def _ledger(self, own: Mapping[tuple[QueueName, GpuType], int]) -> InsideLedger:
        ledger = InsideLedger(self.case.lookup, self.case.guaranteed)
        for (queue, gpu_type), milli in own.items():
            ledger.add(queue, gpu_type, milli)
        return ledger


@dataclass
class _Own:
    """What queues hold by themselves, what of it they held before the plan, and what of it is not preemptible."""

    all: Counter[tuple[QueueName, GpuType]] = field(default_factory=Counter)
    before: Counter[tuple[QueueName, GpuType]] = field(default_factory=Counter)
    firm: Counter[tuple[QueueName, GpuType]] = field(default_factory=Counter)


def _add(own: Counter[tuple[QueueName, GpuType]], job: Job, charge: Mapping[GpuType, int]) -> None:
    for gpu_type, milli in charge.items():
        own[job.spec.queue, gpu_type] += milli


_NOTHING = Shape()
