"""Judges a plan by the rules alone: an independent checker that shares no code with the model it judges.

Written from PROMISES S1-S11 (docs/promises.md) with dictionaries and plain sums, slow and obvious on purpose. A plan with a
violation is never acted on. Rules whose subject does not exist yet come with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from solver.plan.check_declared import declared_violations
from solver.plan.check_departures import departure_violations
from solver.plan.check_entry import entry_violations, path_of
from solver.plan.check_estimates import false_estimates
from solver.plan.check_evictions import eviction_violations
from solver.plan.check_fallback import fallback_violations
from solver.plan.check_fit import fit_violations
from solver.plan.check_gangs import gang_violations
from solver.plan.check_leaves import leave_violations
from solver.plan.check_lending import lending_violations
from solver.plan.check_mig import mig_violations
from solver.plan.check_moves import move_violations
from solver.plan.check_order import order_violations
from solver.plan.check_parts import size_violations, with_parts_apart
from solver.plan.check_pledges import pledge_violations
from solver.plan.check_reservations import reservation_violations
from solver.plan.check_sets import set_violations
from solver.plan.check_sharing import Owners, sharing_violations
from solver.plan.check_turns import turn_violations
from solver.plan.check_verdicts import verdict_violations
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Shrink, Withdraw
from solver.plan.violation import Violation
from solver.rules.policy import Policy
from solver.world.cluster import GpuType, Node, NodeName
from solver.world.quantities import MilliGpu
from solver.world.shape import Shape
from solver.world.snapshot import Snapshot, foreseen
from solver.world.workload import Job, JobName, TaskPlacement


def violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
    """Everything that is wrong with a plan; () where it may be acted on."""
    return tuple(_findings(snapshot, policy, plan))


def _findings(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    """Every rule in turn. Steps of jobs or nodes that do not exist are reported first, and alone: the rest needs them."""
    if plan.snapshot != snapshot.digest:
        yield Violation("stale", plan.snapshot, f"the plan is not for snapshot {snapshot.digest}")
    if plan.policy != policy.digest:
        yield Violation("stale", plan.policy, f"the plan is not for policy {policy.digest}")
    strangers = tuple(_strangers(snapshot, plan))
    if strangers:
        yield from strangers
        return
    yield from _unlawful(foreseen(snapshot), policy, plan)


def _unlawful(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    for rule in (verdict_violations, size_violations, set_violations, leave_violations):
        yield from rule(snapshot, plan)
    for judge in (
        fit_violations,
        gang_violations,
        eviction_violations,
        move_violations,
        departure_violations,
        order_violations,
        fallback_violations,
        turn_violations,
    ):
        yield from judge(snapshot, policy, plan)
    world, steps = with_parts_apart(snapshot, plan)
    for judge in (
        entry_violations,
        lending_violations,
        mig_violations,
        pledge_violations,
        sharing_violations,
        reservation_violations,
        declared_violations,
    ):
        yield from judge(world, policy, steps)
    yield from _Court(world, policy, steps).findings()


def _strangers(snapshot: Snapshot, plan: Plan) -> Iterable[Violation]:
    jobs, nodes = {job.name for job in snapshot.jobs}, {node.name for node in snapshot.nodes}
    for step in plan.steps:
        if isinstance(step, Evict | Shrink | Grow | Bind | Nominate) and step.job not in jobs:
            yield Violation("S8" if isinstance(step, Evict | Shrink) else "S2", step.job, "is not in the snapshot")
        if isinstance(step, Bind | Nominate | Grow):
            for task in step.tasks:
                if task.node not in nodes:
                    yield Violation("S1", step.job, f"task {task.group}/{task.index} is on unknown node {task.node}")


@dataclass(slots=True)
class _Court:
    """One plan before the rules. What joins or leaves a running gang is a job of its own here."""

    snapshot: Snapshot
    policy: Policy
    plan: Plan
    jobs: dict[JobName, Job] = field(init=False)
    nodes: dict[NodeName, Node] = field(init=False)
    binds: tuple[Bind, ...] = field(init=False)
    placed: tuple[Bind | Nominate, ...] = field(init=False)
    evicted: frozenset[JobName] = field(init=False)
    withdrawn: frozenset[JobName] = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = {job.name: job for job in self.snapshot.jobs}
        self.nodes = {node.name: node for node in self.snapshot.nodes}
        self.binds = tuple(step for step in self.plan.steps if isinstance(step, Bind))
        self.placed = tuple(step for step in self.plan.steps if isinstance(step, Bind | Nominate))
        self.evicted = frozenset(step.job for step in self.plan.steps if isinstance(step, Evict))
        self.withdrawn = frozenset(step.job for step in self.plan.steps if isinstance(step, Withdraw))

    def findings(self) -> Iterable[Violation]:
        """Every rule in turn."""
        for rule in (self._devices, self._hosts, self._quotas, self._estimates, self._certificate):
            yield from rule()

    def _devices(self) -> Iterable[Violation]:
        """S1: every bound device exists, is healthy, open, and has one owner; nothing in flight is contradicted (S11)."""
        staying, leaving = Owners(), Owners()
        for holder, task, leaves in self._held():
            (leaving if leaves else staying).add(task, holder)
        usable = {
            gpu.id: node.name
            for node in self.nodes.values()
            if node.ready and not node.cordoned
            for gpu in node.gpus
            if gpu.healthy
        }
        for bind in self.placed:
            # What somebody still holds can be promised, but not given.
            owners = (staying, leaving) if isinstance(bind, Bind) else (staying,)
            for task in bind.tasks:
                node = self.nodes[task.node]
                if not node.ready or node.cordoned:
                    yield Violation("S1", bind.job, f"node {task.node} takes no new work")
                for device in task.devices:
                    # Whether there is such an instance is for check_mig.
                    if task.mig is None and usable.get(device) != task.node:
                        yield Violation("S1", bind.job, f"device {device} is not a healthy device of {task.node}")
                    others = (known.other(device, task) for known in owners)
                    for other in filter(None, others):
                        yield Violation("S1", bind.job, f"device {device} is held by {other}")
                staying.add(task, bind.job)

    def _held(self) -> Iterable[tuple[str, TaskPlacement, bool]]:
        """Who holds or was promised what, and whether it has been asked to leave, by this plan or before."""
        asked = {intent.job for intent in self.snapshot.in_flight.intents if intent.kind == "stop"}
        for job in self.snapshot.jobs:
            for task in job.placement:
                yield job.name, task, job.name in asked | self.evicted
        kept = {bind.job for bind in self.binds}
        for intent in self.snapshot.in_flight.intents:
            if intent.kind == "nominate" and intent.job in kept | self.withdrawn:
                continue
            for task in intent.tasks:
                # What a job that moves was promised stays its own when it has left.
                yield intent.id, task, intent.kind != "nominate" and intent.job in asked | self.evicted

    def _hosts(self) -> Iterable[Violation]:
        """S1 for CPU and memory: a node is not filled beyond what it has, or not further if it already is."""
        cpu: Counter[NodeName] = Counter()
        memory: Counter[NodeName] = Counter()
        held = {(job.name, task.group, task.index): (job, task) for job in self.snapshot.jobs for task in job.placement}
        for job, task in held.values():
            shape = _shape(job, task.group)
            cpu[task.node] += shape.cpu
            memory[task.node] += shape.memory
        asked: dict[NodeName, set[JobName]] = defaultdict(set)
        for bind in self.binds:
            for task in bind.tasks:
                shape = _shape(self.jobs[bind.job], task.group)
                cpu[task.node] += shape.cpu
                memory[task.node] += shape.memory
                if shape.cpu or shape.memory:
                    asked[task.node].add(bind.job)
        for name, jobs in sorted(asked.items()):
            node = self.nodes[name]
            if cpu[name] > node.cpu or memory[name] > node.memory:
                yield Violation("S1", ", ".join(sorted(jobs)), f"node {name} has not enough CPU or memory for them")

    def _quotas(self) -> Iterable[Violation]:
        """S3: no admission lifts a queue above its max at any level; a limit already broken is not made worse."""
        before, added = self._use(), self._added()
        for queue in self.policy.queues:
            for entry in queue.quota:
                line = (queue.name, entry.gpu_type)
                if entry.max is not None and added[line] and before[line] + added[line] > entry.max:
                    held, more = MilliGpu(before[line]), MilliGpu(added[line])
                    problem = f"{held} + {more} {entry.gpu_type} is above max {entry.max}"
                    yield Violation("S3", queue.name, problem)

    def _use(self) -> Counter[tuple[str, GpuType]]:
        use: Counter[tuple[str, GpuType]] = Counter()
        for job, tasks in self._charged():
            for task in tasks:
                node = self.nodes.get(task.node)
                for queue in path_of(self.policy, job.spec.queue):
                    use[queue.name, node.gpu_type if node else GpuType("")] += task.gpus
        return use

    def _charged(self) -> Iterable[tuple[Job, tuple[TaskPlacement, ...]]]:
        """Who counts against quota beside this plan's own starts: not who is evicted, but who was promised its devices."""
        leaving = {intent.job for intent in self.snapshot.in_flight.intents if intent.evicts} | self.evicted
        for job in self.snapshot.jobs:
            if job.name not in leaving:
                yield job, job.placement
        provided = {step.job for step in self.placed} | self.withdrawn
        for intent in self.snapshot.in_flight.intents:
            if intent.kind == "nominate" and intent.job in self.jobs and intent.job not in provided:
                yield self.jobs[intent.job], intent.tasks

    def _added(self) -> Counter[tuple[str, GpuType]]:
        added: Counter[tuple[str, GpuType]] = Counter()
        for bind in self.placed:
            for task in bind.tasks:
                for queue in path_of(self.policy, self.jobs[bind.job].spec.queue):
                    added[queue.name, self.nodes[task.node].gpu_type] += task.gpus
        return added

    def _estimates(self) -> Iterable[Violation]:
        """Nobody is told an earliest start that can't be."""
        for name, problem in false_estimates(self.snapshot, self.policy, self.plan):
            yield Violation("estimate", name, problem)

    def _certificate(self) -> Iterable[Violation]:
        """A plan never beats its own bound: where it does, the model is wrong."""
        for layer in self.plan.certificate.layers:
            if layer.value > layer.bound + 1e-5 * max(1.0, abs(layer.bound)):
                yield Violation("bound", layer.name, f"value {layer.value} is above its bound {layer.bound}")


def _shape(job: Job, group: str) -> Shape:
    return next((known.shape for known in job.spec.task_groups if known.name == group), Shape())
