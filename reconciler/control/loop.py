"""The only loop: observe, settle, solve, check, record, act. It remembers nothing; every pass starts from what is true."""

from __future__ import annotations

from reconciler.control.act import Leader
from reconciler.control.control import ControlPlane
from reconciler.control.fallback import decide
from reconciler.control.interventions import Hands
from reconciler.control.node_health import Ward
from reconciler.control.observe import observe
from reconciler.control.passes import Laps, Pass, record_news
from reconciler.lifecycle.health.effects import cordons
from reconciler.lifecycle.jobs.sighted import Sighted
from reconciler.protocols.backend import Cursor
from reconciler.protocols.rounds import RoundRecord


def one_pass(plane: ControlPlane) -> Pass:
    """Take one step towards what Git wants.

    Raises NotLeaderError or StaleEpochError (another leads: stand by), NoPolicyError or BackendUnreachableError (try
    again), PlanRefusedError or NoPlanError (report it), StoreUnusableError (a person must act). It may be killed anywhere
    and called again.
    """
    laps = Laps(plane.clock)
    leader = Leader(plane, plane.ledger.lead(plane.holder, plane.clock.now(), plane.lease))
    revision, policy, declared, operations = plane.policies.current()
    sighted = Sighted.of(plane.backend.changes(Cursor(0)))
    laps.end("sight")
    leader.accrue(policy, declared)
    settled = Ward(plane, leader.epoch).settle(sighted, operations.health, declared)
    settled += leader.settle(sighted, operations, declared) + Hands(plane, leader.epoch).settle(policy, declared)
    laps.end("settle")
    snapshot = leader.wind(observe(plane, sighted, declared, policy, operations), policy, revision)
    laps.end("observe")
    plan, solution, fault = decide(plane.solve, snapshot, policy, laps)
    # The record comes before the deed, so that no deed is ever without one.
    record = RoundRecord(0, snapshot.time, revision, snapshot, policy, plan, laps.phase_ms, solution)
    number = record_news(plane.history, leader.epoch, record)
    refused = leader.act(plan)
    laps.end("act")
    by_hand = (*plane.interventions.in_force(), *cordons(plane.health.all()))
    return Pass(
        *(leader.epoch, revision, policy, snapshot, plan, number, settled, refused),
        *(laps.phase_ms, sighted, by_hand, fault),
    )
