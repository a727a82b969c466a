"""Which running work others could have leave, by node: what is borrowed from the queues of whoever asks. Part of the checker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from solver.checker.borrowing import Borrowing
from solver.checker.case import JudgedPlan
from solver.checker.host import HostClaims
from solver.checker.protection import too_soon
from solver.model.cluster import GpuType, NodeName
from solver.model.parts import owner_of
from solver.model.workload import Job, JobName, QueueName


class Lender(NamedTuple):
    """A running job, or a task that its gang can do without, that is on one node and has whole GPUs of it."""

    name: JobName
    queue: QueueName
    gpus: int
    cpu: int
    memory: int
    preemptible: bool
    protected: bool


_OnNodes = Mapping[NodeName, list[Lender]]


@dataclass(frozen=True)
class Lenders:
    """What stays when a plan is carried out, and is borrowed."""

    case: JudgedPlan
    standing: Borrowing

    def on(self, node: NodeName, queue: QueueName, gpu_type: GpuType) -> Iterator[Lender]:
        """What could leave a node for a job of a queue, but work of the same queue."""
        for above in (*self._above(queue), None):
            for one in self._by_reach.get((above, gpu_type), _NOTHING).get(node, ()):
                if one.queue != queue:
                    yield one

    def nodes(self, queue: QueueName, gpu_type: GpuType) -> Set[NodeName]:
        """Where there is any."""
        found = set[NodeName]()
        for above in (*self._above(queue), None):
            found |= self._by_reach.get((above, gpu_type), _NOTHING).keys()
        return found

    def _above(self, queue: QueueName) -> list[QueueName]:
        return [known.name for known in self.case.lookup.path(queue)]

    @cached_property
    def host(self) -> HostClaims:
        """What jobs hold of CPU and memory."""
        return HostClaims(self.case)

    @cached_property
    def without_gpus(self) -> Mapping[NodeName, Sequence[Lender]]:
        """Work without GPUs on nodes that have some, which is borrowed, by node; a job leaves all of its nodes."""
        found = defaultdict[NodeName, list[Lender]](list)
        busy = {intent.job for intent in self.case.intents} | self.case.evicted
        for job in self.case.snapshot.jobs:
            if job.phase != "running" or job.name in busy or any(task.devices or task.mig for task in job.placement):
                continue
            known, shapes = self.case.lookup.class_of(job), {group.name: group.shape for group in job.spec.task_groups}
            if known is None or not (known.preemptible or known.may_borrow) or job.leaves == "not":
                continue
            if self.host.towards("inside", job, job) != "borrowed":
                continue
            protected = bool(too_soon(job, known, self.case.snapshot.time))
            for task in job.placement:
                shape = shapes.get(task.group)
                if shape is not None and task.node in self.case.ground.by_name:
                    one = Lender(
                        job.name, job.spec.queue, 0, int(shape.cpu), int(shape.memory), known.preemptible, protected
                    )
                    found[task.node].append(one)
        return found

    @cached_property
    def _by_reach(self) -> Mapping[tuple[QueueName | None, GpuType], _OnNodes]:
        """By the highest queue below which jobs could have it leave, None: by any job of the cluster."""
        found = defaultdict[tuple[QueueName | None, GpuType], defaultdict[NodeName, list[Lender]]](
            lambda: defaultdict(list)
        )
        standing = self.standing
        busy = {intent.job for intent in self.case.intents} | self.case.evicted
        divided = {owner_of(name) for name in self.case.parted.jobs if owner_of(name) != name}
        for name, job in self.case.parted.jobs.items():
            owner = owner_of(name)
            # What a gang can't do without leaves with all that it has.
            if job.phase != "running" or owner in busy or name in self.case.parted.leaving or name in divided:
                continue
            lender = self._lender(job)
            if lender is not None:
                node = job.placement[0].node
                found[standing.reach(job), self.case.ground.gpu_types[node]][node].append(lender)
        return found

    def _lender(self, job: Job) -> Lender | None:
        nodes = {task.node for task in job.placement}
        known, gpus = self.case.lookup.class_of(job), sum(len(task.devices) for task in job.placement)
        in_parts = any(task.share is not None or task.mig is not None for task in job.placement)
        if len(nodes) != 1 or in_parts or not gpus or known is None or job.leaves == "not":
            return None
        if (not known.preemptible and not known.may_borrow) or not nodes <= self.case.ground.gpu_types.keys():
            return None
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        mine = [shapes[task.group] for task in job.placement if task.group in shapes]
        return Lender(
            job.name,
            job.spec.queue,
            gpus,
            sum(int(shape.cpu) for shape in mine),
            sum(int(shape.memory) for shape in mine),
            known.preemptible,
            bool(too_soon(job, known, self.case.snapshot.time)),
        )


_NOTHING: _OnNodes = {}
