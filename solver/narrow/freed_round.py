"""Which jobs that wait start on what has become free: as a complete round's greedy answer has it, as far as that is known here.

All failed in the last complete round, and those still do that have no use for the GPU types of what is new. The others are served
in the order of rounds, up to the first that a complete round might serve in a way that is not decided here: by having others
leave or move, on what reservations keep, by dividing or partitioning GPUs; or of which it is not known whether it may start.
From its place on all is left to the round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import GpuType
from solver.model.shape import MigShape, SharedShape
from solver.model.workload import JobName, QueueName
from solver.narrow.waiting_jobs import Line, has_known_order
from solver.placement.capacity_prefilter import CapacityPrefilter
from solver.placement.fit import Fit
from solver.placement.greedy import PASSES, GreedyEnd, greedy
from solver.placement.starts import JobStart
from solver.policy.policy import Policy
from solver.queueing.demand import StartCandidate, Turn
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


@dataclass(slots=True)
class FreedRound:
    """One decision. `types`: the GPU types of what has become free, None: all. `wide`: the room with what is kept from it, None
    where that is nothing. `holders`: of reservations. `growing`: queues with running gangs that could be larger, and the types.
    """

    policy: Policy
    room: FreeCapacity
    wide: FreeCapacity | None
    shares: Shares
    lines: Mapping[QueueName, Line]
    unsure: Collection[JobName]
    types: Collection[GpuType] | None
    lower: LowerWork
    holders: Collection[JobName]
    growing: Collection[tuple[QueueName, GpuType]]
    fit: Fit | None
    _able: set[int] = field(default_factory=set)
    _in_wide: set[int] = field(default_factory=set)

    def decide(self) -> tuple[tuple[JobStart, ...], bool]:
        """What starts, and whether that is all that could: nothing of what has become free is left to a complete round."""
        until = min(self._look(), default=None)
        candidates = sorted(self._candidates(), key=lambda known: known[0])
        while True:
            starts = self._served(candidates, until)
            earlier = min(self._left(candidates, starts), default=None)
            if earlier is None or (until is not None and until <= earlier):
                return starts, until is None
            until = earlier

    # Which jobs are asked.

    def _look(self) -> Iterator[_Place]:
        """Find those that are able to start; the places of those that a complete round might serve otherwise."""
        headroom, users = QuotaHeadroom(self.shares), UserRoom(self.shares.users)
        asked = list(self._asked())
        allowed = [known for known in asked if any(_allowed(known[1], headroom, users))]
        finding = self._finding([known for _, known in allowed], self.room)
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
            found = list(self._by_others(turn, candidate, headroom))
            if passes and (name in wide or _is_partitioned(candidate)):
                found.append((min(passes), turn))
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

    def _by_others(self, turn: Turn, candidate: StartCandidate, headroom: QuotaHeadroom) -> Iterator[_Place]:
        """Where others might leave or move for it; nowhere if they may not, whatever is free."""
        queue, known = candidate.job.spec.queue, self.policy.priority_class(candidate.job)
        charges = [option.charge for option in candidate.options]
        is_firm = known is not None and not known.preemptible
        own = Counter[GpuType]()
        for (value, kind), milli in self.lower.get(queue, {}).items():
            if known is not None and value < known.value:
                own[kind] += milli
        if any(
            not any(charge.values())
            or lies_inside(headroom, "entitled", queue, charge, own)
            or (is_firm and self._guaranteed(queue, charge))
            for charge in charges
        ):
            yield 0, turn
        elif not candidate.inside_only and any(lies_inside(headroom, "fair", queue, charge, own) for charge in charges):
            yield FAIR_PASS, turn
            # Inside fair shares, those of a sub-layer are served before all of the next.
            slo, rank, _ = turn[0]
            yield 0, ((slo, rank + 1),)

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
        headroom, users, judged = QuotaHeadroom(self.shares), UserRoom(self.shares.users), set[int]()
        for turn, candidate in candidates:
            start = started.get(candidate.job.name)
            if start is not None:
                # It has its place before all that come after it.
                headroom.take(start.queue, start.charge)
                users.take(candidate.job, start.charge, start.beside)
            elif candidate.likeness not in judged:
                judged.add(candidate.likeness)
                yield from self._by_others(turn, candidate, headroom)
                passes = [_pass_of(candidate, option, headroom) for option in _allowed(candidate, headroom, users)]
                if passes and candidate.likeness in self._in_wide:
                    yield min(passes), turn


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
    return next(number for number, (eligible, _) in enumerate(PASSES) if eligible(headroom, queue, option.charge))


def _divides(candidate: StartCandidate) -> bool:
    return any(isinstance(shape, SharedShape | MigShape) for option in candidate.options for shape in option.shapes)


def _is_partitioned(candidate: StartCandidate) -> bool:
    return any(isinstance(shape, MigShape) for option in candidate.options for shape in option.shapes)
