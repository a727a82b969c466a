"""Growth by search, where no program decides it: running gangs take back what others borrowed of their guarantees, GPU for GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import msgspec

from solver.capacity.free_capacity import FreeCapacity
from solver.model.parts import owner_of
from solver.preemption.eviction import Preemptor
from solver.preemption.fewest import Fewest
from solver.preemption.trial import PlacementRequest, PreemptionResult
from solver.queueing.demand import StartCandidate


@dataclass(frozen=True, slots=True)
class GrowthSearch:
    """Serves tasks that running gangs lack, each a job that waits, out of what a round has left."""

    making: Preemptor

    def serve_all(self, tasks: Sequence[StartCandidate]) -> None:
        """Serve them in order, of alike ones as many at once as can be: a gang of seven leaves for seven tasks, and not for one."""
        for _, alike in groupby(tasks, key=lambda task: task.likeness):
            left = list(alike)
            count = len(left)
            while count:
                if self._serve(_together(left[:count])):
                    left = left[count:]
                    count = len(left)
                else:
                    count //= 2

    def _serve(self, tasks: StartCandidate) -> bool:
        request = PlacementRequest(tasks, tasks.options[0], "entitled")
        if not self.making.attempts.may(request, {}):
            return False
        found, claimed = self._as_it_is(request)
        found = found or self._by_evicting(request)
        if found:
            self.making.give(found, claimed)
        return found is not None

    def _as_it_is(self, request: PlacementRequest) -> tuple[PreemptionResult | None, FreeCapacity | None]:
        rooms = self.making.attempts.room, self.making.attempts.soon
        claims = ((self.making.attempts.claim(request, room), room) for room in rooms)
        return next(((found, room) for found, room in claims if found), (None, None))

    def _by_evicting(self, request: PlacementRequest) -> PreemptionResult | None:
        making, gained = self.making, sum(request.option.charge.values())
        loans = making.givers.loans(making.preemptor(request.candidate, "entitled"))
        found = Fewest(making.attempts).find(request, making.givers.no_larger(loans, gained))
        if found is None:
            return None
        limits, given_up = making.policy.scheduling.evictions, sum(victim.holder.gpus for victim in found.victims)
        asked = len(making.gone.union(owner_of(victim.name) for victim in found.victims))
        is_within = limits.per_round is None or asked <= limits.per_round
        return found if is_within and limits.min_gain * given_up <= gained >= given_up else None


def _together(tasks: Sequence[StartCandidate]) -> StartCandidate:
    """Alike tasks as one job."""
    first, count = tasks[0], len(tasks)
    (group,), (option,) = first.job.spec.task_groups, first.options
    spec = msgspec.structs.replace(
        first.job.spec, task_groups=(msgspec.structs.replace(group, replicas=count, min_replicas=count),)
    )
    charge = {kind: milli * count for kind, milli in option.charge.items()}
    job = msgspec.structs.replace(first.job, spec=spec)
    return replace(first, job=job, options=(replace(option, charge=charge, wanted=charge),))
