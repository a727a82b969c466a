"""What follows from interventions for jobs and nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.model.intervention_record import Intervention, InterventionKind, SubjectKind
from reconciler.model.job_record import JobRecord
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import JobName, QueueName
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree


class HeldByHand(Document, frozen=True, tag_field="block", tag="held-by-hand"):
    """A user keeps it from beginning for a while: the job itself, or all jobs of `queue` and those below it."""

    by: str
    until: Instant
    reason: str
    queue: str = ""

    def __str__(self) -> str:
        what = f"queue {self.queue} is held" if self.queue else "held"
        return f"{what} by {self.by} until {self.until}: {self.reason}"


def about(
    interventions: Iterable[Intervention], kind: InterventionKind, subjects: SubjectKind, now: Instant
) -> dict[str, Intervention]:
    """Those of one kind that are in force now, by what they are about."""
    return {
        each.subject.name: each
        for each in interventions
        if (each.kind, each.subject.kind) == (kind, subjects) and each.until > now and each.ended_at is None
    }


def held_jobs(
    interventions: Iterable[Intervention], records: Iterable[JobRecord], policy: Policy, now: Instant
) -> Mapping[JobName, HeldByHand]:
    """The jobs that are held, each by the hold that lasts longest. A queue that the policy does not know holds its own jobs."""
    interventions = tuple(interventions)
    jobs, queues = about(interventions, "hold", "job", now), about(interventions, "hold", "queue", now)
    if not jobs and not queues:
        return {}
    tree = QueueTree.of(policy)
    found: dict[JobName, HeldByHand] = {}
    for record in records:
        holds = [jobs[record.name]] if record.name in jobs else []
        holds += [queues[name] for name in _path(tree, record.spec.queue) if name in queues]
        if holds:
            found[record.name] = _held_by(max(holds, key=lambda each: each.until))
    return found


def _path(tree: QueueTree, name: QueueName) -> tuple[QueueName, ...]:
    return tree.path(name) or (name,)


def _held_by(hold: Intervention) -> HeldByHand:
    queue = hold.subject.name if hold.subject.kind == "queue" else ""
    return HeldByHand(hold.author, hold.until, hold.reason, queue)
