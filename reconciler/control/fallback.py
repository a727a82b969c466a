"""A plan that may be acted on, decided with the program, or where that goes wrong by the greedy answer; and then all of it."""

from __future__ import annotations

from pathlib import PurePath
from traceback import extract_tb
from typing import Final, NamedTuple

from reconciler.control.control import RoundChecker, RoundWorkerError, RoundWorkerLostError, Solve, Solved
from reconciler.control.passes import Laps, NoPlanError, PlanRefusedError, refuse
from reconciler.control.recording import without_program
from solver.checker.alarm import findings
from solver.checker.check import conclusion_violations, deed_violations
from solver.model.snapshot import Snapshot
from solver.plan.plan import Plan
from solver.plan.violation import Violation
from solver.policy.policy import Policy

DECIDED_HERE: Final = "the round was decided in the process of the control plane"


class InProcessChecker:
    """Implements RoundChecker: judges rounds in this process."""

    def deed_violations(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
        """By solver/checker/check."""
        return deed_violations(snapshot, policy, plan)

    def conclusion_violations(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
        """By solver/checker/check."""
        return conclusion_violations(snapshot, policy, plan)

    def findings(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
        """By solver/checker/alarm."""
        return findings(snapshot, policy, plan)


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
    the round is decided once more, from nothing and without the program. Where it is the process that decides rounds that was lost,
    it is decided in this one first, with the program.
    Raises PlanRefusedError, NoPlanError: nor is there one that may be acted on then.
    """
    try:
        return CheckedDeed(_checked(solve, snapshot, policy, laps), "")
    except RoundWorkerLostError as lost:
        decided = decide(lost.instead, snapshot, policy, laps)
        return decided._replace(fault=f"{lost}; {decided.fault or DECIDED_HERE}")
    except Exception as error:  # noqa: BLE001  (the solver does no I/O: whatever it raises is a defect of its own)
        fault = told_of(error)
    try:
        return CheckedDeed(_checked(without_program, snapshot, policy, laps), f"{fault}; the greedy answer stands")
    except PlanRefusedError:
        raise
    except Exception as error:
        raise NoPlanError(told_of(error)) from error


def conclude(deed: CheckedDeed, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedPlan:
    """Work out the rest of a round that has been acted on: reasons, estimates, reservations, proofs. Have it checked.

    A defect costs that, and is told as a fault: what is done is done, and the next round says it all again.
    """
    whole = deed.solved.deed
    try:
        whole = deed.solved.conclude()
        laps.end("explain")
        broken = "; ".join(map(str, _checker_of(deed.solved).conclusion_violations(snapshot, policy, whole.plan)))
        laps.end("check")
    except Exception as error:  # noqa: BLE001  (as above)
        broken = told_of(error)
    if broken:
        fault = f"the round was acted on, and what it says of it can't be kept: {broken}"
        return CheckedPlan(*deed.solved.deed, f"{deed.fault}; {fault}" if deed.fault else fault, is_whole=False)
    return _with_findings(deed.solved, CheckedPlan(*whole, deed.fault), snapshot, policy, laps)


def _checked(solve: Solve, snapshot: Snapshot, policy: Policy, laps: Laps) -> Solved:
    solved = solve(snapshot, policy)
    laps.end("solve")
    refuse(_checker_of(solved).deed_violations(snapshot, policy, solved.deed.plan))
    laps.end("check")
    return solved


def _with_findings(solved: Solved, checked: CheckedPlan, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedPlan:
    """The plan with what it falls short of. A defect of that question costs no plan: it is told as a fault."""
    try:
        return checked._replace(shortfalls=_checker_of(solved).findings(snapshot, policy, checked.plan))
    except Exception as error:  # noqa: BLE001  (as above)
        fault = f"what the plan falls short of could not be told: {where_of(error)}"
        return checked._replace(fault=f"{checked.fault}; {fault}" if checked.fault else fault)
    finally:
        laps.end("alarm")


def _checker_of(solved: Solved) -> RoundChecker:
    return solved.checker or InProcessChecker()


def told_of(error: Exception) -> str:
    """What went wrong; of what was not expected, where."""
    if isinstance(error, PlanRefusedError | RoundWorkerError | RoundWorkerLostError):
        return str(error)
    return f"the solver failed: {where_of(error)}"


def where_of(error: Exception) -> str:
    """An error, and the line that it is from."""
    if isinstance(error, RoundWorkerError | RoundWorkerLostError):
        return str(error)
    *_, last = extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {error} ({PurePath(last.filename).name}:{last.lineno})"
