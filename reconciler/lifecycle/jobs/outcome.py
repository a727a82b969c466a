"""How a job ended, said to its owner."""

from __future__ import annotations

from reconciler.lifecycle.jobs.settlements import Abandon, Cancel, Cull, End, Fail, GiveUp, Succeed, TimeOut
from reconciler.lifecycle.jobs.tail import last_lines
from reconciler.model.failure import FailureKind
from reconciler.model.job_record import JobOutcome
from reconciler.model.task_log import Logs
from reconciler.protocols.backend import TaskStatus
from solver.model.quantities import Instant


def outcome_of(end: End, now: Instant, logs: Logs) -> JobOutcome:
    """The outcome to keep; of a failure with the last lines of the log."""
    match end:
        case Succeed(_, launched_by):
            who = f"the launcher {launched_by}" if launched_by else "every task"
            return JobOutcome("succeeded", now, 0, f"{who} ended with exit code 0")
        case Fail(_, culprit, told):
            message = f"{told}\n{last_lines(logs, culprit)}".removesuffix("\n")
            return JobOutcome("failed", now, culprit.exit_code, message)
        case TimeOut(_, limit):
            return JobOutcome("failed", now, message=f"it ran longer than its time limit of {limit}")
        case GiveUp(_, told):
            return JobOutcome("failed", now, message=told)
        case Cull(_, told):
            # Nothing went wrong: its user has lost nothing but what others now use.
            return JobOutcome("cancelled", now, message=told)
        case Abandon(_, unmet, became):
            message = f"dependency {unmet} can't come true any more: {became}"
            return JobOutcome("cancelled", now, message=message, unmet=unmet)
        case Cancel(_, actor):
            return JobOutcome("cancelled", now, message=f"cancelled by {actor}")


def failure_of(end: End) -> FailureKind | None:
    """What kind of failure it is; None: it is none."""
    match end:
        case Fail():
            return end.kind
        case TimeOut():
            return "time-limit"
        case GiveUp():
            return "stuck"
        case _:
            return None


def describe(task: TaskStatus) -> str:
    """How a task ended, in words."""
    place = f"task {task.group}/{task.index} on {task.node}"
    if task.state == "failed":
        why = f": it {task.detail}" if task.memory is not None and task.memory.exceeded else ""
        return f"{place} failed with exit code {task.exit_code}{why}"
    return f"{place} was {task.state}" + (f" ({task.detail})" if task.detail else "")
