"""Joins what Git declares, what the backend reports and what the stores hold into one frozen snapshot."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

import msgspec

from reconciler.checkpoints.unread import unread
from reconciler.control import ControlPlane
from reconciler.interventions.effects import about, held
from reconciler.jobs.dependencies import depended_on
from reconciler.jobs.eligible import blocks
from reconciler.jobs.record import JobRecord
from reconciler.jobs.sighted import Sighted
from reconciler.jobs.states import phase_of, state_of
from reconciler.operations import Operations
from reconciler.store.protocols import Claim
from solver.rules.costs import near
from solver.rules.durations import quantiles
from solver.rules.partitioning import HOUR_MS, mig_changes
from solver.rules.policy import Policy
from solver.world.cluster import Node
from solver.world.inflight import InFlight, Intent
from solver.world.quantities import Instant
from solver.world.snapshot import Snapshot, snapshot_of
from solver.world.workload import Job, JobName


def records_of(plane: ControlPlane, claims: Iterable[Claim]) -> tuple[JobRecord, ...]:
    """Every live job, and every ended one that still holds devices."""
    live = plane.jobs.live_jobs()
    names = {record.name for record in live}
    return (*live, *(plane.jobs.job(claim.job) for claim in claims if claim.job not in names))


def observe(
    plane: ControlPlane, sighted: Sighted, declared: Iterable[Node], policy: Policy, operations: Operations
) -> Snapshot:
    """The world of this round."""
    claims, intents, attempts = plane.ledger.claims(), plane.ledger.intents(), plane.ledger.attempts()
    served, now = plane.ledger.served(), plane.clock.now()
    records, holding = records_of(plane, claims), [claim.job for claim in claims]
    by_hand, tallies = plane.interventions.in_force(), plane.jobs.tallies(depended_on(records))
    unread_now = unread(records, attempts, operations.storages, plane.checkpoints)
    # Who has been promised devices for its next attempt goes on from what was intact when it was read last.
    promised = {intent.job for intent in intents if intent.kind == "nominate"}
    awaited = {job: step for job, step in unread_now.items() if job not in promised}
    jobs = tuple(
        _jobs(
            records,
            {claim.job: claim for claim in claims},
            intents,
            attempts,
            plane.ledger.evictions(),
            served,
            blocks(records, now, holding, tallies, awaited, held(by_hand, records, policy, now)),
            about(by_hand, "boost", "job", now),
        )
    )
    quantile = policy.scheduling.duration_quantile
    endless = bool(quantile) and any(job.placement and job.time_limit is None for job in jobs)
    ended = plane.ledger.history() if policy.goes_by_history or endless else ()
    cordons = about(by_hand, "cordon", "node", now)
    nodes = tuple(join(node, sighted.nodes.get(node.name), cordons) for node in declared)
    return snapshot_of(
        now,
        nodes,
        jobs,
        InFlight(
            intents=intents,
            reservations=plane.ledger.reservations(),
            usage=plane.ledger.past_use().usage,
            durations=quantiles(ended, quantile) if endless else (),
            history=near(ended, jobs) if policy.goes_by_history else (),
            counters=mig_changes(nodes, plane.ledger.repartitioned_since(Instant(now - HOUR_MS))),
            convergence=plane.ledger.clocks(),
            repartitions=plane.ledger.repartitions(),
        ),
    )


def join(declared: Node, observed: Node | None, cordons: Container[str] = ()) -> Node:
    """Git says what a node is; the backend whether it, and each of its GPUs, is there and well, and what instances it has.

    `cordons`: the nodes that somebody has cordoned by hand.
    """
    by_hand = declared.name in cordons
    if observed is None:
        return msgspec.structs.replace(declared, ready=False, cordoned=declared.cordoned or by_hand)
    well = {gpu.id for gpu in observed.gpus if gpu.healthy}
    instances = {gpu.id: gpu.instances for gpu in observed.gpus}
    return msgspec.structs.replace(
        declared,
        ready=declared.ready and observed.ready,
        cordoned=declared.cordoned or observed.cordoned or by_hand,
        gpus=tuple(
            msgspec.structs.replace(
                gpu, healthy=gpu.healthy and gpu.id in well, instances=instances.get(gpu.id, gpu.instances)
            )
            for gpu in declared.gpus
        ),
    )


def _jobs(
    records: Iterable[JobRecord],
    claims: dict[JobName, Claim],
    intents: tuple[Intent, ...],
    attempts: dict[JobName, int],
    evictions: dict[JobName, tuple[Instant, ...]],
    served: dict[JobName, int],
    held_back: Collection[JobName],
    boosts: Container[str],
) -> Iterable[Job]:
    for record in records:
        evicted_at = evictions.get(record.name, ())
        claim = claims.get(record.name)
        if claim is not None:
            phase = phase_of(state_of(record, claim, intents))
            yield _job(
                record,
                phase=phase,
                attempt=claim.attempt,
                started_at=claim.running_since,
                time_limit=claim.time_limit,
                placement=claim.tasks,
                evicted_at=evicted_at,
                served_gpu_ms=served.get(record.name, 0),
            )
        elif not record.cancel_requested_by and record.name not in held_back:
            yield _job(
                record,
                attempt=attempts.get(record.name, 0),
                evicted_at=evicted_at,
                served_gpu_ms=served.get(record.name, 0),
                boosted=record.name in boosts,
            )


def _job(record: JobRecord, **standing: object) -> Job:
    # A round does not depend on the environment, and snapshots are kept and handed out: secrets stay out of them.
    spec = msgspec.structs.replace(record.spec, env={})
    return msgspec.structs.replace(Job(record.name, record.submitted_at, spec, record.user), **standing)
