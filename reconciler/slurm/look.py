"""One look at a Slurm cluster: its jobs as rounds see them, what became of each, and what can't be known of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import msgspec

from reconciler.analysis.backtest.history_file import Ended
from reconciler.importers.inventory import node_name
from reconciler.importers.slurm.hosts import hosts
from reconciler.importers.slurm.jobs import (
    SlurmNaming,
    SlurmQueue,
    decoded,
    instant,
    name_of,
    names_of,
    number,
    records_in,
    runs,
    states_of,
    waits,
)
from reconciler.importers.source import SourceFile
from reconciler.model.job_record import JobRecord
from reconciler.protocols.ledger import Claim
from reconciler.slurm.nodes import KnownNodes
from solver.model.cluster import Node
from solver.model.inflight import Intent, Reservation
from solver.model.quantities import Instant
from solver.model.workload import Job, JobName, QueueName
from solver.plan.reason import count

Standing = Literal["waiting", "held", "running", "aside", "ended"]
"""`held`: it waits for what no round decides; `aside`: it has begun and not ended, and does not run now."""

_ENDS: Final[Mapping[str, Ended]] = {
    "COMPLETED": "succeeded",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "failed",
    "NODE_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "BOOT_FAIL": "failed",
    "DEADLINE": "failed",
    "LAUNCH_FAILED": "failed",
    "PREEMPTED": "failed",
}

_NOT_OURS: Final = (
    "Dependency", "BeginTime", "JobHeld", "JobArrayTaskLimit", "BadConstraints", "Reservation", "Licenses", "BurstBuffer",
    "PartitionDown", "PartitionInactive", "Cleaning", "Prolog", "RequeueHold", "SpecialExit",
)  # fmt: skip
"""How the reasons begin for which a job waits whatever GPUs are free. Limits of accounts and QOS are not among them: those are
what the policy says in another way."""


class SlurmJobFacts(NamedTuple):
    """What Slurm says of a job now. `came`: since when it could start; `reason`: why it waits, in Slurm's word.

    `started_at`: when its present or last attempt began; 0: not yet. `cut`: elements of its array are not listed one by one.
    """

    standing: Standing
    came: Instant
    started_at: Instant
    ended_at: Instant
    ended_as: Ended | None
    is_preempted: bool
    reason: str
    array: str
    cut: bool


@dataclass(frozen=True)
class SlurmLook:
    """Implements SeenCluster. `offered`: jobs that run, and those that a round may start; `doubts`: what can't be known, in words.

    `jobs`: these and those that are held; `past`: those that ran and have ended, as they were submitted.
    """

    nodes: tuple[Node, ...] = ()
    offered: tuple[Job, ...] = ()
    jobs: tuple[Job, ...] = ()
    past: tuple[Job, ...] = ()
    facts: Mapping[JobName, SlurmJobFacts] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    intents: tuple[Intent, ...] = ()
    reservations: tuple[Reservation, ...] = ()

    @cached_property
    def records(self) -> tuple[JobRecord, ...]:
        """Every job that runs or waits, sorted by name."""
        return tuple(JobRecord(job.name, job.spec, job.user, job.submitted_at) for job in self.jobs)

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """What every job holds that runs, sorted by name."""
        return tuple(
            Claim(
                job.name, job.attempt, job.placement, job.started_at or job.submitted_at, job.started_at, job.time_limit
            )
            for job in self.offered
            if job.placement
        )

    def holders(self) -> Iterator[tuple[QueueName, str, Claim]]:
        """What every job holds, with its queue and user."""
        jobs = {job.name: job for job in self.offered}
        return ((jobs[claim.job].spec.queue, jobs[claim.job].user, claim) for claim in self.claims)


def slurm_look(printed: SourceFile, known: KnownNodes, naming: SlurmNaming, now: Instant) -> SlurmLook:
    """Read what `squeue --json` printed. Raises InvalidDocumentsError for what has no jobs."""
    records = records_in(decoded(printed))
    facts = dict[JobName, SlurmJobFacts]()
    for record in records:
        for name, found in _facts(record, now):
            facts.setdefault(name, found)
    queue = SlurmQueue(known.nodes, naming)
    jobs = tuple(_within(job, now) for job in queue.jobs(records))
    aside = {name for record in records if _standing(record) == "aside" for name in _nodes_of(record)}
    closed = queue.taken | aside
    nodes = tuple(
        msgspec.structs.replace(node, cordoned=True) if node.name in closed else node for node in known.nodes.values()
    )
    offered = tuple(job for job in jobs if job.placement or facts[job.name].standing == "waiting")
    doubts = (*known.doubts, *_doubts(records, jobs, queue.left_out))
    past = tuple(job for job in queue.past(records) if facts[job.name].standing == "ended")
    return SlurmLook(nodes, offered, jobs, past, facts, doubts)


def _within(job: Job, now: Instant) -> Job:
    """Slurm's clock may be ahead of this one: nothing has begun that is still to come."""
    submitted = min(job.submitted_at, now)
    started = None if job.started_at is None else max(submitted, min(job.started_at, now))
    return msgspec.structs.replace(job, submitted_at=submitted, started_at=started)


