"""Which jobs are served in a tier and which leave for them, by the program: what it is asked, and what becomes of its answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.milp.canonical_order import CanonicalOrder
from solver.milp.optimiser import Effort, Optimiser
from solver.milp.preemption_flows import PlacedJobs, SlotKind, TaskKind
from solver.milp.preemption_layers import PreemptionLayers
from solver.milp.preemption_places import EXACT_NODES_MAX, PreemptionPlaces
from solver.milp.preemption_program import (
    UNLAWFUL,
    Manner,
    PreemptionProgram,
    PreemptorClass,
    PreemptorFamily,
)
from solver.milp.preemption_realisation import MovingJob, PlacingOrder, Realisation, ServedJob
from solver.model.arrays import Floats, Ints
from solver.model.cluster import GpuType
from solver.model.shape import MigShape
from solver.model.workload import JobName, JobSpec, QueueName
from solver.policy.policy import SolverLimits
from solver.preemption.consolidation import still
from solver.preemption.eviction import Preemptor
from solver.queueing.demand import StartCandidate
from solver.queueing.strict_queues import Lines
from solver.quota.entitlement import Shares
from solver.quota.lending import Weights
from solver.quota.vacated import GUARANTEED, Tier
from solver.quota.victims import PreemptorJob

NODES_MAX = 50
"""Nodes of one layer in a cluster of more than a few nodes."""

GAP = 5e-3
"""How close to the most that it could reach a layer stops there, relatively."""

PROGRAM_GPUS_MAX = 512
"""GPUs of clusters whose victims the program chooses; in larger ones they are searched for."""


def can_state(making: Preemptor) -> bool:
    """Whether the program knows all the rules that apply in this cluster."""
    return in_program(making.attempts.soon, making.attempts.headroom.shares)


def in_program(room: FreeCapacity, shares: Shares) -> bool:
    """The same, by what there is, and whether no more is lent than may be."""
    is_small = sum(len(node.gpus) for node in room.nodes) <= PROGRAM_GPUS_MAX
    return is_small and not Weights.of(shares.tree, shares.lending, shares.used).exceeded


def can_serve(candidate: StartCandidate) -> bool:
    """Whether the program knows all that a job asks for."""
    return any(sum(option.charge.values()) for option in candidate.options)


@dataclass(slots=True)
class _Stretches:
    """In strict queues those are alike that stand together in line."""

    lines: Lines
    _last: dict[QueueName, tuple[object, JobName, JobName]] = field(default_factory=dict)

    def first(self, candidate: StartCandidate, key: object) -> JobName | None:
        """The first of those with whom one stands together; None: its queue is not strict. Asked of all in their order."""
        if not candidate.strict:
            return None
        name, queue = candidate.job.name, candidate.job.spec.queue
        known, first, before = self._last.get(queue, (None, name, name))
        if known != key or self.lines.ahead(candidate) != before:
            first = name
        self._last[queue] = key, first, name
        return first


@dataclass(slots=True)
class PreemptionDecision:
    """The program of one tier, stated for those who may be served by it, and what it answers.

    `grows`: they are tasks that running gangs lack. These take what others borrowed, GPU for GPU, and nothing else; with
    `evicts` False what is free alone.
    """

    making: Preemptor
    tier: Tier
    candidates: Sequence[StartCandidate]
    grows: bool = False
    evicts: bool = True
    program: PreemptionProgram = field(init=False)
    places: PreemptionPlaces = field(init=False)
    gaps: dict[str, float] = field(default_factory=dict)
    """By layer, how many more GPUs could at most be served, given what the layers before it serve."""

    def __post_init__(self) -> None:
        making, classes = self.making, list(self._classes())
        families, families_of = self._families(classes)
        self.program = PreemptionProgram(
            self.tier,
            making.attempts,
            making.policy.scheduling.evictions,
            making.firm_used(),
            len(making.gone),
            families,
            making.moving.candidates(self._gpu_types(), making.attempts.soon, making.gone),
            0 if self.grows else making.moving.moves_left(len(making.gone)),
            grows=self.grows,
            is_large=len(making.attempts.soon.nodes) > EXACT_NODES_MAX,
        )
        self.program.state(classes, families_of)
        unchanging = still(making.attempts.room, making.attempts.soon)
        self.places = PreemptionPlaces(self.program, making.attempts.soon, unchanging)
        self.places.state()
        PreemptionLayers(self.program).state(f"{self.tier}.")

    @property
    def concerned(self) -> frozenset[JobName]:
        """Whom it could serve."""
        served = self.program.served.values()
        return frozenset(known.job.name for column in served for known in column.job_class.members)

    def serve(self, optimiser: Optimiser, limits: SolverLimits) -> bool:
        """Serve whom the program serves; False where it has no answer that can be kept."""
        if not self.program.served:
            return True
        order = CanonicalOrder.of(self.program.builder.build())
        stated = order.program
        time_limit_s, is_large = limits.time_limit.seconds, self.program.is_large
        effort = (
            Effort(GAP, time_limit_s, limits.seed, nodes_max=NODES_MAX)
            if is_large
            else Effort(0.0, time_limit_s, limits.seed, exact=True)
        )
        solution = optimiser(stated, np.zeros(len(stated.lower)), effort)
        if solution is None or solution.cut_by_clock:
            return False
        layers = zip(stated.objectives, solution.reached, strict=True)
        bounded = self._bounded()
        self.gaps = {k.name: max(0.0, reached.bound - reached.value) for k, reached in layers if k.name in bounded}
        values = order.given_back(solution.values)
        leaving = {number for number, column in self.program.leaving.items() if values[column] > 0.5}
        jobs, moving = self._realised(values)
        for order_of_places in self._placing_orders(jobs, moving):
            realisation = Realisation(
                self.making,
                self.tier,
                self.program,
                jobs,
                leaving,
                moving,
                self.places.still,
                self._credits(values),
            )
            if realisation.find(order_of_places):
                realisation.keep()
                return True
        return False

    def _bounded(self) -> frozenset[str]:
        """The layers of which it knows how much more could be served: not of MIG instances, of which it knows some ways alone."""
        layers = sorted({candidate.sub_layer for candidate in self.candidates})
        asking = {candidate.sub_layer for candidate in self.candidates if _asks_for_instances(candidate)}
        return frozenset(f"{self.tier}.{layer}" for layer in takewhile(lambda layer: layer not in asking, layers))

    def _placing_orders(self, jobs: Iterable[ServedJob], moving: Sequence[MovingJob]) -> Iterator[PlacingOrder]:
        """The program's very nodes first where it knows each one's worth, and never where GPUs may be partitioned anew. In strict
        queues those that come first have what is free now.
        """
        in_line = any(job.candidate.strict for job in jobs)
        may_be_exact = not any(self.making.attempts.soon.partitions.gpus.values())
        if may_be_exact and self.places.is_exact and not in_line:
            yield PlacingOrder(exact=True, movers_first=True)
        yield PlacingOrder(exact=False, movers_first=False)
        if moving:
            yield PlacingOrder(exact=False, movers_first=True)
        if may_be_exact and not (self.places.is_exact and not in_line):
            yield PlacingOrder(exact=True, movers_first=True)
        if self.making.policy.scheduling.evictions.min_gain and not in_line:
            yield PlacingOrder(exact=False, movers_first=bool(moving), smallest_first=True)

    def _credits(self, values: Floats) -> dict[int, dict[int, float]]:
        """By holder, and by family, what leaves for it."""
        found = defaultdict[int, dict[int, float]](dict)
        for (group, known), column in self.program.credits.items():
            if values[column] > 0.5:
                for number in self.program.groups[group]:
                    found[number][known] = float(values[column])
        return found

    def _gpu_types(self) -> frozenset[GpuType]:
        return frozenset(kind for known in self.candidates for option in known.options for kind in option.charge)

    def _classes(self) -> Iterator[PreemptorClass]:
        alike, stretches = defaultdict[object, list[StartCandidate]](list), _Stretches(self.making.attempts.lines)
        for candidate in self.candidates:
            if candidate.inside_only and self.tier != "entitled":
                continue
            preemptor = self.making.preemptor(candidate, self.tier)
            evictable = self.making.attempts.evictable
            key = (
                candidate.likeness,
                candidate.sub_layer,
                candidate.band,
                evictable.likeness(preemptor),
                candidate.against,
            )
            alike[key, stretches.first(candidate, key)].append(candidate)
        for members in alike.values():
            preemptor = self.making.preemptor(members[0], self.tier)
            is_firm = self.making.policy.is_firm(members[0].job) and not self.grows
            yield PreemptorClass(tuple(members), preemptor, is_firm)

    def _families(self, classes: Sequence[PreemptorClass]) -> tuple[list[PreemptorFamily], dict[int, tuple[int, ...]]]:
        found, known, of_class = list[PreemptorFamily](), dict[object, int](), dict[int, tuple[int, ...]]()
        for place_in, one in enumerate(classes):
            manners: tuple[Manner, ...] = ("inside", "ahead", "firm") if one.firm else ("inside", "ahead")
            numbers = list[int]()
            for manner in manners[:1] if self.grows or self.tier in ("shared", "value") else manners:
                # What protects lower work holds against its own queue's however long they have waited; and against growth.
                patient = self.grows or manner == "ahead"
                preemptor = one.preemptor.patient if patient else one.preemptor
                profiles = _profiles_of(one.first)
                key = self.making.attempts.evictable.likeness(preemptor), manner, profiles
                if key not in known:
                    known[key] = len(found)
                    queue, means = one.first.job.spec.queue, self._means(preemptor, manner)
                    if profiles:
                        means[self._without_instances(profiles, queue)] = UNLAWFUL
                    found.append(PreemptorFamily(queue, manner, preemptor, means))
                numbers.append(known[key])
            of_class[place_in] = tuple(numbers)
        return found, of_class

    def _without_instances(self, profiles: Collection[str], queue: QueueName) -> list[int]:
        """Holders of other queues that leave no instance of these profiles."""
        return [
            number
            for number, holder in enumerate(self.making.attempts.evictable.allocations.holders)
            if holder.job.spec.queue != queue
            and not any(slot.instance.profile in profiles for task in holder.job.placement for slot in task.slots)
        ]

    def _means(self, preemptor: PreemptorJob, manner: Manner) -> Ints:
        """By holder, by which means it may be evicted."""
        evictable = self.making.attempts.evictable
        count = len(evictable.allocations.holders)
        means = np.full(count, UNLAWFUL, dtype=np.int64)
        if manner == "firm" or not count or not self.evicts:
            return means
        places = [] if self.grows or self.tier == "value" else [evictable.of_its_own(preemptor)]
        if manner == "inside" and self.making.may_reclaim(preemptor, self.tier):
            places += [
                evictable.beside(
                    branch,
                    overdue=preemptor.overdue,
                    past_budgets=preemptor.past_budgets,
                    straddling=self.tier in GUARANTEED and not self.grows,
                    exceeds=preemptor.exceeds,
                    waited=preemptor.waited,
                    fair=self.tier not in GUARANTEED,
                    value_below=preemptor.below,
                )
                for branch in evictable.rules.branches(preemptor)
            ]
        every = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        means[evictable.holders_of(every)] = every // count
        means[~self.making.givers.stays] = UNLAWFUL
        return means

    def _realised(self, values: Floats) -> tuple[list[ServedJob], list[MovingJob]]:
        """Who is served, and who moves, each with its nodes."""
        nodes = self._nodes(values)

        def hosts(placed: PlacedJobs, spec: JobSpec) -> tuple[tuple[int, ...], ...]:
            found = list[tuple[int, ...]]()
            for group in range(len(spec.task_groups)):
                mine = list[int]()
                for kind, count in placed.kinds_of_group(group):
                    mine += nodes[kind][:count]
                    del nodes[kind][:count]
                found.append(tuple(mine))
            return tuple(found)

        jobs, moving = list[ServedJob](), list[MovingJob]()
        left = {id(served.job_class): list(served.job_class.members) for served in self.program.served.values()}
        for column, served in self.program.served.items():
            for _ in range(round(values[column])):
                candidate = left[id(served.job_class)].pop(0)
                placed = self.places.jobs_of(column, served)
                jobs.append(ServedJob(candidate, served, hosts(placed, candidate.job.spec)))
        for place_in, column in self.program.moving.items():
            if values[column] > 0.5:
                mover = self.program.movers[place_in]
                moving.append(MovingJob(mover, hosts(self.places.mover(place_in, column), mover.job.spec)))
        return jobs, moving

    def _nodes(self, values: Floats) -> dict[TaskKind, list[int]]:
        """By kind the node of each task, those of one domain together."""
        places, room = self.places, self.making.attempts.soon
        slots = defaultdict[tuple[SlotKind, int], list[int]](list)
        for slot in {kind.slot for kind in places.in_cell}:
            for node, column in sorted(places.by_node(slot), key=lambda known: (*self._where(room, known[0]), *known)):
                slots[slot, int(places.cell_of[node])] += [node] * round(values[column])
        nodes = dict[TaskKind, list[int]]()
        for kind, cells in places.in_cell.items():
            nodes[kind] = []
            for cell, column in cells.items():
                free, count = slots[kind.slot, cell], round(values[column])
                nodes[kind] += free[:count]
                del free[:count]
            # Those that come first have what is free now.
            free_now = self.making.attempts.room.free_gpus
            apart = kind.tied_to is None
            nodes[kind].sort(key=lambda node: (-int(free_now[node]) * apart, *self._where(room, node), node))
        return nodes

    @staticmethod
    def _where(room: FreeCapacity, node: int) -> tuple[int, ...]:
        return tuple(int(room.topology[level].of_node[node]) for level in ("pool", "block", "rack", "island"))


def _asks_for_instances(candidate: StartCandidate) -> bool:
    return any(isinstance(shape, MigShape) for option in candidate.options for shape in option.shapes)


def _profiles_of(candidate: StartCandidate) -> frozenset[str]:
    """The MIG profiles of which a job needs instances, if it needs no other GPUs."""
    shapes = [shape for option in candidate.options for shape in option.shapes if shape.cost]
    profiles = frozenset(shape.mig or "" for shape in shapes if isinstance(shape, MigShape))
    return profiles if all(isinstance(shape, MigShape) for shape in shapes) else frozenset()
