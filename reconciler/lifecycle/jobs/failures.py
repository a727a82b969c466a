"""What follows when tasks of a gang fail or are lost: decided once for all of them, by the gentlest means that there is.

In this order: those that may rejoin begin again where they were; an elastic gang goes on without them; else the gang stops
whole, and waits to begin once more or has failed for good, as the job's RetryPolicy says.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec

from reconciler.lifecycle.jobs.claim_context import ClaimContext, without
from reconciler.lifecycle.jobs.device_readiness import gpus_of
from reconciler.lifecycle.jobs.memory_advice import memory_advice
from reconciler.lifecycle.jobs.outcome import describe
from reconciler.lifecycle.jobs.retries import Mishap, classify, retry_of
from reconciler.lifecycle.jobs.settlements import (
    AskToLeave,
    AskToStop,
    Fail,
    GiveUp,
    Outlive,
    Restart,
    Retry,
    Settlement,
    TimeOut,
)
from reconciler.model.failure import Failure, FailureKind
from reconciler.model.retry_policy import RetryPolicy
from reconciler.protocols.backend import ENDED, TaskState, TaskStatus
from solver.model.quantities import Duration
from solver.model.workload import TaskPlacement
from solver.plan.reason import count

NOTICED_WITHIN = Duration(60_000)
"""Peers of a task whose machine is lost often fail before the loss is known: so near to it, the machine is to blame."""

_OF_MACHINES: frozenset[FailureKind] = frozenset({"node", "gpu"})
_BROKEN: frozenset[TaskState] = frozenset({"failed", "lost"})


class _Dead(NamedTuple):
    """A task by which the job is judged that has failed, is lost, or has lost a GPU under it (`broken`)."""

    task: TaskPlacement
    status: TaskStatus
    broken: bool


def settle_failure(holding: ClaimContext) -> tuple[Settlement, ...]:
    """What follows for a gang that lives and is not asked to stop; () where nothing has failed, or what did is being seen to."""
    if _is_missed(holding):
        cause = "a task that was to begin again did not, and the gang can't do without it"
        return (AskToStop(holding.claim.job, holding.claim.attempt, cause),)
    dead = _dead(holding)
    if not dead:
        return ()
    means = _outlived(holding, dead)
    if means is not None:
        return means
    cause = f"{_told(dead)}; a gang runs whole or not at all"
    return (AskToStop(holding.claim.job, holding.claim.attempt, cause),)


def after_failure(holding: ClaimContext) -> Retry | Fail | None:
    """What follows for a gang of which nothing runs any more; None: nothing of it had failed."""
    dead = _dead(holding)
    if not dead:
        return None
    outlived = holding.outlived(_culprit(dead).status.at)
    if outlived is not None:
        # It was granted a retry then, which is this: the others have ended before those that failed could begin again.
        return Retry(holding.claim.job, msgspec.structs.replace(outlived, outlived=0, counts=False))
    mishap, policy = _mishap(holding, dead), _policy(holding)
    failure = _retry_of(holding, mishap, policy)
    if failure is not None:
        return Retry(holding.claim.job, failure)
    return Fail(holding.claim.job, _culprit(dead).status, _why_not_again(holding, mishap, policy), mishap.kind)


def after_time_limit(holding: ClaimContext, over: TimeOut) -> Retry | TimeOut:
    """What follows for a gang that was stopped because it had run for as long as it may."""
    at = holding.stop.asked_at if holding.stop else holding.now
    mishap = Mishap(holding.claim.attempt, "time-limit", at, f"it ran longer than its time limit of {over.limit}")
    failure = retry_of(holding.claim.job, mishap, holding.record.failures, _policy(holding))
    return over if failure is None else Retry(holding.claim.job, failure)


def after_stuck(holding: ClaimContext) -> Retry | GiveUp:
    """What follows for a gang that was stopped because it made no progress."""
    job, stuck = holding.claim.job, holding.record.spec.stuck
    since = holding.claim.marks.still_since
    told = f"it made no progress since {since} (stuck); its tasks' logs have a dump of each"
    at = holding.stop.asked_at if holding.stop else holding.now
    mishap, policy = Mishap(holding.claim.attempt, "stuck", at, told), _policy(holding)
    failure = retry_of(job, mishap, holding.record.failures, policy) if stuck and stuck.action == "retry" else None
    return GiveUp(job, _why_not_again(holding, mishap, policy)) if failure is None else Retry(job, failure)


def _outlived(holding: ClaimContext, dead: tuple[_Dead, ...]) -> tuple[Settlement, ...] | None:
    """How the gang goes on all the same; () where it is to rest first; None: it can't."""
    rejoin = all(_may_rejoin(holding, one) for one in dead)
    tasks = tuple(one.task for one in dead)
    if holding.claim.running_since is None or not (rejoin or goes_on_without(holding, tasks)):
        return None
    job, attempt = holding.claim.job, holding.claim.attempt
    known = holding.outlived(_culprit(dead).status.at)
    failure = known or _retry_of(holding, _mishap(holding, dead), _policy(holding))
    if failure is None or not (rejoin or failure.counts or failure.kind in _OF_MACHINES):
        # The round gives back at once what an elastic gang lacks: what neither counts nor rests would go on for ever.
        return None
    # The record before the deed: a pass after a crash finds it, and counts no failure twice.
    noted = () if known else (Outlive(job, _numbered(holding, failure)),)
    if holding.leaving:
        return noted
    if not rejoin:
        return (*noted, AskToLeave(job, attempt, tasks, _told(dead)))
    rested = failure.not_before <= holding.now and holding.asked("grow") is None
    return (*noted, *((Restart(job, attempt, tasks),) if rested else ()))


