"""Which pending jobs can ever start under this policy on this cluster, in which ways, and why the others can't."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property

import msgspec
import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import Sharing, sharing_of
from solver.model.amounts import NONE
from solver.model.cluster import GpuType, Level, Node
from solver.model.mig import mig_model
from solver.model.mig_layout import near_profiles
from solver.model.node_sets import NodeSet
from solver.model.quantities import MILLI_PER_GPU, Cpu, Instant, Memory, MilliGpu
from solver.model.round_cache import CachedResults, RoundCache
from solver.model.shape import MigShape, Shape, SharedShape
from solver.model.snapshot import Snapshot
from solver.model.workload import Bundle, Job, JobSpec, KeptGroups, QueueName, TaskGroup
from solver.placement.closeness import tasks_that_fit, torn_bundle
from solver.placement.placement import has_place
from solver.plan.mig_reasons import MigHasNoPeers
from solver.plan.reason import NAMED_MAX, HostResource
from solver.plan.reasons import AnyReason, BeyondGuarantee, HeldReason, QuotaChanges, QuotaMax
from solver.plan.refusals import (
    AboveMax,
    ClassNotAllowed,
    GpuTooSmall,
    NamespaceNotAllowed,
    NeverFits,
    NotDivided,
    TooLittleHost,
    TooLittleResource,
    UnknownName,
)
from solver.policy.policy import Policy, SloClass
from solver.policy.tree import QueueTree, QuotaLine
from solver.policy.type_weights import weights_of
from solver.policy.windows import kinds_ahead
from solver.queueing.entry import barred, closed_to, on_hold, open_to
from solver.quota.entitlement import Shares, shares_of
from solver.quota.guarantees import too_small
from solver.quota.lending import Weights
from solver.quota.options import OPTIONS_MAX, Option, options_of, served_alike
from solver.quota.users import beside_least
from solver.round.guarantees import host_max
from solver.round.quota_changes import change_of


@dataclass(frozen=True, slots=True)
class Admission:
    """Either the options that could be served one day, or the reasons why there are none.

    `holds`: the queues on its path that start nothing for now. `later`: by when its quota is to be another, under which it could be
    served in the ways `then`.
    """

    options: tuple[Option, ...]
    reasons: tuple[AnyReason, ...] = ()
    holds: tuple[HeldReason, ...] = ()
    later: QuotaChanges | None = None
    then: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Emptied:
    """A cluster in which nothing runs and nothing is broken, under a policy. Of `nodes`, whether they are well is not asked."""

    policy: Policy
    nodes: tuple[Node, ...]
    node_sets: tuple[NodeSet, ...] = ()

    @cached_property
    def snapshot(self) -> Snapshot:
        """Of it."""
        return Snapshot(Instant(0), self.nodes, (), node_sets=self.node_sets)

    @cached_property
    def shares(self) -> Shares:
        """What its queues are guaranteed, and may hold."""
        return shares_of(self.snapshot, QueueTree.of(self.policy))

    @cached_property
    def sharing(self) -> Sharing:
        """The trust domain of its tasks there."""
        return sharing_of(self.policy, self.shares.tree, self.nodes)

    @cached_property
    def weights(self) -> Weights:
        """What its queues weigh. What is lent is limited by what there is, running or not."""
        lending = replace(self.shares.lending, capacity=self.shares.cluster.gpus)
        return Weights.of(self.shares.tree, lending)

    @cached_property
    def gpu_memory(self) -> dict[GpuType, Memory]:
        """By type, what each GPU of a node has at least, on the nodes of it with most; 0: no pool says how much."""
        found: dict[GpuType, Memory] = {}
        for node in self.nodes:
            if node.gpus:
                least = min(gpu.memory for gpu in node.gpus)
                found[node.gpu_type] = max(least, found.get(node.gpu_type, Memory(0)))
        return found

    def room(self) -> FreeCapacity:
        """All of it, partitioned in any way."""
        unlimited = pool_rules(self.policy, self.snapshot).unlimited()
        return FreeCapacity.empty(self.nodes, mig=unlimited, node_sets=self.node_sets)


class Gate:
    """Judges jobs against one policy and the empty cluster; alike jobs are judged once, and not again in the next round."""

    def __init__(self, emptied: Emptied, kept: RoundCache) -> None:
        basis = emptied.policy, emptied.nodes, emptied.node_sets
        self._emptied, self.policy = emptied, emptied.policy
        self._known: CachedResults[Admission] = kept.results("admissions", *basis)
        self._options: CachedResults[tuple[Option, ...]] = kept.results("options", *basis)
        self._fits: CachedResults[bool] = kept.results("fits when empty", *basis)
        self._in_set: dict[str, frozenset[GpuType]] = {}

    @property
    def shares(self) -> Shares:
        """Those of the empty cluster."""
        return self._emptied.shares

    @cached_property
    def empty(self) -> FreeCapacity:
        """The empty cluster. What is counted of it for jobs that come is forgotten with the round."""
        return self._emptied.room()

    def admit(self, job: Job) -> Admission:
        """What could be served of this job, however long it waits."""
        spec = job.spec
        namespace = job.kubernetes_namespace if self.shares.tree.namespaces.say_something else None
        user = job.user if self.shares.users.host_cap else ""
        key = (spec.queue, spec.priority_class, spec.task_groups, spec.topology, spec.data, namespace, user)
        return self._known.get(key, lambda: self._judge(job))

    def _judge(self, job: Job) -> Admission:
        refusals = (*self._names_that_do_not_exist(job), *self._closed_queues(job))
        if refusals:
            return Admission((), refusals)
        options = self._options_of(job)
        judged = [self._refusal(job, option) for option in options]
        usable = tuple(option for option, refusal in zip(options, judged, strict=True) if refusal is None)
        reasons = () if usable else tuple(dict.fromkeys(refusal for refusal in judged if refusal is not None))
        holds = tuple(HeldReason(queue.name, queue.origin) for queue in on_hold(self.shares.tree, job.spec.queue))
        later = self._later(job, reasons)
        return Admission(usable, reasons, holds, *later) if later else Admission(usable, reasons, holds)

    def _later(self, job: Job, reasons: Iterable[AnyReason]) -> tuple[QuotaChanges, tuple[Option, ...]] | None:
        """The change of quota after which a job is not refused any more, and how it can be served then."""
        by = next((reason for reason in reasons if isinstance(reason, AboveMax | BeyondGuarantee)), None)
        for at, then in self._ahead if by is not None else ():
            if by is not None and (options := then.admit(job).options):
                line, of_max = QuotaLine(by.queue, by.gpu_type), isinstance(by, AboveMax)
                now, later = (
                    (known.max if of_max else known.guaranteed).get(line) for known in (self.shares, then.shares)
                )
                return change_of(line, at, self.policy, now=now, then=later, of_max=of_max, refused=True), options
        return None

    @cached_property
    def _ahead(self) -> list[tuple[Instant, Gate]]:
        """The gate under what the policy is to be."""
        later = ((at, replace(self._emptied, policy=then)) for at, then in kinds_ahead(self.policy))
        return [(at, Gate(emptied, RoundCache())) for at, emptied in later]

    def _options_of(self, job: Job) -> tuple[Option, ...]:
        known = self.policy.priority_class(job)
        slo_class = known.slo_class if known else "standard"
        return self._options.get(served_alike(job.spec, slo_class), lambda: self._worked_out(job.spec, slo_class))

    def _worked_out(self, spec: JobSpec, slo_class: SloClass) -> tuple[Option, ...]:
        scheduling, groups = self.policy.scheduling, spec.task_groups
        most = None if scheduling.solver.mode == "exact" else OPTIONS_MAX
        in_set = {group.nodes: self._types_of(group.nodes) for group in groups if group.nodes}
        weights = weights_of(scheduling.gpu_types)
        return options_of(spec, self.empty.gpu_types, self._emptied.sharing, slo_class, most, weights, in_set)

    def _types_of(self, node_set: str) -> frozenset[GpuType]:
        """The GPU types of the nodes in a set."""
        if node_set not in self._in_set:
            types = np.unique(self.empty.type_of_node[self.empty.sets[node_set]])
            self._in_set[node_set] = frozenset(self.empty.gpu_types[number] for number in types)
        return self._in_set[node_set]

    def _names_that_do_not_exist(self, job: Job) -> Iterable[AnyReason]:
        tree, spec = self.shares.tree, job.spec
        if not tree.is_leaf(spec.queue):
            yield self._unknown_queue(spec.queue)
        if self.policy.priority_class(job) is None:
            known = [klass.name for klass in self.policy.priority_classes]
            name = self.policy.priority_class_name(job)
            yield UnknownName("priority-class", (name,), _nearest(name, known))
        in_cluster = {gpu_type for gpu_type in self.empty.gpu_types if gpu_type}
        for group in spec.task_groups:
            if group.shape.uses_gpus and not in_cluster & set(group.shape.gpu_types or in_cluster):
                yield UnknownName("gpu-type", group.shape.gpu_types, tuple(sorted(in_cluster)), group=group.name)
            else:
                yield from self._too_small(group)
        somewhere = {name for node in self.empty.nodes for name in node.data} if spec.data else set()
        for name in spec.data:
            if name not in somewhere:
                yield UnknownName("data", (name,), _nearest(name, sorted(somewhere)))

    def _too_small(self, group: TaskGroup) -> Iterator[GpuTooSmall]:
        """Where no GPU of a type that the group accepts has as much memory as it wants of each: what those of each type have."""
        wanted, known = group.shape.min_gpu_memory, self._emptied.gpu_memory
        accepted = [gpu_type for gpu_type in group.shape.gpu_types or sorted(known) if gpu_type in known]
        if wanted is None or any(known[gpu_type] >= wanted for gpu_type in accepted):
            return
        others = tuple(gpu_type for gpu_type in sorted(known) if known[gpu_type] >= wanted)
        for gpu_type in accepted:
            has = known[gpu_type]
            yield GpuTooSmall(group.name, gpu_type, wanted, has > 0, has, least=True, others=others)

    def _closed_queues(self, job: Job) -> Iterable[AnyReason]:
        known = self.policy.priority_class(job)
        if known is None:
            return
        for queue in closed_to(self.shares.tree, job.spec.queue, known.name):
            yield ClassNotAllowed(known.name, queue.name, queue.priority_classes or (), queue.origin)
        tree, name, namespace = self.shares.tree, job.spec.queue, job.kubernetes_namespace
        bar = barred(tree, name, namespace, known.name)
        if bar is not None and tree.is_leaf(name):
            others = open_to(tree, namespace) if bar.kind == "other-queues" else ()
            named = known.name if bar.kind == "class" else ""
            yield NamespaceNotAllowed(namespace.name, name, bar.kind, others, named, bar.classes, bar.origin)

    def _unknown_queue(self, name: QueueName) -> UnknownName:
        children = tuple(child.name for child in self.shares.tree.children.get(name, ()))
        tree = self.shares.tree
        nearest = _nearest(name, list(tree.by_name), [each for each in tree.by_name if tree.is_leaf(each)])
        return UnknownName("queue", (name,), nearest, children)

    def _refusal(self, job: Job, option: Option) -> AnyReason | None:
        """Why this option can never be served; None where it can."""
        unshared = next(_not_shareable(job.spec, option), None) or next(_no_instance(job.spec, option), None)
        if unshared is not None:
            return unshared
        spec, users = job.spec, self.shares.users
        for gpu_type, wanted in option.charge.items():
            for queue_line in self.shares.tree.lines(spec.queue, gpu_type):
                queue_max = self.shares.max.get(queue_line)
                if queue_max is not None and wanted > queue_max:
                    return AboveMax(*queue_line, MilliGpu(queue_max), MilliGpu(wanted), self._origin(*queue_line))
        beyond = next(self._beyond_guarantee(job, option), None) or next(self._never_lent(job, option), None)
        if beyond is not None:
            return beyond
        for line in users.lines(job, option.charge):
            most, wanted = MilliGpu(users.most(line)), MilliGpu(option.charge[line.gpu_type])
            if wanted > most:
                origin = self._origin(line.queue, line.gpu_type)
                return AboveMax(line.queue, line.gpu_type, most, wanted, origin, per_user=True)
        beyond_host = next(self._above_host_max(job), None)
        if beyond_host is not None:
            return beyond_host
        return None if self._has_place(spec, option) else self._never_fits(spec, option)

    def _above_host_max(self, job: Job) -> Iterator[QuotaMax]:
        """Where it needs more CPU or memory than a queue on its path may ever hold."""
        users = self.shares.users
        for line, wanted in users.host_charges(job.spec.queue, job.user, beside_least(job.spec)):
            if wanted > users.most(line):
                yield host_max(self.shares, line, 0, wanted)

    def _has_place(self, spec: JobSpec, option: Option) -> bool:
        """Whether it would find its place if nothing else ran; that does not depend on its queue, its class or its data."""
        key = (spec.task_groups, spec.topology, option.gpu_types, option.shapes)
        return self._fits.get(key, lambda: has_place(self.empty, spec, option))

    def _never_lent(self, job: Job, option: Option) -> Iterator[AboveMax]:
        """Where it needs more than the others would leave it, if no queue used anything: the one that keeps back most."""
        weights, queue = self._emptied.weights, job.spec.queue
        for gpu_type in weights.refused(queue, option.charge):
            # Where no queue keeps back any, there is too little of it altogether: that never fits.
            keeper, _ = max(weights.keepers(queue, gpu_type), key=lambda known: known[1], default=(None, 0))
            if keeper is None:
                continue
            room, origin = MilliGpu(weights.room(queue, gpu_type) or 0), self._origin(keeper.queue, gpu_type)
            wanted = MilliGpu(option.charge[gpu_type])
            yield AboveMax(keeper.queue, gpu_type, room, wanted, origin, lent=True)

    def _beyond_guarantee(self, job: Job, option: Option) -> Iterator[BeyondGuarantee]:
        """The guarantees on its path that are too small for a job that may never borrow."""
        known = self.policy.priority_class(job)
        if not known or known.preemptible or known.may_borrow:
            return
        tree, guaranteed = self.shares.tree, self.shares.guaranteed

        def all_of(line: QuotaLine) -> int:
            return guaranteed.get(line, 0)

        for gpu_type, wanted in option.charge.items():
            lines = tree.lines(job.spec.queue, gpu_type)
            for line in too_small(tree, guaranteed, lines, all_of, wanted):
                room, origin = MilliGpu(all_of(line)), self._origin(line.queue, gpu_type)
                yield BeyondGuarantee(line.queue, gpu_type, room, MilliGpu(wanted), None, origin)

    def _origin(self, queue: QueueName, gpu_type: GpuType) -> str:
        entry = self.shares.tree.by_name[queue].quota_for(gpu_type)
        return entry.origin if entry else ""

    def _never_fits(self, spec: JobSpec, option: Option) -> NeverFits:
        level = spec.effective_topology.required
        fits = [(self._tasks_that_fit(spec, option, number, level), number) for number in range(len(spec.task_groups))]
        tasks, number = min(fits, key=lambda fit: fit[0] / spec.task_groups[fit[1]].least)
        kept = self._groups_in_the_way(spec, option, level)
        if kept:
            number = max(kept.groups, key=lambda group: (option.shapes[group].cost, spec.task_groups[group].least))
            tasks, level = self._tasks_that_fit(spec, option, number, kept.level), kept.level
        group, shape, gpu_type = spec.task_groups[number], option.shapes[number], option.gpu_types[number]
        torn = None if kept else self._torn_bundle(spec, option, number, level)
        usable = self.empty.usable(shape, gpu_type)
        return NeverFits(
            group=group.name,
            gpu_type=gpu_type or GpuType(""),
            tasks=kept.size(number, group.least) if kept else group.least,
            gpus_per_task=shape.cost,
            tasks_that_fit=tasks,
            largest_task=MilliGpu.gpus(int(self.empty.free_gpus[usable].max(initial=0))),
            level=torn.within if torn else level,
            per_bundle=min(torn.tasks, group.least) if torn else 0,
            profile=shape.mig or "",
            devices=shape.devices,
            node_set=group.nodes,
            nodes_allowed=int(self.empty.sets[group.nodes].sum()) if group.nodes else 0,
            host=self._too_little_host(shape, gpu_type),
            resource=self._too_little_of(shape, gpu_type),
            beside=tuple(spec.task_groups[other].name for other in kept.groups if other != number) if kept else (),
        )

    def _torn_bundle(self, spec: JobSpec, option: Option, number: int, level: Level | None) -> Bundle | None:
        """Bundles of a group that find no domain, where its tasks would find their places without them."""
        group = spec.task_groups[number]
        offer = self.empty.offer(option.shapes[number], option.gpu_types[number])
        torn = torn_bundle(self.empty, offer, spec, number) if offer.most(level) >= group.least else None
        return torn[0] if torn else None

    def _groups_in_the_way(self, spec: JobSpec, option: Option, level: Level | None) -> KeptGroups | None:
        """The first groups that find no place together, in a job that would, were they apart."""
        if level is not None or not spec.kept_groups or not has_place(self.empty, spec.without_together, option):
            return None
        return spec.kept_groups[0]

    def _too_little_host(self, shape: Shape, gpu_type: GpuType | None) -> TooLittleHost | None:
        """Where a node would do for a task by its GPUs, and none does by its CPU and memory too."""
        without = msgspec.structs.replace(shape, resources=NONE)
        gpus_alone = msgspec.structs.replace(without, cpu=Cpu(0), memory=Memory(0))
        if self.empty.offer(without, gpu_type).total or not self.empty.offer(gpus_alone, gpu_type).total:
            return None
        able = self.empty.offer(gpus_alone, gpu_type).slots > 0
        cpu, memory = (int(there[able].max(initial=0)) for there in (self.empty.free_cpu, self.empty.free_memory))
        short: tuple[tuple[HostResource, bool], ...] = (("cpu", cpu < shape.cpu), ("memory", memory < shape.memory))
        lacking = tuple(name for name, is_short in short if is_short)
        return TooLittleHost(Cpu(shape.cpu), Memory(shape.memory), Cpu(cpu), Memory(memory), lacking)

    def _too_little_of(self, shape: Shape, gpu_type: GpuType | None) -> TooLittleResource | None:
        """The first resource of which no node that would do by GPUs has as much as a task takes."""
        gpus_alone = msgspec.structs.replace(shape, cpu=Cpu(0), memory=Memory(0), resources=NONE)
        able = self.empty.offer(gpus_alone, gpu_type).slots > 0
        if not able.any():
            return None
        largest = ((name, int(self.empty.free_beside[name][able].max())) for name in shape.resources)
        short = (TooLittleResource(name, shape.resources[name], most) for name, most in largest)
        return next((found for found in short if found.largest < found.wanted), None)

    def _tasks_that_fit(self, spec: JobSpec, option: Option, number: int, level: Level | None) -> int:
        offer, least = self.empty.offer(option.shapes[number], option.gpu_types[number]), spec.task_groups[number].least
        total = offer.most(level)
        if total < least:
            return total
        apart = tasks_that_fit(self.empty, offer, spec, number)
        return apart if apart < least else total


def _nearest(name: str, known: Sequence[str], fitting: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names that may be meant: those that are near, else all that fit, where they are few."""
    near = get_close_matches(name, known)
    few = known if fitting is None else fitting
    return tuple(near or (few if len(few) <= NAMED_MAX else ()))


