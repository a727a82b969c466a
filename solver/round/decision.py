"""A round decided on what there is and soon will be. What would prove it is asked last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import msgspec

from solver.capacity.free_capacity import DomainOf, FreeCapacity
from solver.capacity.free_resources import Reserved
from solver.capacity.partitioning import pool_rules
from solver.capacity.pool_rules import PoolRules
from solver.capacity.sharing import sharing_of
from solver.milp.optimiser import MonitoredOptimiser, Optimiser
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.plan.plan import Certificate
from solver.policy.policy import Policy
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import Shares
from solver.round.tiers import Decision, RoundContext, RoundState

BOUNDED_WAITING_MAX = 10_000
"""With more waiting jobs no bound is asked for: it takes longer than most rounds may wait, and decides nothing."""


def decide_with_evictions(
    snapshot: Snapshot,
    policy: Policy,
    candidates: Sequence[StartCandidate],
    shares: Shares,
    optimiser: Optimiser | None,
    departing: frozenset[JobName],
    reserved: Reserved,
    kept: RoundCache,
    standing_back: Collection[JobName] = (),
    staying: frozenset[JobName] = frozenset(),
) -> Decision:
    """Decide a round tier by tier. `departing`: jobs that are evicted in this round in any case.

    A program chooses what starts on what is free, and another who leaves; a search where that is not asked or has no answer.
    `reserved`: what reservations keep from jobs that they hold back. `standing_back`: jobs that are not to start
    or grow; `staying`: jobs that are not to leave.
    """
    sharing, mig = sharing_of(policy, shares.tree, snapshot.nodes), pool_rules(policy, snapshot)
    room = FreeCapacity.of(snapshot, sharing.domain, mig, kept=kept)
    soon = soon_free(snapshot, sharing.domain, mig, room)
    room.reserved = soon.reserved = reserved
    back = standing_back, staying
    ground = RoundContext(snapshot, policy, candidates, shares, departing, sharing, room, soon, kept, *back)
    decision = RoundState.begin(ground, optimiser).end()
    return replace(decision, proof=None) if len(candidates) > BOUNDED_WAITING_MAX else decision


def certifying(decision: Decision, optimiser: MonitoredOptimiser | None) -> Callable[[], Certificate]:
    """Ask how good a decision could have been, and wait for its certificate later."""
    if optimiser is None:
        return lambda: decision.certificate
    proven = decision.proof().begin(optimiser) if decision.proof else lambda: decision.certificate
    return lambda: msgspec.structs.replace(proven(), cut_by_clock=optimiser.cut)


def soon_free(snapshot: Snapshot, domain_of: DomainOf, mig: PoolRules, room: FreeCapacity) -> FreeCapacity:
    """The room there will be when all jobs that were asked to stop, and still have time to, have stopped; `room`: that of now.

    What is promised is bound in a later round, and no GPUs are held for it to be partitioned until then.
    """
    intents = snapshot.in_flight.intents
    stopping = {intent.job for intent in intents if intent.kind == "stop" and intent.deadline > snapshot.time}
    if stopping:
        return FreeCapacity.of(snapshot, domain_of, mig.unchanging(), leaving=stopping)
    soon = room.copy()
    soon.partitions.changes_left = dict(mig.unchanging().changes_left)
    return soon
