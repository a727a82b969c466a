"""A plan that may be acted on, decided with the program, or where that goes wrong by the greedy answer; and then all of it."""

from __future__ import annotations

from pathlib import PurePath
from traceback import extract_tb
from typing import NamedTuple

from reconciler.control.control import Solve, Solved
from reconciler.control.passes import Laps, NoPlanError, PlanRefusedError, refuse
from reconciler.control.recording import without_program
from solver.checker.alarm import findings
from solver.checker.check import conclusion_violations, deed_violations
from solver.model.snapshot import Snapshot
from solver.plan.plan import Plan
from solver.plan.violation import Violation
from solver.policy.policy import Policy


class CheckedDeed(NamedTuple):
    """What a round does, which the checker finds safe. `solved`: what the rest of it is worked out from.

    `fault`: what went wrong, if anything did.
    """

    solved: Solved
    fault: str

    @property
    def plan(self) -> Plan:
        """As far as it is known."""
        return self.solved.deed.plan


class CheckedPlan(NamedTuple):
    """The whole plan of a round. `solution`: what replaying it needs; `fault`: what went wrong, if anything did.

    `is_whole`: it has its second part, which keeps to the rules. `shortfalls`: jobs that wait or leave by it though they need not.
    """

    plan: Plan
    solution: str
    fault: str
    is_whole: bool = True
    shortfalls: tuple[Violation, ...] = ()


def decide(solve: Solve, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedDeed:
    """Decide a round, and have what it does checked.

    A defect of the solver must not leave a cluster without a scheduler: where no plan comes about, or the checker refuses it,
    the round is decided once more, from nothing and without the program.
    Raises PlanRefusedError, NoPlanError: nor is there one that may be acted on then.
    """
    try:
        return CheckedDeed(_checked(solve, snapshot, policy, laps), "")
    except Exception as error:  # noqa: BLE001  (the solver does no I/O: whatever it raises is a defect of its own)
        fault = _told(error)
    try:
        return CheckedDeed(_checked(without_program, snapshot, policy, laps), f"{fault}; the greedy answer stands")
    except PlanRefusedError:
        raise
    except Exception as error:
        raise NoPlanError(_told(error)) from error


def conclude(deed: CheckedDeed, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedPlan:
    """Work out the rest of a round that has been acted on: reasons, estimates, reservations, proofs. Have it checked.

    A defect costs that, and is told as a fault: what is done is done, and the next round says it all again.
    """
    whole = deed.solved.deed
    try:
        whole = deed.solved.conclude()
        laps.end("explain")
        broken = "; ".join(map(str, conclusion_violations(snapshot, policy, whole.plan)))
        laps.end("check")
    except Exception as error:  # noqa: BLE001  (as above)
        broken = f"the solver failed: {_where(error)}"
    if broken:
        fault = f"the round was acted on, and what it says of it can't be kept: {broken}"
        return CheckedPlan(*deed.solved.deed, f"{deed.fault}; {fault}" if deed.fault else fault, is_whole=False)
    return _told_of(CheckedPlan(*whole, deed.fault), snapshot, policy, laps)


def _checked(solve: Solve, snapshot: Snapshot, policy: Policy, laps: Laps) -> Solved:
    solved = solve(snapshot, policy)
    laps.end("solve")
    refuse(deed_violations(snapshot, policy, solved.deed.plan))
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
