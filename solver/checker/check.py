"""Judges a plan by the rules alone: an independent checker that shares no code with the model it judges.

Written from PROMISES S1-S11 (docs/promises.md) with dictionaries and plain sums. A plan with a violation is never acted on.
What rules look up again and again is indexed once for all of them (case); they are judged one after the other, and
each looks at what the plan names, not at all pairs. Rules whose subject does not exist yet come with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from solver.checker.capacity import room_violations
from solver.checker.case import JudgedPlan
from solver.checker.departures import departure_violations
from solver.checker.entry import entry_violations, gate_violations
from solver.checker.estimates import false_estimates
from solver.checker.evictions import eviction_violations
from solver.checker.fallback import fallback_violations
from solver.checker.fit import fit_violations
from solver.checker.gangs import gang_violations
from solver.checker.lending import lending_violations
from solver.checker.mig import mig_violations
from solver.checker.moves import move_violations
from solver.checker.node_sets import set_violations
from solver.checker.order import order_violations
from solver.checker.pledges import pledge_violations
from solver.checker.pools import pool_violations
from solver.checker.quotas import quota_violations
from solver.checker.reservation_documents import declared_violations, undeclared_violations
from solver.checker.reservations import reservation_violations
from solver.checker.sharing import sharing_violations
from solver.checker.sizes import size_violations, with_late_growths_asked, with_parts_apart
from solver.checker.terminations import leave_violations
from solver.checker.turns import turn_violations
from solver.checker.verdicts import verdict_violations
from solver.model.snapshot import Snapshot, foreseen
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Shrink
from solver.plan.violation import Violation
from solver.policy.policy import Policy


def violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
    """Everything that is wrong with a plan; () where nothing is."""
    return tuple(_findings(snapshot, policy, plan, _OF_GANGS, _OF_PARTS))


def deed_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
    """What is wrong with what a plan does; () where it may be acted on. Nothing else of it need be known yet."""
    first = [[rule for rule in rules if rule not in _OF_WHOLE_PLANS] for rules in (_OF_GANGS, _OF_PARTS)]
    return tuple(_findings(snapshot, policy, plan, *first))


def start_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
    """What is wrong with starts that were decided of few jobs alone; () where they may be. Of all others the plan says nothing."""
    alone = [[rule for rule in rules if rule in _OF_STARTS] for rules in (_OF_GANGS, _OF_PARTS)]
    return tuple(_findings(snapshot, policy, plan, *alone))


def narrow_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
    """The same, with jobs that leave for those that are promised their place."""
    rules = _OF_STARTS | {leave_violations, eviction_violations}
    alone = [[rule for rule in known if rule in rules] for known in (_OF_GANGS, _OF_PARTS)]
    return tuple(_findings(snapshot, policy, plan, *alone))


def conclusion_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
    """What is wrong with what a plan says and keeps free, once what it does is known to be right."""
    later = [[rule for rule in rules if rule in _OF_CONCLUSIONS] for rules in (_OF_GANGS, _OF_PARTS)]
    return tuple(_findings(snapshot, policy, plan, *later))


def place_violations(case: JudgedPlan) -> Iterable[Violation]:
    """What is wrong with where a plan starts jobs, by the nodes that it names and what is on them. No digest is compared."""
    yield from tuple(_strangers(case)) or (found for rule in _OF_PLACES for found in rule(case))


def _findings(
    snapshot: Snapshot, policy: Policy, plan: Plan, of_gangs: Sequence[Rule], of_parts: Sequence[Rule]
) -> Iterable[Violation]:
    """Every rule in turn. Steps of jobs or nodes that do not exist are reported first, and alone: the rest needs them."""
    if plan.snapshot != snapshot.digest:
        yield Violation("stale", plan.snapshot, f"the plan is not for snapshot {snapshot.digest}")
    if plan.policy != policy.digest:
        yield Violation("stale", plan.policy, f"the plan is not for policy {policy.digest}")
    case = JudgedPlan.of(foreseen(snapshot), policy, plan)
    strangers = tuple(_strangers(case))
    yield from strangers or _unlawful(case, of_gangs, of_parts)


def _unlawful(case: JudgedPlan, of_gangs: Sequence[Rule], of_parts: Sequence[Rule]) -> Iterable[Violation]:
    asked = with_late_growths_asked(case)
    for rule in of_gangs:
        yield from rule(case if rule is size_violations else asked)
    apart = with_parts_apart(asked)
    for rule in of_parts:
        yield from rule(apart)


_OnNodes = Bind | Nominate | Grow
_OfJobs = _OnNodes | Evict | Shrink


def _strangers(case: JudgedPlan) -> Iterable[Violation]:
    jobs, nodes = case.jobs, case.ground.by_name
    for step in case.plan.steps:
        if isinstance(step, _OfJobs) and step.job not in jobs:
            yield Violation("S8" if isinstance(step, Evict | Shrink) else "S2", step.job, "is not in the snapshot")
        if isinstance(step, _OnNodes):
            for task in step.tasks:
                if task.node not in nodes:
                    yield Violation("S1", step.job, f"task {task.group}/{task.index} is on unknown node {task.node}")


def _estimate_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Nobody is told an earliest start that can't be."""
    for name, problem in false_estimates(case):
        yield Violation("estimate", name, problem)


def _certificate_violations(case: JudgedPlan) -> Iterable[Violation]:
    """A plan never beats its own bound: where it does, the model is wrong."""
    for layer in case.plan.certificate.layers:
        if layer.value > layer.bound + 1e-5 * max(1.0, abs(layer.bound)):
            yield Violation("bound", layer.name, f"value {layer.value} is above its bound {layer.bound}")


Rule = Callable[[JudgedPlan], Iterable[Violation]]

_OF_GANGS: tuple[Rule, ...] = (
    verdict_violations,
    size_violations,
    set_violations,
    pool_violations,
    leave_violations,
    fit_violations,
    gang_violations,
    eviction_violations,
    move_violations,
    departure_violations,
    order_violations,
    fallback_violations,
    turn_violations,
)

_OF_PARTS: tuple[Rule, ...] = (
    entry_violations,
    lending_violations,
    mig_violations,
    pledge_violations,
    sharing_violations,
    reservation_violations,
    declared_violations,
    undeclared_violations,
    room_violations,
    quota_violations,
    _estimate_violations,
    _certificate_violations,
)
"""What joins or leaves a running gang is a job of its own for these."""

_OF_PLACES: tuple[Rule, ...] = (
    *(gate_violations, set_violations, pool_violations, gang_violations, mig_violations, pledge_violations),
    *(sharing_violations, reservation_violations, declared_violations, room_violations),
)
"""What is judged of a start by the nodes that it names."""

_OF_STARTS = frozenset(
    {*_OF_PLACES, size_violations, fallback_violations, entry_violations, lending_violations, quota_violations}
)
"""What is judged of a start by itself, beside all that is held and promised: order and evictions are those of complete rounds."""

_OF_WHOLE_PLANS = frozenset({fit_violations, undeclared_violations, _estimate_violations, _certificate_violations})
"""What can't be judged of a plan before it has its second part."""

_OF_CONCLUSIONS = _OF_WHOLE_PLANS | {verdict_violations, reservation_violations, declared_violations}
"""What is judged once it has: these anew, since more is said and kept free by then."""
