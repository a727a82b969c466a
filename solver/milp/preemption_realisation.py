"""A preemption program's answer made concrete: on which devices each job is, and for which job each running one leaves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import seen
from solver.milp.preemption_flows import is_kept_near_or_apart
from solver.milp.preemption_program import (
    UNLAWFUL,
    PreemptionProgram,
    ServedColumn,
)
from solver.model.arrays import Mask
from solver.model.cluster import DeviceId
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape
from solver.model.workload import Job, JobSpec, QueueName, TaskPlacement
from solver.placement.placement import PlacedGang, least_tasks, place, realised
from solver.placement.starts import JobStart, held_by
from solver.placement.strain import strain_of
from solver.preemption.claims import ClaimLedger, EvictionClaim
from solver.preemption.consolidation import ABOUT, Move
from solver.preemption.consolidation_candidates import ConsolidationCandidate
from solver.preemption.eviction import Preemptor
from solver.preemption.trial import PlacementRequest, PreemptionResult, leave
from solver.queueing.demand import StartCandidate
from solver.quota.dominance import HostUse
from solver.quota.host_shares import tasks_with_shapes
from solver.quota.options import Option
from solver.quota.users import UserRoom
from solver.quota.vacated import Tier, lines_of
from solver.quota.victims import Victim


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


class PlacingOrder(NamedTuple):
    """In which order jobs are placed. `exact`: on the program's very nodes; `movers_first`: jobs that move have what is free now
    before those that could as well wait for what others leave; `smallest_first`: smaller jobs have it before larger ones, which
    gain more of what leaves.
    """

    exact: bool
    movers_first: bool
    smallest_first: bool = False


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
    anew: set[int] = field(default_factory=set)
    """For whom GPUs are partitioned anew."""
    victims: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By job, the holders that leave for it."""
    moves: dict[int, list[Move]] = field(default_factory=lambda: defaultdict(list))
    """By job, who moves for it."""
    turns: list[int] = field(default_factory=list)
    """The jobs that are served, as they are to be told."""

    def find(self, order: PlacingOrder) -> bool:
        """Whether everybody found a place, and everybody who leaves leaves for somebody whose gain is worth it."""
        attempts = self.making.attempts
        room, soon = attempts.room.copy(), attempts.soon.copy()
        for number in sorted(self.leaving):
            leave(soon, attempts.evictable.allocations.holders[number].job)
        for job in self.moving:
            job.mover.leave(soon)
        moved = self._moved(room, soon, exact=order.exact) if order.movers_first else {}
        if moved is None:
            return False
        for number in self._in_order(order):
            if not self._place(number, room, soon, exact=order.exact):
                return False
        used = self._used()
        if not self._move(room, soon, used, moved):
            return False
        named = self._name_beneficiaries(used, soon) and self._keeps_rights(soon)
        return named and self._gain_enough() and self._is_within_round() and self._take_turns()

    def _in_order(self, order: PlacingOrder) -> Sequence[int]:
        numbers = range(len(self.jobs))
        if order.smallest_first:
            return sorted(numbers, key=lambda n: self.jobs[n].served.gpus)
        if not order.exact:
            return numbers
        # Those for whom fewer may leave have less choice.
        families = self.program.families
        return sorted(numbers, key=lambda n: int(families[self.jobs[n].served.family].lawful.sum()))

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
            spec, option, before = job.candidate.job.spec, job.served.option, where.partitions.copy()
            placed = _placed_as_it_is(view, spec, option, job.hosts if exact else None, waits=where is soon)
            if placed is None:
                continue
            if placed.pledged(before, view):
                self.anew.add(number)
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
        """Who moves finds a place and leaves somebody devices, or what is beside; who does not stays. `moved`: found already."""
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
        """Of jobs of which nobody gets a device those without whose leaving nodes would lack something beside, the most harmful
        spared first; they leave for those who are to be on these nodes. `soon`: once all have left, and everybody is in place.
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
        """Those who wait and are to be on nodes that would lack something beside GPUs, with their tasks there."""
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
        holder = held.holders[base].job
        # Which devices of a node one gets is chosen when it is placed, and in larger clusters which node: somebody has these.
        is_used = bool(users)
        able = [n for n in waiting if is_used or self._shares_limit(n, holder)]
        credit = self.credits.get(base if base in members else members[0], {})

        size = sum(int(held.gpus[member]) for member in members)

        def turn(number: int) -> tuple[float, bool, bool, int, int]:
            job, got = self.jobs[number], sum(int(held.gpus[member]) for member in self.victims.get(number, ()))
            due, lacks = credit.get(job.served.family, 0.0), MILLI_PER_GPU * job.served.gpus - got
            return -due, lacks <= 0, lacks < size, job.candidate.job.submitted_at, number

        found = min(able, key=turn, default=None)
        if found is None:
            # Whoever would start now waits with the others: it has the right to what leaves, and they to what is free. What is
            # yet to be partitioned is no promise.
            able = [n for n in sorted(self.now - self.anew) if may(n)]
            now = [n for n in able if is_used or self._shares_limit(n, holder)]
            found = min(now, key=turn, default=None)
            self.now -= {found}
        return found

    def _shares_limit(self, number: int, holder: Job) -> bool:
        """Whether a job that is served is of this one's queue, or below a max of CPU or memory that both count against."""
        caps, one, queue = self.making.attempts.users.caps, HostUse(1, 1), holder.spec.queue
        mine = {line for line, _ in caps.host_charges(self._queue(number), self.jobs[number].candidate.job.user, one)}
        theirs = caps.host_charges(queue, holder.user, one)
        return self._queue(number) == queue or any(line in mine for line, _ in theirs)

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
            lines = lines_of(headroom, self.tier)
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

    def _gain_enough(self) -> bool:
        """Whether each job gains what `minGain` asks of it. The program asks it of jobs with the same rights together."""
        least = self.making.policy.scheduling.evictions.min_gain
        for number in self.victims if least else ():
            lost = sum(sum(victim.holder.charge.values()) for victim in self._victims(number))
            family = self.program.families[self.jobs[number].served.family]
            if not family.preemptor.overdue and self._gain(number) < least * lost:
                return False
        # Nobody moves for a job that gains little, overdue or not.
        return not least or all(
            self._gain(number) >= least * sum(move.mover.gpus for move in moves) for number, moves in self.moves.items()
        )

    def _gain(self, number: int) -> int:
        """Milli-GPU that a job gets."""
        return sum(self.jobs[number].served.option.charge.values())

    def _is_within_round(self) -> bool:
        """Whether no more jobs are asked than `perRound` allows. The program does not count those that could leave for a guarantee
        that is overdue: they may be for another job here.
        """
        most, held = self.program.limits.per_round, self.making.attempts.evictable.allocations
        if most is None:
            return True
        asked = {
            int(held.base[victim])
            for number, victims in self.victims.items()
            if not self.program.families[self.jobs[number].served.family].preemptor.overdue
            for victim in victims
        }
        count = len(asked) + sum(map(len, self.moves.values()))
        return not count or count <= most - self.program.asked_before

    def _take_turns(self) -> bool:
        """Whether there is an order in which each has a right to what it takes, beside those before it: it is theirs then.

        The program asks it of all together, so that one may have what another has made room for.
        """
        now, waiting = sorted(self.now), sorted(self.placed.keys() - self.now)
        ledger = ClaimLedger.of(self.making.attempts.headroom)
        for number in now:
            ledger.take(self._queue(number), self.jobs[number].served.option.charge)
        order = ledger.in_lawful_order([self._claim(number) for number in waiting])
        if order is None:
            return False
        self.turns = [*now, *(waiting[place] for place in order)]
        return True

    def _claim(self, number: int) -> EvictionClaim:
        losses = [(victim.holder.job.spec.queue, victim.holder.charge) for victim in self._victims(number)]
        gain = self.jobs[number].served.option.charge
        return EvictionClaim(self._queue(number), gain, losses, self.tier, fairly=self.tier == "fair")

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


def _short_without(soon: FreeCapacity, tasks: Iterable[tuple[TaskPlacement, Shape]]) -> set[int]:
    """The nodes that would lack something beside GPUs if these tasks stayed where they are."""
    needs = Counter[tuple[int, str]]()
    for task, shape in tasks:
        if task.node in soon.index and soon.open_nodes[soon.index[task.node]]:
            needs.update({(soon.index[task.node], name): amount for name, amount in shape.beside.items()})
    return {node for (node, name), need in needs.items() if need > int(soon.free_beside[name][node])}


def _placed_as_it_is(
    room: FreeCapacity, spec: JobSpec, option: Option, hosts: Sequence[Sequence[int]] | None, *, waits: bool
) -> PlacedGang | None:
    """A gang on these nodes, None: on any; for what waits until others have left no GPU is partitioned anew."""

    def placed() -> PlacedGang | None:
        return place(room, spec, option) if hosts is None else _on_hosts(room, spec, option, hosts)

    if waits and any(room.partitions.gpus.values()):
        with room.trying() as before:
            found = placed()
            if found is None or found.pledged(before, room):
                return None
    return placed()


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
