"""Which jobs that wait start on what has become free: as a complete round's greedy answer has it, as far as that is known here.

All failed in the last complete round, and those still do that have no use for the GPU types of what is new. The others are served
in the order of rounds. Others leave for those inside their guarantees that find no place (entitled_claim). It ends at the first job
that a complete round might serve in a way that is not decided here: by having others leave that may not be asked, or move, on what
reservations keep, by dividing or partitioning GPUs; or of which it is not known whether it may start. From its place on all is left
to the round.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import GpuType
from solver.model.quantities import MilliGpu
from solver.model.shape import MigShape, SharedShape
from solver.model.workload import JobName, QueueName
from solver.narrow.entitled_claim import EntitledClaim, EntitledTier
from solver.narrow.narrow_preemption import NarrowPreemption
from solver.narrow.waiting_jobs import Line, has_known_order, takes_turns
from solver.placement.capacity_prefilter import CapacityPrefilter
from solver.placement.fit import Fit
from solver.placement.greedy import PASSES, GreedyEnd, greedy
from solver.placement.starts import JobStart
from solver.policy.policy import Policy
from solver.policy.reclaim import may_reclaim_fair_share, preempts_within
from solver.preemption.new_nomination import NewNomination
from solver.queueing.demand import StartCandidate, SubLayer, Turn
from solver.queueing.quota import lets_start
from solver.queueing.strict_queues import behind_nobody
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares
from solver.quota.options import Option
from solver.quota.users import UserRoom
from solver.quota.vacated import lies_inside

LowerWork = Mapping[QueueName, Mapping[tuple[int, GpuType], int]]
"""Milli-GPU that a queue's jobs hold, by priority value."""

_Place = tuple[int, tuple[object, ...]]
"""A place in the order: a pass of the greedy answer, and a turn in it, or where turns of its kind begin; () is before all."""

FAIR_PASS = 2
"""The first pass of the greedy answer in which jobs start beyond guarantees."""

BEYOND_PASS = 4
"""That in which they start beyond fair shares."""


CLAIMS_MAX = 8
"""Jobs for which one decision has others leave: each is a search, and all that wait are looked at anew after it."""


class Served(NamedTuple):
    """`settled`: in their order, what starts inside guarantees, and jobs that are promised what others leave; `starts`: all else.

    `is_all`: nothing of what has become free is left to a complete round. `owing`: the job at whose place it ends, where that might
    have others leave for it inside its guarantee.
    """

    settled: tuple[JobStart | NewNomination, ...]
    starts: tuple[JobStart, ...]
    is_all: bool
    owing: StartCandidate | None = None


