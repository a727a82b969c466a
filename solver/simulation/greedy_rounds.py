"""Rounds to come without evictions: waiting jobs start greedily as running ones end, as for estimates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from solver.backfill.future_state import FutureState
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import sharing_of
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.placement.starts import JobStart
from solver.plan.plan import Repartition
from solver.policy.policy import Policy
from solver.policy.windows import policy_at
from solver.queueing.demand import in_order
from solver.queueing.fallback import fallback_opens
from solver.queueing.pools import with_pool_limits
from solver.round.repartition import changes_between
from solver.round.solve import competing, standing


@dataclass(slots=True)
class GreedyRounds:
    """The cluster from one full round to the next. `begun`: what was free at its beginning."""

    world: FutureState
    begun: FreeCapacity
    _known: set[JobName] = field(default_factory=set)

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy) -> GreedyRounds:
        """The world of a snapshot in which nothing is being asked for but what is promised."""
        policy = policy_at(policy, snapshot.time)
        snapshot = with_pool_limits(snapshot, policy)
        shares, admissions = standing(snapshot, policy)
        promised = {intent.job for intent in snapshot.in_flight.nominations}
        waiting = in_order(competing(snapshot, admissions, promised), policy, shares, snapshot.time)
        room = FreeCapacity.of(
            snapshot, sharing_of(policy, shares.tree, snapshot.nodes).domain, pool_rules(policy, snapshot)
        )
        world = FutureState.after_round(snapshot, policy, shares, (), {}, room)
        world.waiting, names = waiting, {candidate.job.name for candidate in waiting}
        reserved = snapshot.in_flight.reservations
        world.reservations = {known.holder: known for known in reserved if known.holder in names}
        opens = {fallback_opens(candidate.job, policy) for candidate in waiting}
        over = {known.until for known in world.declared if known.until is not None}
        quotas = set(world.expect_changes(snapshot.time.after(policy.scheduling.eta_horizon)))
        world.openings = sorted(at for at in opens | over | quotas if at > snapshot.time)
        return cls(world, room, set(world.holders))

    def rounds(self, instants: Iterable[Instant]) -> Iterator[tuple[Instant, tuple[JobStart, ...]]]:
        """A round at each instant up to which something has happened, and the jobs that start in it."""
        for at in instants:
            if self.world.pass_to(at):
                starts = self.world.round(at)
                self._known |= {start.candidate.job.name for start in starts} & self.world.holders.keys()
                yield at, starts

    def gone(self) -> list[JobName]:
        """Ended jobs that held something."""
        return sorted(self._known - self.world.holders.keys())

    def changes(self) -> Iterator[Repartition]:
        """How GPUs are partitioned otherwise than at the beginning."""
        yield from changes_between(self.begun, self.world.room)
