"""One judgement: a snapshot, a policy and a plan, with what rules look up in them again and again indexed once.

Part of the checker. An index is built when a rule first asks for it, so that what no step of a plan needs costs nothing, and
the whole judgement takes time in proportion to the snapshot and the plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Self, TypeVar, cast

from solver.checker.dues import common_lines, guaranteed_lines
from solver.checker.parts import Parted, parted
from solver.checker.policy_in_force import policy_in_force
from solver.checker.policy_index import PolicyIndex
from solver.checker.run_times import Lives, lives_of
from solver.model.cluster import DeviceId, Gpu, GpuType, MigInstance, Node, NodeName
from solver.model.inflight import Intent
from solver.model.kept_columns import KeptValues
from solver.model.quantities import MILLI_PER_GPU
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Bind, Evict, Inadmissible, Nominate, Plan, Shrink, Step, Verdict, Waits, Withdraw
from solver.plan.reasons import QuotaChanges
from solver.policy.policy import Policy
from solver.policy.tree import QuotaLine

Kind = TypeVar("Kind", bound=Step)
Part = TypeVar("Part")
Said = TypeVar("Said", bound=Verdict)
Placing = Bind | Nominate
Leaving = Evict | Shrink

Charge = Mapping[GpuType, int]
"""Milli-GPU by type, 0 where only CPU is taken on nodes of a type."""


def moving(plan: Plan) -> frozenset[JobName]:
    """Who moves by a plan."""
    return frozenset(step.job for step in plan.steps if isinstance(step, Evict) and step.means == "move")


@dataclass(frozen=True)
class NodeIndex:
    """The nodes and GPUs of a snapshot."""

    nodes: tuple[Node, ...]

    @classmethod
    def latest(cls, nodes: tuple[Node, ...]) -> NodeIndex:
        """That of some nodes, which are nearly the same in each judgement: where one is the very same object, so are its GPUs."""
        known = _LATEST[0]
        if known.nodes is not nodes:
            gpus = known.__dict__.get("gpus")
            pairs = zip(known.nodes, nodes, strict=False)
            changed = [(was, node) for was, node in pairs if was is not node]
            made = cls(nodes)
            if gpus is not None and len(nodes) == len(known.nodes):
                made.__dict__["gpus"] = _with_nodes(gpus, changed)
            known = _LATEST[0] = made
        return known

    @cached_property
    def by_name(self) -> dict[NodeName, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def gpu_types(self) -> dict[NodeName, GpuType]:
        """The type of each node, "" where it has no GPUs."""
        return {node.name: node.gpu_type for node in self.nodes}

    @cached_property
    def gpus(self) -> dict[DeviceId, tuple[Node, Gpu]]:
        """Every GPU with its node."""
        return {gpu.id: (node, gpu) for node in self.nodes for gpu in node.gpus}

    @cached_property
    def capacity(self) -> dict[GpuType, int]:
        """Declared milli-GPU by type."""
        capacity: dict[GpuType, int] = {}
        for node in self.nodes:
            if node.gpus:
                capacity[node.gpu_type] = capacity.get(node.gpu_type, 0) + MILLI_PER_GPU * len(node.gpus)
        return capacity

    @cached_property
    def pools_of(self) -> dict[GpuType, set[str]]:
        """By type the pools that have GPUs of it."""
        pools: defaultdict[GpuType, set[str]] = defaultdict(set)
        for node in self.nodes:
            if node.gpus:
                pools[node.gpu_type].add(node.pool)
        return dict(pools)

    @cached_property
    def partitioned(self) -> dict[DeviceId, tuple[MigInstance, ...]]:
        """The GPUs in MIG mode, each with its instances."""
        in_parts = (
            node.gpus for node, gpus in zip(self.nodes, _GPUS_IN_PARTS.of(self.nodes, _has_parts), strict=True) if gpus
        )
        return {gpu.id: gpu.instances for gpus in in_parts for gpu in gpus if gpu.instances is not None}

    def charge(self, tasks: Iterable[TaskPlacement]) -> dict[GpuType, int]:
        """What tasks hold; lost nodes are of no type."""
        types = self.gpu_types
        charge: dict[GpuType, int] = {}
        for task in tasks:
            gpu_type = types.get(task.node, _LOST)
            whole = task.share is None and task.mig is None
            milli = MILLI_PER_GPU * len(task.devices) if whole else task.gpus
            charge[gpu_type] = charge.get(gpu_type, 0) + milli
        return charge


@dataclass(frozen=True)
class JudgedPlan:
    """What is judged. Make it with `of`. `whole`: what this is the same as, where gangs are taken apart (sizes)."""

    snapshot: Snapshot
    plan: Plan
    ground: NodeIndex
    lookup: PolicyIndex
    whole: JudgedPlan | None = None
    _given: dict[int, Charge] = field(init=False, default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, plan: Plan) -> Self:
        """A plan for a snapshot under a policy."""
        lookup = PolicyIndex(policy_in_force(policy, snapshot.time), policy)
        return cls(snapshot, plan, NodeIndex.latest(snapshot.nodes), lookup)

    @property
    def policy(self) -> Policy:
        """What is in force."""
        return self.lookup.policy

    @cached_property
    def jobs(self) -> dict[JobName, Job]:
        """Live jobs by name."""
        return {job.name: job for job in self.snapshot.jobs}

    @cached_property
    def pending(self) -> tuple[Job, ...]:
        """Who holds nothing and wants to start."""
        return self.snapshot.pending

    @cached_property
    def refused(self) -> frozenset[JobName]:
        """Who could not start however much were free, as the plan says: for ever, or until another quota holds."""
        for_now = (
            verdict.job
            for verdict in self.verdicts(Waits)
            if any(isinstance(reason, QuotaChanges) and reason.refused for reason in verdict.reasons)
        )
        return frozenset({*for_now, *(verdict.job for verdict in self.verdicts(Inadmissible))})

    @cached_property
    def held(self) -> dict[JobName, Charge]:
        """What each job that is somewhere holds."""
        jobs = [job for job in self.snapshot.jobs if job.placement]
        charges = _HELD.of(jobs, lambda job: self.ground.charge(job.placement), self.ground.gpu_types)
        return {job.name: charge for job, charge in zip(jobs, charges, strict=True)}

    @cached_property
    def guaranteed(self) -> dict[QuotaLine, int]:
        """The guarantee of each queue and type."""
        return guaranteed_lines(self.lookup, self.ground.capacity)

    @cached_property
    def common(self) -> dict[QuotaLine, int]:
        """The same, where queues may have what one above them shares."""
        return common_lines(self.lookup, self.guaranteed)

    @cached_property
    def parted(self) -> Parted:
        """The same in parts: what elastic gangs hold beyond their minima, task by task."""
        return parted(self.snapshot, self.lookup, self.plan)

    @cached_property
    def of_queue(self) -> Mapping[QueueName, Sequence[Job]]:
        """Live jobs by their own queue."""
        found: dict[QueueName, list[Job]] = {}
        for job in self.snapshot.jobs:
            found.setdefault(job.spec.queue, []).append(job)
        return found

    def parts_of_queue(self, queue: QueueName) -> Iterator[Job]:
        """The same in parts."""
        return (part for job in self.of_queue.get(queue, ()) for part in self.parted.jobs.of(job.name))

    @cached_property
    def lives(self) -> Lives:
        """How long jobs of each queue and size have run, for orders that go by it."""
        return lives_of(self.snapshot)

    @cached_property
    def user_levels(self) -> dict[tuple[QueueName, GpuType], float | None]:
        """How far users that share a queue fill it up, as far as that was asked for (user_reclaim)."""
        return {}

    # What the plan does.

    def steps(self, kind: type[Kind]) -> Sequence[Kind]:
        """Its steps of a kind, in order."""
        return cast("Sequence[Kind]", self._steps.get(kind, ()))

    @cached_property
    def _steps(self) -> dict[type, list[Step]]:
        return _by_kind(self.plan.steps)

    def verdicts(self, kind: type[Said]) -> Sequence[Said]:
        """Its verdicts of a kind, in order."""
        return cast("Sequence[Said]", self._verdicts.get(kind, ()))

    @cached_property
    def _verdicts(self) -> dict[type, list[Verdict]]:
        return _by_kind(self.plan.verdicts)

    @cached_property
    def placing(self) -> tuple[Placing, ...]:
        """Who is bound, or promised devices."""
        return tuple(step for step in self.plan.steps if isinstance(step, Placing))

    @cached_property
    def promises(self) -> dict[JobName, Nominate]:
        """What the plan promises, by to whom."""
        return {step.job: step for step in self.steps(Nominate)}

    def given(self, step: Placing) -> Charge:
        """What a job is given or promised by a step of the plan."""
        if id(step) not in self._given:
            self._given[id(step)] = self.ground.charge(step.tasks)
        return self._given[id(step)]

    @cached_property
    def bound(self) -> frozenset[JobName]:
        """Who is bound."""
        return frozenset(step.job for step in self.steps(Bind))

    @cached_property
    def started(self) -> frozenset[JobName]:
        """Who is bound and was promised nothing; also where a promise came too late, and is taken back for that."""
        return self.bound - (self.promised.keys() - self.withdrawn)

    @cached_property
    def evicted(self) -> frozenset[JobName]:
        """Who is made to leave whole."""
        return frozenset(step.job for step in self.steps(Evict))

    @cached_property
    def leaving(self) -> tuple[Leaving, ...]:
        """Who is made to leave, whole or in part."""
        return tuple(step for step in self.plan.steps if isinstance(step, Leaving))

    @cached_property
    def for_growth(self) -> frozenset[JobName]:
        """Running gangs for whose growth others leave: they are promised nothing, and grow once these have left."""
        asked = {step.beneficiary for step in self.leaving} | {intent.beneficiary for intent in self.intents}
        jobs = (self.jobs.get(name) for name in asked if name is not None)
        return frozenset(job.name for job in jobs if job is not None and job.phase == "running")

    @cached_property
    def moving(self) -> frozenset[JobName]:
        """Who of those moves."""
        return moving(self.plan)

    @cached_property
    def withdrawn(self) -> frozenset[JobName]:
        """Whose promise is taken back."""
        return frozenset(step.job for step in self.steps(Withdraw))

    # What is in flight.

    @property
    def intents(self) -> tuple[Intent, ...]:
        """What was asked for before and is not confirmed."""
        return self.snapshot.in_flight.intents

    @cached_property
    def promised(self) -> dict[JobName, tuple[TaskPlacement, ...]]:
        """What was promised before, by to whom."""
        return {intent.job: intent.tasks for intent in self.intents if intent.kind == "nominate"}

    @cached_property
    def stopping(self) -> frozenset[JobName]:
        """Who was asked to stop before."""
        return frozenset(intent.job for intent in self.intents if intent.kind == "stop")

    @cached_property
    def sent_back(self) -> frozenset[JobName]:
        """Who was asked before to leave and wait again."""
        return frozenset(intent.job for intent in self.intents if intent.evicts)

    # What is there of GPUs that are partitioned.

    @cached_property
    def mig_tasks(self) -> tuple[TaskPlacement, ...]:
        """Tasks of live jobs that have instances; the same where gangs are taken apart."""
        if self.whole:
            return self.whole.mig_tasks
        return tuple(task for job in self.snapshot.jobs for task in job.placement if task.mig is not None)

    @cached_property
    def partitioned(self) -> dict[DeviceId, frozenset[MigInstance]]:
        """GPUs in MIG mode, and what of them is there or somebody's."""
        if self.whole:
            return self.whole.partitioned
        there = {device: frozenset(instances) for device, instances in self.ground.partitioned.items()}
        for task in self.mig_tasks:
            for slot in task.slots:
                if slot.gpu in self.ground.gpus:
                    there[slot.gpu] = there.get(slot.gpu, frozenset()) | {slot.instance}
        return there


_LOST = GpuType("")

# What is known of the latest snapshot judged is known of the next as well, as far as nodes and jobs are the very same objects,
# which never change. All else is worked out anew.
_LATEST = [NodeIndex(())]
_GPUS_IN_PARTS: Final = KeptValues[Node, bool]()
_HELD: Final = KeptValues[Job, Charge]()


def _with_nodes(
    known: Mapping[DeviceId, tuple[Node, Gpu]], changed: Iterable[tuple[Node, Node]]
) -> dict[DeviceId, tuple[Node, Gpu]]:
    """Every GPU with its node, where some nodes are others than before."""
    changed, found = list(changed), dict(known)
    for was, _ in changed:
        for gpu in was.gpus:
            found.pop(gpu.id, None)
    found.update((gpu.id, (node, gpu)) for _, node in changed for gpu in node.gpus)
    return found


def _has_parts(node: Node) -> bool:
    return any(gpu.instances is not None for gpu in node.gpus)


def _by_kind(known: Iterable[Part]) -> dict[type, list[Part]]:
    kinds: dict[type, list[Part]] = {}
    for one in known:
        kinds.setdefault(type(one), []).append(one)
    return kinds
