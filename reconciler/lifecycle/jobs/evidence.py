"""What failures are judged by, beside what is seen of tasks: the policies in force, the declared nodes, and the ends of logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.documents.operations import Operations
from reconciler.lifecycle.checkpoints.save_status import NOTHING_SAVED, SaveStatus
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.lifecycle.jobs.idle_gpus import GpuStill
from reconciler.lifecycle.jobs.idle_rules import IdleFacts
from reconciler.lifecycle.jobs.tail import last_lines
from reconciler.model.job_record import JobRecord
from reconciler.model.task_log import Logs
from reconciler.protocols.backend import AttemptKey
from reconciler.protocols.ledger import Claim
from solver.model.cluster import Node


@dataclass(frozen=True, slots=True)
class Evidence:
    """`saving`: which job may save its work now, and which have.

    `idle` None: it is not judged whether jobs do nothing.
    `gpus_of_limits`: what the GPUs of jobs with an idle limit are known to do.
    `tails`: the last lines of the log of the first task of an attempt that failed, where its failure is still to be judged.
    """

    operations: Operations
    nodes: tuple[Node, ...]
    tails: Mapping[AttemptKey, str]
    saving: SaveStatus = NOTHING_SAVED
    idle: IdleFacts | None = None
    gpus_of_limits: Mapping[AttemptKey, GpuStill] = field(default_factory=dict)


NO_EVIDENCE = Evidence(Operations(), (), {})
"""No policies, no nodes, and nothing of logs."""


def tails_of(
    records: Iterable[JobRecord], claims: Iterable[Claim], sighted: BackendReports, logs: Logs
) -> dict[AttemptKey, str]:
    """The ends of the logs to judge by. One that can't be read says so, and decides nothing."""
    records = tuple(records)
    specs = {record.name: record.spec for record in records}
    judged = {(record.name, failure.attempt, failure.at) for record in records for failure in record.failures}
    tails = {}
    for claim in claims:
        culprit = sighted.attempt(claim.job, claim.attempt).counted(specs[claim.job]).culprit
        if culprit is not None and culprit.state == "failed" and (claim.job, claim.attempt, culprit.at) not in judged:
            tails[claim.job, claim.attempt] = last_lines(logs, culprit)
    return tails
