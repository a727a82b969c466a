"""Makes room for waiting work by evicting: the fewest, least harmful victims that the law allows for each taker in turn.

Means come in the order of harm: free capacity, a fallback type, jobs that move elsewhere (solver/moving), then victims from
the least harm up. A taker is nominated for the devices it will have; it is bound in a later round, when its victims are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from solver.moving import Moving
from solver.placement import least_tasks, place
from solver.promise import Promise, Tier
from solver.rules.demand import Candidate
from solver.rules.entitlement import Headroom, Inside
from solver.rules.fairshare import fairer
from solver.rules.harm import Evictions
from solver.rules.lawful import Lawful
from solver.rules.policy import Policy
from solver.rules.reclaim import may_reclaim_fair_share, reclaim_within
from solver.rules.strict import Lines
from solver.rules.users import UserRoom
from solver.rules.victims import Taker, Victim, gangs_first
from solver.scarcity import Scarcity
from solver.starts import Start
from solver.trial import Trial, Wish, leave
from solver.world.cluster import GpuType
from solver.world.held import seen
from solver.world.parts import owner_of
from solver.world.pledges import NOTHING, Pledged
from solver.world.room import Room
from solver.world.snapshot import Snapshot
from solver.world.workload import JobName, QueueName

ALL_SPARED_MAX = 64
"""Victims of which each may be spared, wherever the taker then goes; of more, first those on nodes that it would not use."""


@dataclass(slots=True)
class MakingRoom:
    """Evictions of one round. `room` is free now; `soon` is what will be once everybody who was asked to leave has left.

    `gone`: jobs that this round has asked to leave, or to shrink.
    """

    snapshot: Snapshot
    policy: Policy
    lawful: Lawful
    room: Room
    soon: Room
    headroom: Headroom
    users: UserRoom
    gone: set[JobName]
    lines: Lines
    moving: Moving
    starts: list[Start] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    _without: set[tuple[int, Tier, bool]] = field(default_factory=set)
    _victims: dict[tuple[QueueName, int, bool, bool, JobName | None], list[Victim]] = field(default_factory=dict)

    def serve_all(self, candidates: Sequence[Candidate], tier: Tier) -> None:
        """Serve them in order; again while somebody was promised something, since a victim may have freed more than was used."""
        waiting, promised = list(candidates), -1
        while promised < len(self.promises) and waiting:
            promised = len(self.promises)
            self._without.clear()
            for candidate in waiting:
                self.serve(candidate, tier)
            served = {start.candidate.job.name for start in self.starts} | {known.job.name for known in self.promises}
            waiting = [candidate for candidate in waiting if candidate.job.name not in served]

    def serve(self, candidate: Candidate, tier: Tier) -> None:
        """Start a taker where it can now, else promise it its devices with the least harm found, if there are any for it."""
        taker = self._taker(candidate, tier)
        alike = (candidate.likeness, tier, taker.overdue)
        # Room and lawful victims only become fewer: what one could not have, none of its like can have later.
        takes_gpus = any(sum(option.charge.values()) for option in candidate.options)
        barred = not takes_gpus or (candidate.inside_only and tier == "fair")
        if barred or alike in self._without:
            return
        wishes = [Wish(candidate, option, tier) for option in candidate.options]
        now = next(filter(None, (self._try(wish, (), self.room) for wish in wishes)), None)
        found = now or next(self._ways(candidate, tier, taker), None)
        if found is None:
            self._without.add(alike)
            return
        start = Start(candidate, found.wish.option, found.placed, least_tasks(candidate.job.spec))
        if not now:
            self.promises.append(Promise(start, found.victims, tier, found.moves, found.pledged))
        else:
            self.starts.append(start)
        self._keep(start, found)

    def keep(self, start: Start) -> bool:
        """Hold on to a start that was decided before, if nobody has been given its room since."""
        fits = self.room.has_free(start.held) and self.headroom.allows(start.queue, start.charge)
        if not fits or (start.inside_only and not self.headroom.entitled.holds(start.queue, start.charge)):
            return False
        self.starts.append(start)
        self._hold(start)
        return True

    def _ways(self, candidate: Candidate, tier: Tier, taker: Taker) -> Iterator[Trial]:
        """How it could be served, the least harmful first; by partitioning what others leave only where nothing else does."""
        wishes = [Wish(candidate, option, tier) for option in candidate.options]
        yield from filter(None, (self._try(wish, ()) for wish in wishes))
        yield from self._by_moving(wishes)
        lawful = self._lawful(candidate, tier, taker)
        yield from self._by_evicting(wishes, lawful, taker)
        if tier == "entitled" and self.room.partitions.may_drain:
            drains = [replace(wish, drains=True) for wish in wishes]
            yield from filter(None, (self._try(wish, ()) for wish in drains))
            yield from self._by_evicting(drains, lawful, taker)

    def _by_evicting(self, wishes: Sequence[Wish], lawful: Sequence[Victim], taker: Taker) -> Iterator[Trial]:
        # Where taking from others would not be fair, its own queue may still make room.
        own = [victim for victim in lawful if victim.holder.job.spec.queue == taker.job.spec.queue]
        for victims in (lawful, own) if len(own) < len(lawful) else (lawful,):
            for wish in wishes if victims else ():
                found = self._fewest(wish, victims)
                if found and self._keeps_to_limits(found, taker) and self._is_fair(found):
                    yield found

    def _by_moving(self, wishes: Sequence[Wish]) -> Iterator[Trial]:
        """Who moves keeps what it has: that takes from nobody."""
        for wish in wishes:
            headroom = self._allowed(wish, ())
            found = headroom and self.moving.find(wish.candidate, wish.option, self.room, self.soon, self.gone)
            if headroom and found:
                yield Trial(wish, (), found[0], headroom, found[1])

    def _taker(self, candidate: Candidate, tier: Tier) -> Taker:
        job = candidate.job
        known = self.policy.priority_class(job)
        within = reclaim_within(self.policy, self.lawful.law.tree, job.spec.queue)
        overdue = tier == "entitled" and self.snapshot.time >= job.submitted_at.after(within)
        return Taker(job, known.value if known else 0, overdue)

    def _lawful(self, candidate: Candidate, tier: Tier, taker: Taker) -> list[Victim]:
        queue = candidate.job.spec.queue
        reclaims = tier == "entitled" or may_reclaim_fair_share(self.policy, self.lawful.law.tree, queue)
        # Where jobs take turns, who gives way depends on who comes.
        in_turn = taker.job.name if taker.job.name in self.lawful.law.precedence.in_turn else None
        alike = (queue, taker.base_priority, taker.overdue, reclaims, in_turn)
        if alike not in self._victims:
            self._victims[alike] = self.lawful.victims(taker, reclaims=reclaims)
        return [
            victim
            for victim in self._victims[alike]
            if owner_of(victim.name) not in self.gone and (tier == "entitled" or victim.means != "straddle")
        ]

    def _fewest(self, wish: Wish, lawful: Sequence[Victim]) -> Trial | None:
        """The least harmful victims up to the first that suffices, without those that can be spared."""
        useful = [victim for victim in lawful if set(victim.holder.charge) & set(wish.option.charge)]
        found = self._try(wish, useful)
        return found and self._spare(self._shortest(found, useful)[1])

    def _shortest(self, found: Trial, rest: list[Victim], needed: Sequence[Victim] = ()) -> tuple[list[Victim], Trial]:
        """The shortest prefix that suffices beside those that are needed; all of it does, as `found` says."""
        too_few, suffices = -1, len(rest)
        while too_few + 1 < suffices:
            middle = (too_few + suffices) // 2
            fewer = self._try(found.wish, [*rest[:middle], *needed])
            if fewer is None:
                too_few = middle
            else:
                found, suffices = fewer, middle
        return rest[:suffices], found

    def _spare(self, found: Trial) -> Trial:
        """Fewer victims: the last of the shortest prefix that suffices is needed, then the last of the shortest beside it."""
        if len(found.victims) > ALL_SPARED_MAX:
            found = self._without_the_useless(found)
        rest, needed = list(found.victims), list[Victim]()
        scarce = Scarcity.of(found, self.soon)
        while rest:
            # Where counting says it already, nothing need be tried.
            shortest = rest
            if not scarce.needs(*self.lawful.law.with_all_parts(rest[-1:])):
                shortest, found = self._shortest(found, rest, needed)
                scarce = Scarcity.of(found, self.soon) if len(shortest) < len(rest) else scarce
            needed, rest = needed + shortest[-1:], shortest[:-1]
        return self._without_the_useless(found)

    def _without_the_useless(self, found: Trial) -> Trial:
        """The same place without those who free neither room there nor quota."""
        is_near = [found.uses_nodes_of(victim) for victim in found.victims]
        of_use = [
            near or self._frees_quota(victim, found.wish.candidate)
            for victim, near in zip(found.victims, is_near, strict=True)
        ]
        for kept in (list(compress(found.victims, is_near)), list(compress(found.victims, of_use))):
            victims = self.lawful.law.with_all_parts(kept)
            headroom = self._allowed(found.wish, victims)
            if headroom:
                found = replace(found, victims=victims, headroom=headroom)
                break
        for victim in gangs_first(found.victims):
            if found.uses_nodes_of(victim):
                continue
            others = self.lawful.law.with_all_parts([other for other in found.victims if other is not victim])
            if headroom := self._allowed(found.wish, others):
                found = replace(found, victims=others, headroom=headroom)
        return found

    def _frees_quota(self, victim: Victim, candidate: Candidate) -> bool:
        """Whether a limit binds both: that of their own queue, or a max above them."""
        mine, theirs = candidate.job.spec.queue, victim.holder.job.spec.queue
        above = set(self.lawful.law.tree.path(theirs))
        limits = self.headroom.shares.ceiling
        return mine == theirs or any(
            line in limits
            for gpu_type in victim.holder.charge
            for line in self.lawful.law.tree.lines(mine, gpu_type)
            if line.queue in above
        )

    def _try(self, wish: Wish, victims: Collection[Victim], free: Room | None = None) -> Trial | None:
        """The taker served once these have left; None where it is not inside its share then, or finds no place."""
        victims = self.lawful.law.with_all_parts(tuple(victims))
        headroom = self._allowed(wish, victims)
        if headroom is None:
            return None
        room = (free or self.soon).copy()
        if wish.drains:
            room.partitions = room.partitions.draining(self.room.partitions)
        for victim in victims:
            leave(room, victim.holder.job)
        narrowed = seen(room, wish.candidate.against)
        placed = place(narrowed, wish.candidate.job.spec, wish.option)
        if placed is None:
            return None
        pledged = NOTHING if free else placed.pledged(self.soon, narrowed)
        return Trial(wish, victims, placed, headroom, pledged=pledged) if wish.drains or not pledged else None

    def _allowed(self, wish: Wish, victims: Collection[Victim]) -> Headroom | None:
        """What is left for the taker once these have left; None where it would not be inside its share, or above a limit."""
        candidate, option = wish.candidate, wish.option
        queue, charge = candidate.job.spec.queue, option.charge
        if wish.tier == "fair" and candidate.is_inside_only(option):
            return None
        # Only the queue's own work makes room inside its share; that of others at most below a ceiling above both.
        own = self._headroom_without([victim for victim in victims if victim.holder.job.spec.queue == queue])
        if _inside(own, wish.tier).part(queue, charge) < sum(charge.values()):
            return None
        if self.users.blocking(candidate.job, charge) or self.lines.blocker(candidate, option):
            return None
        headroom = self._headroom_without(victims)
        return headroom if headroom.allows(queue, charge) else None

    def _headroom_without(self, victims: Iterable[Victim]) -> Headroom:
        gone: dict[QueueName, dict[GpuType, int]] = {}
        for victim in victims:
            holder = victim.holder
            of_queue = gone.setdefault(holder.job.spec.queue, {})
            for gpu_type, milli in holder.charge.items():
                of_queue[gpu_type] = of_queue.get(gpu_type, 0) + milli
        return self.headroom.under(self.headroom.shares.without(gone.items())) if gone else self.headroom

    def _keeps_to_limits(self, found: Trial, taker: Taker) -> bool:
        """Blast radius and gain; neither delays a guarantee that has waited for long enough."""
        limits: Evictions = self.policy.scheduling.evictions
        leaving = {owner_of(victim.name) for victim in found.victims}
        given_up = sum(victim.holder.gpus for victim in found.victims)
        gained = sum(found.wish.option.charge.values())
        within_round = limits.per_round is None or len(self.gone | leaving) <= limits.per_round
        return taker.overdue or (within_round and gained >= limits.min_gain * given_up)

    def _is_fair(self, found: Trial) -> bool:
        """Above a guarantee, work of others is taken back only where the least served become better served."""
        wish = found.wish
        if wish.tier == "entitled":
            return True
        losses = [(v.holder.job.spec.queue, v.holder.charge) for v in found.victims if v.means == "reclaim"]
        return fairer(self.headroom, wish.candidate.job.spec.queue, wish.option.charge, losses)

    def _keep(self, start: Start, found: Trial) -> None:
        for victim in found.victims:
            leave(self.soon, victim.holder.job)
            self.gone.add(owner_of(victim.name))
        for move in found.moves:
            move.mover.leave(self.soon)
            self.gone.add(move.name)
        self.headroom = found.headroom
        self._hold(start, found.pledged)
        self.moving.keep(found.moves, (self.room, self.soon))

    def _hold(self, start: Start, pledged: Pledged = NOTHING) -> None:
        job = start.candidate.job
        for room in (self.room, self.soon):
            room.occupy(start.held)
            room.set_aside(pledged)
        self.headroom.take(start.queue, start.charge)
        self.users.take(job, start.charge)
        self.lines.start(start.candidate)


def _inside(headroom: Headroom, tier: Tier) -> Inside:
    return headroom.entitled if tier == "entitled" else headroom.fair
