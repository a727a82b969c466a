"""Who was chosen to leave and is needed no longer stays.

Guarantees and fair shares are decided one after the other. What a job leaves for a fair share may be more than its beneficiary
takes, and serve a guarantee as well: then a job that was to leave for that can stay (DESIGN section 5, amendment 6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import seen
from solver.model.cluster import GpuType, NodeName
from solver.model.parts import owner_of
from solver.model.quantities import Instant
from solver.model.shape import SharedShape
from solver.model.workload import JobName
from solver.placement.placement import ONE_GPU, PlacedGang, place
from solver.placement.starts import JobStart
from solver.policy.policy import Policy
from solver.policy.reclaim import may_reclaim_fair_share, preempts_from, reclaim_within
from solver.preemption.claims import ClaimLedger, EvictionClaim
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.givers import charges_of
from solver.preemption.new_nomination import NewNomination
from solver.preemption.trial import leave
from solver.quota.dominance import HostUse
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.quota.host_shares import sum_of, tasks_with_shapes
from solver.quota.users import HostLine, UserRoom
from solver.quota.vacated import Tier, lines_of
from solver.quota.victims import Victim, protected

TRIED_MAX = 40
"""Jobs that are tried without; of more, those whose leaving does most harm."""


@dataclass(slots=True)
class SparedVictims:
    """What a round has promised, and what it would be without some of those who leave for it.

    `room`: what will be free if nobody leaves in this round, beside all that starts; `shares` without what this round gives.
    `displacing`: jobs that are served ahead of lower work of their queue, with their tiers.
    """

    policy: Policy
    evictable: EvictionCandidates
    room: FreeCapacity
    shares: Shares
    starts: Sequence[JobStart]
    displacing: Mapping[JobName, Tier]
    nominations: list[NewNomination] = field(default_factory=list)
    _ledgers: tuple[ClaimLedger, ...] = field(init=False)
    """Of what queues hold before anything is promised, without what starts and with it: it is not known which was decided first."""

    def __post_init__(self) -> None:
        headroom = QuotaHeadroom(self.shares)
        without = ClaimLedger.of(headroom)
        for start in self.starts:
            headroom.take(start.queue, start.charge)
        self._ledgers = without, ClaimLedger.of(headroom)

    def spare_all(self) -> None:
        """Have everybody stay who can, the most harmful to evict first."""
        victims = _victims_of(self.nominations)
        for name in sorted(victims, key=lambda name: victims[name].harm, reverse=True)[:TRIED_MAX]:
            if name not in victims or (owner_of(name) != name and owner_of(name) in victims):
                continue  # it stays already, or leaves with what its gang can't do without
            staying = {known: victim for known, victim in victims.items() if name in (known, owner_of(known))}
            found = None if self._lacks_gpus(staying.values()) else self._without(staying) or self._apart(staying)
            if found is not None:
                self.nominations = found
                victims = _victims_of(found)

    def spare_apart(self) -> None:
        """Have the victims of a promise stay where its job has a place elsewhere, the most harmful first; no other promise changes.

        For rounds of very many promises: each try places one of them.
        """
        left, nodes = self._left_by(self.nominations), self._nodes()
        for number in self._separable():
            moved = self._elsewhere(number, left, nodes) if self.nominations[number].victims else None
            if moved is not None:
                nodes.subtract(self.nominations[number].nodes)
                nodes.update(moved[number].nodes)
                give_way(left, self.nominations[number])
                left.occupy(moved[number].start.held)
                stay = _victims_of(self.nominations).keys() - _victims_of(moved).keys()
                for victim in (v for name, v in _victims_of(self.nominations).items() if name in stay):
                    if victim not in self.nominations[number].victims:
                        left.occupy(tasks_with_shapes(victim.holder.job))
                self.nominations = moved

    def _apart(self, staying: Collection[JobName]) -> list[NewNomination] | None:
        """The same promises with the one elsewhere for which these leave, and nobody else; None: there is no such one."""
        touched = [n for n, known in enumerate(self.nominations) if any(v.name in staying for v in known.victims)]
        is_alone = len(touched) == 1 and all(v.name in staying for v in self.nominations[touched[0]].victims)
        if not is_alone or touched[0] not in self._separable():
            return None
        return self._elsewhere(touched[0], self._left_by(self.nominations), self._nodes())

    def _nodes(self) -> Counter[NodeName]:
        """How many jobs are promised something on each node."""
        return Counter(node for known in self.nominations if not known.grows for node in known.nodes)

    def _separable(self) -> list[int]:
        """The promises whose victims could stay by themselves, those that do most harm first."""
        numbers = [
            number
            for number, known in enumerate(self.nominations)
            if known.victims and not known.moves and not known.pledged
        ]
        return sorted(numbers, key=lambda n: max(v.harm for v in self.nominations[n].victims), reverse=True)

    def _left_by(self, nominations: Sequence[NewNomination]) -> FreeCapacity:
        """What is free once all who leave have left, and everybody is in place."""
        left = self._vacated(nominations)
        for known in nominations:
            known.take(left)
        return left

    def _vacated(self, nominations: Sequence[NewNomination]) -> FreeCapacity:
        """What is free once all who leave have left, and nobody promised is in place."""
        left = self.room.copy()
        for known in nominations:
            for victim in known.victims:
                leave(left, victim.holder.job)
            for move in known.moves:
                move.mover.leave(left)
        return left

    def _elsewhere(self, number: int, left: FreeCapacity, nodes: Counter[NodeName]) -> list[NewNomination] | None:
        """The same promises with one of them elsewhere, on what is `left`, so that its victims stay; None: it finds no place.

        `nodes`: how many jobs are promised something on each.
        """
        known = self.nominations[number]
        start = known.start
        with left.trying():
            if not give_way(left, known):
                return None
            found = place(seen(left, start.candidate.against), known.job.spec, start.option, tasks=start.tasks)
            if found is None:
                return None
            moved = list(self.nominations)
            moved[number] = replace(known, start=replace(start, placed=found), victims=())
            left.occupy(moved[number].start.held)
            alone = {node for node in known.nodes - moved[number].nodes if nodes[node] == 1}
            in_vain = _in_vain(moved) - _in_vain(self.nominations) if alone else frozenset[JobName]()
            stay = [v for other in moved for v in other.victims if not in_vain.isdisjoint((v.name, owner_of(v.name)))]
            if stay:  # what would leave there for another, and for nothing, stays as well
                held = [each for victim in stay for each in tasks_with_shapes(victim.holder.job)]
                if not left.has_free(held):
                    return None
                left.occupy(held)
                moved = _without_victims(moved, {victim.name for victim in stay})
            is_lawful = self._are_lawful(moved, self._concerns((*known.victims, *stay)))
            return moved if is_lawful and self._keep_to_host_shares(moved, left) else None

    def _concerns(self, victims: Sequence[Victim]) -> Callable[[JobStart], bool]:
        """Whether it could depend on these whether a job may have what it is given: they count on the same lines."""
        tree, caps = self.evictable.rules.tree, self.shares.users
        roots = {tree.path(victim.holder.job.spec.queue)[-1:] for victim in victims}
        kinds = {kind for victim in victims for kind in victim.holder.charge}
        lent_in_part = kinds.intersection(self.shares.lending.gpu_types)

        def concerns(start: JobStart) -> bool:
            if not lent_in_part.isdisjoint(start.charge):
                return True  # what is kept back for some is kept from all others
            is_beside = tree.path(start.queue)[-1:] in roots
            return is_beside and (caps.limits_host or not kinds.isdisjoint(start.charge))

        return concerns

    def _lacks_gpus(self, staying: Iterable[Victim]) -> bool:
        """Whether there are too few whole GPUs of a type without what these leave, wherever they are."""
        asked, there = Counter[GpuType](), Counter[GpuType]()
        for nomination in self.nominations:
            option, tasks = nomination.start.option, nomination.start.tasks
            for count, shape, kind in zip(tasks, option.shapes, option.gpu_types, strict=True):
                if kind is not None and not isinstance(shape, SharedShape):
                    asked[kind] += shape.gpus * count
            for victim in nomination.victims:
                there.update({kind: -(-milli // 1000) for kind, milli in victim.holder.charge.items()})
            for move in nomination.moves:
                there.update({kind: milli // 1000 for kind, milli in move.mover.charge.items()})
        for victim in staying:
            there.subtract({kind: milli // 1000 for kind, milli in victim.holder.charge.items()})
        return any(gpus > there[kind] + self.room.offer(ONE_GPU, kind).total for kind, gpus in asked.items())

    def _without(self, staying: Collection[JobName]) -> list[NewNomination] | None:
        """The same promises if these do not leave; None where somebody would not have what it is promised."""
        fewer = _without_victims(self.nominations, staying)
        if not self._are_lawful(fewer):
            return None
        soon = self._vacated(fewer)
        for known in fewer:
            for move in known.moves:
                soon.occupy(move.held)
        placed = dict[JobName, PlacedGang]()
        for known in sorted(fewer, key=_hardness):
            start = known.start
            view = seen(soon, start.candidate.against)
            found = place(view, known.job.spec, start.option, tasks=start.tasks)
            if found is None or known.pledged:
                return None
            placed[known.job.name] = found
            if view is not soon:
                soon.occupy(replace(start, placed=found).held)
        moved = [replace(known, start=replace(known.start, placed=placed[known.job.name])) for known in fewer]
        # A job that moves has to leave a node of the job that it moves for, wherever that is now.
        if any(_moves_in_vain(known) for known in moved):
            return None
        in_vain = _in_vain(moved) - _in_vain(self.nominations)
        if in_vain:  # what would leave for another, and for nothing, stays as well
            names = _victims_of(moved)
            return self._without({*staying, *(name for name in names if {name, owner_of(name)} & in_vain)})
        return moved if self._keep_to_host_shares(moved, soon) else None

    def _keep_to_host_shares(self, nominations: Sequence[NewNomination], soon: FreeCapacity) -> bool:
        """Whether on each node no more is taken from jobs without GPUs than GPUs carry. `soon`: everybody is in place."""
        if all(victim.holder.gpus for known in nominations for victim in known.victims):
            return True
        host, left, rights = self.evictable.rules.host.shares, Counter[tuple[int, str]](), Counter[tuple[int, str]]()
        for known in nominations:
            spec, option = known.job.spec, known.start.option
            # Those have a right to what such jobs leave for which some do.
            for task, shape in known.start.held:
                node = soon.index[task.node]
                pool, exceeds = soon.nodes[node].pool, host.asks_beyond(spec, option)
                claim = host.claim(shape, pool) if exceeds else HostUse(int(shape.cpu), int(shape.memory))
                claim = claim if any(not victim.holder.gpus for victim in known.victims) else HostUse()
                rights.update({(node, "cpu"): claim.cpu, (node, "memory"): claim.memory})
            for victim in known.victims:
                for task, shape in tasks_with_shapes(victim.holder.job) if not victim.holder.gpus else ():
                    node = soon.index.get(task.node, -1)
                    left.update({(node, "cpu"): int(shape.cpu), (node, "memory"): int(shape.memory)})
        free = {"cpu": soon.free_cpu, "memory": soon.free_memory}
        used = {soon.index[task.node] for known in nominations for task in known.start.placed.tasks}
        return all(gone <= int(free[of][node]) + rights[node, of] for (node, of), gone in left.items() if node in used)

    def _are_lawful(
        self, nominations: Sequence[NewNomination], concerns: Callable[[JobStart], bool] = lambda _: True
    ) -> bool:
        """Whether each may still have what it is promised: inside its shares, below all limits, and ahead of as much lower work.

        `concerns`: of which jobs that could be another answer than before.
        """
        gone = charges_of(victim for known in nominations for victim in known.victims)
        headroom = QuotaHeadroom(self.shares.without(gone.items()))
        users, beside = UserRoom(self.shares.users), Counter[HostLine]()
        for victim in (victim for known in nominations for victim in known.victims):
            gave = sum_of(shape for _, shape in tasks_with_shapes(victim.holder.job))
            job = victim.holder.job
            beside.update(dict(users.caps.host_charges(job.spec.queue, job.user, gave)))
        given = [*((start, None) for start in self.starts), *((known.start, known) for known in nominations)]
        for start, known in filter(lambda one: concerns(one[0]), given):
            if not (self._may_have(known, headroom) if known else headroom.allows(start.queue, start.charge)):
                return False
            if users.blocking(start.candidate.job, start.charge, start.beside, beside):
                return False
            headroom.take(start.queue, start.charge)
            users.take(start.candidate.job, start.charge, start.beside)
        return self._keep_their_rights(nominations, concerns)

    def _keep_their_rights(self, nominations: Iterable[NewNomination], concerns: Callable[[JobStart], bool]) -> bool:
        """Whether each has a right to what leaves for it, beside those before it; what gangs grow by is given beside that."""
        promised = [known for known in nominations if not known.grows]
        asked = {number for number, known in enumerate(promised) if _takes(known) and concerns(known.start)}
        if not asked:
            return True
        ledgers = [ledger.copy() for ledger in self._ledgers]
        for number, known in enumerate(promised[: max(asked) + 1]):
            losses = [(victim.holder.job.spec.queue, victim.holder.charge) for victim in known.victims]
            fairly = number in asked and self._may_be_fair(known)
            claim = EvictionClaim(known.start.queue, known.start.charge, losses, known.tier, fairly)
            if number in asked and not any(ledger.is_lawful(claim) for ledger in ledgers):
                return False
            for ledger in ledgers:
                ledger.count(claim)
        return True

    def _may_have(self, known: NewNomination, headroom: QuotaHeadroom) -> bool:
        """Whether a job may have what it is promised, beside those before it.

        One that stands ahead of lower work does so whoever leaves. For whom nobody leaves limits alone count; and what was inside
        a guarantee because its own queue's work left may lie inside a fair share.
        """
        start = known.start
        if not headroom.allows(start.queue, start.charge):
            return False
        if known.job.name in self.displacing:
            return True
        if known.tier == "entitled" and headroom.entitled.holds(start.queue, start.charge):
            return True
        if not known.victims and not known.moves:
            return not start.inside_only
        if known.tier == "value":
            return True
        if known.tier == "shared" and lines_of(headroom, "shared").holds(start.queue, start.charge):
            return True
        return self._may_be_fair(known) and headroom.fair.holds(start.queue, start.charge)

    def _may_be_fair(self, known: NewNomination) -> bool:
        """Whether a job may have the same for its fair share, if that is fair: one that was inside its guarantee where it needs no
        right of guarantees, nor of those that have waited for so long that nothing delays them.
        """
        if known.tier == "fair":
            return True
        tree, now, limits = self.evictable.rules.tree, self.evictable.rules.now, self.policy.scheduling.evictions
        queue, waits_since = known.start.queue, known.job.submitted_at
        opens, overdue = preempts_from(self.policy, tree, known.job), reclaim_within(self.policy, tree, queue)
        if known.start.inside_only or not may_reclaim_fair_share(self.policy, tree, queue):
            return False
        if (opens is not None and opens > now) or (limits.per_round is not None and waits_since.after(overdue) <= now):
            return False
        given_up = sum(victim.holder.gpus for victim in known.victims)
        is_worth = sum(known.start.charge.values()) >= limits.min_gain * given_up
        not_for_shares = self.evictable.rules.not_for_shares
        return is_worth and not any(
            victim.means == "straddle" or victim.holder.job.spec.queue in not_for_shares or _is_kept(victim, now)
            for victim in known.victims
        )


def _takes(known: NewNomination) -> bool:
    """Whether work of other queues leaves for it."""
    return any(victim.holder.job.spec.queue != known.start.queue for victim in known.victims)


def _is_kept(victim: Victim, now: Instant) -> bool:
    """Whether something protects it for a while, so that it leaves for guarantees alone that have waited for long enough."""
    return bool(victim.holder.job.held) or protected(victim.holder.job, victim.holder.priority_class.protection, now)


def give_way(left: FreeCapacity, known: NewNomination) -> bool:
    """Take back a promise, so that its victims are where they were; False: another has been promised that."""
    shapes = {group.name: group.shape for group in known.job.spec.task_groups}
    for task in known.start.placed.tasks:
        left.give_back(task, shapes[task.group])
    held = [each for victim in known.victims for each in tasks_with_shapes(victim.holder.job)]
    if not left.has_free(held):
        return False
    left.occupy(held)
    return True


def _moves_in_vain(known: NewNomination) -> bool:
    """Whether a job moves from nodes of which the promise takes none."""
    nodes = {task.node for task in known.start.placed.tasks}
    return any(nodes.isdisjoint(task.node for task in move.mover.job.placement) for move in known.moves)


def _victims_of(nominations: Iterable[NewNomination]) -> dict[JobName, Victim]:
    """Who leaves, by name."""
    return {victim.name: victim for known in nominations for victim in known.victims}


def _without_victims(nominations: Iterable[NewNomination], staying: Collection[JobName]) -> list[NewNomination]:
    """The same promises, for which these do not leave."""
    return [
        replace(known, victims=tuple(victim for victim in known.victims if victim.name not in staying))
        if any(victim.name in staying for victim in known.victims)
        else known
        for known in nominations
    ]


def _in_vain(nominations: Collection[NewNomination]) -> frozenset[JobName]:
    """Who leaves other queues though nothing is promised to a job on its nodes; what leaves with its gang is not asked."""
    nodes = {node for known in nominations if not known.grows for node in known.nodes}
    names = {victim.name for known in nominations for victim in known.victims}
    return frozenset(
        victim.name
        for known in nominations
        for victim in known.victims
        if victim.holder.job.spec.queue != known.start.queue
        and (owner_of(victim.name) == victim.name or owner_of(victim.name) not in names)
        and nodes.isdisjoint(task.node for task in victim.holder.job.placement)
    )


def _hardness(known: NewNomination) -> tuple[int, int]:
    """The largest tasks first, then the largest jobs."""
    shapes = known.start.option.shapes
    return -max(shape.cost for shape in shapes), -sum(known.start.charge.values())