def _not_shareable(spec: JobSpec, option: Option) -> Iterator[NotDivided | GpuTooSmall]:
    """Groups that ask for a part of a GPU which no GPU of the type gives."""
    for group, shape, gpu_type in zip(spec.task_groups, option.shapes, option.gpu_types, strict=True):
        if not isinstance(shape, SharedShape) or gpu_type is None:
            continue
        if not shape.circles:
            yield NotDivided(group.name, gpu_type, "sharing")
        elif not 0 < shape.milli <= MILLI_PER_GPU:
            yield GpuTooSmall(group.name, gpu_type, Memory(shape.gpu_memory or 0), known=shape.milli > 0)


def _no_instance(spec: JobSpec, option: Option) -> Iterator[NotDivided | UnknownName | MigHasNoPeers]:
    """Groups that ask for a MIG instance which no GPU of the type can have, or which can't do what they want it for."""
    for group, shape, gpu_type in zip(spec.task_groups, option.shapes, option.gpu_types, strict=True):
        if not isinstance(shape, MigShape) or gpu_type is None:
            continue
        if not shape.model:
            yield NotDivided(group.name, gpu_type, "mig")
        elif not shape.milli:
            name = shape.mig or ""
            nearest = near_profiles(mig_model(shape.model), name)
            yield UnknownName("mig-profile", (name,), nearest, group=group.name, of=f"{gpu_type} ({shape.model})")
        elif _wants_nvlink(spec, group):
            yield MigHasNoPeers(group.name)


def _wants_nvlink(spec: JobSpec, group: TaskGroup) -> bool:
    """Several tasks of the group have to be in one island, or it with other groups."""
    asked = [level for _, level in spec.kept_in_bundles(group)] if group.replicas > 1 else []
    known = spec.together_of(group)
    return "island" in (spec.effective_topology.required, known.within if known else None, *asked)
