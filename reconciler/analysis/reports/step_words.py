"""The steps of a plan in words, a line each."""

from __future__ import annotations

from collections.abc import Iterable

from solver.model.inflight import declared_name
from solver.model.workload import TaskPlacement
from solver.plan.plan import (
    Bind,
    Evict,
    Grow,
    Nominate,
    Release,
    Repartition,
    Reserve,
    Shrink,
    Step,
    Unreserve,
    Withdraw,
)
from solver.plan.reason import count


def step_line(step: Step) -> str:
    """What a step makes true."""
    match step:
        case Bind():
            return f"start    {step.job}: {_where(step.tasks)}"
        case Grow():
            return f"grow     {step.job}: {_where(step.tasks)}"
        case Nominate():
            return f"promise  {step.job}: {_where(step.tasks)}, once they are free"
        case Release():
            return f"release  {step.job}: attempt {step.attempt} did not become ready in time"
        case Withdraw() | Unreserve():
            return _no_longer(step)
        case Reserve():
            return _reserved(step)
        case Evict():
            return f"{'move ' if step.means == 'move' else 'evict'}    {step.job}: {_given_up(step)}"
        case Shrink():
            return f"shrink   {step.job}: {count(len(step.tasks), 'task')}, {_given_up(step)}"
        case Repartition(node, device, instances):
            made = " + ".join(f"{one.profile}@{one.start}" for one in instances or ())
            return f"change   {device} of {node}: {'whole' if instances is None else made or 'no instances'}"


def _reserved(step: Reserve) -> str:
    document = declared_name(step.job)
    if document is None:
        return f"reserve  {step.job}: {_where(step.tasks)} from {step.start}"
    nodes = ", ".join(dict.fromkeys(task.node for task in step.tasks)) or "nothing"
    gpus = sum(len(task.devices) for task in step.tasks)
    return f"reserve  Reservation {document}: {count(gpus, 'GPU')} on {nodes} from {step.start} until {step.until}"


def _no_longer(step: Withdraw | Unreserve) -> str:
    if isinstance(step, Withdraw):
        return f"withdraw {step.job}: what it was promised is not to be had any more"
    document = declared_name(step.job)
    if document is not None:
        return f"unhold   Reservation {document}: it keeps nothing any more"
    return f"unhold   {step.job}: nothing is reserved for it any more"


def _where(tasks: Iterable[TaskPlacement]) -> str:
    tasks = tuple(tasks)
    return f"{count(len(tasks), 'task')} on {', '.join(dict.fromkeys(task.node for task in tasks))}"


def _given_up(step: Evict | Shrink) -> str:
    whom = f" for {step.beneficiary}" if step.beneficiary else ""
    lost = f"{step.lost_gpu_s / 3600:.1f} GPU-hours lost"
    if step.means == "move":
        return f"{count(step.gpus.number, 'GPU')}, within {step.grace}, so that {step.beneficiary} fits ({lost})"
    return f"{count(step.gpus.number, 'GPU')}{whom} within {step.grace} ({step.means}, {lost})"
