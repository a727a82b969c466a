"""Judges a plan by the rules alone: an independent checker that shares no code with the model it judges.

Written from PROMISES S1-S11 (docs/promises.md) with dictionaries and plain sums, slow and obvious on purpose. A plan with a
violation is never acted on. Rules whose subject does not exist yet (reclaim, reservations) come with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from solver.plan.check_closeness import closeness_violations
from solver.plan.check_departures import departure_violations
from solver.plan.check_entry import entry_violations, path_of
from solver.plan.check_estimates import false_estimates
from solver.plan.check_evictions import eviction_violations
from solver.plan.check_gangs import gang_violations
from solver.plan.check_mig import mig_violations
from solver.plan.check_order import order_violations
from solver.plan.check_sharing import Owners, sharing_violations
from solver.plan.check_turns import turn_violations
from solver.plan.plan import Bind, Departs, Evict, Nominate, Plan, Runs, Starts, Withdraw, Yields
from solver.plan.violation import Violation
from solver.rules.policy import Policy
from solver.world.cluster import GpuType, Node, NodeName
from solver.world.quantities import MilliGpu
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName, Shape, TaskPlacement


def violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
    """Everything that is wrong with a plan; () where it may be acted on."""
    return tuple(_Court(snapshot, policy, plan).findings())


@dataclass(slots=True)
class _Court:
    """One plan before the rules."""

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
        """Every rule in turn. Binds of jobs or nodes that do not exist are reported first, and alone: the rest needs them."""
        yield from self._answers_this_question()
        strangers = tuple(self._strangers())
        if strangers:
            yield from strangers
            return
        yield from gang_violations(self.snapshot, self.policy, self.plan)
        yield from entry_violations(self.snapshot, self.policy, self.plan)
        yield from mig_violations(self.snapshot, self.policy, self.plan)
        yield from eviction_violations(self.snapshot, self.policy, self.plan)
        yield from departure_violations(self.snapshot, self.policy, self.plan)
        yield from order_violations(self.snapshot, self.policy, self.plan)
        yield from turn_violations(self.snapshot, self.policy, self.plan)
        for rule in (
            self._devices,
            self._sharing,
            self._hosts,
            self._quotas,
            self._topology,
            self._verdicts,
            self._estimates,
            self._certificate,
        ):
            yield from rule()

    def _answers_this_question(self) -> Iterable[Violation]:
        if self.plan.snapshot != self.snapshot.digest:
            yield Violation("stale", self.plan.snapshot, f"the plan is not for snapshot {self.snapshot.digest}")
        if self.plan.policy != self.policy.digest:
            yield Violation("stale", self.plan.policy, f"the plan is not for policy {self.policy.digest}")

    def _strangers(self) -> Iterable[Violation]:
        for name in sorted(self.evicted - set(self.jobs)):
            yield Violation("S8", name, "is evicted but not in the snapshot")
        for bind in self.placed:
            if bind.job not in self.jobs:
                yield Violation("S2", bind.job, "is bound but not in the snapshot")
            for task in bind.tasks:
                if task.node not in self.nodes:
                    yield Violation("S1", bind.job, f"task {task.group}/{task.index} is on unknown node {task.node}")

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

    def _sharing(self) -> Iterable[Violation]:
        """S1 and S7 for divided GPUs."""
        yield from sharing_violations(self.snapshot, self.policy, self.plan)

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
                yield intent.id, task, intent.job in asked | self.evicted

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

    def _topology(self) -> Iterable[Violation]:
        """S5: all tasks of a gang that requires a level are in one domain of it."""
        for bind in self.placed:
            level = self.jobs[bind.job].spec.topology.required
            domains = {self.nodes[task.node].domain(level) for task in bind.tasks} if level else set()
            if len(domains) > 1 and len(bind.tasks) > 1:
                yield Violation("S5", bind.job, f"is spread over {len(domains)} {level}s: {', '.join(sorted(domains))}")
            yield from closeness_violations(self.jobs[bind.job], bind, self.nodes)

    def _verdicts(self) -> Iterable[Violation]:
        """Every live job has one verdict, and it says what the steps do."""
        named = Counter(verdict.job for verdict in self.plan.verdicts)
        for name in sorted(set(self.jobs) | set(named)):
            if named[name] != 1 or name not in self.jobs:
                yield Violation("verdicts", name, f"has {named[name]} verdicts; every live job has one")
        bound = {bind.job for bind in self.binds}
        starting = {verdict.job for verdict in self.plan.verdicts if isinstance(verdict, Starts)}
        for name in sorted(bound ^ starting):
            yield Violation("verdicts", name, "is bound without the verdict `starts`, or the other way round")
        for verdict in self.plan.verdicts:
            job = self.jobs.get(verdict.job)
            if job and isinstance(verdict, Runs | Yields | Departs) != (job.phase != "pending"):
                yield Violation("verdicts", verdict.job, f"verdict does not suit a job that is {job.phase}")

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
