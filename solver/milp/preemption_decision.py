"""Who is served in a tier and who leaves for it, by the program; and its answer made concrete on nodes and devices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import seen
from solver.milp.canonical_order import CanonicalOrder
from solver.milp.optimiser import Effort, Optimiser
from solver.milp.preemption_flows import PlacedJobs, SlotKind, TaskKind, is_kept_near_or_apart
from solver.milp.preemption_places import EXACT_NODES_MAX, PreemptionPlaces
from solver.milp.preemption_program import (
    UNLAWFUL,
    Manner,
    PreemptionProgram,
    PreemptorClass,
    PreemptorFamily,
    ServedColumn,
)
from solver.model.arrays import Floats, Ints, Mask
from solver.model.cluster import DeviceId, GpuType
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import MigShape, Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskPlacement
from solver.placement.placement import PlacedGang, least_tasks, place, realised
from solver.placement.starts import JobStart, held_by
from solver.placement.strain import strain_of
from solver.policy.policy import SolverLimits
from solver.preemption.consolidation import ABOUT, Move, still
from solver.preemption.consolidation_candidates import ConsolidationCandidate
from solver.preemption.eviction import Preemptor
from solver.preemption.trial import PlacementRequest, PreemptionResult, leave
from solver.queueing.demand import StartCandidate
from solver.queueing.strict_queues import Lines
from solver.quota.dominance import HostUse
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares
from solver.quota.fairshare import fairer, only_above_shares
from solver.quota.host_shares import tasks_with_shapes
from solver.quota.lending import Weights
from solver.quota.options import Option
from solver.quota.users import UserRoom
from solver.quota.vacated import Tier
from solver.quota.victims import PreemptorJob, Victim

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


@dataclass(frozen=True, slots=True)
class ServedJob:
    """A job that the program serves: how, and on which nodes, by task group."""

    candidate: StartCandidate
    served: ServedColumn
    hosts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class MovingJob:
    """A job that moves, and the nodes where it goes on, by task group."""

    mover: ConsolidationCandidate
    hosts: tuple[tuple[int, ...], ...]


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
        self.program.layers(f"{self.tier}.")

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
        for exact, movers_first in self._ways_to_place(jobs, moving):
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
            if realisation.find(exact=exact, movers_first=movers_first):
                realisation.keep()
                return True
        return False

    def _bounded(self) -> frozenset[str]:
        """The layers of which it knows how much more could be served: not of MIG instances, of which it knows some ways alone."""
        layers = sorted({candidate.sub_layer for candidate in self.candidates})
        asking = {candidate.sub_layer for candidate in self.candidates if _asks_for_instances(candidate)}
        return frozenset(f"{self.tier}.{layer}" for layer in takewhile(lambda layer: layer not in asking, layers))

    def _ways_to_place(self, jobs: Iterable[ServedJob], moving: Iterable[MovingJob]) -> Iterator[tuple[bool, bool]]:
        """Whether on the program's very nodes, and whether jobs that move are placed first: they need what is free now.

        The nodes first where the program knows each one's worth, and never where GPUs may be partitioned anew. In strict queues
        those that come first have what is free now.
        """
        in_line = any(job.candidate.strict for job in jobs)
        may_be_exact = not any(self.making.attempts.soon.partitions.gpus.values())
        if may_be_exact and self.places.is_exact and not in_line:
            yield True, True
        yield False, False
        if moving:
            yield False, True
        if may_be_exact and not (self.places.is_exact and not in_line):
            yield True, True

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
            if candidate.inside_only and self.tier == "fair":
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
            known = self.making.policy.priority_class(members[0].job)
            is_firm = known is not None and not known.preemptible and not self.grows
            yield PreemptorClass(tuple(members), preemptor, is_firm)

    def _families(self, classes: Sequence[PreemptorClass]) -> tuple[list[PreemptorFamily], dict[int, tuple[int, ...]]]:
        found, known, of_class = list[PreemptorFamily](), dict[object, int](), dict[int, tuple[int, ...]]()
        for place_in, one in enumerate(classes):
            manners: tuple[Manner, ...] = ("inside", "ahead", "firm") if one.firm else ("inside", "ahead")
            numbers = list[int]()
            for manner in manners[:1] if self.grows else manners:
                # What protects lower work holds against its own queue's however long they have waited; and against growth.
                patient = self.grows or manner == "ahead"
                preemptor = replace(one.preemptor, overdue=False) if patient else one.preemptor
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
            and not any(task.mig and task.mig.instance.profile in profiles for task in holder.job.placement)
        ]

    def _means(self, preemptor: PreemptorJob, manner: Manner) -> Ints:
        """By holder, by which means it may be evicted."""
        evictable = self.making.attempts.evictable
        count = len(evictable.allocations.holders)
        means = np.full(count, UNLAWFUL, dtype=np.int64)
        if manner == "firm" or not count or not self.evicts:
            return means
        places = [] if self.grows else [evictable.of_its_own(preemptor)]
        if manner == "inside" and self.making.may_reclaim(preemptor, self.tier):
            places += [
                evictable.beside(
                    branch,
                    overdue=preemptor.overdue,
                    straddling=self.tier == "entitled" and not self.grows,
                    exceeds=preemptor.exceeds,
                )
                for branch in evictable.rules.tree.path(preemptor.job.spec.queue)
            ]
        every = np.concatenate(places)
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


@dataclass(slots=True)
class Realisation:
    """The program's answer on devices: where each job is, whether it starts now, and for whom each running job leaves."""

    making: Preemptor
    tier: Tier
    program: PreemptionProgram
    jobs: Sequence[ServedJob]
    leaving: set[int]
    moving: Sequence[MovingJob]
    still: Mask
    credits: Mapping[int, Mapping[int, float]]
    placed: dict[int, PlacedGang] = field(default_factory=dict)
    """By place among the jobs."""
    now: set[int] = field(default_factory=set)
    """Who starts on what is free."""
    victims: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By job, the holders that leave for it."""
    moves: dict[int, list[Move]] = field(default_factory=lambda: defaultdict(list))
    """By job, who moves for it."""
    turns: list[int] = field(default_factory=list)
    """The jobs that are served, as they are to be told."""

    def find(self, *, exact: bool, movers_first: bool) -> bool:
        """Whether everybody found a place, and everybody who leaves leaves for somebody. `exact`: on the program's very nodes;
        `movers_first`: jobs that move have what is free now before those that could as well wait for what others leave.
        """
        attempts = self.making.attempts
        room, soon = attempts.room.copy(), attempts.soon.copy()
        for number in sorted(self.leaving):
            leave(soon, attempts.evictable.allocations.holders[number].job)
        for job in self.moving:
            job.mover.leave(soon)
        # Those for whom fewer may leave have less choice.
        families = self.program.families
        order = sorted(range(len(self.jobs)), key=lambda n: int(families[self.jobs[n].served.family].lawful.sum()))
        moved = self._moved(room, soon, exact=exact) if movers_first else {}
        if moved is None:
            return False
        for number in order if exact else range(len(self.jobs)):
            if not self._place(number, room, soon, exact=exact):
                return False
        used = self._used()
        if not self._move(room, soon, used, moved):
            return False
        return self._name_beneficiaries(used, soon) and self._keeps_rights(soon) and self._take_turns()

    def _moved(self, room: FreeCapacity, soon: FreeCapacity, *, exact: bool) -> dict[int, PlacedGang] | None:
        """By place, where those who move go on, on what is free now. None: there is no room for them."""
        found = dict[int, PlacedGang]()
        for number, job in enumerate(self.moving):
            placed = self._new_place(job, room, exact=exact)
            if placed is None:
                return None
            soon.occupy(job.mover.held(placed.tasks))
            found[number] = placed
        return found

    def _new_place(self, job: MovingJob, room: FreeCapacity, *, exact: bool) -> PlacedGang | None:
        """Where a job goes on, no further apart than it is now; taken in the room."""
        mover, view = job.mover, seen(room, room.reserved)
        spec = mover.job.spec
        if exact:
            found = _on_hosts(view, spec, mover.option, job.hosts, mover.tasks)
        else:
            found = place(view, spec, mover.option, self.still, mover.tasks)
        if found is None or found.strain > strain_of(room, spec, mover.job.placement) + ABOUT:
            return None
        if view is not room:
            room.occupy(mover.held(found.tasks))
        return found

    def _place(self, number: int, room: FreeCapacity, soon: FreeCapacity, *, exact: bool) -> bool:
        job = self.jobs[number]
        for where in (room, soon):
            view = seen(where, job.candidate.against)
            spec, option = job.candidate.job.spec, job.served.option
            placed = _placed_as_it_is(view, spec, option, job.hosts if exact else None, waits=where is soon)
            if placed is None:
                continue
            held = list(self._start(job, placed).held)
            if view is not where:
                where.occupy(held)
            (soon if where is room else room).occupy(held)
            self.placed[number] = placed
            if where is room:
                self.now.add(number)
            return True
        return False

    def _start(self, job: ServedJob, placed: PlacedGang) -> JobStart:
        return JobStart(job.candidate, job.served.option, placed, least_tasks(job.candidate.job.spec))

    def _used(self) -> dict[DeviceId, int]:
        """Who is to have each device once it is free."""
        return {
            device: number
            for number, placed in self.placed.items()
            if number not in self.now
            for task in placed.tasks
            for device in task.devices
        }

    def _move(
        self, room: FreeCapacity, soon: FreeCapacity, used: Mapping[DeviceId, int], moved: Mapping[int, PlacedGang]
    ) -> bool:
        """Who moves finds a place and leaves devices to somebody, or CPU or memory; who does not stays. `moved`: found already."""
        for number, job in enumerate(self.moving):
            mover, there = job.mover, moved.get(number)
            users = Counter(used[d] for task in mover.job.placement for d in task.devices if d in used)
            if not users:
                held = tuple(mover.held(mover.job.placement))
                users = self._users_of_host(_short_without(soon, held), soon)
                if not users:
                    soon.occupy(held)
                    if there:
                        for task, shape in mover.held(there.tasks):
                            room.give_back(task, shape)
                            soon.give_back(task, shape)
                    continue
            found = there or self._new_place(job, room, exact=False)
            if found is None:
                return False
            self.moves[users.most_common(1)[0][0]].append(Move(mover, found.tasks))
        return True

    def _name_beneficiaries(self, used: Mapping[DeviceId, int], soon: FreeCapacity) -> bool:
        held = self.making.attempts.evictable.allocations
        gangs = defaultdict[int, list[int]](list)
        for number in sorted(self.leaving):
            gangs[int(held.base[number])].append(number)
        users = {base: self._users(members, used) for base, members in gangs.items()}
        self._add_users_of_host(gangs, users, soon)
        needed = self._needed(gangs, {base for base, found in users.items() if found})
        for base in sorted(needed, key=self._by_size):
            found = self._beneficiary(base, gangs[base], users[base])
            if found is None:
                return False
            self.victims[found] += gangs[base]
        return True

    def _needed(self, gangs: Mapping[int, Sequence[int]], used: set[int]) -> set[int]:
        """Those whose devices somebody gets, and those without whom shares or limits would not let everybody have what they get."""
        needed = used if self._may_all([n for base in used for n in gangs[base]]) else set(gangs)
        for base in sorted(needed - used, key=self._by_size):
            others = needed - {base}
            if self._may_all([n for other in others for n in gangs[other]]):
                needed = others
        return needed

    def _by_size(self, base: int) -> tuple[int, int, int]:
        """The largest first, then the first submitted: no name decides."""
        held = self.making.attempts.evictable.allocations
        return -int(held.leave[base]), int(held.holders[base].job.submitted_at), base

    def _add_users_of_host(
        self, gangs: Mapping[int, list[int]], users: Mapping[int, defaultdict[int, int]], soon: FreeCapacity
    ) -> None:
        """Of jobs of which nobody gets a device those without whose leaving nodes would lack CPU or memory, the most harmful spared
        first; they leave for those who are to be on these nodes. `soon`: once all have left, and everybody is in place.
        """
        held, milli = self.making.attempts.evictable.allocations, self.program.host.milli
        for base in sorted(gangs, key=lambda base: (-int(milli[list(gangs[base])].sum()), base)):
            tasks = [known for number in gangs[base] for known in tasks_with_shapes(held.holders[number].job)]
            if users[base]:
                continue
            short = _short_without(soon, tasks)
            if short:
                self._spare_parts(gangs[base], soon)
            else:
                soon.occupy(tasks)
            users[base].update(self._users_of_host(short, soon))

    def _spare_parts(self, gang: list[int], soon: FreeCapacity) -> None:
        """Of a gang without GPUs only what is needed leaves: what it can't do without stays first, then the other tasks."""
        held = self.making.attempts.evictable.allocations
        for number in [*gang] if self.program.host.alone[gang[0]] else ():
            tasks = tasks_with_shapes(held.holders[number].job)
            if not _short_without(soon, tasks):
                soon.occupy(tasks)
                gang.remove(number)
            elif held.base[number] == number:
                return  # all of the gang leaves with it

    def _users_of_host(self, short: Collection[int], soon: FreeCapacity) -> Counter[int]:
        """Those who wait and are to be on nodes that would lack CPU or memory, with their tasks there."""
        found = Counter[int]()
        for number, placed in self.placed.items() if short else ():
            if number not in self.now:
                found[number] = sum(soon.index[task.node] in short for task in placed.tasks)
        return +found

    def _keeps_rights(self, soon: FreeCapacity) -> bool:
        """Whether on each node jobs with a right to it get what jobs without GPUs leave, and no others."""
        host, held = self.program.host, self.making.attempts.evictable.allocations
        asked = [number for victims in self.victims.values() for number in victims if host.alone[number]]
        left, rights = defaultdict[int, HostUse](HostUse), defaultdict[int, HostUse](HostUse)
        for number in asked:
            for task, shape in tasks_with_shapes(held.holders[number].job):
                node = soon.index.get(task.node)
                if node is not None and soon.open_nodes[node]:
                    left[node] = left[node].plus(HostUse(int(shape.cpu), int(shape.memory)))
        for number in self.placed if asked else ():
            job = self.jobs[number]
            if number in self.now:
                continue
            rights.update({soon.index[task.node]: rights[soon.index[task.node]] for task in self.placed[number].tasks})
            if not self.program.families[job.served.family].lawful[asked].any():
                continue
            exceeds = host.shares.asks_beyond(job.candidate.job.spec, job.served.option)
            for task, shape in held_by(job.candidate.job.spec, job.served.option, self.placed[number].tasks):
                node = soon.index[task.node]
                claim = host.shares.claim(shape, soon.nodes[node].pool) if exceeds else HostUse(shape.cpu, shape.memory)
                rights[node] = rights[node].plus(claim)
        return all(
            gone.cpu <= int(soon.free_cpu[node]) + rights[node].cpu
            and gone.memory <= int(soon.free_memory[node]) + rights[node].memory
            for node, gone in left.items()
            if node in rights
        )

    def _users(self, members: Iterable[int], used: Mapping[DeviceId, int]) -> defaultdict[int, int]:
        """Who is to have devices of these holders, and how many."""
        held, users = self.making.attempts.evictable.allocations, defaultdict[int, int](int)
        for member in members:
            for task in held.holders[member].job.placement:
                for device in task.devices:
                    if device in used:
                        users[used[device]] += 1
        return users

    def _beneficiary(self, base: int, members: Sequence[int], users: Mapping[int, int]) -> int | None:
        """For whom it leaves: somebody who gets some of its devices, or of its own queue, and whom the program has it leave for."""

        def may(number: int) -> bool:
            means = self.program.families[self.jobs[number].served.family].means
            asked = [base] if base in members else members
            return all(means[member] != UNLAWFUL for member in asked)

        waiting = [number for number in self.placed if number not in self.now and may(number)]
        held = self.making.attempts.evictable.allocations
        queue = held.holders[base].job.spec.queue
        # Which devices of a node one gets is chosen when it is placed, and in larger clusters which node: somebody has these.
        is_used = bool(users)
        able = [n for n in waiting if is_used or self._shares_limit(n, queue)]
        credit = self.credits.get(base if base in members else members[0], {})

        size = sum(int(held.gpus[member]) for member in members)

        def turn(number: int) -> tuple[float, bool, bool, int, int]:
            job, got = self.jobs[number], sum(int(held.gpus[member]) for member in self.victims.get(number, ()))
            due, lacks = credit.get(job.served.family, 0.0), MILLI_PER_GPU * job.served.gpus - got
            return -due, lacks <= 0, lacks < size, job.candidate.job.submitted_at, number

        found = min(able, key=turn, default=None)
        if found is None:
            # Whoever would start now waits with the others: it has the right to what leaves, and they to what is free.
            now = [n for n in sorted(self.now) if may(n) and (is_used or self._shares_limit(n, queue))]
            found = min(now, key=turn, default=None)
            self.now -= {found}
        return found

    def _shares_limit(self, number: int, queue: QueueName) -> bool:
        """Whether a job that is served is of this queue, or below a max of CPU or memory that both count against."""
        caps, one = self.making.attempts.users.caps, HostUse(1, 1)
        mine = {line for line, _ in caps.host_charges(self._queue(number), one)}
        return self._queue(number) == queue or any(line in mine for line, _ in caps.host_charges(queue, one))

    def _queue(self, number: int) -> QueueName:
        return self.jobs[number].candidate.job.spec.queue

    def _may_all(self, leaving: Sequence[int]) -> bool:
        """Whether shares and limits let everybody have what they get once these have left."""
        attempts = self.making.attempts
        holders = [attempts.evictable.allocations.holders[number] for number in leaving]
        gone = [(holder.job.spec.queue, holder.charge) for holder in holders]
        headroom = attempts.headroom.under(attempts.headroom.shares.without(gone))
        users = UserRoom(attempts.users.caps, dict(attempts.users.taken))
        beside = attempts.beside_of(holders)
        for job in self.jobs:
            queue, charge = job.candidate.job.spec.queue, job.served.option.charge
            lines = headroom.entitled if self.tier == "entitled" else headroom.fair
            if job.served.manner == "inside" and not lines.holds(queue, charge):
                return False
            known = job.candidate.job
            if not headroom.allows(queue, charge) or users.blocking(known, charge, leaving=beside):
                return False
            headroom.take(queue, charge)
            users.take(known, charge)
        return True

    def _victim(self, number: int, for_whom: int) -> Victim:
        evictable, means = (
            self.making.attempts.evictable,
            self.program.families[self.jobs[for_whom].served.family].means,
        )
        # What leaves with what its gang can't do without leaves by the same means.
        judged = number if means[number] != UNLAWFUL else int(evictable.allocations.base[number])
        return evictable.victim(evictable.place_of(number, int(means[judged])))

    def _take_turns(self) -> bool:
        """Whether there is an order in which each claim to a fair share is lawful beside those before it: it is theirs then.

        The program asks it of all together, so that one may have what another has made room for.
        """
        in_order = sorted(self.placed, key=lambda number: (number not in self.now, number))
        self.turns = [number for number in in_order if number in self.now or self.tier == "entitled"]
        left = [number for number in in_order if number not in self.turns]
        headroom, lost = self.making.attempts.headroom, list[tuple[QueueName, Charge]]()
        while left:
            gained = [(self._queue(number), self.jobs[number].served.option.charge) for number in self.turns]
            held = headroom.under(headroom.shares.without(lost).beside(gained))
            following = next((number for number in left if self._is_fair(number, held)), None)
            if following is None:
                return False
            left.remove(following)
            self.turns.append(following)
            lost += [(victim.holder.job.spec.queue, victim.holder.charge) for victim in self._victims(following)]
        return True

    def _is_fair(self, number: int, headroom: QuotaHeadroom) -> bool:
        queue, gain = self._queue(number), self.jobs[number].served.option.charge
        losses = [(v.holder.job.spec.queue, v.holder.charge) for v in self._victims(number) if v.means == "reclaim"]
        return only_above_shares(headroom, queue, losses) and fairer(headroom, queue, gain, losses)

    def _victims(self, number: int) -> list[Victim]:
        return [self._victim(member, number) for member in self.victims.get(number, ())]

    def keep(self) -> None:
        """Start and nominate them."""
        self.making.take([(*self._given(number), number in self.now) for number in self.turns])

    def _given(self, number: int) -> tuple[JobStart, PreemptionResult]:
        job, placed = self.jobs[number], self.placed[number]
        request = PlacementRequest(job.candidate, job.served.option, self.tier, displaces=job.served.manner != "inside")
        in_order = tuple(sorted(self._victims(number), key=lambda known: known.harm))
        found = PreemptionResult(request, in_order, placed, tuple(self.moves.get(number, ())))
        return self._start(job, placed), found


