"""Drained nodes and GPUs are tried by a command before they take work again. Pure: when, on what, and what came of it.

A trial is run as an attempt of a job that there is not: whatever runs jobs can run it, under the leader's epoch like all orders,
and an order that is sent again does no harm. Its number is the instant at which it was decided, so none is ever used twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

import msgspec

from reconciler.lifecycle.health.effects import AUTHOR
from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.model.health_policy import NodeTest
from reconciler.model.health_record import HealthTrial, NodeHealth
from reconciler.protocols.backend import ENDED, AttemptKey, StartGang, TaskStatus
from reconciler.protocols.ledger import Claim
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement

_GROUP = "test"


def trial_name(node: NodeName) -> JobName:
    """For what the backend takes a trial. No name of a job has a colon."""
    return JobName(f"health:{node}")


def under_way(records: Iterable[NodeHealth]) -> frozenset[AttemptKey]:
    """The attempts that are trials, and have not ended as far as is known."""
    return frozenset(
        (trial_name(record.node), int(record.trial.at))
        for record in records
        if record.trial is not None and record.trial.ended_at is None
    )


def claims_of(records: Iterable[NodeHealth]) -> Iterator[Claim]:
    """The trials that are under way, as what they hold."""
    for record in records:
        trial = record.trial
        if trial is not None and trial.ended_at is None:
            yield Claim(trial_name(record.node), int(trial.at), (_place(record.node, trial),), since=trial.at)


def updated_trial(trial: HealthTrial, test: NodeTest | None, seen: AttemptReport, now: Instant) -> HealthTrial:
    """The trial as it stands now. It has failed if it takes too long, or if policy knows no test any more."""
    if trial.ended_at is not None:
        return trial
    status = next((task for task in seen.tasks if task.state in ENDED), None)
    if status is not None:
        passed = status.state == "succeeded"
        return msgspec.structs.replace(trial, ended_at=now, passed=passed, detail=_told(status))
    if test is None or now - trial.at > test.timeout:
        detail = f"it took longer than {test.timeout}" if test else "policy asks for no test any more"
        return msgspec.structs.replace(trial, ended_at=now, detail=detail)
    return trial


def due(record: NodeHealth, test: NodeTest, node: Node, held: Set[str], now: Instant) -> HealthTrial | None:
    """The trial that is to begin now; `held`: nodes and GPUs on which something runs, or is to."""
    last = record.trial
    if last is not None and (last.ended_at is None or now - last.ended_at < test.every):
        return None
    parts = tuple(part.part for part in record.parts if part.test_from is not None and part.test_from <= now)
    closed = {part.part for part in record.parts if part.state != "suspect"} - set(parts)
    gpus = [gpu.id for gpu in node.gpus if gpu.id in parts or ("" in parts and gpu.id not in closed)]
    if not parts or held & {node.name if "" in parts else "", *gpus}:
        return None
    return HealthTrial(now, parts, tuple(gpus))


def order_of(node: NodeName, trial: HealthTrial, test: NodeTest) -> StartGang:
    """What runs the command where it is to be tried."""
    group = TaskGroup(_GROUP, 1, Shape(gpus=len(trial.devices)), command=test.command)
    spec = JobSpec(QueueName(""), (group,))
    return StartGang(trial_name(node), int(trial.at), (_place(node, trial),), spec, user=AUTHOR)


def _place(node: NodeName, trial: HealthTrial) -> TaskPlacement:
    return TaskPlacement(_GROUP, 0, node, tuple(DeviceId(device) for device in trial.devices))


def _told(status: TaskStatus) -> str:
    code = "" if status.exit_code is None else f" with exit code {status.exit_code}"
    return f"it {status.state}{code}" + (f": {status.detail}" if status.detail else "")
