"""The checker finds every fault that is put into a plan that evicts. The good plan first: two victims for two preemptors."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from solver.checker.check import violations
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import InFlight, Intent
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Bind, Evict, Nominate, Plan, Withdraw, Yields
from solver.policy.harm import Evictions, Protection
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.solver.worlds import HOUR_MS, job, node, quota_of

NOW = Instant(100 * HOUR_MS)
CLASSES = (PriorityClass("high", 100), PriorityClass("low", 1), PriorityClass("solid", 1, preemptible=False))


def policy(reclaim: str = "fair-share", evictions: Evictions | None = None, protected_h: int = 0) -> Policy:
    """The owner is guaranteed a node, the borrower one, and the poor nothing."""
    protection = Protection(Duration(protected_h * HOUR_MS))
    return policy_of(
        (
            Queue(QueueName("owner"), quota=(quota_of("H100", 8),)),
            Queue(QueueName("borrower"), quota=(quota_of("H100", 8),)),
            Queue(QueueName("poor"), quota=(quota_of("H100", 0),)),
        ),
        tuple(msgspec.structs.replace(known, protection=protection) for known in CLASSES),
        SchedulingPolicy(
            reclaim=reclaim,  # type: ignore[arg-type]
            evictions=evictions or Evictions(),
            reclaim_within=Duration(1_000 * HOUR_MS),
        ),
    )


def running(name: str, queue: str, on: str, hours: int, priority: str = "low") -> Job:
    """A job that has a node to itself."""
    devices = tuple(DeviceId(f"{on}/{index}") for index in range(8))
    made = msgspec.structs.replace(waiting(name, queue, priority), phase="running", attempt=1)
    placement = (TaskPlacement("worker", 0, NodeName(on), devices),)
    return msgspec.structs.replace(made, placement=placement, started_at=NOW.after(-hours * HOUR_MS))


def waiting(name: str, queue: str, priority: str = "low") -> Job:
    """A job that wants a node, for an hour already."""
    made = job(name, queue, 1, 8)
    spec = msgspec.structs.replace(made.spec, priority_class=priority)
    return msgspec.structs.replace(made, spec=spec, submitted_at=NOW.after(-HOUR_MS))


WORLD = snapshot_of(
    NOW,
    [node(f"n{number}", 8) for number in (1, 2, 3)],
    [
        running("inside", "borrower", "n1", 9),
        running("borrowed", "borrower", "n2", 8),
        running("solid", "poor", "n3", 7, "solid"),
        waiting("taker", "owner"),
        waiting("urgent", "borrower", "high"),
    ],
)


def good(world: Snapshot = WORLD, under: Policy | None = None) -> Plan:
    return solve(world, under or policy(), None)


def steps(plan: Plan, **changed: Callable[[msgspec.Struct], msgspec.Struct | None]) -> Plan:
    """The plan with the steps of some jobs changed, or left out for None."""
    made = []
    for step in plan.steps:
        job_of_step = str(getattr(step, "job", ""))
        after = changed[job_of_step](step) if job_of_step in changed else step
        if after is not None:
            made.append(after)
    return msgspec.structs.replace(plan, steps=tuple(made))


def said(world: Snapshot, under: Policy, plan: Plan) -> set[str]:
    return {violation.rule for violation in violations(world, under, plan)}


def without(step: msgspec.Struct) -> None:
    return None


def with_(**fields: object) -> Callable[[msgspec.Struct], msgspec.Struct]:
    return lambda step: msgspec.structs.replace(step, **fields)


def test_the_good_plan_is_good() -> None:
    plan = good()
    evicted = {(step.job, step.beneficiary, step.means) for step in plan.steps if isinstance(step, Evict)}
    assert evicted == {("borrowed", "taker", "reclaim"), ("inside", "urgent", "preempt")}
    assert violations(WORLD, policy(), plan) == ()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        pytest.param({"taker": without}, "S8", id="for a taker that is promised nothing"),
        pytest.param({"borrowed": with_(beneficiary=JobName("nobody"))}, "S8", id="for a job that does not exist"),
        pytest.param({"borrowed": with_(beneficiary=JobName("urgent"))}, "S4", id="for one of its queue, by reclaim"),
        pytest.param({"inside": with_(beneficiary=JobName("taker"))}, "S4", id="inside its guarantee"),
        pytest.param({"inside": with_(job=JobName("solid"))}, "S4", id="not preemptible"),
        pytest.param({"borrowed": with_(means="straddle")}, "S4", id="called something else"),
        pytest.param({"borrowed": with_(attempt=2)}, "S11", id="an attempt that is over"),
        pytest.param({"borrowed": with_(job=JobName("taker"))}, "S11", id="one that waits"),
        pytest.param({"borrowed": with_(job=JobName("stranger"))}, "S8", id="one that does not exist"),
        pytest.param({"borrowed": without}, "S1", id="promised although its holder stays"),
        pytest.param({"taker": with_(attempt=2)}, "S2", id="promised for an attempt that is not the next"),
        pytest.param({"taker": with_(tasks=())}, "S2", id="promised to a part of a gang"),
    ],
)
def test_a_fault_is_found(change: dict[str, Callable[[msgspec.Struct], msgspec.Struct | None]], rule: str) -> None:
    assert rule in said(WORLD, policy(), steps(good(), **change))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"borrowed": with_(job=JobName("solid"))}, "S4 solid: is not preemptible"),
        ({"borrowed": with_(job=JobName("solid"))}, "S8 solid: is evicted for taker and frees nothing that a job gets"),
        (
            {"inside": with_(beneficiary=JobName("taker"))},
            "S4 inside: is inside the guarantee of borrower towards owner",
        ),
        ({"taker": without}, "S8 borrowed: is evicted for taker, which is promised nothing"),
    ],
)
def test_a_fault_is_found_by_its_own_rule(
    change: dict[str, Callable[[msgspec.Struct], msgspec.Struct | None]], found: str
) -> None:
    assert found in map(str, violations(WORLD, policy(), steps(good(), **change)))


def test_a_higher_value_does_not_leave_for_a_lower_one() -> None:
    values = {"high": 1, "low": 100}
    classes = (msgspec.structs.replace(known, value=values.get(known.name, known.value)) for known in CLASSES)
    under = msgspec.structs.replace(policy(), priority_classes=tuple(sorted(classes, key=lambda known: known.name)))
    found = map(str, violations(WORLD, under, msgspec.structs.replace(good(), policy=under.digest)))
    assert "S4 inside: is not preemptible by urgent: priority 100 against 1" in found


def test_a_cool_down_counts_from_the_last_eviction() -> None:
    jobs = [
        msgspec.structs.replace(known, evicted_at=(NOW.after(-9 * HOUR_MS), NOW.after(-1_000))) for known in WORLD.jobs
    ]
    world = snapshot_of(NOW, WORLD.nodes, jobs)
    classes = (
        msgspec.structs.replace(known, protection=Protection(Duration(0), Duration(60_000))) for known in CLASSES
    )
    under = msgspec.structs.replace(policy(), priority_classes=tuple(sorted(classes, key=lambda known: known.name)))
    assert "S9" in said(world, under, msgspec.structs.replace(good(), snapshot=world.digest, policy=under.digest))


def test_what_is_promised_can_not_be_given_yet() -> None:
    def bound(step: msgspec.Struct) -> msgspec.Struct:
        assert isinstance(step, Nominate)
        return Bind(step.job, step.attempt, step.tasks, Duration(300_000))

    assert "S1" in said(WORLD, policy(), steps(good(), taker=bound))


def test_who_leaves_is_told() -> None:
    plan = good()
    verdicts = tuple(verdict for verdict in plan.verdicts if not isinstance(verdict, Yields))
    assert "verdicts" in said(WORLD, policy(), msgspec.structs.replace(plan, verdicts=verdicts))


def test_nobody_is_evicted_twice() -> None:
    plan = good()
    assert "S8" in said(WORLD, policy(), msgspec.structs.replace(plan, steps=(*plan.steps, plan.steps[0])))


@pytest.mark.parametrize(
    "under",
    [
        pytest.param(policy(protected_h=10), id="too soon"),
        pytest.param(policy(evictions=Evictions(per_round=1)), id="too many"),
        pytest.param(policy(evictions=Evictions(min_gain=1.5)), id="for too little"),
    ],
)
def test_a_limit_that_is_not_kept_is_found(under: Policy) -> None:
    plan = msgspec.structs.replace(good(), policy=under.digest)
    assert said(WORLD, under, plan) == {"S9"}


def test_who_was_evicted_a_moment_ago_is_left_alone() -> None:
    jobs = [msgspec.structs.replace(known, evicted_at=(NOW.after(-1_000),)) for known in WORLD.jobs]
    world = snapshot_of(NOW, WORLD.nodes, jobs)
    plan = msgspec.structs.replace(good(), snapshot=world.digest)
    cooling = [
        msgspec.structs.replace(known, protection=Protection(Duration(0), Duration(60_000))) for known in CLASSES
    ]
    daily = [msgspec.structs.replace(known, protection=Protection(Duration(0), Duration(0), 1)) for known in CLASSES]
    for classes in (cooling, daily):
        under = msgspec.structs.replace(policy(), priority_classes=tuple(sorted(classes, key=lambda known: known.name)))
        assert "S9" in said(world, under, msgspec.structs.replace(plan, policy=under.digest))


def test_above_its_guarantee_a_queue_takes_nothing_back_where_only_guarantees_are_reclaimed() -> None:
    world = snapshot_of(NOW, WORLD.nodes, [*WORLD.jobs, waiting("more", "poor")])
    under = policy(reclaim="guaranteed")
    plan = steps(
        msgspec.structs.replace(good(world, under)),
        borrowed=with_(beneficiary=JobName("more")),
        taker=with_(job=JobName("more")),
    )
    assert "S4" in said(world, under, plan)


def test_who_was_asked_before_is_not_asked_again() -> None:
    asked = Intent("stop", JobName("borrowed"), 1, NOW, NOW.after(30_000), beneficiary=JobName("taker"))
    world = snapshot_of(NOW, WORLD.nodes, WORLD.jobs, InFlight(intents=(asked,)))
    plan = msgspec.structs.replace(good(), snapshot=world.digest)
    assert "S11" in said(world, policy(), plan)


def test_a_promise_that_stands_is_given_to_nobody_else() -> None:
    tasks = (TaskPlacement("worker", 0, NodeName("n2"), tuple(DeviceId(f"n2/{index}") for index in range(8))),)
    promised = Intent("nominate", JobName("urgent"), 1, NOW, NOW.after(HOUR_MS), tasks)
    world = snapshot_of(NOW, WORLD.nodes, WORLD.jobs, InFlight(intents=(promised,)))
    plan = msgspec.structs.replace(steps(good(), urgent=without, inside=without), snapshot=world.digest)
    assert "S1" in said(world, policy(), plan)
    withdrawn = msgspec.structs.replace(plan, steps=(Withdraw(JobName("urgent"), 1), *plan.steps))
    assert "S1" not in said(world, policy(), withdrawn)
