"""The loop's pass where jobs are pods: see, go on with what was begun, observe, solve, check, record, act, tell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from reconciler.control.fallback import decide
from reconciler.control.passes import Laps, Pass
from reconciler.kubernetes.binder.budgets import by_namespace
from reconciler.kubernetes.control.attempts import PodAttempts
from reconciler.kubernetes.control.geometry import enforceable, geometry_of, with_geometry
from reconciler.kubernetes.control.plane import PodPlane
from reconciler.kubernetes.control.sight import Sight, claims_of, seen, snapshot_from
from reconciler.kubernetes.objects.wire import Pod
from reconciler.kubernetes.status.queues import Standing
from reconciler.kubernetes.status.teller import Facts
from reconciler.lifecycle.interventions.effects import about
from reconciler.lifecycle.jobs.sighted import Sighted
from reconciler.model.intervention_record import Intervention
from reconciler.protocols.backend import Epoch
from reconciler.protocols.rounds import RoundRecord
from solver.model.workload import QueueName
from solver.policy.policy import Policy


async def one_pass(plane: PodPlane) -> tuple[Pass, Sight]:
    """Take one step towards what Git wants.

    Raises NotLeaderError (another leads: stand by), NoPolicyError or KubernetesError (try again), PlanRefusedError or
    NoPlanError (report it), StoreUnusableError (a person must act). It may be killed anywhere and called again.
    """
    laps = Laps(plane.handed.clock)
    epoch = plane.hands.lead() if plane.hands else Epoch(0)
    plane.handed.memory.open()
    revision, policy, declared, _ = plane.handed.policies.current()
    if plane.handed.memory.is_new(revision):
        plane.mirror.declare(declared)
    if plane.hands:
        await plane.hands.caught_up()
    sight, policy = await _looked(plane, policy)
    laps.end("sight")
    settled = await plane.hands.go_on(sight, policy) if plane.hands else 0
    laps.end("settle")
    plane.handed.memory.look(epoch, sight)
    by_hand = plane.handed.interventions.in_force()
    plane.handed.memory.accrue(policy, claims_of(sight), sight.queues, sight.cluster.nodes)
    snapshot = snapshot_from(plane.handed.clock.now(), sight, policy, by_hand, plane.handed.memory.remembered())
    snapshot = plane.handed.memory.wind(snapshot, policy, revision)
    laps.end("observe")
    # Off the event loop: watches go on, and the lease is renewed, while it is solved.
    plan, solution, fault = await asyncio.to_thread(decide, plane.handed.solve, snapshot, policy, laps)
    # The record comes before the deed, so that no deed is ever without one.
    record = RoundRecord(0, snapshot.time, revision, snapshot, policy, plan, laps.phase_ms, solution)
    number = (plane.observer or plane.handed.memory).keep_round(record)
    refused = await plane.hands.act(plan, sight) if plane.hands else 0
    laps.end("act")
    if plane.observer:
        await plane.observer.note(snapshot.time, plan, sight)
    if plane.teller:
        plane.teller.note(Facts(plan, sight.cluster, sight.pods, snapshot, policy, _standing(plane, revision, by_hand)))
    done = Pass(
        *(epoch, revision, policy, snapshot, plan, number, settled, refused),
        *(
            laps.phase_ms,
            Sighted({node.name: node for node in sight.cluster.nodes}, PodAttempts(sight)),
            by_hand,
            fault,
        ),
    )
    return done, sight


async def _looked(plane: PodPlane, policy: Policy) -> tuple[Sight, Policy]:
    """What the mirror shows and this process remembers, and what of the policy can be kept there."""
    pods: dict[tuple[str, str], Pod] = dict(plane.mirror.pods.items())
    budgets = by_namespace(budget for _, budget in plane.mirror.budgets.items())
    begun = plane.hands.binder.remembered if plane.hands else ()
    deadline, now = policy.scheduling.start_deadline, plane.handed.clock.now()
    sight = seen(plane.mirror.cluster(), pods, budgets, deadline, now, begun)
    policy = enforceable(policy, sight.cluster, (node for _, node in plane.mirror.nodes.items()))
    if plane.hands:
        sight = replace(sight, reservations=(*sight.reservations, *await plane.hands.promises.declared.kept()))
    return await _with_geometry(plane, policy, sight), policy


async def _with_geometry(plane: PodPlane, policy: Policy, sight: Sight) -> Sight:
    """Who only looks has not read which configs there are: what a round wants of a node is what would be asked for."""
    nodes = [node for _, node in plane.mirror.nodes.items()]
    if plane.hands:
        return await plane.hands.partitioner.looked(policy, sight, nodes)
    now = plane.handed.clock.now()
    return with_geometry(sight, geometry_of(policy, sight, nodes, now), now)


def _standing(plane: PodPlane, revision: str, by_hand: Iterable[Intervention]) -> Standing:
    holds = about(by_hand, "hold", "queue", plane.handed.clock.now())
    return Standing(revision, plane.handed.stalled(), {QueueName(name): str(hold) for name, hold in holds.items()})
