"""What a change of policy would do: two revisions solved on one snapshot, and the differences as data.

Pure but for the optimiser that is handed in: the same revisions and snapshot give the same review.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from reconciler.documents.repository import Compiled
from solver.plan.plan import Certificate, Inadmissible, Plan, Runs, Starts, Verdict, Waits
from solver.program.optimiser import Optimiser
from solver.rules.policy import Policy
from solver.solve import solve
from solver.world.cluster import Node
from solver.world.document import API_VERSION, Document, to_builtins
from solver.world.snapshot import Snapshot, snapshot_of
from solver.world.workload import Job, JobName, QueueName

Outcome = Literal["starts", "waits", "inadmissible"]


class FieldChange(Document, frozen=True, omit_defaults=False):
    """One field of one document that means something else at the head; None: not there."""

    document: str
    field: str
    before: str | None
    after: str | None


class JobChange(Document, frozen=True, omit_defaults=False):
    """One live job, and what the next round would do with it under each revision; `reasons` are the head's, in words."""

    job: JobName
    queue: QueueName
    gpus: int
    before: Outcome
    after: Outcome
    reasons: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """The revisions decide differently."""
        return self.before != self.after


class Review(Document, frozen=True, omit_defaults=False):
    """The effect of a change, before it is merged. Jobs are all that are pending, sorted by name."""

    base: str
    head: str
    snapshot: str
    base_policy: str
    head_policy: str
    documents: tuple[FieldChange, ...]
    jobs: tuple[JobChange, ...]
    base_certificate: Certificate
    head_certificate: Certificate
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["Review"] = "Review"

    @property
    def has_changes(self) -> bool:
        """A document means something else, or a job fares differently."""
        return bool(self.documents) or any(job.changed for job in self.jobs)


def review(
    snapshot: Snapshot, base: tuple[str, Compiled], head: tuple[str, Compiled], optimiser: Optimiser | None
) -> Review:
    """Solve one snapshot under the policies of two revisions, given as (name, compiled)."""
    (base_name, before), (head_name, after) = base, head
    base_plan = solve(on_inventory(snapshot, before.nodes), before.policy, optimiser)
    head_plan = solve(on_inventory(snapshot, after.nodes), after.policy, optimiser)
    return Review(
        base_name,
        head_name,
        snapshot.digest,
        before.policy.digest,
        after.policy.digest,
        tuple(field_changes(documents_of(before), documents_of(after))),
        tuple(_job_changes(snapshot.pending, base_plan, head_plan)),
        base_plan.certificate,
        head_plan.certificate,
    )


def on_inventory(snapshot: Snapshot, declared: tuple[Node, ...]) -> Snapshot:
    """The snapshot as it will be on a declared inventory: known nodes keep their health, new ones count as ready."""
    known = {node.name: node for node in snapshot.nodes}
    nodes = [known.get(node.name, node) for node in declared] if declared else snapshot.nodes
    return snapshot_of(snapshot.time, nodes, snapshot.jobs, snapshot.in_flight)


def documents_of(compiled: Compiled) -> dict[str, dict[str, str]]:
    """Every document as flat fields, by `Kind name`: what is compared, so that layout and comments don't count."""
    policy: Policy = compiled.policy
    documents = {f"Queue {queue.name}": flat(to_builtins(queue)) for queue in policy.queues}
    documents |= {f"PriorityClass {known.name}": flat(to_builtins(known)) for known in policy.priority_classes}
    documents["SchedulingPolicy"] = flat(to_builtins(policy.scheduling))
    pools: dict[str, int] = {}
    for node in compiled.nodes:
        pools[node.pool] = pools.get(node.pool, 0) + 1
    return documents | {f"NodePool {name}": {"nodes": str(count)} for name, count in pools.items()}


def field_changes(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> Iterable[FieldChange]:
    """What differs, by document and field."""
    for document in sorted(before.keys() | after.keys()):
        old, new = before.get(document, {}), after.get(document, {})
        for field in sorted(old.keys() | new.keys()):
            if old.get(field) != new.get(field):
                yield FieldChange(document, field, old.get(field), new.get(field))


def flat(value: Any, path: str = "") -> dict[str, str]:
    """Nested fields as `a.b`, list entries by what names them (`quota[H100].max`). Places in files are left out."""
    if isinstance(value, dict):
        inside = {key: entry for key, entry in value.items() if key not in ("origin", "name")}
        return {
            field: text
            for key, entry in inside.items()
            for field, text in flat(entry, f"{path}.{key}" if path else key).items()
        }
    if isinstance(value, list):
        named = [
            (entry.get("gpuType", number) if isinstance(entry, dict) else number, entry)
            for number, entry in enumerate(value)
        ]
        return {field: text for name, entry in named for field, text in _entry(entry, f"{path}[{name}]").items()}
    return {path: str(value)}


def _entry(entry: Any, path: str) -> dict[str, str]:
    if isinstance(entry, dict):
        entry = {key: inside for key, inside in entry.items() if key != "gpuType"}
    return flat(entry, path)


def _job_changes(pending: tuple[Job, ...], base: Plan, head: Plan) -> Iterable[JobChange]:
    before = {verdict.job: verdict for verdict in base.verdicts}
    after = {verdict.job: verdict for verdict in head.verdicts}
    for job in pending:
        new = after[job.name]
        reasons = tuple(str(reason) for reason in new.reasons) if isinstance(new, Waits | Inadmissible) else ()
        gpus = job.spec.gpus
        yield JobChange(job.name, job.spec.queue, gpus, _outcome(before[job.name]), _outcome(new), reasons)


def _outcome(verdict: Verdict) -> Outcome:
    """A pending job's; one that holds devices has no say in a review."""
    match verdict:
        case Starts():
            return "starts"
        case Waits():
            return "waits"
        case Inadmissible():
            return "inadmissible"
        case Runs():
            raise ValueError(f"{verdict.job} runs; a review is of pending jobs")
