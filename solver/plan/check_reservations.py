"""S10: judges by plain sums whether a plan leaves reservations what they hold.

Part of the checker, and as slow and obvious. Nobody who would still be there when a reservation starts, and could not be made
to leave by then, is given a device of it, or CPU and memory that its gang will need there. Work that lies inside guarantees,
each judged alone, is left out: it may take what is reserved for others. So is who gets what it was promised before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from solver.plan.known_ends import KnownEnds
from solver.plan.plan import Bind, Nominate, Plan, Reserve, Withdraw
from solver.plan.violation import Violation
from solver.rules.entitlement import charge_of_tasks, gpus_by_type, guarantees, inside_lines, use_by_line
from solver.rules.policy import Policy
from solver.rules.tree import Line, QueueTree
from solver.world.cluster import GpuType, Node, NodeName
from solver.world.inflight import Reservation, declared_name
from solver.world.quantities import Instant
from solver.world.shape import Shape
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName, TaskPlacement


def reservation_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    """Every start on what is reserved for another that will not be gone in time; every reservation of nothing."""
    court = _Court(snapshot, policy, plan, KnownEnds.of(snapshot))
    yield from court.taken()
    yield from court.made()


_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class _Court:
    snapshot: Snapshot
    policy: Policy
    plan: Plan
    known: KnownEnds

    def taken(self) -> Iterator[Violation]:
        """Devices, CPU and memory that are given to somebody who would still be there."""
        if not self.snapshot.in_flight.reservations:
            return
        pending = {job.name for job in self.snapshot.pending}
        open_nodes = {node.name: node for node in self.snapshot.nodes if node.ready and not node.cordoned}
        placed = [step for step in self.plan.steps if isinstance(step, Bind | Nominate)]
        inside, borrowed = set(self._entitled(placed)), set(self._borrowed(placed))
        for held in self.snapshot.in_flight.reservations:
            if held.holder not in pending or not {task.node for task in held.tasks} <= open_nodes.keys():
                continue
            if any(self._is_outside(held.holder, task) for task in held.tasks):
                continue
            start = max(held.start, self.snapshot.time)
            staying = [
                step
                for step in placed
                if step.job not in inside | {held.holder}
                and not self._was_promised(step)
                and not self._gone(step.job, self.snapshot.time, start)
                and not (step.job in borrowed and self._can_leave(step.job, start))
            ]
            devices = {device for task in held.tasks for device in task.devices}
            for step in staying:
                for device in sorted(devices & {device for task in step.tasks for device in task.devices}):
                    problem = f"has {device}, which is reserved for {held.holder} from {held.start}"
                    yield Violation("S10", step.job, problem)
            for name in sorted({task.node for task in held.tasks}):
                yield from self._host(held, open_nodes[name], staying, start)

    def made(self) -> Iterator[Violation]:
        """What is reserved anew is for somebody who waits, from an instant to come, on devices that there are."""
        provided = {step.job for step in self.plan.steps if isinstance(step, Bind | Nominate)}
        waiting = {job.name for job in self.snapshot.pending} - provided
        there = {(node.name, gpu.id) for node in self.snapshot.nodes for gpu in node.gpus}
        for step in self.plan.steps:
            if isinstance(step, Reserve) and declared_name(step.job) is None:
                if step.job not in waiting:
                    yield Violation("S10", step.job, "has a reservation and does not wait")
                if step.start <= self.snapshot.time:
                    yield Violation("S10", step.job, f"has a reservation from {step.start}, which is not to come")
                if not {(task.node, device) for task in step.tasks for device in task.devices} <= there:
                    yield Violation("S10", step.job, "has a reservation of devices that are not there")

    def _host(
        self, held: Reservation, node: Node, staying: Iterable[Bind | Nominate], start: Instant
    ) -> Iterator[Violation]:
        """CPU and memory of one node when the reservation starts."""
        needed = self._of(held.holder, held.tasks, node.name)
        given = [self._of(step.job, step.tasks, node.name) for step in staying]
        # Of one that moves only what it is promised will be there.
        moved = {step.job for step in staying}
        still = [
            self._of(job.name, job.placement, node.name)
            for job in self.snapshot.jobs
            if job.placement
            and job.name not in moved
            and not self._ends_by(job, start)
            and not self.known.gives_back(job.placement, start)
        ]
        for what, has in enumerate((int(node.cpu), int(node.memory))):
            before = needed[what] + sum(one[what] for one in still)
            more = sum(one[what] for one in given)
            if more and before <= has < before + more:
                problem = f"finds too little {('CPU', 'memory')[what]} on {node.name} at {held.start}"
                yield Violation("S10", held.holder, problem)

    def _is_outside(self, name: JobName, task: TaskPlacement) -> bool:
        """A task that may not be there any more: nobody is kept from what its gang can't use."""
        named = next((group.nodes for group in self._job(name).spec.task_groups if group.name == task.group), "")
        return bool(named) and all(
            known.name != named or task.node not in known.nodes for known in self.snapshot.node_sets
        )

    def _was_promised(self, step: Bind | Nominate) -> bool:
        """It gets what it was promised, however late: the promise was judged when it was made, and the reservation gives way."""
        promises = {intent.job: intent.tasks for intent in self.snapshot.in_flight.nominations}
        return isinstance(step, Bind) and promises.get(step.job) == step.tasks

    def _gone(self, name: JobName, begins: Instant, by: Instant) -> bool:
        limit = self.policy.time_limit(self._job(name))
        return limit is not None and begins + limit <= by

    def _can_leave(self, name: JobName, by: Instant) -> bool:
        """Whether it may be asked to leave so early that its grace is over by then: it starts now, and what protects it ends."""
        job, known = self._job(name), self.policy.priority_class(self._job(name))
        asked, now = by - self.policy.grace(job), self.snapshot.time
        if known is None or not known.preemptible or asked < now + known.protection.min_runtime:
            return False
        lately = [at for at in job.evicted_at if at + _DAY_MS > asked]
        most = known.protection.evictions_per_day
        rested = not job.evicted_at or asked >= job.evicted_at[-1] + known.protection.cool_down
        return rested and (most is None or len(lately) < most)

    def _ends_by(self, job: Job, by: Instant) -> bool:
        stops = {
            (intent.job, intent.attempt): intent.deadline
            for intent in self.snapshot.in_flight.intents
            if intent.kind == "stop"
        }
        deadline = stops.get((job.name, job.attempt))
        if deadline is not None:
            return deadline <= by
        began = self.snapshot.time if job.started_at is None else job.started_at
        limit = self.known.limit(job, job.time_limit)
        return limit is not None and began + limit <= by

    def _of(self, name: JobName, tasks: Iterable[TaskPlacement], node: NodeName) -> tuple[int, int]:
        shapes = {group.name: group.shape for group in self._job(name).spec.task_groups}
        mine = [shapes.get(task.group, Shape()) for task in tasks if task.node == node]
        return sum(int(shape.cpu) for shape in mine), sum(int(shape.memory) for shape in mine)

    def _without_withdrawn(self) -> Snapshot:
        """The world in which nobody is charged any more for what the plan takes back."""
        withdrawn = {step.job for step in self.plan.steps if isinstance(step, Withdraw)}
        in_flight = self.snapshot.in_flight
        stays = (known for known in in_flight.intents if known.kind != "nominate" or known.job not in withdrawn)
        return msgspec.structs.replace(
            self.snapshot, in_flight=msgspec.structs.replace(in_flight, intents=tuple(stays))
        )

    def _job(self, name: JobName) -> Job:
        return next(job for job in self.snapshot.jobs if job.name == name)

    def _entitled(self, placed: Iterable[Bind | Nominate]) -> Iterator[JobName]:
        """Whose GPUs all lie inside the guarantees of their queue and of all above it, beside what is held."""
        for step, lines in self._left_to(placed):
            if lines and all(left >= milli for _, left, milli in lines):
                yield step.job

    def _borrowed(self, placed: Iterable[Bind | Nominate]) -> Iterator[JobName]:
        """Of whose GPUs none lies inside the guarantees of its queue and of all above it."""
        for step, lines in self._left_to(placed):
            used_up = {gpu_type for gpu_type, left, _ in lines if left <= 0}
            if used_up == {gpu_type for gpu_type, _, _ in lines}:
                yield step.job

    def _left_to(
        self, placed: Iterable[Bind | Nominate]
    ) -> Iterator[tuple[Bind | Nominate, list[tuple[GpuType, int, int]]]]:
        """For each start what is left of the guarantees on its path, beside what it asks for of that type."""
        tree, gpu_types = QueueTree.of(self.policy), self.snapshot.gpu_types
        guaranteed, used = guarantees(tree, gpus_by_type(self.snapshot)), use_by_line(self._without_withdrawn(), tree)
        # What a sibling borrows does not use up the guarantee above both.
        inside = inside_lines(tree, guaranteed, used)
        for step in placed:
            charge = charge_of_tasks(step.tasks, gpu_types)
            path = tree.path(self._job(step.job).spec.queue)
            lines = [(Line(above, gpu_type), milli) for gpu_type, milli in charge.items() if milli for above in path]
            left = [guaranteed.get(line, 0) - inside.get(line, 0) for line, _ in lines]
            yield step, [(line.gpu_type, rest, milli) for (line, milli), rest in zip(lines, left, strict=True)]