@dataclass(slots=True)
class FreedRound:
    """One decision, once. `types`: the GPU types of what has become free, None: all. `soon`: the room once all have left that were
    asked to; `wide`: the room with what is kept from it, None where that is nothing. `holders`: of reservations. `growing`: queues
    with running gangs that could be larger, and the types. `preemption`: who may leave, None where nobody may.
    """

    policy: Policy
    room: FreeCapacity
    soon: FreeCapacity
    wide: FreeCapacity | None
    shares: Shares
    lines: Mapping[QueueName, Line]
    unsure: Collection[JobName]
    types: Collection[GpuType] | None
    lower: LowerWork
    holders: Collection[JobName]
    growing: Collection[tuple[QueueName, GpuType]]
    fit: Fit | None
    preemption: NarrowPreemption | None = None
    _able: set[int] = field(default_factory=set)
    _able_layers: set[tuple[int, int]] = field(default_factory=set)
    _soon_milli: Counter[GpuType] = field(default_factory=Counter)
    _above_fair: Mapping[GpuType, set[QueueName]] = field(default_factory=dict)
    _in_wide: set[int] = field(default_factory=set)
    _claims: list[EntitledClaim] = field(default_factory=list)
    _asked_to_leave: Collection[JobName] = ()

    def decide(self) -> Served:
        """What starts, and is promised."""
        settled, promised = list[JobStart | NewNomination](), 0
        while True:
            self._begin()
            until = min(self._look(), default=None)
            candidates = sorted(self._candidates(), key=lambda known: known[0])
            starts, until = self._started(candidates, until)
            claim = min(self._claims, key=lambda known: known.turn, default=None)
            if claim is None or (until is not None and until <= (0, claim.turn)):
                return Served(tuple(settled), starts, until is None)
            found = self._settle(claim, candidates, until) if promised < CLAIMS_MAX else ()
            if not found:
                starts, _ = self._started(candidates, (0, claim.turn))
                return Served(tuple(settled), starts, is_all=False, owing=claim.candidate)
            settled += found
            promised += 1

    def _begin(self) -> None:
        """What is known of what is left."""
        soon = self.soon
        self._able, self._able_layers, self._in_wide, self._claims = set(), set(), set(), []
        self._soon_milli = Counter()
        for number, kind in enumerate(soon.gpu_types):
            free = soon.free_gpus[(soon.type_of_node == number) & (soon.free_gpus > 0)]
            self._soon_milli[kind] = MilliGpu.gpus(int(free.sum()))
        above = defaultdict[GpuType, set[QueueName]](set)
        for line, milli in self.shares.used.items():
            if milli > self.shares.fair.get(line, 0):
                above[line.gpu_type].add(line.queue)
        self._above_fair = above

    def _started(
        self, candidates: Sequence[tuple[Turn, StartCandidate]], until: _Place | None
    ) -> tuple[tuple[JobStart, ...], _Place | None]:
        """What starts, and where that ends."""
        while True:
            starts = self._served(candidates, until)
            earlier = min(self._left(candidates, starts), default=None)
            if earlier is None or (until is not None and until <= earlier):
                return starts, until
            until = earlier

    def _settle(
        self, claim: EntitledClaim, candidates: Sequence[tuple[Turn, StartCandidate]], until: _Place | None
    ) -> tuple[JobStart | NewNomination, ...]:
        """Have others leave for the first job that has a claim: what starts before, and what it is promised. () where that is not
        known.
        """
        preemption, layer = self.preemption, claim.turn[0][:2]
        if preemption is None or preemption.is_over:
            return ()
        # All has to be known that starts inside guarantees in its sub-layer, after it as well.
        if until is not None and until[0] < FAIR_PASS and (not until[1] or _layer_of(until[1]) <= layer):
            return ()
        claiming = {known.candidate.likeness for known in self._claims}
        starts = self._served(candidates, (FAIR_PASS, ()))
        begun = {start.candidate.job.name for start in starts}
        queues = {known.candidate.job.spec.queue for known in self._claims}
        alike = sorted(
            (turn, known)
            for queue in queues
            for turn, known in self.lines[queue]
            if turn[0][:2] == layer and (known.likeness in claiming or known.job.name in begun)
        )
        tier = EntitledTier(preemption, self.room, self.soon, self.shares, self._asked_to_leave)
        found = tier.serve(claim, [known for _, known in alike], claiming, starts)
        if found is None:
            return ()
        self.room, self.soon, self.shares, self._asked_to_leave = found.room, found.soon, found.shares, found.asked
        if self.wide is not None:
            self.wide = self.wide.copy()
            for start in (*found.starts, found.promise.start):
                self.wide.occupy(start.held)
        if self.types is not None:
            self.types = {*self.types, *(kind for victim in found.promise.victims for kind in victim.holder.charge)}
        served = {found.promise.job.name, *(start.candidate.job.name for start in found.starts)}
        of_queues = {found.promise.start.queue, *(start.queue for start in found.starts)}
        fewer = {
            queue: [known for known in self.lines[queue] if known[1].job.name not in served] for queue in of_queues
        }
        self.lines = {**self.lines, **fewer}
        return (*found.starts, found.promise)

    # Which jobs are asked.

    def _look(self) -> Iterator[_Place]:
        """Find those that are able to start; the places of those that a complete round might serve otherwise."""
        headroom, users = QuotaHeadroom(self.shares), UserRoom(self.shares.users)
        asked = list(self._asked())
        allowed = [known for known in asked if any(_allowed(known[1], headroom, users))]
        finding = self._finding([known for _, known in allowed], self.room)
        self._able_layers = {turn[0][:2] for turn, known in allowed if known.job.name in finding}
        wide = finding if self.wide is None else self._finding([known for _, known in allowed], self.wide)
        for turn, candidate in asked:
            name, queue = candidate.job.name, candidate.job.spec.queue
            passes = [_pass_of(candidate, option, headroom) for option in _allowed(candidate, headroom, users)]
            is_known = has_known_order(self.shares.tree, queue)
            is_plain = is_known and name not in self.unsure and name not in self.holders and not _divides(candidate)
            if passes and is_plain and name in finding:
                self._able.add(candidate.likeness)
                self._in_wide |= {candidate.likeness} if self.wide is not None else set()
                continue
            found = list(self._by_fair_share(turn, candidate, headroom, {}))
            if self._has_claim(candidate, headroom):
                if is_plain and not (candidate.strict or candidate.can_grow):
                    self._claims.append(EntitledClaim(turn, candidate))
                else:
                    found.append((0, turn))
            if passes and (name in wide or _is_partitioned(candidate)):
                found.append((min(passes), turn))
            if takes_turns(self.shares.tree, queue):
                # Others of its queue may leave for it, whatever it is guaranteed.
                found.append((0, ()))
            yield from found if is_known else ((number, ()) for number, _ in found)
        if any(self._is_free(kind) and self._may_grow(queue, kind) for queue, kind in self.growing):
            yield FAIR_PASS, ()

    def _asked(self) -> Iterator[tuple[Turn, StartCandidate]]:
        """The first of each likeness that could use what has become free, and each that is like no other for what is known."""
        for line in self.lines.values():
            seen = set[int]()
            for turn, candidate in line:
                is_alone = candidate.job.name in self.unsure or candidate.job.name in self.holders
                if not is_alone and candidate.likeness in seen:
                    continue
                if self._could_use(candidate):
                    yield turn, candidate
                if not is_alone:
                    seen.add(candidate.likeness)

    def _could_use(self, candidate: StartCandidate) -> bool:
        return self.types is None or any(
            kind is None or kind in self.types for option in candidate.options for kind in option.gpu_types
        )

    def _is_free(self, kind: GpuType) -> bool:
        return self.types is None or kind in self.types

    def _may_grow(self, queue: QueueName, kind: GpuType) -> bool:
        return all(self.shares.entitled_room(line) for line in self.shares.tree.lines(queue, kind))

    @staticmethod
    def _finding(candidates: Sequence[StartCandidate], room: FreeCapacity) -> set[JobName]:
        return {known.job.name for known in CapacityPrefilter(candidates, room).now()} if candidates else set()

    def _has_claim(self, candidate: StartCandidate, headroom: QuotaHeadroom) -> bool:
        """Whether others might leave or move for it inside its guarantees."""
        queue, own = candidate.job.spec.queue, self._lower(candidate)
        is_firm = self.policy.is_firm(candidate.job)
        return any(
            not any(option.charge.values())
            or lies_inside(headroom, "entitled", queue, option.charge, own)
            or (is_firm and self._guaranteed(queue, option.charge))
            for option in candidate.options
        )

    def _by_fair_share(
        self, turn: Turn, candidate: StartCandidate, headroom: QuotaHeadroom, given: Mapping[GpuType, int]
    ) -> Iterator[_Place]:
        """Where others might leave or move for it inside its fair share. `given`: what jobs get that come before it."""
        queue, own = candidate.job.spec.queue, self._lower(candidate)
        if not candidate.inside_only and any(
            lies_inside(headroom, "fair", queue, option.charge, own)
            and (any(own[kind] for kind in option.charge) or self._others_may(candidate, option.charge, given))
            for option in candidate.options
        ):
            # What starts inside fair shares in its sub-layer stays, and all of the next comes after.
            yield BEYOND_PASS, ()
            slo, rank, _ = turn[0]
            if any(layer > (slo, rank) for layer in self._able_layers):
                yield 0, ((slo, rank + 1),)

    def _lower(self, candidate: StartCandidate) -> Counter[GpuType]:
        """What its queue's work of lower priority holds."""
        known, own = self.policy.priority_class(candidate.job), Counter[GpuType]()
        within = preempts_within(self.shares.tree, candidate.job.spec.queue)
        # Of its own value there may be newer work.
        least = (known.value if known else 0) + (within == "lower-or-newer")
        for (value, kind), milli in self.lower.get(candidate.job.spec.queue, {}).items():
            if known is not None and value < least and within != "never":
                own[kind] += milli
        return own

    def _others_may(self, candidate: StartCandidate, charge: Charge, given: Mapping[GpuType, int]) -> bool:
        """Whether others could move for its fair share, or leave that hold more than theirs.

        Moving frees nothing: what it needs has to be free already, wherever that is.
        """
        tree, queue = self.shares.tree, candidate.job.spec.queue
        if may_reclaim_fair_share(self.policy, tree, queue) and any(
            self._above_fair.get(kind, set()).difference(tree.path(queue)) for kind in charge
        ):
            return True
        is_whole = not _divides(candidate) and not self.soon.partitions.rules
        return not is_whole or all(
            milli <= self._soon_milli[kind] - given.get(kind, 0) for kind, milli in charge.items()
        )

    def _guaranteed(self, queue: QueueName, charge: Charge) -> bool:
        return all(
            milli <= self.shares.guaranteed.get(line, 0)
            for kind, milli in charge.items()
            for line in self.shares.tree.lines(queue, kind)
        )

    # What starts.

    def _candidates(self) -> Iterator[tuple[Turn, StartCandidate]]:
        """All that are able to start, and delay none of their strict queue that is not."""
        for line in self.lines.values():
            able = [known for known in line if self._is_able(known[1])]
            if any(candidate.strict for _, candidate in able):
                turns = {candidate.job.name: turn for turn, candidate in line}
                kept = behind_nobody([known for _, known in line], self._able)
                able = [(turns[known.job.name], known) for known in kept if self._is_able(known)]
            yield from able

    def _is_able(self, candidate: StartCandidate) -> bool:
        name = candidate.job.name
        return candidate.likeness in self._able and name not in self.unsure and name not in self.holders

    def _served(self, candidates: Sequence[tuple[Turn, StartCandidate]], until: _Place | None) -> tuple[JobStart, ...]:
        end = None
        if until is not None:
            number, last = until
            end = GreedyEnd(number, {known.job.name for turn, known in candidates if turn < last})
        with self.room.trying():
            return greedy([known for _, known in candidates], self.room, self.shares, fit=self.fit, until=end)

    def _left(self, candidates: Sequence[tuple[Turn, StartCandidate]], starts: Sequence[JobStart]) -> Iterator[_Place]:
        """The places of those that found none, though quota would let them, and that a complete round might serve otherwise."""
        started = {start.candidate.job.name: start for start in starts}
        before, users, judged = QuotaHeadroom(self.shares), UserRoom(self.shares.users), set[int]()
        inside = self._inside_fair({candidate.sub_layer for _, candidate in candidates}, starts)
        for turn, candidate in candidates:
            start = started.get(candidate.job.name)
            if start is not None:
                # It has its place before all that come after it.
                before.take(start.queue, start.charge)
                users.take(candidate.job, start.charge, start.beside)
            elif candidate.likeness not in judged:
                judged.add(candidate.likeness)
                if self._has_claim(candidate, before):
                    if candidate.strict or candidate.can_grow:
                        yield 0, turn
                    else:
                        self._claims.append(EntitledClaim(turn, candidate))
                yield from self._by_fair_share(turn, candidate, *inside[candidate.sub_layer])
                passes = [_pass_of(candidate, option, before) for option in _allowed(candidate, before, users)]
                if passes and candidate.likeness in self._in_wide:
                    yield min(passes), turn

    def _inside_fair(
        self, layers: Collection[SubLayer], starts: Sequence[JobStart]
    ) -> Mapping[SubLayer, tuple[QuotaHeadroom, Counter[GpuType]]]:
        """By sub-layer, what is left of shares beside what starts inside fair shares there and before, and how much that is."""
        headroom, kept = QuotaHeadroom(self.shares), list[JobStart]()
        for start in starts:
            if headroom.fair.part(start.queue, start.charge):
                kept.append(start)
            headroom.take(start.queue, start.charge)

        return {layer: self._beside(start for start in kept if start.candidate.sub_layer <= layer) for layer in layers}

    def _beside(self, starts: Iterable[JobStart]) -> tuple[QuotaHeadroom, Counter[GpuType]]:
        headroom, given = QuotaHeadroom(self.shares), Counter[GpuType]()
        for start in starts:
            headroom.take(start.queue, start.charge)
            given.update(start.charge)
        return headroom, given


def _allowed(candidate: StartCandidate, headroom: QuotaHeadroom, users: UserRoom) -> list[Option]:
    """The ways in which quota would let it start."""
    return [
        option
        for option in candidate.options
        if lets_start(candidate.job, option, headroom, users, inside_only=candidate.is_inside_only(option))
    ]


def _pass_of(candidate: StartCandidate, option: Option, headroom: QuotaHeadroom) -> int:
    """The first pass of the greedy answer in which it is served so."""
    queue = candidate.job.spec.queue
    return next(number for number, one in enumerate(PASSES) if one.eligible(headroom, queue, option.charge))


def _layer_of(turn: tuple[object, ...]) -> tuple[object, ...]:
    """SLO class and rank of a turn, or of where those of a sub-layer begin."""
    (first, *_) = turn
    return tuple(first[:2]) if isinstance(first, tuple) else ()


def _divides(candidate: StartCandidate) -> bool:
    return any(isinstance(shape, SharedShape | MigShape) for option in candidate.options for shape in option.shapes)


def _is_partitioned(candidate: StartCandidate) -> bool:
    return any(isinstance(shape, MigShape) for option in candidate.options for shape in option.shapes)
