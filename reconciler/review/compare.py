"""What a change of policy would do: two revisions solved on one snapshot, and the differences as data.

Pure but for the optimiser that is handed in: the same revisions and snapshot give the same review.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

import msgspec

from reconciler.documents.repository import Compiled
from reconciler.meaning import DocumentChange, document_changes
from solver.plan.plan import Certificate, Departs, Inadmissible, Moves, Plan, Runs, Starts, Verdict, Waits, Yields
from solver.program.optimiser import Optimiser
from solver.solve import solve
from solver.world.cluster import Node, NodeName
from solver.world.document import API_VERSION, Document, digest
from solver.world.quantities import MilliGpu
from solver.world.snapshot import Snapshot, snapshot_of
from solver.world.workload import JobName, QueueName

Outcome = Literal["starts", "waits", "inadmissible", "runs", "leaves", "moves"]
"""`runs` and `leaves` are of jobs that run now: `leaves` is asked to, for another or by a rule."""


class JobChange(Document, frozen=True, omit_defaults=False):
    """One job, and what the next round would do with it under each revision; `reasons` are the head's, in words."""

    job: JobName
    queue: QueueName
    gpus: MilliGpu
    before: Outcome
    after: Outcome
    reasons: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """The revisions decide differently."""
        return self.before != self.after


class RevisionReviewed(Document, frozen=True, omit_defaults=False):
    """One side of a review: how it was named, its commit, its meaning by digest, and how good its plan is."""

    name: str
    commit: str
    policy: str
    inventory: str
    certificate: Certificate


class Review(Document, frozen=True, omit_defaults=False):
    """The effect of a change, before it is merged. Jobs are all that are pending, or would leave, by name."""

    base: RevisionReviewed
    head: RevisionReviewed
    snapshot: str
    documents: tuple[DocumentChange, ...]
    jobs: tuple[JobChange, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["Review"] = "Review"

    @property
    def has_changes(self) -> bool:
        """The policy or the inventory means something else, or a job fares differently."""
        meant = (self.base.policy, self.base.inventory) != (self.head.policy, self.head.inventory)
        return meant or any(job.changed for job in self.jobs)


class Side(NamedTuple):
    """A revision to review: as its user names it, its full commit id, and what it says."""

    name: str
    commit: str
    compiled: Compiled


def review(snapshot: Snapshot, base: Side, head: Side, optimiser: Optimiser | None) -> Review:
    """Solve one snapshot under the policies and on the inventories of two revisions."""
    by_base = {node.name for node in base.compiled.nodes if node.cordoned}
    base_plan, head_plan = (
        solve(on_inventory(snapshot, side.compiled.nodes, by_base), side.compiled.policy, optimiser)
        for side in (base, head)
    )
    return Review(
        _reviewed(base, base_plan),
        _reviewed(head, head_plan),
        snapshot.digest,
        tuple(document_changes(base.compiled, head.compiled)),
        tuple(_job_changes(snapshot, base_plan, head_plan)),
    )


def on_inventory(snapshot: Snapshot, declared: tuple[Node, ...], by_base: Collection[NodeName] = ()) -> Snapshot:
    """The snapshot as it will be on a declared inventory: nodes that were seen keep their health, new ones count as ready.

    `by_base`: nodes that were seen as cordoned because the base says so. Others stay cordoned whatever a revision says.
    A revision that declares no nodes at all is taken to leave the inventory to somebody else.
    """
    seen = {node.name: node for node in snapshot.nodes}
    nodes = [_as_seen(node, seen.get(node.name), by_base) for node in declared] if declared else snapshot.nodes
    return snapshot_of(snapshot.time, nodes, snapshot.jobs, snapshot.in_flight)


def _as_seen(declared: Node, seen: Node | None, by_base: Collection[NodeName]) -> Node:
    """What the node will be by declaration, and its health as it was seen."""
    if seen is None:
        return declared
    health = {gpu.id: gpu.healthy for gpu in seen.gpus}
    gpus = tuple(msgspec.structs.replace(gpu, healthy=health.get(gpu.id, gpu.healthy)) for gpu in declared.gpus)
    cordoned = declared.cordoned or (seen.cordoned and seen.name not in by_base)
    return msgspec.structs.replace(declared, ready=seen.ready, cordoned=cordoned, gpus=gpus)


def _reviewed(side: Side, plan: Plan) -> RevisionReviewed:
    inventory = digest(side.compiled.nodes)
    return RevisionReviewed(side.name, side.commit, side.compiled.policy.digest, inventory, plan.certificate)


def _job_changes(snapshot: Snapshot, base: Plan, head: Plan) -> Iterable[JobChange]:
    before = {verdict.job: verdict for verdict in base.verdicts}
    after = {verdict.job: verdict for verdict in head.verdicts}
    for job in snapshot.jobs:
        old, new = before[job.name], after[job.name]
        if job.phase == "pending" or any(isinstance(one, Yields | Departs | Moves) for one in (old, new)):
            held = MilliGpu(sum(task.gpus for task in job.placement))
            gpus = held or job.spec.gpus
            yield JobChange(job.name, job.spec.queue, gpus, _outcome(old), _outcome(new), _reasons(new))


def _reasons(verdict: Verdict) -> tuple[str, ...]:
    match verdict:
        case Waits(reasons=reasons) | Inadmissible(reasons=reasons):
            return tuple(map(str, reasons))
        case Yields() | Departs() | Moves():
            return (str(verdict),)
        case Starts() | Runs():
            return ()


def _outcome(verdict: Verdict) -> Outcome:
    match verdict:
        case Starts():
            return "starts"
        case Waits():
            return "waits"
        case Inadmissible():
            return "inadmissible"
        case Runs():
            return "runs"
        case Yields() | Departs():
            return "leaves"
        case Moves():
            return "moves"
