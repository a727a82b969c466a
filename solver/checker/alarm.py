"""What a plan could have done and did not, or did for nothing: findings that tell of a defect, and make no plan unsafe.

Part of the checker. A plan with a violation (check) is never acted on; one with a finding is, and who runs the cluster is told.
"""

from __future__ import annotations

from collections.abc import Iterator

from solver.checker.case import JudgedPlan
from solver.checker.divisions import needless_divisions
from solver.checker.end_state import EndState
from solver.checker.milder_evictions import milder_evictions
from solver.checker.order import unfair_starts
from solver.checker.shortfalls import shortfalls
from solver.checker.sizes import with_late_growths_asked
from solver.checker.vain_evictions import vain_evictions
from solver.model.snapshot import Snapshot, foreseen
from solver.plan.plan import Plan
from solver.plan.violation import Violation
from solver.policy.policy import Policy

SHORTFALLS = ("idle", "lent", "fewer", "hidden", "needless", "harm", "spread", "users")
"""A job waits beside free GPUs that it may have; beside what others would have to give back; behind smaller jobs of its queue; for
the end of protections, without being told so. It leaves for nothing; or where another would have to. A GPU is divided for nothing.
It starts before one of a user that has less of its queue.
"""


def findings(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
    """Jobs that wait and need not, and work that leaves for nothing; () where there is none. The plan must break no rule."""
    return tuple(_findings(with_late_growths_asked(JudgedPlan.of(foreseen(snapshot), policy, plan))))


def _findings(case: JudgedPlan) -> Iterator[Violation]:
    state = EndState(case)
    yield from shortfalls(case, state)
    yield from vain_evictions(case, state)
    yield from milder_evictions(case, state)
    yield from needless_divisions(case, state)
    yield from unfair_starts(case)
