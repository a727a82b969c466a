"""S10 for Reservation documents: judges by plain sums whether a plan keeps what they say, where they say it.

Part of the checker. Nobody whom a document does not let in, entitled or not, is given anything of what
it keeps, unless it will be gone when that begins, by its limit or because the document has it leave. What is only counted is all
there, as far as there is any, and stays where it was as long as it can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from solver.checker.case import JudgedPlan
from solver.checker.protection import too_soon
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Reservation, declared_name
from solver.model.quantities import Instant
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Bind, Nominate, Reserve, Unreserve
from solver.plan.violation import Violation
from solver.policy.reservation import DeclaredReservation


def declared_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every start where a document keeps others away."""
    court = _Court(case)
    for document in _wanted(case):
        yield from court.strangers(document)


def undeclared_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Everything that a document does not keep as it says."""
    court, wanted = _Court(case), _wanted(case)
    for document in wanted:
        yield from court.places(document)
    for holder in sorted(court.kept.keys() - {document.holder for document in wanted}):
        yield Violation("S10", holder, "is over or not in the policy, and still keeps something")


def _wanted(case: JudgedPlan) -> list[DeclaredReservation]:
    return [document for document in case.policy.reservations if document.until > case.snapshot.time]


@dataclass(frozen=True)
class _Court:
    case: JudgedPlan

    @cached_property
    def kept(self) -> dict[str, tuple[TaskPlacement, ...]]:
        """Where documents keep capacity once the plan has come true."""
        known = {held.holder: held.tasks for held in self.case.snapshot.in_flight.reservations}
        for step in self.case.plan.steps:
            if isinstance(step, Reserve):
                known[step.job] = step.tasks
            elif isinstance(step, Unreserve):
                known.pop(step.job, None)
        return {holder: tasks for holder, tasks in known.items() if declared_name(holder) is not None}

    def strangers(self, document: DeclaredReservation) -> Iterator[Violation]:
        """Who is let in, or promised to be, and would still be there."""
        tasks, now = self.kept.get(document.holder, ()), self.case.snapshot.time
        devices = {device for task in tasks for device in task.devices}
        whole = {task.node for task in tasks if len(task.devices) == self._gpus(task.node)}
        begins = max(document.start, now)
        for step, task in self._placed_on({task.node for task in tasks}, devices):
            job = self.case.jobs[step.job]
            limit = self.case.policy.time_limit(job)
            if may_use(self.case, document, job) or (limit is not None and now + limit <= begins):
                continue
            if document.start > now and self._leaves(document, job):
                continue
            used = set(task.on_gpus)
            if used & devices or (task.node in whole and self._needs(job, task)):
                problem = (
                    f"is on {task.node}, where Reservation {document.name} keeps others away from {document.start}"
                )
                yield Violation("S10", step.job, problem)

    def _placed_on(
        self, nodes: Iterable[NodeName], devices: Iterable[DeviceId]
    ) -> Iterator[tuple[Bind | Nominate, TaskPlacement]]:
        """Tasks that the plan puts on some of these nodes or GPUs, in the order of its steps."""
        found = {place for name in (*nodes, *devices) for place in self._places.get(name, ())}
        return (self._placed[place] for place in sorted(found))

    @cached_property
    def _placed(self) -> list[tuple[Bind | Nominate, TaskPlacement]]:
        return [(step, task) for step in self.case.placing for task in step.tasks]

    @cached_property
    def _places(self) -> Mapping[str, list[int]]:
        """By node and by GPU, the places in that list."""
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, (_, task) in enumerate(self._placed):
            for name in (task.node, *task.on_gpus):
                places[name].append(place)
        return places

    def places(self, document: DeclaredReservation) -> Iterator[Violation]:
        """Whether it keeps what it names, or as much as it counts."""
        tasks = self.kept.get(document.holder)
        if tasks is None:
            yield Violation("S10", document.holder, "keeps nothing")
        elif document.nodes is not None:
            nodes = (node for name in document.nodes if (node := self.case.ground.by_name.get(name)) is not None)
            there = {(node.name, gpu.id) for node in nodes for gpu in node.gpus}
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
        if len(tasks) < count:
            taken = others | set(mine)
            nodes = (node.name for node in self.case.ground.nodes)
            if any(len(self._good(document, name) - taken) >= max(1, size) for name in nodes):
                yield Violation("S10", document.holder, f"keeps {len(tasks)} of {count}, and there are more to keep")
        before = [held.tasks for held in self.case.snapshot.in_flight.reservations if held.holder == document.holder]
        could_stay = [
            frozenset(task.devices)
            for known in before
            for task in known
            if len(task.devices) == size and set(task.devices) <= self._good(document, task.node) - others
        ]
        now = {frozenset(task.devices) for task in tasks}
        stayed = [devices for devices in could_stay if devices in now]
        if len(stayed) < min(len(could_stay), count):
            yield Violation("S10", document.holder, "moves although it could stay where it was")

    def _of_others(self, document: DeclaredReservation) -> set[DeviceId]:
        """What is kept by documents whose time overlaps with that of this one."""
        return {
            device
            for other in self.case.policy.reservations
            if other.name != document.name and other.start < document.until and document.start < other.until
            for task in self.kept.get(other.holder, ())
            for device in task.devices
        }

    def _good(self, document: DeclaredReservation, name: NodeName) -> set[DeviceId]:
        node = self.case.ground.by_name.get(name)
        if node is None or not node.ready or node.cordoned or node.gpu_type != document.gpu_type:
            return set()
        return {gpu.id for gpu in node.gpus if gpu.healthy and gpu.instances is None}

    def _gpus(self, name: NodeName) -> int | None:
        node = self.case.ground.by_name.get(name)
        return len(node.gpus) if node else None

    def _leaves(self, document: DeclaredReservation, job: Job) -> bool:
        """Whether one that starts now can be asked to leave so early that its grace is over when the document begins."""
        known, asked = self.case.lookup.class_of(job), document.start - self.case.policy.grace(job)
        if document.evict == "none" or known is None or not known.preemptible or asked < self.case.snapshot.time:
            return False
        since = msgspec.structs.replace(job, started_at=self.case.snapshot.time)
        return not too_soon(since, known, Instant(asked))

    def _needs(self, job: Job, task: TaskPlacement) -> bool:
        """Whether the task takes anything at all."""
        shapes = [group.shape for group in job.spec.task_groups if group.name == task.group]
        return bool(task.devices) or any(any(shape.beside.values()) for shape in shapes)


def may_use(case: JudgedPlan, document: DeclaredReservation, job: Job) -> bool:
    """Whether a document lets a job in."""
    if document.job is not None:
        return job.name == document.job
    inside = document.queue is None or document.queue in case.lookup.on_path(job.spec.queue)
    return inside and (document.users is None or job.user in document.users)


def called_back(case: JudgedPlan) -> Mapping[JobName, Instant]:
    """The jobs that documents have leave what they keep, as it was known before this plan, each with when the first begins."""
    wanted = {document.holder: document for document in _wanted(case) if document.evict != "none"}
    by_gpu = defaultdict[DeviceId, list[DeclaredReservation]](list)
    by_node = defaultdict[NodeName, list[DeclaredReservation]](list)
    for held in case.snapshot.in_flight.reservations if wanted else ():
        document = wanted.get(held.holder)
        for task in held.tasks if document is not None else ():
            if document is not None and _is_as_it_was(case, document, held, task):
                for device in task.devices:
                    by_gpu[device].append(document)
                node = case.ground.by_name[task.node]
                if len(node.gpus) == len(task.devices):
                    by_node[task.node].append(document)
    found: dict[JobName, Instant] = {}
    for job in case.snapshot.jobs if by_gpu or by_node else ():
        for task in job.placement:
            gpus = task.on_gpus
            for document in (*by_node.get(task.node, ()), *(one for gpu in gpus for one in by_gpu.get(gpu, ()))):
                known = case.lookup.class_of(job)
                leaves = document.evict == "all" or (known is not None and known.preemptible)
                if leaves and not may_use(case, document, job):
                    found[job.name] = min(found.get(job.name, document.start), document.start)
    return found


def _is_as_it_was(case: JudgedPlan, document: DeclaredReservation, held: Reservation, task: TaskPlacement) -> bool:
    """Whether what was kept there is kept on: no round has to choose anew, since it still works and no other document names it."""
    node = case.ground.by_name.get(task.node)
    gpus = {gpu.id: gpu for gpu in node.gpus} if node is not None else {}
    if node is None or any(device not in gpus for device in task.devices):
        return False
    if document.nodes is not None:
        return task.node in document.nodes
    named = any(
        task.node in (other.nodes or ()) and other.start < document.until and document.start < other.until
        for other in _wanted(case)
    )
    works = node.ready and not node.cordoned
    whole = all(gpus[device].healthy and gpus[device].instances is None for device in task.devices)
    return works and whole and not named and len(held.tasks) <= (document.count or 0)
