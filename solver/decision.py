"""A round decided with the program and without: the better stands. What would prove it is asked last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from solver.bounding import Bounding
from solver.plan.plan import Certificate
from solver.program.optimiser import Optimiser, Watched
from solver.rules.demand import Candidate, SubLayer, sub_layers_of
from solver.rules.entitlement import Shares
from solver.rules.partitioning import pool_rules
from solver.rules.policy import Policy
from solver.rules.sharing import sharing_of
from solver.tiers import Decision, Ground, Round
from solver.world.free import Reserved
from solver.world.kept import Kept
from solver.world.pool_rules import PoolRules
from solver.world.room import DomainOf, Room
from solver.world.snapshot import Snapshot
from solver.world.workload import JobName

DECIDED_TWICE_MAX = 2_500
"""Of more who wait, the round is decided with the program alone: both take seconds of a core, and 50 MB more at 100,000 GPUs."""


def decide_with_evictions(
    snapshot: Snapshot,
    policy: Policy,
    candidates: Sequence[Candidate],
    shares: Shares,
    optimiser: Optimiser | None,
    departing: frozenset[JobName],
    reserved: Reserved,
    kept: Kept,
) -> Decision:
    """Decide a round tier by tier. `departing`: who is evicted in this round in any case.

    Victims are chosen by search, not by the program; so where somebody waits, and not too many do, the round decided without the
    program is looked at as well, and where it evicts and is better, it stands. `reserved`: what reservations keep from those whom
    they hold back.
    """
    sharing, mig = sharing_of(policy, shares.tree, snapshot.nodes), pool_rules(policy, snapshot)
    room = Room.of(snapshot, sharing.domain, mig, kept=kept)
    soon = soon_free(snapshot, sharing.domain, mig, room)
    room.reserved = soon.reserved = reserved
    ground = Ground(snapshot, policy, candidates, shares, departing, sharing, room, soon, kept)
    if optimiser is None:
        return Round.begin(ground, None).end()
    decision = _with_program(ground, optimiser)
    if not decision.promises:
        return decision
    served = decision.starts, decision.promises
    bounding = Bounding(snapshot, policy, candidates, shares, ground.lawful, room, soon, *served)
    return replace(decision, proof=bounding.proof(decision.certificate))


def certifying(decision: Decision, optimiser: Watched | None) -> Callable[[], Certificate]:
    """Ask how good a decision could have been, and wait for its certificate later."""
    if optimiser is None:
        return lambda: decision.certificate
    proven = decision.proof.begin(optimiser) if decision.proof else lambda: decision.certificate
    return lambda: msgspec.structs.replace(proven(), cut_by_clock=optimiser.cut)


def _with_program(ground: Ground, optimiser: Optimiser) -> Decision:
    """The round decided with the program, or without it where that evicts and is better, or there is nothing to choose."""
    if len(ground.candidates) > DECIDED_TWICE_MAX:
        return Round.begin(ground, optimiser).end()
    greedy, sub_layers = Round.begin(ground, None), sub_layers_of(ground.candidates)
    if not greedy.asked.anybody:
        return greedy.end()
    # The round goes on without the program while it is run.
    asked = Round.begin(ground, optimiser)
    without, decision = greedy.end(), asked.end()
    is_better = without.promises and _served(without, sub_layers) > _served(decision, sub_layers)
    return without if is_better else decision


def _served(decision: Decision, sub_layers: Sequence[SubLayer]) -> tuple[float, ...]:
    """GPUs that are started or promised, by sub-layer, then those that others give up, or move with, downwards from 0.

    The layers' values of two decisions with different victims do not compare: each counts under what its own victims leave.
    """
    gpus = dict.fromkeys(sub_layers, 0.0)
    for start in (*decision.starts, *(promise.start for promise in decision.promises)):
        gpus[start.candidate.sub_layer] += sum(start.charge.values())
    given_up = sum(victim.holder.gpus for promise in decision.promises for victim in promise.victims)
    moved = sum(move.mover.gpus for promise in decision.promises for move in promise.moves)
    return (*gpus.values(), -given_up, -moved)


def soon_free(snapshot: Snapshot, domain_of: DomainOf, mig: PoolRules, room: Room) -> Room:
    """The room there will be when everybody who was asked to stop, and still has time to, has stopped; `room`: that of now.

    What is promised is bound in a later round, and nobody holds GPUs for it to be partitioned until then.
    """
    intents = snapshot.in_flight.intents
    stopping = {intent.job for intent in intents if intent.kind == "stop" and intent.deadline > snapshot.time}
    if stopping:
        return Room.of(snapshot, domain_of, mig.unchanging(), leaving=stopping)
    soon = room.copy()
    soon.partitions.changes_left = dict(mig.unchanging().changes_left)
    return soon