def _facts(record: Mapping[str, Any], now: Instant) -> Iterator[tuple[JobName, SlurmJobFacts]]:
    states, standing = states_of(record), _standing(record)
    eligible = instant(record, "eligible_time")
    submitted = min(instant(record, "submit_time") or now, now)
    came = eligible if submitted <= eligible <= now else submitted
    ended = next((how for state, how in _ENDS.items() if state in states), None) if standing == "ended" else None
    # One that was cancelled before it began has the time of that as its start, and no nodes.
    has_begun = standing in ("running", "aside") or (standing == "ended" and bool(record.get("nodes")))
    found = SlurmJobFacts(
        standing,
        came,
        Instant(min(instant(record, "start_time"), now) if has_begun else 0),
        Instant(min(instant(record, "end_time") or now, now)),
        ended,
        "PREEMPTED" in states,
        str(record.get("state_reason") or ""),
        str(number(record.get("array_job_id")) or ""),
        "..." in str(record.get("array_task_string") or ""),
    )
    try:
        names = list(names_of(record)) if standing in ("waiting", "held") else [name_of(record)]
    except ValueError:
        return
    yield from ((name, found) for name in names)


def _standing(record: Mapping[str, Any]) -> Standing:
    if runs(record):
        return "running"
    if waits(record):
        return "held" if str(record.get("state_reason") or "").startswith(_NOT_OURS) else "waiting"
    states = states_of(record)
    if states & {"SUSPENDED", "STOPPED", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING"}:
        return "aside"
    return "ended"


def _nodes_of(record: Mapping[str, Any]) -> Sequence[str]:
    try:
        return [node_name(name) for name in hosts(str(record.get("nodes") or ""))]
    except ValueError:
        return ()


def _doubts(records: Iterable[Mapping[str, Any]], jobs: Iterable[Job], left_out: Sequence[str]) -> Iterator[str]:
    """What rounds can't know, each as one sentence with how many jobs it is of."""
    live = [record for record in records if _standing(record) in ("running", "waiting", "held", "aside")]
    found = Counter[str]()
    for record in live:
        waiting = _standing(record) == "waiting"
        found["held"] += _standing(record) == "held"
        found["aside"] += _standing(record) == "aside"
        found["placed"] += waiting and any(record.get(key) for key in ("features", "required_nodes", "excluded_nodes"))
        found["licences"] += waiting and bool(record.get("licenses"))
        found["throttled"] += waiting and "%" in str(record.get("array_task_string") or "")
    found["endless"] = sum(job.spec.time_limit is None for job in jobs)
    for key, words in _WORDS:
        if found[key]:
            yield words.format(count(found[key], "job"))
    if left_out:
        yield f"{count(len(left_out), 'job')} left out, such as {left_out[0]}"


_WORDS: Final = (
    ("endless", "{} without a time limit: when they end is not known, and no forecast counts on it"),
    ("held", "{} held back by dependencies, dates, holds or licences: no round may start them until Slurm would"),
    ("aside", "{} suspended or about to begin: their nodes count as closed"),
    (
        "placed",
        "{} with features or nodes by name: rounds do not follow these, and may place them where they could not be",
    ),
    ("licences", "{} with licences: rounds do not count them"),
    ("throttled", "{} as arrays with a limit of how many run at a time: rounds do not keep it"),
)
