"""S10 for Reservation documents: judges by plain sums whether a plan keeps what they say, where they say it.

Part of the checker, and as slow and obvious. Nobody whom a document does not let in, entitled or not, is given anything of what
it keeps, unless it will be gone when that begins. What is only counted is all there, as far as there is any, and
stays where it was as long as it can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from solver.plan.check_entry import path_of
from solver.plan.plan import Bind, Nominate, Plan, Reserve, Unreserve
from solver.plan.violation import Violation
from solver.rules.policy import Policy
from solver.rules.reservation import DeclaredReservation
from solver.world.cluster import DeviceId, Node
from solver.world.inflight import declared_name
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, TaskPlacement


def declared_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    """Every start where a document keeps others away, and everything that a document does not keep as it says."""
    court = _Court(snapshot, policy, plan)
    for document in policy.reservations:
        if document.until > snapshot.time:
            yield from court.places(document)
            yield from court.strangers(document)
    wanted = {document.holder for document in policy.reservations if document.until > snapshot.time}
    for holder in sorted(court.kept().keys() - wanted):
        yield Violation("S10", holder, "is over or not in the policy, and still keeps something")


@dataclass(frozen=True, slots=True)
class _Court:
    snapshot: Snapshot
    policy: Policy
    plan: Plan

    def kept(self) -> dict[str, tuple[TaskPlacement, ...]]:
        """Where documents keep capacity once the plan has come true."""
        known = {held.holder: held.tasks for held in self.snapshot.in_flight.reservations}
        for step in self.plan.steps:
            if isinstance(step, Reserve):
                known[step.job] = step.tasks
            elif isinstance(step, Unreserve):
                known.pop(step.job, None)
        return {holder: tasks for holder, tasks in known.items() if declared_name(holder) is not None}

    def strangers(self, document: DeclaredReservation) -> Iterator[Violation]:
        """Who is let in, or promised to be, and would still be there."""
        jobs = {job.name: job for job in self.snapshot.jobs}
        tasks = self.kept().get(document.holder, ())
        devices = {device for task in tasks for device in task.devices}
        whole = {task.node for task in tasks if len(task.devices) == self._gpus(task.node)}
        begins = max(document.start, self.snapshot.time)
        for step in self.plan.steps:
            if not isinstance(step, Bind | Nominate) or self._may_use(document, jobs[step.job]):
                continue
            limit = self.policy.time_limit(jobs[step.job])
            gone = limit is not None and self.snapshot.time + limit <= begins
            for task in step.tasks if not gone else ():
                used = {task.mig.gpu} if task.mig else set(task.devices)
                if used & devices or (task.node in whole and self._needs(jobs[step.job], task)):
                    problem = (
                        f"is on {task.node}, where Reservation {document.name} keeps others away from {document.start}"
                    )
                    yield Violation("S10", step.job, problem)

    def places(self, document: DeclaredReservation) -> Iterator[Violation]:
        """Whether it keeps what it names, or as much as it counts."""
        tasks = self.kept().get(document.holder)
        if tasks is None:
            yield Violation("S10", document.holder, "keeps nothing")
        elif document.nodes is not None:
            there = {(node.name, gpu.id) for node in self._nodes() for gpu in node.gpus if node.name in document.nodes}
            if {(task.node, device) for task in tasks for device in task.devices} != there:
                yield Violation("S10", document.holder, "does not keep exactly the nodes that it names")
        else:
            yield from self._counted(document, tasks)

    def _counted(self, document: DeclaredReservation, tasks: Sequence[TaskPlacement]) -> Iterator[Violation]:
        count, size = document.count or 0, document.gpus_per_node or 0
        others = self._of_others(document)
        mine = [device for task in tasks for device in task.devices]
        for task in tasks:
            if len(task.devices) != size or not set(task.devices) <= self._good(document, task.node) - others:
                problem = f"keeps {len(task.devices)} GPUs on {task.node}, where it can't keep {size}"
                yield Violation("S10", document.holder, problem)
        if len(tasks) > count or len(mine) != len(set(mine)):
            yield Violation("S10", document.holder, f"keeps more than {count} times {size} GPUs, or some twice")
        spare = [len(self._good(document, node.name) - others - set(mine)) // max(1, size) for node in self._nodes()]
        if len(tasks) < count and any(spare):
            yield Violation("S10", document.holder, f"keeps {len(tasks)} of {count}, and there are more to keep")
        before = [held.tasks for held in self.snapshot.in_flight.reservations if held.holder == document.holder]
        could_stay = [
            set(task.devices)
            for known in before
            for task in known
            if len(task.devices) == size and set(task.devices) <= self._good(document, task.node) - others
        ]
        stayed = [devices for devices in could_stay if devices in [set(task.devices) for task in tasks]]
        if len(stayed) < min(len(could_stay), count):
            yield Violation("S10", document.holder, "moves although it could stay where it was")

    def _of_others(self, document: DeclaredReservation) -> set[DeviceId]:
        """What is kept by documents whose time overlaps with that of this one."""
        kept = self.kept()
        return {
            device
            for other in self.policy.reservations
            if other.name != document.name and other.start < document.until and document.start < other.until
            for task in kept.get(other.holder, ())
            for device in task.devices
        }

    def _good(self, document: DeclaredReservation, name: str) -> set[DeviceId]:
        return {
            gpu.id
            for node in self._nodes()
            if node.name == name and node.ready and not node.cordoned and node.gpu_type == document.gpu_type
            for gpu in node.gpus
            if gpu.healthy and gpu.instances is None
        }

    def _nodes(self) -> Iterable[Node]:
        return self.snapshot.nodes

    def _gpus(self, name: str) -> int | None:
        return next((len(node.gpus) for node in self._nodes() if node.name == name), None)

    def _may_use(self, document: DeclaredReservation, job: Job) -> bool:
        queues = {queue.name for queue in path_of(self.policy, job.spec.queue)}
        inside = document.queue is None or document.queue in queues
        return inside and (document.users is None or job.user in document.users)

    def _needs(self, job: Job, task: TaskPlacement) -> bool:
        """Whether the task takes anything at all."""
        shapes = [group.shape for group in job.spec.task_groups if group.name == task.group]
        return bool(task.devices) or any(shape.cpu or shape.memory for shape in shapes)
