"""Joins what Git declares, what the backend reports and what the stores hold into one frozen snapshot."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from operator import is_

import msgspec

from reconciler.control.control import ControlPlane
from reconciler.control.islands import reported_cliques, with_reported_islands
from reconciler.documents.operations import Operations
from reconciler.lifecycle.checkpoints.pending_verification import unread
from reconciler.lifecycle.checkpoints.turns import storage_of
from reconciler.lifecycle.health.effects import closed_places
from reconciler.lifecycle.interventions.effects import HeldByHand, about, held_jobs
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.lifecycle.jobs.budget_holds import BudgetSpent, held_by_budgets
from reconciler.lifecycle.jobs.containers import container_nodes, kept_to_containers
from reconciler.lifecycle.jobs.dependencies import depended_on
from reconciler.lifecycle.jobs.eligibility import blocks
from reconciler.lifecycle.jobs.states import by_job, phase_of, state_of
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.job_record import JobRecord
from reconciler.protocols.ledger import Claim
from solver.capacity.partitioning import HOUR_MS, mig_changes
from solver.model.cluster import Gpu, Node
from solver.model.inflight import InFlight, Intent
from solver.model.node_sets import NodeSet
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName
from solver.policy.policy import Policy
from solver.queueing.costs import near
from solver.queueing.durations import quantiles


def records_of(plane: ControlPlane, claims: Iterable[Claim]) -> tuple[JobRecord, ...]:
    """Every live job, and every ended one that still holds devices."""
    live = plane.jobs.live_jobs()
    names = {record.name for record in live}
    return (*live, *(plane.jobs.job(claim.job) for claim in claims if claim.job not in names))


def observe(
    plane: ControlPlane, sighted: BackendReports, declared: Iterable[Node], policy: Policy, operations: Operations
) -> Snapshot:
    """The world of this round."""
    claims, intents, attempts = plane.ledger.claims(), plane.ledger.intents(), plane.ledger.attempts()
    now = plane.clock.now()
    records, holding = records_of(plane, claims), {claim.job: claim for claim in claims}
    by_hand, tallies = plane.interventions.in_force(), plane.jobs.tallies(depended_on(records))
    # A job that holds devices goes on with what it has: its checkpoints are not looked through for that.
    waiting = [record for record in records if record.name not in holding]
    unread_now = unread(waiting, attempts, operations.storages, plane.checkpoints)
    # A job that was promised devices for its next attempt goes on from what was intact when it was read last.
    promised = {intent.job for intent in intents if intent.kind == "nominate"}
    awaited = {job: step for job, step in unread_now.items() if job not in promised}
    known = _Known(
        holding,
        by_job(intents),
        attempts,
        plane.ledger.evictions(),
        plane.ledger.served(),
        plane.checkpoints.saved(),
        operations.storages,
    )
    # Others leave for a job that was promised something: a budget that is spent since does not take that back.
    spent = held_by_budgets(plane.budgets(), (known for known in waiting if known.name not in promised), policy)
    held_back = blocks(records, now, holding, tallies, awaited, _held(spent, held_jobs(by_hand, records, policy, now)))
    node_sets = container_nodes(declared := tuple(declared), sighted.facts)
    jobs = tuple(_jobs(records, known, held_back, about(by_hand, "boost", "job", now), node_sets))
    quantile = policy.scheduling.duration_quantile
    endless = bool(quantile) and any(job.placement and job.time_limit is None for job in jobs)
    ended = plane.ledger.history() if policy.goes_by_history or endless else ()
    unfit = {*about(by_hand, "cordon", "node", now), *closed_places(plane.health.all())}
    placed = with_reported_islands(declared, reported_cliques(sighted.facts))
    nodes = tuple(join(node, sighted.nodes.get(node.name), unfit) for node in placed)
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
            counters=mig_changes(nodes, plane.ledger.partitionings.begun_since(Instant(now - HOUR_MS))),
            convergence=plane.ledger.clocks(),
            repartitions=plane.ledger.partitionings.in_flight(),
        ),
        node_sets,
    )


def _held(
    spent: Mapping[JobName, BudgetSpent], by_hand: Mapping[JobName, HeldByHand]
) -> Mapping[JobName, HeldByHand | BudgetSpent]:
    return {**spent, **by_hand}


def new_jobs(
    plane: ControlPlane, names: Collection[JobName], node_sets: Collection[NodeSet], policy: Policy, now: Instant
) -> tuple[tuple[Job, ...], tuple[Job, ...]]:
    """Those of the jobs that may begin now and never did, as a round would see them; and those that may or may not.

    What has begun before, has an array that runs only so many at a time, or depends on others is not looked into.
    """
    records, holds = plane.jobs.named(names).values(), plane.ledger.of(names)
    waiting = [
        record
        for record in records
        if record.outcome is None
        and not record.cancel_requested_by
        and not record.suspended_by
        and record.name not in holds.claims
    ]
    fresh = [
        record
        for record in waiting
        if not record.failures
        and not record.spec.depends_on
        and (record.array is None or record.array.max_running is None)
        and not holds.attempts.get(record.name, 0)
    ]
    known = {record.name for record in fresh}
    by_hand = plane.interventions.in_force()
    spent = held_by_budgets(plane.budgets(), fresh, policy)
    held_back = blocks(fresh, now, (), {}, held=_held(spent, held_jobs(by_hand, fresh, policy, now)))
    boosts = about(by_hand, "boost", "job", now)
    return (
        tuple(
            _job(record, node_sets, boosted=record.name in boosts) for record in fresh if record.name not in held_back
        ),
        tuple(_job(record, node_sets, boosted=record.name in boosts) for record in waiting if record.name not in known),
    )


def join(declared: Node, observed: Node | None, unfit: Container[str] = ()) -> Node:
    """Git says what a node is; the backend whether it, and each of its GPUs, is there and well, and what instances it has.

    `unfit`: nodes that are cordoned by hand or for their health, and GPUs on which nothing new is to start.
    """
    is_unfit = declared.name in unfit
    if observed is None:
        return msgspec.structs.replace(declared, ready=False, cordoned=declared.cordoned or is_unfit)
    seen = {gpu.id: gpu for gpu in observed.gpus}
    gpus = tuple([_join_gpu(gpu, seen.get(gpu.id), unfit) for gpu in declared.gpus])
    ready, cordoned = declared.ready and observed.ready, declared.cordoned or observed.cordoned or is_unfit
    # Of 12,500 nodes nearly all are as declared: one object is both.
    if (ready, cordoned) == (declared.ready, declared.cordoned) and all(map(is_, gpus, declared.gpus)):
        return declared
    return msgspec.structs.replace(declared, ready=ready, cordoned=cordoned, gpus=gpus)


def _join_gpu(declared: Gpu, observed: Gpu | None, unfit: Container[str]) -> Gpu:
    healthy = declared.healthy and observed is not None and observed.healthy and observed.id not in unfit
    instances = declared.instances if observed is None else observed.instances
    if (healthy, instances) == (declared.healthy, declared.instances):
        return declared
    return msgspec.structs.replace(declared, healthy=healthy, instances=instances)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the stores hold of jobs. `saved`: until when the work of each attempt is saved, where its checkpoints are kept."""

    claims: Mapping[JobName, Claim]
    intents: Mapping[JobName, tuple[Intent, ...]]
    attempts: Mapping[JobName, int]
    evictions: Mapping[JobName, tuple[Instant, ...]]
    served: Mapping[JobName, int]
    saved: Mapping[tuple[JobName, int], Instant]
    storages: Mapping[str, CheckpointPolicy]

    def saved_at(self, record: JobRecord, claim: Claim) -> Instant | None:
        """Until when it is known to be saved what an attempt has done; None: it is not known when it saves."""
        if claim.running_since is None or storage_of(record.spec, self.storages) is None:
            return None
        return self.saved.get((claim.job, claim.attempt), claim.running_since)


