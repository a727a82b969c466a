"""What changed from one recorded round to another: jobs that start now, reasons, evictions, policy and capacity, as data.

Pure. A round of a few jobs alone is what its base said, and what was decided alone since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from reconciler.control.metrics import reason_code
from reconciler.documents.operations import Operations
from reconciler.documents.repository import Compiled
from reconciler.gitops.review.jobs import outcome_of
from reconciler.gitops.review.meaning import document_changes
from reconciler.model.review_findings import DocumentChange, Outcome
from reconciler.protocols.rounds import NarrowRecord, RoundRecord
from reconciler.web.cluster_summary import ClusterSummary, GpuCount
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.plan.plan import Bind, Departs, Evict, Inadmissible, Moves, Nominate, Verdict, Waits, Yields
from solver.plan.reason import count

EXAMPLES = 5
"""Jobs that are named of each kind of change."""

ALONE = "served-alone"
"""Stands for the code of a reason where a job was served alone and found no place: the next complete round says why."""


class RecordedStanding(NamedTuple):
    """How a job stands in a round. `code`: its most telling reason where it waits or can never run; `words` says it."""

    outcome: Outcome
    code: str = ""
    words: str = ""


class ChangedJobs(NamedTuple):
    """So many jobs, or nodes, went from one standing to another. "" stands for none of that name.

    `words`: of each job that is named, in the later round.
    """

    before: str
    after: str
    jobs: int
    names: tuple[JobName, ...]
    words: tuple[str, ...]


class CapacityChange(NamedTuple):
    """A GPU type whose figures differ. None: the round knew no GPU of it."""

    gpu_type: str
    before: GpuCount | None
    after: GpuCount | None


class RoundSide(NamedTuple):
    """One of the two rounds."""

    number: int
    time: Instant
    revision: str


class RoundChanges(NamedTuple):
    """From `before` to `after`.

    `started`: jobs that start now, by how they stood. `given_up`: jobs that are asked to leave, shrink or move, and were not
    before. `reasons`: jobs that wait, or can never run, for another reason. `came`, `gone`: jobs of one of the rounds alone.
    `others`: jobs that stand otherwise in ways that are not told of, such as one that started then and runs now.
    `documents`: of the policy, where it says something else. `nodes`: that came, went, or take new work otherwise than before.
    """

    before: RoundSide
    after: RoundSide
    started: tuple[ChangedJobs, ...]
    given_up: tuple[ChangedJobs, ...]
    reasons: tuple[ChangedJobs, ...]
    came: tuple[ChangedJobs, ...]
    gone: tuple[ChangedJobs, ...]
    others: int
    documents: tuple[DocumentChange, ...]
    capacity: tuple[CapacityChange, ...]
    nodes: tuple[ChangedJobs, ...]
    is_same_policy: bool


def round_changes(before: RoundRecord, after: RoundRecord) -> RoundChanges:
    """Compare two rounds."""
    old, new = _standings(before), _standings(after)
    moved = {name: (old[name], now) for name, now in new.items() if name in old and old[name] != now}
    kinds = defaultdict[str, dict[JobName, tuple[str, str, str]]](dict)
    for name, (was, now) in moved.items():
        kinds[_kind(was, now)][name] = (_told(was), _told(now), now.words)
    for name in new.keys() - old.keys():
        kinds["came"][name] = "", _told(new[name]), new[name].words
    for name in old.keys() - new.keys():
        kinds["gone"][name] = _told(old[name]), "", ""
    documents: tuple[DocumentChange, ...] = ()
    is_same_policy = before.policy.digest == after.policy.digest
    if not is_same_policy:
        documents = tuple(document_changes(*(_compiled(each) for each in (before, after))))
    return RoundChanges(
        before=_side(before),
        after=_side(after),
        started=_grouped(kinds["started"]),
        given_up=_grouped(kinds["given-up"]),
        reasons=_grouped(kinds["reasons"]),
        came=_grouped(kinds["came"]),
        gone=_grouped(kinds["gone"]),
        others=len(kinds["others"]),
        documents=documents,
        capacity=tuple(_capacity_changes(before.snapshot, after.snapshot)),
        nodes=_grouped(dict(_node_changes(before.snapshot, after.snapshot))),
        is_same_policy=is_same_policy,
    )


def _kind(was: RecordedStanding, now: RecordedStanding) -> str:
    if now.outcome == "starts":
        return "started"
    if now.outcome in ("leaves", "shrinks", "moves"):
        return "given-up" if was.outcome != now.outcome else "others"
    if now.code and (was.code, was.outcome) != (now.code, now.outcome):
        return "reasons"
    return "others"


def _told(standing: RecordedStanding) -> str:
    return f"{standing.outcome}: {standing.code}" if standing.code else standing.outcome


def _standings(record: RoundRecord) -> dict[JobName, RecordedStanding]:
    """Of every job, as a complete round has it and those served alone since have changed it."""
    found = {verdict.job: _standing(verdict) for verdict in record.plan.verdicts}
    for narrow in record.narrow:
        _follow(found, narrow)
    return found


def _standing(verdict: Verdict) -> RecordedStanding:
    outcome = outcome_of(verdict)
    if isinstance(verdict, Waits | Inadmissible):
        return RecordedStanding(outcome, reason_code(verdict), str(verdict.reasons[0]) if verdict.reasons else "")
    return RecordedStanding(outcome, "", str(verdict) if isinstance(verdict, Yields | Departs | Moves) else "")


def _follow(found: dict[JobName, RecordedStanding], record: NarrowRecord) -> None:
    for ends in record.ended:
        for name in ends.jobs:
            found.pop(name, None)
    for name in record.withdrawn:
        found.pop(name, None)
    for job in record.taken:
        found[job.name] = RecordedStanding("runs")
    for job in (*record.waited, *record.unsure, *record.came):
        found[job.name] = RecordedStanding(
            "waits", ALONE, "it was served alone and found no place; a complete round says why"
        )
    for step in record.steps:
        match step:
            case Bind():
                found[step.job] = RecordedStanding("starts")
            case Evict():
                found[step.job] = RecordedStanding(
                    "leaves", "", f"gives up {count(step.gpus.number, 'GPU')} for {step.beneficiary}"
                )
            case Nominate():
                found[step.job] = RecordedStanding(
                    "waits", "awaits-release", "starts once jobs that were asked to leave have"
                )


def _grouped(found: Mapping[JobName, tuple[str, str, str]]) -> tuple[ChangedJobs, ...]:
    """By what they were and are, the most first; the first few by name are named."""
    groups = defaultdict[tuple[str, str], list[JobName]](list)
    for name in sorted(found):
        was, now, _ = found[name]
        groups[was, now].append(name)
    made = (
        ChangedJobs(was, now, len(names), tuple(names[:EXAMPLES]), tuple(found[name][2] for name in names[:EXAMPLES]))
        for (was, now), names in groups.items()
    )
    return tuple(sorted(made, key=lambda group: (-group.jobs, group.before, group.after)))


def _side(record: RoundRecord) -> RoundSide:
    newest = record.narrow[-1] if record.narrow else record
    return RoundSide(record.number, newest.time, newest.revision)


def _compiled(record: RoundRecord) -> Compiled:
    """What the round knows of a revision."""
    return Compiled(record.policy, (), Operations())


def _capacity_changes(before: Snapshot, after: Snapshot) -> Iterator[CapacityChange]:
    old, new = ({count.name: count for count in ClusterSummary.of(each).types} for each in (before, after))
    for gpu_type in sorted(old.keys() | new.keys()):
        if old.get(gpu_type) != new.get(gpu_type):
            yield CapacityChange(gpu_type, old.get(gpu_type), new.get(gpu_type))


def _node_changes(before: Snapshot, after: Snapshot) -> Iterable[tuple[JobName, tuple[str, str, str]]]:
    def states(snapshot: Snapshot) -> dict[str, str]:
        return {
            node.name: "not ready" if not node.ready else "closed to new jobs" if node.cordoned else "open to new jobs"
            for node in snapshot.nodes
        }

    old, new = states(before), states(after)
    for name in old.keys() | new.keys():
        was, now = old.get(name, ""), new.get(name, "")
        if was != now:
            yield JobName(name), (was, now, "")
