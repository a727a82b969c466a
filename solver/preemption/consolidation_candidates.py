"""Running jobs that may move so that others fit, and the work that each move loses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.sharing import Sharing
from solver.model.arrays import Ints, Mask, begins
from solver.model.cluster import DeviceId, GpuType
from solver.model.quantities import MilliGpu
from solver.model.shape import Shape, SharedShape
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, TaskPlacement
from solver.placement.starts import held_by
from solver.policy.policy import Policy, PriorityClass
from solver.queueing.entry import lets_in
from solver.quota.entitlement import Charge, Shares, charge_of_tasks
from solver.quota.lending import Weights
from solver.quota.options import Option, option_of, options_of, served_alike
from solver.quota.victims import Holder, lost_gpu_s, protected


@dataclass(frozen=True, slots=True)
class ConsolidationCandidate:
    """A running job that may move: how it is served, with how many tasks of each group, and what moving it loses.

    `likeness`: equal for jobs that find a place where the other does.
    """

    job: Job
    option: Option
    charge: Charge
    tasks: tuple[int, ...]
    lost_gpu_s: float
    likeness: Hashable

    @property
    def name(self) -> JobName:
        """The job's."""
        return self.job.name

    @property
    def gpus(self) -> MilliGpu:
        """GPUs that it has, and will have."""
        return MilliGpu(sum(self.charge.values()))

    def held(self, tasks: Iterable[TaskPlacement]) -> Iterator[tuple[TaskPlacement, Shape]]:
        """Some tasks of it, each with what it takes."""
        return held_by(self.job.spec, self.option, tasks)

    def leave(self, room: FreeCapacity) -> None:
        """What it holds is free."""
        for task, shape in self.held(self.job.placement):
            room.give_back(task, shape)


class OnNode(NamedTuple):
    """GPUs that candidates hold on nodes."""

    node: Ints
    holder: Ints
    gpus: Ints


class Fractions(NamedTuple):
    """Parts of GPUs that candidates hold: whose, on which node, of which GPU, and how much. Sorted by GPU, then by holder."""

    holder: Ints
    node: Ints
    gpu: Ints
    milli: Ints

    def of(self, chosen: Mask) -> Fractions:
        """Some of them."""
        return Fractions(*(column[chosen] for column in self))

    @property
    def last(self) -> Fractions:
        """The last of each GPU."""
        return self.of(np.diff(self.gpu, append=-1) != 0)


class ConsolidationCandidates:
    """Jobs that may move, by number, those that lose least first.

    `milli`: what each has, in milli-GPU. `likeness`: as numbers; `first`: the first mover of each. `is_on_one`: who is on one
    node alone. What they hold as whole GPUs is in rows, one for the tasks of a mover on a node with as many GPUs each: `holder`,
    `node`, `gpus` of a task, `tasks`; parts of GPUs count 0 there, and are in `fractions`. `on_node`: the GPUs of each mover on
    each of its nodes, sorted by node, then by number.
    """

    def __init__(self, movers: Iterable[ConsolidationCandidate], room: FreeCapacity) -> None:
        self.all = tuple(sorted(movers, key=_cheapest))
        self.lost_gpu_s = np.array([mover.lost_gpu_s for mover in self.all], dtype=np.float64)
        self.milli: Ints = np.array([mover.gpus for mover in self.all], dtype=np.int64)
        self._numbers = {mover.name: number for number, mover in enumerate(self.all)}
        known = dict[Hashable, int]()
        alike = [known.setdefault(mover.likeness, len(known)) for mover in self.all]
        self.likeness: Ints = np.array(alike, dtype=np.int64)
        self.first = np.unique(self.likeness, return_index=True)[1].tolist()
        held = Counter(
            (room.index[task.node], number, len(task.devices) if task.share is None else 0)
            for number, mover in enumerate(self.all)
            for task in mover.job.placement
        )
        rows = np.array([(*row, tasks) for row, tasks in sorted(held.items())], dtype=np.int64).reshape(-1, 4)
        self.node, self.holder, self.gpus, self.tasks = rows.T.copy()
        self.on_node = _by_node(self.node, self.holder, self.gpus * self.tasks)
        self.is_on_one: Mask = np.bincount(self.on_node.holder, minlength=len(self.all)) == 1
        self._nodes = len(room.nodes)
        self.fractions, self._free_milli = _fractions(self.all, room)

    def parts_of(self, able: Mask, milli: int) -> Fractions:
        """What those who are able hold of GPUs of which so much is free once all of them have left."""
        held = self.fractions.of(able[self.fractions.holder])
        free = self._free_milli.copy()
        np.add.at(free, held.gpu, held.milli)
        return held.of(free[held.gpu] >= milli)

    def on(self, nodes: Ints) -> Mask:
        """Who has tasks on some of these nodes."""
        asked, found = np.zeros(self._nodes, dtype=bool), np.zeros(len(self.all), dtype=bool)
        asked[nodes] = True
        found[self.on_node.holder[asked[self.on_node.node]]] = True
        return found

    def but(self, gone: Iterable[JobName]) -> Mask:
        """All who are not among these."""
        others: Mask = np.ones(len(self.all), dtype=bool)
        others[[self._numbers[name] for name in gone if name in self._numbers]] = False
        return others


def may_leave(snapshot: Snapshot, policy: Policy) -> Iterator[Job]:
    """Gangs that run and might be interrupted: freely, of a preemptible class, not protected, with nothing in flight.

    A service would be away with all of its replicas, and what a person works in is not restarted elsewhere.
    """
    busy = {intent.job for intent in snapshot.in_flight.intents}
    for job in snapshot.jobs:
        if job.phase != "running" or job.spec.type != "gang" or job.name in busy or job.leaves != "freely":
            continue
        known = policy.priority_class(job)
        if known is not None and known.preemptible and not protected(job, known.protection, snapshot.time):
            yield job