def _jobs(
    records: Iterable[JobRecord],
    known: _Known,
    held_back: Collection[JobName],
    boosts: Container[str],
    node_sets: Collection[NodeSet],
) -> Iterable[Job]:
    for record in records:
        past: dict[str, object] = {
            "evicted_at": known.evictions.get(record.name, ()),
            "served_gpu_ms": known.served.get(record.name, 0),
        }
        claim = known.claims.get(record.name)
        if claim is not None:
            yield _job(
                record,
                node_sets,
                phase=phase_of(state_of(record, claim, known.intents[record.name])),
                attempt=claim.attempt,
                started_at=claim.running_since,
                time_limit=claim.time_limit,
                placement=claim.tasks,
                saved_at=known.saved_at(record, claim),
                **past,
            )
        elif not record.cancel_requested_by and record.name not in held_back:
            boosted = record.name in boosts
            yield _job(record, node_sets, attempt=known.attempts.get(record.name, 0), boosted=boosted, **past)


def _job(record: JobRecord, node_sets: Collection[NodeSet], **standing: object) -> Job:
    # A round does not depend on the environment, and snapshots are kept and handed out: secrets stay out of them.
    spec = kept_to_containers(record.spec, node_sets)
    if spec.env:
        spec = msgspec.structs.replace(spec, env={})
    return msgspec.structs.replace(Job(record.name, record.submitted_at, spec, record.user), **standing)
