"""What a change of policy would do: two revisions solved on one snapshot and played on, and the differences as data.

Pure but for the optimiser that is handed in: the same revisions and snapshot give the same review.
"""

from __future__ import annotations

import msgspec

from reconciler.documents.ended_windows import ended_windows
from reconciler.gitops.review.devices import device_changes, fragments, rack_uses, stranded_jobs
from reconciler.gitops.review.guardrails import breaches_of
from reconciler.gitops.review.idle import idle_catches
from reconciler.gitops.review.jobs import job_changes, unrestartable_jobs
from reconciler.gitops.review.meaning import document_changes, meaning_of
from reconciler.gitops.review.queue_names import requeued_jobs
from reconciler.gitops.review.queues import converging_limits, host_queue_changes, queue_changes, queue_waits
from reconciler.gitops.review.side import Played, ReviewSide, play
from reconciler.gitops.review.window_changes import window_changes
from reconciler.model.review_findings import Ahead, Review, RevisionReviewed
from solver.milp.optimiser import Optimiser
from solver.model.document import digest
from solver.model.snapshot import Snapshot


def review(snapshot: Snapshot, base: ReviewSide, head: ReviewSide, optimiser: Optimiser | None) -> Review:
    """Solve one snapshot under the policies and on the inventories of two revisions, and play the rounds that follow.

    The optimiser decides the next round of each; those that follow are greedy.
    """
    before, after = (play(snapshot, side, base.compiled.nodes, optimiser) for side in (base, head))
    found = Review(
        base=_reviewed(before),
        head=_reviewed(after),
        snapshot=snapshot.digest,
        cluster=cluster_of(snapshot),
        time=snapshot.time,
        documents=tuple(document_changes(base.compiled, head.compiled)),
        jobs=tuple(job_changes(snapshot, before, after)),
        queues=tuple(queue_changes(before, after)),
        converging=tuple(converging_limits(after)),
        waits=tuple(queue_waits(snapshot, before, after)),
        fragments=tuple(fragments(before, after)),
        repartitioned=tuple(device_changes(before, after)),
        ahead=_ahead(before, after),
        stranded=tuple(stranded_jobs(snapshot, before, after)),
        unrestartable=tuple(unrestartable_jobs(snapshot, before, after)),
        racks=tuple(rack_uses(before, after)),
        idle=tuple(idle_catches(snapshot, base.compiled, head.compiled)),
        requeued=tuple(requeued_jobs(snapshot, before.policy, after.policy)),
        host_queues=tuple(host_queue_changes(before, after)),
        windows=tuple(window_changes(before, after, snapshot.time)),
        ending=tuple(ended_windows(after.policy, snapshot.time)),
    )
    there = (before.snapshot.nodes, after.snapshot.nodes) if snapshot.inventory == "reported" else None
    return msgspec.structs.replace(found, breaches=breaches_of(base.compiled, head.compiled, found, there))


def cluster_of(snapshot: Snapshot) -> str:
    """Names a snapshot by its nodes and by what each job has, whatever the time is and however long it has run."""
    return digest((snapshot.nodes, [(job.name, job.phase, job.attempt, job.placement) for job in snapshot.jobs]))


def _reviewed(played: Played) -> RevisionReviewed:
    side = played.side
    meaning, inventory = meaning_of(side.compiled), digest(side.compiled.nodes)
    policy, certificate = side.compiled.policy.digest, played.plan.certificate
    return RevisionReviewed(side.name, side.commit, meaning, policy, inventory, certificate)


def _ahead(before: Played, after: Played) -> Ahead:
    sides = before.ahead, after.ahead
    return Ahead(
        until=min(side.until for side in sides),
        rounds_before=before.ahead.rounds,
        rounds_after=after.ahead.rounds,
        complete=all(side.complete for side in sides),
        endless=max(side.endless for side in sides),
    )
