"""A plan that may be acted on: decided with the program, or where that goes wrong by the greedy answer alone."""

from __future__ import annotations

from pathlib import PurePath
from traceback import extract_tb
from typing import NamedTuple

from reconciler.control.control import Solve, Solved
from reconciler.control.passes import Laps, NoPlanError, PlanRefusedError, refuse_unsafe
from reconciler.control.recording import without_program
from solver.checker.alarm import findings
from solver.model.snapshot import Snapshot
from solver.plan.plan import Plan
from solver.plan.violation import Violation
from solver.policy.policy import Policy


class CheckedPlan(NamedTuple):
    """A plan that the checker finds safe. `solution`: what replaying it needs; `fault`: what went wrong, if anything did.

    `shortfalls`: jobs that wait or leave by it though they need not.
    """

    plan: Plan
    solution: str
    fault: str
    shortfalls: tuple[Violation, ...] = ()


def decide(solve: Solve, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedPlan:
    """Decide a round, and have the plan checked.

    A defect of the solver must not leave a cluster without a scheduler: where no plan comes about, or the checker refuses it,
    the round is decided once more, from nothing and without the program.
    Raises PlanRefusedError, NoPlanError: nor is there one that may be acted on then.
    """
    try:
        return _told_of(CheckedPlan(*_checked(solve, snapshot, policy, laps), ""), snapshot, policy, laps)
    except Exception as error:  # noqa: BLE001  (the solver does no I/O: whatever it raises is a defect of its own)
        fault = _told(error)
    try:
        greedy = CheckedPlan(*_checked(without_program, snapshot, policy, laps), f"{fault}; the greedy answer stands")
        return _told_of(greedy, snapshot, policy, laps)
    except PlanRefusedError:
        raise
    except Exception as error:
        raise NoPlanError(_told(error)) from error


def _checked(solve: Solve, snapshot: Snapshot, policy: Policy, laps: Laps) -> Solved:
    solved = solve(snapshot, policy)
    laps.end("solve")
    refuse_unsafe(snapshot, policy, solved.plan)
    laps.end("check")
    return solved


def _told_of(checked: CheckedPlan, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedPlan:
    """The plan with what it falls short of. A defect of that question costs no plan: it is told as a fault."""
    try:
        return checked._replace(shortfalls=findings(snapshot, policy, checked.plan))
    except Exception as error:  # noqa: BLE001  (as above)
        fault = f"what the plan falls short of could not be told: {_where(error)}"
        return checked._replace(fault=f"{checked.fault}; {fault}" if checked.fault else fault)
    finally:
        laps.end("alarm")


def _told(error: Exception) -> str:
    """What went wrong; of what was not expected, where."""
    if isinstance(error, PlanRefusedError):
        return str(error)
    return f"the solver failed: {_where(error)}"


def _where(error: Exception) -> str:
    *_, last = extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {error} ({PurePath(last.filename).name}:{last.lineno})"
