"""Who may not leave, whatever policy says, is not made to; who can be promised nothing is not moved; and the checker knows both."""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Evict, Plan, Shrink
from solver.policy.policy import Policy, PriorityClass, Queue, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.preemption.test_consolidation import only_moves, scattered, willing
from tests.solver.worlds import HOUR_MS, job, node, policies, quota_of

some = worlds(25, suppress_health_check=[HealthCheck.filter_too_much])


def said_of_all(snapshot: Snapshot, leaves: str) -> Snapshot:
    held = (msgspec.structs.replace(known, leaves=leaves) if known.placement else known for known in snapshot.jobs)
    return msgspec.structs.replace(snapshot, jobs=tuple(held))


def leavers(plan: Plan) -> set[JobName]:
    return {step.job for step in plan.steps if isinstance(step, Evict | Shrink)}


def running(name: str, gpus: int, on: str, first: int) -> Job:
    devices = tuple(DeviceId(f"{on}/{first + number}") for number in range(gpus))
    made = job(name, "q", 1, gpus, priority_class="batch")
    begun = Instant(-HOUR_MS)
    placed = (TaskPlacement("worker", 0, NodeName(on), devices),)
    return msgspec.structs.replace(made, phase="running", attempt=1, started_at=begun, placement=placed)


CLASSES = (PriorityClass("batch", 1), PriorityClass("urgent", 100))
QUEUE = Queue(QueueName("q"), quota=(quota_of("H100", 8),))
POLICY = policy_of((QUEUE,), CLASSES)
WORLD = snapshot_of(
    Instant(0),
    [node("n", 8)],
    [running("a", 4, "n", 0), running("b", 4, "n", 4), job("urgent", "q", 1, 4, priority_class="urgent")],
)


def test_the_other_one_leaves() -> None:
    (chosen,) = leavers(solve(WORLD, POLICY, None))
    other = ({JobName("a"), JobName("b")} - {chosen}).pop()
    jobs = tuple(
        msgspec.structs.replace(known, leaves="not") if known.name == chosen else known for known in WORLD.jobs
    )
    plan = solve(msgspec.structs.replace(WORLD, jobs=jobs), POLICY, None)
    assert leavers(plan) == {other}
    nobody = solve(said_of_all(WORLD, "not"), POLICY, None)
    assert leavers(nobody) == set()


def test_not_even_a_queue_that_drains_makes_it_leave() -> None:
    drains = policy_of((msgspec.structs.replace(QUEUE, stop_policy="HoldAndDrain"),), CLASSES)
    assert leavers(solve(WORLD, drains, None)) == {"a", "b"}
    kept = said_of_all(WORLD, "not")
    plan = solve(kept, drains, None)
    assert leavers(plan) == set()
    assert violations(kept, drains, plan) == ()


def test_the_checker_finds_who_is_made_to_leave_all_the_same() -> None:
    kept = said_of_all(WORLD, "not")
    plan = msgspec.structs.replace(solve(WORLD, POLICY, None), snapshot=kept.digest)
    assert [(known.rule, known.problem) for known in violations(kept, POLICY, plan)] == [
        ("S4", "may not be evicted now, for a reason that is not the policy's")
    ]


BUDGET = "PodDisruptionBudget team/all"


def held_of_all(snapshot: Snapshot) -> Snapshot:
    """All that runs is held by a budget."""
    jobs = (
        msgspec.structs.replace(known, leaves="not", held_by=BUDGET) if known.placement else known
        for known in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))


def test_a_budget_yields_to_a_guarantee_that_has_waited_for_too_long() -> None:
    held = held_of_all(WORLD)
    assert leavers(solve(held, POLICY, None)) == set()
    waits = held.jobs[-1].submitted_at.after(POLICY.scheduling.reclaim_within)
    late = msgspec.structs.replace(held, time=waits)
    plan = solve(late, POLICY, None)
    assert [step.past for step in plan.steps if isinstance(step, Evict)] == [BUDGET]
    assert violations(late, POLICY, plan) == ()
    # What drains, moves or converges waits for it all the same.
    drains = policy_of((msgspec.structs.replace(QUEUE, stop_policy="HoldAndDrain"),), CLASSES)
    assert leavers(solve(late, drains, None)) == set()


def test_the_checker_finds_a_budget_that_is_passed_over_too_soon_or_in_silence() -> None:
    held = held_of_all(WORLD)
    late = msgspec.structs.replace(held, time=Instant(POLICY.scheduling.reclaim_within))
    plan = msgspec.structs.replace(solve(late, POLICY, None), snapshot=held.digest)
    (told,) = violations(held, POLICY, plan)
    assert (told.rule, told.problem) == ("S9", f"is held by {BUDGET}, and urgent has to wait for that")
    silent = msgspec.structs.replace(
        plan,
        snapshot=late.digest,
        steps=tuple(msgspec.structs.replace(step, past="") if isinstance(step, Evict) else step for step in plan.steps),
    )
    (told,) = violations(late, POLICY, silent)
    assert (told.rule, told.problem) == ("S4", f"passes over nothing, and is held by {BUDGET}")


@given(scattered(), policies(), st.sampled_from([None, 0, 10 * HOUR_MS]))
@some
def test_what_budgets_hold_leaves_for_guarantees_alone_and_only_once_they_have_waited(
    snapshot: Snapshot, policy: Policy, hold_for: int | None
) -> None:
    policy = willing(policy)
    within = None if hold_for is None else Duration(hold_for)
    limits = msgspec.structs.replace(policy.scheduling.evictions, disruption_budgets_hold_for=within)
    policy = msgspec.structs.replace(policy, scheduling=msgspec.structs.replace(policy.scheduling, evictions=limits))
    kept = held_of_all(snapshot)
    plan = solve(kept, policy, None)
    assert violations(kept, policy, plan) == ()
    submitted = {known.name: known.submitted_at for known in snapshot.jobs}
    for step in plan.steps:
        if isinstance(step, Evict | Shrink):
            assert step.past == BUDGET
            assert step.beneficiary is not None
            assert hold_for is None or snapshot.time - submitted[step.beneficiary] >= hold_for


@given(scattered(), policies())
@some
def test_who_may_not_leave_stays_and_who_can_be_promised_nothing_is_not_moved(
    snapshot: Snapshot, policy: Policy
) -> None:
    policy = willing(policy)
    kept = said_of_all(snapshot, "not")
    plan = solve(kept, policy, None)
    assert leavers(plan) == set()
    assert violations(kept, policy, plan) == ()
    rooted = said_of_all(snapshot, "unpromised")
    plan = solve(rooted, policy, None)
    assert not any(isinstance(step, Evict) and step.means == "move" for step in plan.steps)
    assert violations(rooted, policy, plan) == ()
    free = solve(snapshot, policy, None)
    if only_moves(free):
        found = violations(rooted, policy, msgspec.structs.replace(free, snapshot=rooted.digest))
        assert {known.rule for known in found} == {"S4"}
