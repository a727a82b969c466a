"""By what right a job without GPUs has others leave: a guarantee of CPU and memory, one that is shared, a fair share, or its value.

Only work without GPUs leaves for it. Inside the guarantee all that others borrowed may. Inside what a queue above shares that may
of queues that are not below that one. Inside the fair share what queues hold above theirs, where the least served get more by it;
else lower work of its own queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from solver.model.arrays import Ints
from solver.placement.starts import JobStart
from solver.preemption.givers import Givers, VictimSet
from solver.quota.host_dues import HostDues
from solver.quota.host_guarantees import HeldAlone
from solver.quota.host_shares import sum_of, tasks_with_shapes
from solver.quota.users import HostLine, beside_least
from solver.quota.victims import Holder, PreemptorJob, Victim

TRIED_FIRST = 64
"""Of what may leave, so many of the least harmful are tried before all of it."""

FOR_SHARES_MAX = 100
"""Jobs without GPUs for whose fair shares others leave in one round: each is a search. The others come in the next."""


@dataclass(frozen=True, slots=True)
class HostClaim:
    """One job without GPUs that finds no room. `dues`: as they are once all that was decided before has been done.

    `sure`: the same, if nothing starts of what is only known to fit in what is free now: what is promised may take its place.
    Others leave only where that is fair either way.
    """

    givers: Givers
    dues: HostDues
    preemptor: PreemptorJob
    sure: HostDues

    @property
    def _held(self) -> HeldAlone:
        return HeldAlone(self.preemptor.job.spec.queue, beside_least(self.preemptor.job.spec))

    @property
    def is_inside(self) -> bool:
        """Whether it lies inside what its queue is guaranteed."""
        return self.dues.guarantees.lies_inside(self._held)

    @property
    def is_shared(self) -> bool:
        """Whether it claims what a queue above its own shares: `claims_from` says which."""
        return self.preemptor.claims_from is not None and not self.is_inside and self.dues.claims(self._held)

    def sides(self, *, may_reclaim: bool) -> Iterator[VictimSet]:
        """Those that may leave for it, in the order in which they are asked. `may_reclaim`: others may for its fair share."""
        if self.is_inside or self.is_shared:
            yield self.givers.everybody(self.preemptor, straddling=False)
            return
        if may_reclaim and self.dues.fair and self.dues.lies_inside_fair(self._held):
            everybody = self.givers.everybody(self.preemptor, straddling=False, fair=True)
            yield everybody._replace(places=self._above(everybody.places))
            fairly = self._fairly(everybody.places)
            yield everybody._replace(places=fairly[:TRIED_FIRST])
            if len(fairly) > TRIED_FIRST:
                yield everybody._replace(places=fairly)
        yield self.givers.own(self.preemptor)

    def _above(self, places: Ints) -> Ints:
        """Of work in the order of harm as much as its queues hold above their fair shares, the first of it."""
        evictable, given, kept, count = self.givers.evictable, Counter[HostLine](), list[bool](), 0
        for number in evictable.holders_of(places).tolist():
            if count == TRIED_FIRST:
                break
            lost = _held_by(evictable.allocations.holders[number])
            lines = self.dues.lines_apart(self.preemptor.job.spec.queue, lost)
            above = [(line, amount, more) for line, amount in lines if (more := self.dues.above(line)) is not None]
            stays = any(given[line] + amount > more for line, amount, more in above)
            kept.append(not stays and (bool(above) or lost.queue == self.preemptor.job.spec.queue))
            count += kept[-1]
            given.update({line: amount for line, amount, _ in above} if kept[-1] else {})
        left: Ints = places[: len(kept)][np.array(kept, dtype=bool)]
        return left

    def _fairly(self, places: Ints) -> Ints:
        """Of work in the order of harm all that could leave alone without being unfair to its queue."""
        evictable, queue = self.givers.evictable, self.preemptor.job.spec.queue
        holders = evictable.allocations.holders
        lost = [_held_by(holders[number]) for number in evictable.holders_of(places).tolist()]
        known = {one: one.queue == queue or self._is_fair([one]) for one in set(lost)}
        left: Ints = places[np.array([known[one] for one in lost], dtype=bool)]
        return left

    @property
    def is_lent(self) -> bool:
        """Whether nothing that it would take is kept back for others."""
        return not self.dues.not_lent(self._held)

    def may(self, victims: Iterable[Victim]) -> bool:
        """Whether these may leave for it: that is fair, and what it takes then is not kept back for others."""
        victims = tuple(victims)
        then = self.dues.after((), left_alone(victims))
        return self.is_fair(victims) and not then.not_lent(self._held)

    def is_fair(self, victims: Iterable[Victim]) -> bool:
        """Whether others may leave for it: the least served have more by it, unless it lies inside its guarantee."""
        losses = [_held_by(victim.holder) for victim in victims if victim.means == "reclaim"]
        return self.is_inside or self.is_shared or not losses or self._is_fair(losses)

    def _is_fair(self, losses: Sequence[HeldAlone]) -> bool:
        queue = self.preemptor.job.spec.queue
        gain = self._held.beside
        readings = (self.dues, self.sure) if self.sure.used != self.dues.used else (self.dues,)
        return all(dues.above_alone(queue, losses) and dues.fairer(queue, gain, losses) for dues in readings)


def _held_by(holder: Holder) -> HeldAlone:
    return HeldAlone(holder.job.spec.queue, sum_of(shape for _, shape in tasks_with_shapes(holder.job)))


def alone_among(starts: Iterable[JobStart]) -> Iterator[HeldAlone]:
    """What jobs without GPUs get."""
    for start in starts:
        if not any(start.charge.values()):
            yield HeldAlone(start.queue, start.beside)


def left_alone(victims: Iterable[Victim]) -> Iterator[HeldAlone]:
    """What jobs without GPUs give up."""
    for victim in victims:
        if not victim.holder.gpus and not any(group.shape.uses_gpus for group in victim.holder.job.spec.task_groups):
            yield _held_by(victim.holder)
