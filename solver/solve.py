"""One round: a frozen snapshot and a frozen policy in, a plan out. No clock, no I/O; the optimiser is handed in."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from solver.admission import Admission, Gate
from solver.explained import Explained
from solver.nominations import nominations_in
from solver.plan.plan import Plan
from solver.program.optimiser import Optimiser
from solver.rules.demand import in_order
from solver.rules.departures import Departure, departures
from solver.rules.entitlement import Shares, shares_of, with_past_use
from solver.rules.fairshare import demand_of, live_gpus, with_fair_shares
from solver.rules.options import Option
from solver.rules.partitioning import pool_rules
from solver.rules.policy import Policy
from solver.rules.rotation import with_precedence
from solver.rules.sharing import sharing_of
from solver.rules.tree import QueueTree
from solver.steps import steps_of
from solver.tiers import decide_with_evictions
from solver.world.inflight import Intent
from solver.world.room import Room
from solver.world.snapshot import Snapshot, snapshot_of
from solver.world.workload import Job, JobName


def solve(snapshot: Snapshot, policy: Policy, optimiser: Optimiser | None) -> Plan:
    """Decide one round. Without an optimiser the greedy answer stands, and the certificate says so."""
    departing = departures(snapshot, policy)
    nominations = nominations_in(asked_to_leave(snapshot, departing, policy), policy)
    world = nominations.snapshot
    shares, admissions = standing(world, policy)
    candidates = in_order(competing(world, admissions, nominations.jobs), policy, shares, world.time)
    decision = decide_with_evictions(
        world, policy, candidates, shares, optimiser, frozenset(known.name for known in departing)
    )
    explained = Explained(world, policy, admissions, nominations, candidates, decision, departing)
    return Plan(
        snapshot.digest,
        policy.digest,
        tuple(steps_of(world, policy, departing, nominations, decision.starts, decision.promises, decision.room)),
        tuple(explained.verdicts()),
        decision.certificate,
    )


def asked_to_leave(snapshot: Snapshot, departing: Iterable[Departure], policy: Policy) -> Snapshot:
    """The world in which those have been asked to leave already: what they hold is no longer theirs, and not yet free."""
    now = snapshot.time
    stops = [
        Intent(
            "stop", known.name, known.holder.job.attempt, now, now.after(policy.grace(known.holder.job)), evicts=True
        )
        for known in departing
    ]
    if not stops:
        return snapshot
    in_flight = msgspec.structs.replace(snapshot.in_flight, intents=(*snapshot.in_flight.intents, *stops))
    return snapshot_of(now, snapshot.nodes, snapshot.jobs, in_flight)


def standing(snapshot: Snapshot, policy: Policy) -> tuple[Shares, dict[JobName, Admission]]:
    """Where the queues stand before anything is decided: their shares, and which pending jobs may ever start."""
    shares = with_past_use(shares_of(snapshot, QueueTree.of(policy)), snapshot, policy.scheduling.usage_half_life)
    sharing = sharing_of(policy, shares.tree, snapshot.nodes)
    empty = Room.empty(snapshot.nodes, mig=pool_rules(policy, snapshot).unlimited())
    gate = Gate(policy, shares, empty, sharing)
    admissions = {job.name: gate.admit(job) for job in snapshot.pending}
    waiting = competing(snapshot, admissions)
    shares = with_fair_shares(shares, live_gpus(snapshot), demand_of(waiting))
    return with_precedence(shares, snapshot, policy, waiting), admissions


def competing(
    snapshot: Snapshot, admissions: dict[JobName, Admission], promised: Collection[JobName] = ()
) -> list[tuple[Job, tuple[Option, ...]]]:
    """The pending jobs that take part in the round: they could start one day, no queue holds them back, nothing is promised."""
    judged = [(job, admissions[job.name]) for job in snapshot.pending if job.name not in promised]
    return [(job, admission.options) for job, admission in judged if admission.options and not admission.holds]