def _asks_for_instances(candidate: StartCandidate) -> bool:
    return any(isinstance(shape, MigShape) for option in candidate.options for shape in option.shapes)


def _profiles_of(candidate: StartCandidate) -> frozenset[str]:
    """The MIG profiles of which a job needs instances, if it needs no other GPUs."""
    shapes = [shape for option in candidate.options for shape in option.shapes if shape.cost]
    profiles = frozenset(shape.mig or "" for shape in shapes if isinstance(shape, MigShape))
    return profiles if all(isinstance(shape, MigShape) for shape in shapes) else frozenset()


def _short_without(soon: FreeCapacity, tasks: Iterable[tuple[TaskPlacement, Shape]]) -> set[int]:
    """The nodes that would lack CPU or memory if these tasks stayed where they are."""
    cpu, memory = defaultdict[int, int](int), defaultdict[int, int](int)
    for task, shape in tasks:
        if task.node in soon.index and soon.open_nodes[soon.index[task.node]]:
            cpu[soon.index[task.node]] += int(shape.cpu)
            memory[soon.index[task.node]] += int(shape.memory)
    return {node for node in cpu if cpu[node] > int(soon.free_cpu[node]) or memory[node] > int(soon.free_memory[node])}


def _placed_as_it_is(
    room: FreeCapacity, spec: JobSpec, option: Option, hosts: Sequence[Sequence[int]] | None, *, waits: bool
) -> PlacedGang | None:
    """A gang on these nodes, None: on any; for what waits until others have left no GPU is partitioned anew."""
    if waits and any(room.partitions.gpus.values()):
        with room.trying() as before:
            found = place(room, spec, option)
            if found is None or found.pledged(before, room):
                return None
    return place(room, spec, option) if hosts is None else _on_hosts(room, spec, option, hosts)


def _on_hosts(
    room: FreeCapacity,
    spec: JobSpec,
    option: Option,
    hosts: Sequence[Sequence[int]],
    tasks: Sequence[int] | None = None,
) -> PlacedGang | None:
    """A gang on exactly these nodes, by task group; None where they do not take it."""
    if is_kept_near_or_apart(spec):
        within = np.zeros(len(room.nodes), dtype=bool)
        within[[node for nodes in hosts for node in nodes]] = True
        return place(room, spec, option, within, tasks)
    with room.trying():
        for number, nodes in enumerate(hosts):
            slots = room.slots(option.shapes[number], option.gpu_types[number])
            if any(int(slots[node]) < nodes.count(node) for node in set(nodes)):
                return None
            realised(room, spec, option, [nodes if place == number else () for place in range(len(hosts))])
    return realised(room, spec, option, hosts)
