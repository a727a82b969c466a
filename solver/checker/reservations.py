"""S10: judges by plain sums whether a plan leaves reservations what they hold.

Part of the checker. Nobody who would still be there when a reservation starts, and could not be made
to leave by then, is given a device of it, or what is beside GPUs that its gang will need there. Work that lies inside guarantees,
each judged alone, is left out: it may take what is reserved for others. So is who gets what it was promised before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from solver.checker.case import JudgedPlan
from solver.checker.dues import charged_to, inside_limits
from solver.checker.end_times import KnownEndTimes
from solver.checker.policy_in_force import policy_in_force
from solver.model.amounts import CPU, AmountsLeft
from solver.model.cluster import DeviceId, GpuType, Node, NodeName
from solver.model.inflight import Reservation, declared_name
from solver.model.parts import without
from solver.model.quantities import Instant
from solver.model.shape import Shape, beside_of
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Bind, Evict, Nominate, Reserve, Shrink
from solver.plan.violation import Violation
from solver.policy.tree import QuotaLine


def reservation_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every start on what is reserved for another that will not be gone in time; every reservation of nothing."""
    court = _Court(case)
    yield from court.taken()
    yield from court.made()


_DAY_MS = 86_400_000


@dataclass(frozen=True)
class _Court:
    case: JudgedPlan

    @cached_property
    def known(self) -> KnownEndTimes:
        """When work ends as far as is known."""
        return KnownEndTimes.of(self.case.snapshot, self.case.policy)

    def taken(self) -> Iterator[Violation]:
        """Devices, and what is beside them, that are given to somebody who would still be there."""
        jobs, nodes = self.case.jobs, self.case.ground.by_name
        for held in self.case.snapshot.in_flight.reservations:
            holder = jobs.get(held.holder)
            if holder is None or holder.phase != "pending" or not self._is_there(held):
                continue
            if self._may_not_start(holder) or any(self._is_outside(holder, task) for task in held.tasks):
                continue
            staying = _Staying(self, held, max(held.start, self.case.snapshot.time))
            devices = {device for task in held.tasks for device in task.devices}
            for step, device in self._given(devices):
                if staying.includes(step):
                    problem = f"has {device}, which is reserved for {held.holder} from {held.start}"
                    yield Violation("S10", step.job, problem)
            for name in sorted({task.node for task in held.tasks}):
                yield from self._host(held, nodes[name], staying)

    def _given(self, devices: Iterable[DeviceId]) -> Iterator[tuple[Bind | Nominate, DeviceId]]:
        """Which steps give these devices, in the order of the steps."""
        given = {(place, device) for device in devices for place in self._steps_on.get(device, ())}
        return ((self.case.placing[place], device) for place, device in sorted(given))

    @cached_property
    def _steps_on(self) -> Mapping[str, list[int]]:
        """By node and by device of reservations, the places of the steps that put something there."""
        reserved = [task for held in self.case.snapshot.in_flight.reservations for task in held.tasks]
        names = {name for task in reserved for name in (task.node, *task.devices)}
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, step in enumerate(self.case.placing):
            for name in names & {name for task in step.tasks for name in (task.node, *task.devices)}:
                places[name].append(place)
        return places

    @cached_property
    def _jobs_on(self) -> Mapping[NodeName, list[Job]]:
        """By node of reservations, who is there."""
        nodes = {task.node for held in self.case.snapshot.in_flight.reservations for task in held.tasks}
        on: defaultdict[NodeName, list[Job]] = defaultdict(list)
        for job in self.case.snapshot.jobs:
            for name in nodes & {task.node for task in job.placement}:
                on[name].append(job)
        return on

    def made(self) -> Iterator[Violation]:
        """What is reserved anew is for somebody who waits, from an instant to come, on devices that there are."""
        nodes, now = self.case.ground.by_name, self.case.snapshot.time
        for step in self.case.steps(Reserve):
            if declared_name(step.job) is not None:
                continue
            job = self.case.jobs.get(step.job)
            provided = step.job in self.case.bound or step.job in self.case.promises
            if job is None or job.phase != "pending" or provided:
                yield Violation("S10", step.job, "has a reservation and does not wait")
            if step.start <= now:
                yield Violation("S10", step.job, f"has a reservation from {step.start}, which is not to come")
            hosts = {task.node: nodes.get(task.node) for task in step.tasks}
            there = {(name, gpu.id) for name, node in hosts.items() if node for gpu in node.gpus}
            if not {(task.node, device) for task in step.tasks for device in task.devices} <= there:
                yield Violation("S10", step.job, "has a reservation of devices that are not there")
            if job is not None:
                yield from self._above_max_then(job, step)

    def _above_max_then(self, job: Job, step: Reserve) -> Iterator[Violation]:
        """What is kept is more than a queue may ever hold at its start, whatever the others hold: by the quota that holds then."""
        then = policy_in_force(self.case.lookup.written or self.case.policy, step.start)
        rows = {queue.name: queue.quota for queue in then.queues}
        for gpu_type, milli in self.case.ground.charge(step.tasks).items():
            for queue in self.case.lookup.on_path(job.spec.queue):
                most = next((row.max for row in rows.get(queue, ()) if row.gpu_type == gpu_type), None)
                if most is not None and milli > most:
                    problem = f"has a reservation of more {gpu_type} than queue {queue} may hold at {step.start}"
                    yield Violation("S10", job.name, problem)

    def _host(self, held: Reservation, node: Node, staying: _Staying) -> Iterator[Violation]:
        """What is beside GPUs on one node when the reservation starts."""
        steps = [
            step for place in self._steps_on.get(node.name, ()) if staying.includes(step := self.case.placing[place])
        ]
        given = [self._of(step.job, step.tasks, node.name) for step in steps]
        if not given:
            return
        needed = self._of(held.holder, held.tasks, node.name)
        still = [
            self._of(job.name, job.placement, node.name)
            for job in self._jobs_on[node.name]
            # Of one that moves only what it is promised will be there.
            if not staying.moves(job) and not self._ends_by(job, staying.start)
        ]
        there = AmountsLeft(node.beside)
        for name in sorted({name for one in given for name in one}):
            has, before = there[name], needed[name] + sum(one[name] for one in still)
            more = sum(one[name] for one in given)
            if more and before <= has < before + more:
                problem = f"finds too little {'CPU' if name == CPU else name} on {node.name} at {held.start}"
                yield Violation("S10", held.holder, problem)

    def _is_there(self, held: Reservation) -> bool:
        """Whether all of its nodes take new work and all of its GPUs are healthy: nobody is kept from what is left of others."""
        nodes, gpus = self.case.ground.by_name, self.case.ground.gpus
        hosts = [nodes.get(task.node) for task in held.tasks]
        devices = [gpus.get(device) for task in held.tasks for device in task.devices]
        is_open = all(node is not None and node.ready and not node.cordoned for node in hosts)
        return is_open and all(known is not None and known[1].healthy for known in devices)

    def _may_not_start(self, job: Job) -> bool:
        """Its queue is on hold, or it can't run under the policy as it is now: nobody is kept from what it may not have."""
        path = self.case.lookup.path(job.spec.queue)
        return job.name in self.case.refused or any(queue.stop_policy != "None" for queue in path)

    def _is_outside(self, job: Job, task: TaskPlacement) -> bool:
        """A task that may not be there any more: nobody is kept from what its gang can't use."""
        named = next((group.nodes for group in job.spec.task_groups if group.name == task.group), "")
        return bool(named) and task.node not in self._sets.get(named, ())

    @cached_property
    def _sets(self) -> dict[str, frozenset[NodeName]]:
        return {known.name: frozenset(known.nodes) for known in self.case.snapshot.node_sets}

    def stays(self, step: Bind | Nominate, held: Reservation, start: Instant) -> bool:
        """Whether who is given something would still be there when a reservation starts, and may not be."""
        if step.job == held.holder or step.job in self._entitled or self._was_promised(step):
            return False
        limit = self.case.policy.time_limit(self.case.jobs[step.job])
        gone = limit is not None and self.case.snapshot.time + limit <= start
        return not gone and not (step.job in self._borrowed and self._can_leave(step.job, start))

    def _was_promised(self, step: Bind | Nominate) -> bool:
        """It gets what it was promised, however late: the promise was judged when it was made, and the reservation gives way."""
        return isinstance(step, Bind) and self.case.promised.get(step.job) == step.tasks

    def _can_leave(self, name: JobName, by: Instant) -> bool:
        """Whether it may be asked to leave so early that its grace is over by then: it starts now, and what protects it ends."""
        job = self.case.jobs[name]
        known, asked, now = self.case.lookup.class_of(job), by - self.case.policy.grace(job), self.case.snapshot.time
        if known is None or not known.preemptible or asked < now + known.protection.min_runtime:
            return False
        lately = [at for at in job.evicted_at if at + _DAY_MS > asked]
        most = known.protection.evictions_per_day
        rested = not job.evicted_at or asked >= job.evicted_at[-1] + known.protection.cool_down
        return rested and (most is None or len(lately) < most)

    def _ends_by(self, job: Job, by: Instant) -> bool:
        """Whether it is gone by then, or may be asked to give back what is reserved."""
        reserved = self.known.reserved_from_of(job.placement)
        if reserved is not None and reserved <= by:
            return True
        deadline = self._stops.get((job.name, job.attempt))
        if deadline is not None:
            return deadline <= by
        asked = self._starts.get((job.name, job.attempt), self.case.snapshot.time)
        began = asked if job.started_at is None else job.started_at
        limit = self.known.limit(job, job.time_limit)
        return limit is not None and began + limit <= by

    @cached_property
    def _stops(self) -> dict[tuple[JobName, int], Instant]:
        """By when those will be gone who were asked to stop."""
        return {(i.job, i.attempt): i.deadline for i in self.case.intents if i.kind == "stop"}

    @cached_property
    def _starts(self) -> dict[tuple[JobName, int], Instant]:
        """When those were asked to start who have not confirmed it: their limits count from then."""
        return {(i.job, i.attempt): i.asked_at for i in self.case.intents if i.kind == "start"}

    @cached_property
    def placed_for(self) -> Mapping[JobName, list[Bind | Nominate]]:
        """What the plan gives, by to whom."""
        placed: defaultdict[JobName, list[Bind | Nominate]] = defaultdict(list)
        for step in self.case.placing:
            placed[step.job].append(step)
        return placed

    def _of(self, name: JobName, tasks: Iterable[TaskPlacement], node: NodeName) -> Counter[str]:
        shapes = {group.name: group.shape for group in self.case.jobs[name].spec.task_groups}
        return beside_of(shapes.get(task.group, Shape()) for task in tasks if task.node == node)

    def _without_withdrawn(self) -> Snapshot:
        """The world in which nobody is charged any more for what the plan takes back."""
        withdrawn, in_flight = self.case.withdrawn, self.case.snapshot.in_flight
        stays = (known for known in in_flight.intents if known.kind != "nominate" or known.job not in withdrawn)
        intents = msgspec.structs.replace(in_flight, intents=tuple(stays))
        return msgspec.structs.replace(self.case.snapshot, in_flight=intents)

    def _without_what_leaves(self) -> Snapshot:
        """The same, without what the plan has leave for good."""
        left = {step.job: step for step in self.case.leaving if isinstance(step, Shrink) or step.means != "move"}
        jobs = (
            msgspec.structs.replace(job, placement=_after(job, left[job.name])) if job.name in left else job
            for job in self.case.snapshot.jobs
        )
        return msgspec.structs.replace(self._without_withdrawn(), jobs=tuple(jobs))

    @cached_property
    def _entitled(self) -> set[JobName]:
        """Whose GPUs all lie inside the guarantees of their queue and of all above it, beside what stays."""
        left_to = self._left_to(self._without_what_leaves())
        return {name for name, lines in left_to if lines and all(left >= milli for _, left, milli in lines)}

    @cached_property
    def _borrowed(self) -> set[JobName]:
        """Of whose GPUs none lies inside the guarantees of its queue and of all above it, beside what is held."""
        return {
            name
            for name, lines in self._left_to(self._without_withdrawn())
            if {gpu_type for gpu_type, left, _ in lines if left <= 0} == {gpu_type for gpu_type, _, _ in lines}
        }

    def _left_to(self, world: Snapshot) -> list[tuple[JobName, list[tuple[GpuType, int, int]]]]:
        """For each start what is left of the guarantees on its path, beside what it asks for of that type."""
        lookup, guaranteed = self.case.lookup, self.case.guaranteed
        # What a sibling borrows does not use up the guarantee above both.
        inside = inside_limits(lookup, guaranteed, charged_to(world, self.case.ground.gpu_types))
        found = []
        for step in self.case.placing:
            charge = self.case.given(step)
            path = lookup.path(self.case.jobs[step.job].spec.queue)
            lines = [
                (QuotaLine(above.name, gpu_type), milli)
                for gpu_type, milli in charge.items()
                if milli
                for above in path
            ]
            left = [guaranteed.get(line, 0) - inside[line] for line, _ in lines]
            found.append(
                (step.job, [(line.gpu_type, rest, milli) for (line, milli), rest in zip(lines, left, strict=True)])
            )
        return found


def _after(job: Job, step: Evict | Shrink) -> tuple[TaskPlacement, ...]:
    """What a job holds once it has left, in whole or in part."""
    return without(job.placement, step.tasks) if isinstance(step, Shrink) else ()


@dataclass(frozen=True, slots=True)
class _Staying:
    """Who is given something by the plan and would still be there at the `start` of one reservation."""

    court: _Court
    held: Reservation
    start: Instant
    _known: dict[int, bool] = field(default_factory=dict)

    def includes(self, step: Bind | Nominate) -> bool:
        """Whether one step is of those."""
        if id(step) not in self._known:
            self._known[id(step)] = self.court.stays(step, self.held, self.start)
        return self._known[id(step)]

    def moves(self, job: Job) -> bool:
        """Whether a job that is there already is given something else."""
        return any(self.includes(step) for step in self.court.placed_for.get(job.name, ()))