def _may_rejoin(holding: ClaimContext, dead: _Dead) -> bool:
    """It can begin again where it was: it ended by itself, its group says so, and its node and GPUs are well."""
    node = holding.ground.nodes.get(dead.task.node)
    rejoins = any(group.rejoin and group.name == dead.task.group for group in holding.record.spec.task_groups)
    return rejoins and dead.status.state == "failed" and not dead.broken and (node is None or node.ready)


def goes_on_without(holding: ClaimContext, tasks: tuple[TaskPlacement, ...]) -> bool:
    """Its minima hold without these, by tasks that have not ended. Bundles that belong together are not torn apart, nor steps."""
    ended = {(status.group, status.index) for status in holding.stays.tasks if status.state in ENDED}
    lasting = without(holding.staying, tasks)
    left = Counter(task.group for task in lasting if (task.group, task.index) not in ended)
    touched, spec = {task.group for task in tasks}, holding.record.spec
    elastic = {
        group.name
        for group in spec.task_groups
        if left[group.name] >= group.least
        and group.replica_step == 1
        and not (spec.kept_in_bundles(group) or spec.is_in_units(group))
    }
    return touched <= elastic


def _is_missed(holding: ClaimContext) -> bool:
    """Tasks that were to join have not in time, and are more than the round may send away."""
    grow = holding.asked("grow")
    if grow is None or grow.deadline > holding.now or holding.stays.all_run(holding.joining):
        return False
    left = Counter(task.group for task in without(holding.staying, holding.joining))
    return any(left[group.name] < group.least for group in holding.record.spec.task_groups)


def _numbered(holding: ClaimContext, failure: Failure) -> Failure:
    """The failure as the next of those that the attempt has gone on after."""
    attempt = holding.claim.attempt
    before = sum(1 for known in holding.record.failures if known.attempt == attempt and known.outlived)
    return msgspec.structs.replace(failure, outlived=before + 1)


def _dead(holding: ClaimContext) -> tuple[_Dead, ...]:
    statuses = {(status.group, status.index): status for status in holding.stays.tasks}
    known = ((task, statuses.get((task.group, task.index))) for task in holding.staying)
    seen = (_Dead(task, status, _gpu_broken(holding, task)) for task, status in known if status is not None)
    suspect = [one for one in seen if one.broken or one.status.state in _BROKEN]
    if not suspect:
        return ()
    judged = {(task.group, task.index) for task in holding.judged}
    return tuple(one for one in suspect if _is_dead(one, (one.task.group, one.task.index) in judged))


def _is_dead(one: _Dead, judged: bool) -> bool:
    """By itself only where the job is judged by it; a machine that is lost takes every task with it."""
    state = one.status.state
    return (state in _BROKEN and judged) or state == "lost" or (one.broken and state in ("running", "failed"))


def _culprit(dead: tuple[_Dead, ...]) -> _Dead:
    """What is to blame for all of them: the machine, if it was lost about then; else the task that failed first."""
    machine = _first([one for one in dead if one.broken or one.status.state == "lost"])
    own = _first([one for one in dead if one.status.state == "failed" and not one.broken])
    if machine is None or own is None:
        return machine or own or dead[0]
    return machine if machine.status.at <= own.status.at.after(NOTICED_WITHIN) else own


def _first(dead: list[_Dead]) -> _Dead | None:
    return min(dead, key=lambda one: (one.status.at, one.task.group, one.task.index), default=None)


def _retry_of(holding: ClaimContext, mishap: Mishap, policy: RetryPolicy) -> Failure | None:
    """The failure to keep, if the job begins once more. It rests from then on, and not by a wrong clock of its node."""
    failure = retry_of(holding.claim.job, mishap, holding.record.failures, policy)
    if failure is None:
        return None
    rested = failure.not_before.after(holding.when(mishap.at) - mishap.at)
    return msgspec.structs.replace(failure, not_before=rested)


def _mishap(holding: ClaimContext, dead: tuple[_Dead, ...]) -> Mishap:
    culprit = _culprit(dead)
    status, log = culprit.status, holding.evidence.tails.get((holding.claim.job, holding.claim.attempt), "")
    kind = classify(status, log, culprit.broken)
    told = _told(dead)
    if kind != "exit":
        told += f" ({kind})"
    if kind == "out-of-memory":
        told += f". {memory_advice(status, holding.record.spec, log, holding.evidence.nodes)}"
    return Mishap(holding.claim.attempt, kind, status.at, told, status.group, status.exit_code, log)


def _why_not_again(holding: ClaimContext, mishap: Mishap, policy: RetryPolicy) -> str:
    """How it failed and, where that is why it is not tried again, that it has had its retries."""
    counted = sum(failure.counts for failure in holding.record.failures)
    had = f"; RetryPolicy {policy.name} grants it no more than {counted} retries" if counted else ""
    return mishap.message + (had if counted >= policy.max_retries else "")


def _told(dead: tuple[_Dead, ...]) -> str:
    culprit, others = _culprit(dead), len(dead) - 1
    status = culprit.status
    broke = f"task {status.group}/{status.index} on {status.node} runs on a GPU that broke"
    told = broke if status.state == "running" else describe(status)
    return told + (f", and {count(others, 'task')} more went with it" if others else "")


def _gpu_broken(holding: ClaimContext, task: TaskPlacement) -> bool:
    """The backend says that a GPU of the task is not well."""
    node = holding.ground.nodes.get(task.node)
    sick = [gpu.id for gpu in node.gpus if not gpu.healthy] if node is not None else []
    return bool(sick) and not gpus_of((task,)).isdisjoint(sick)


def _policy(holding: ClaimContext) -> RetryPolicy:
    return holding.evidence.operations.retry_policy(holding.record.spec.retry_policy)
