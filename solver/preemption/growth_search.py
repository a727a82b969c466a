"""Growth by search, where no program decides it: running gangs take back what others borrowed of their guarantees, GPU for GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import msgspec

from solver.model.cluster import GpuType
from solver.model.parts import owner_of
from solver.preemption.eviction import Preemptor
from solver.preemption.fewest import Fewest
from solver.preemption.givers import VictimSet
from solver.preemption.trial import PlacementRequest
from solver.queueing.demand import StartCandidate

ONE_BY_ONE = 8
"""So many numbers of tasks are tried one after the other, as many as GPUs of most jobs."""


@dataclass(frozen=True, slots=True)
class GrowthSearch:
    """Serves tasks that running gangs lack, each a job that waits, out of what a round has left."""

    making: Preemptor

    def serve_all(self, tasks: Sequence[StartCandidate], awaited: Collection[GpuType] = ()) -> None:
        """Serve them in order, of alike ones first as many as fit as it is, then as many at once as can be by evicting.

        So a gang of seven leaves for seven tasks, and not for one. Of types that are `awaited` nothing leaves for them.
        """
        for _, alike in groupby(tasks, key=lambda task: task.likeness):
            left = self._served(list(alike), self._as_it_is)
            if left and left[0].options[0].charge.keys().isdisjoint(awaited) and self._is_reachable(left[0]):
                self._served(left, self._by_evicting)

    def _served(self, alike: list[StartCandidate], serve: Callable[[PlacementRequest], bool]) -> list[StartCandidate]:
        """As many of them at once as can be, again and again; returns those that are left."""
        left = alike
        while True:
            requests = ((count, self._request(left[:count])) for count in _counts(len(left)))
            done = next((count for count, request in requests if self._may(request) and serve(request)), 0)
            if not done:
                return left
            left = left[done:]

    def _request(self, tasks: Sequence[StartCandidate]) -> PlacementRequest:
        together = _together(tasks)
        return PlacementRequest(together, together.options[0], "entitled")

    def _may(self, request: PlacementRequest) -> bool:
        return self.making.attempts.may(request, {})

    def _as_it_is(self, request: PlacementRequest) -> bool:
        rooms = self.making.attempts.room, self.making.attempts.soon
        for room in rooms:
            if found := self.making.attempts.claim(request, room):
                self.making.give(found, room)
                return True
        return False

    def _is_reachable(self, task: StartCandidate) -> bool:
        """Whether a task had a place if others left, however much that is."""
        request = self._request([task])
        return self._may(request) and Fewest(self.making.attempts).find(request, self._loans(request)) is not None

    def _loans(self, request: PlacementRequest) -> VictimSet:
        return self.making.givers.loans(self.making.preemptor(request.candidate, "entitled"))

    def _by_evicting(self, request: PlacementRequest) -> bool:
        making, gained = self.making, sum(request.option.charge.values())
        found = Fewest(making.attempts).find(request, making.givers.no_larger(self._loans(request), gained))
        if found is None:
            return False
        limits, given_up = making.policy.scheduling.evictions, sum(victim.holder.gpus for victim in found.victims)
        asked = len(making.gone.union(owner_of(victim.name) for victim in found.victims))
        is_within = limits.per_round is None or asked <= limits.per_round
        if not (is_within and limits.min_gain * given_up <= gained >= given_up):
            return False
        making.give(found, None)
        return True


def _counts(most: int) -> Iterator[int]:
    """How many are tried at once: all, a few less at a time as single jobs may leave, then by halves."""
    yield from range(most, max(0, most - ONE_BY_ONE), -1)
    count = most - ONE_BY_ONE
    while count > 0:
        yield count
        count //= 2


def _together(tasks: Sequence[StartCandidate]) -> StartCandidate:
    """Alike tasks, or units of them, as one job."""
    first, count = tasks[0], len(tasks)
    (option,), groups = first.options, first.job.spec.task_groups
    sizes = [group.replicas * count for group in groups]
    more = (msgspec.structs.replace(g, replicas=size, min_replicas=size) for g, size in zip(groups, sizes, strict=True))
    charge = {kind: milli * count for kind, milli in option.charge.items()}
    job = msgspec.structs.replace(first.job, spec=msgspec.structs.replace(first.job.spec, task_groups=tuple(more)))
    return replace(first, job=job, options=(replace(option, charge=charge, wanted=charge),))
