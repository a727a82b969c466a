"""A plan that may be acted on: decided with the program, or where that goes wrong by the greedy answer alone."""

from __future__ import annotations

from pathlib import PurePath
from traceback import extract_tb
from typing import NamedTuple

from reconciler.control.control import Solve, Solved
from reconciler.control.passes import Laps, NoPlanError, PlanRefusedError, refuse_unsafe
from reconciler.control.recording import without_program
from solver.model.snapshot import Snapshot
from solver.plan.plan import Plan
from solver.policy.policy import Policy


class CheckedPlan(NamedTuple):
    """A plan that the checker finds safe. `solution`: what replaying it needs; `fault`: why the first one would not do, if so."""

    plan: Plan
    solution: str
    fault: str


def decide(solve: Solve, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedPlan:
    """Decide a round, and have the plan checked.

    A defect of the solver must not leave a cluster without a scheduler: where no plan comes about, or the checker refuses it,
    the round is decided once more, from nothing and without the program.
    Raises PlanRefusedError, NoPlanError: nor is there one that may be acted on then.
    """
    try:
        return CheckedPlan(*_checked(solve, snapshot, policy, laps), "")
    except Exception as error:  # noqa: BLE001  (the solver does no I/O: whatever it raises is a defect of its own)
        fault = _told(error)
    try:
        return CheckedPlan(*_checked(without_program, snapshot, policy, laps), f"{fault}; the greedy answer stands")
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


def _told(error: Exception) -> str:
    """What went wrong; of what was not expected, where."""
    if isinstance(error, PlanRefusedError):
        return str(error)
    *_, last = extract_tb(error.__traceback__)
    return f"the solver failed: {type(error).__name__}: {error} ({PurePath(last.filename).name}:{last.lineno})"