def movers_in(
    jobs: Iterable[Job],
    gpu_types: Collection[GpuType],
    snapshot: Snapshot,
    policy: Policy,
    shares: Shares,
    sharing: Sharing,
    room: FreeCapacity,
) -> Iterator[ConsolidationCandidate]:
    """Who of those that may leave could go on elsewhere: with GPUs of some of these types, in a queue that would start it."""
    type_of, ways, may_start = snapshot.gpu_types, _Ways(snapshot, sharing), _MayStart(shares)
    for job in jobs:
        known, charge = policy.priority_class(job), charge_of_tasks(job.placement, type_of)
        if known is None or charge.keys().isdisjoint(gpu_types) or not _has_gpus(job, room):
            continue
        option = ways.of(job, known) if may_start.allows(job, known, charge) else None
        if option is not None and _has_as_served(job, option):
            tasks = tuple(sum(task.group == group.name for task in job.placement) for group in job.spec.task_groups)
            lost = lost_gpu_s(Holder(job, charge, known), snapshot.time, policy.scheduling.evictions.restart_cost)
            # Shapes say with whom parts of GPUs are shared; whole ones all queues and classes are served alike.
            likeness = job.spec.task_groups, job.spec.effective_topology, option.gpu_types, option.shapes, tasks
            yield ConsolidationCandidate(job, option, charge, tasks, lost, likeness)


class _Ways:
    """How running jobs are served: worked out once for those that ask for the same."""

    def __init__(self, snapshot: Snapshot, sharing: Sharing) -> None:
        self._types = sorted({node.gpu_type for node in snapshot.nodes if node.gpus})
        self._gpu_types, self._sharing = snapshot.gpu_types, sharing
        self._known: dict[Hashable, tuple[Option, ...]] = {}

    def of(self, job: Job, known: PriorityClass) -> Option | None:
        """The one of a job; None where it is not served in any that there is now."""
        spec, slo_class = job.spec, known.slo_class
        alike = served_alike(spec, slo_class)
        options = self._known.get(alike)
        if options is None:
            options = self._known[alike] = options_of(spec, self._types, self._sharing, slo_class)
        return option_of(job, options, self._gpu_types)


class _MayStart:
    """Whether jobs could start again once they had left: their queue takes them in, and no limit on what they hold is broken."""

    def __init__(self, shares: Shares) -> None:
        self._tree, self._users = shares.tree, shares.users
        self._above = {line for line, used in shares.used.items() if used > shares.max.get(line, inf)}
        self._exceeded = Weights.of(shares.tree, shares.lending, shares.used).exceeded
        self._known: dict[Hashable, bool] = {}

    def allows(self, job: Job, known: PriorityClass, charge: Charge) -> bool:
        """Whether it could, holding this."""
        queue, users = job.spec.queue, self._users
        alike = queue, known.name, job.kubernetes_namespace, frozenset(charge)
        if alike not in self._known:
            lines = (line for gpu_type in charge for line in self._tree.lines(queue, gpu_type))
            self._known[alike] = (
                lets_in(self._tree, queue, known.name, job.kubernetes_namespace)
                and self._above.isdisjoint(lines)
                and self._exceeded.isdisjoint(charge)
            )
        return self._known[alike] and not any(
            users.used.get(line, 0) > users.most(line) for line, _ in users.charges(job, charge)
        )


def _has_gpus(job: Job, room: FreeCapacity) -> bool:
    known = all(task.mig is None and task.node in room.index for task in job.placement)
    # Parts of several GPUs stay: what is counted of parts has one GPU each.
    several = any(task.share is not None and len(task.devices) > 1 for task in job.placement)
    return known and not several and any(task.devices for task in job.placement)


def _has_as_served(job: Job, option: Option) -> bool:
    """Whether the parts of GPUs that it has are those that it would be given now: a policy may have changed."""
    asked = {
        group.name: shape.milli if isinstance(shape, SharedShape) else None
        for group, shape in zip(job.spec.task_groups, option.shapes, strict=True)
    }
    return all(task.share == asked.get(task.group) for task in job.placement)


def _fractions(movers: Iterable[ConsolidationCandidate], room: FreeCapacity) -> tuple[Fractions, Ints]:
    """The parts of GPUs that movers hold, and what is free of these GPUs."""
    held = defaultdict[tuple[int, DeviceId], list[tuple[int, int]]](list)
    for number, mover in enumerate(movers):
        for task in mover.job.placement:
            if task.share is not None:
                held[room.index[task.node], task.devices[0]].append((number, int(task.share)))
    found = {(node, gpu.device): gpu for node in {node for node, _ in held} for gpu in room.shared.get(node, ())}
    known = sorted(of for of in held if of in found and found[of].healthy)
    rows = [(who, of[0], gpu, milli) for gpu, of in enumerate(known) for who, milli in held[of]]
    free: Ints = np.array([found[of].free_milli for of in known], dtype=np.int64)
    return Fractions(*np.array(rows, dtype=np.int64).reshape(-1, 4).T.copy()), free


def _by_node(node: Ints, holder: Ints, gpus: Ints) -> OnNode:
    """Of rows that are sorted already."""
    first = begins(node, holder)
    total = np.add.reduceat(gpus, np.flatnonzero(first)) if len(gpus) else gpus
    return OnNode(node[first], holder[first], total)


def _cheapest(mover: ConsolidationCandidate) -> tuple[float, int, str]:
    return mover.lost_gpu_s, mover.gpus, mover.name
