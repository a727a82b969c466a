"""The checker finds every fault that is put into a plan that moves. The good plan first: one job moves, for one preemptor."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from solver.checker.case import moving
from solver.checker.check import violations
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import InFlight, Intent
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement, TopologyRequest
from solver.plan.plan import Evict, Moves, Nominate, Plan, Runs
from solver.policy.harm import Evictions, Protection
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.solver.aftermath import applied
from tests.solver.worlds import HOUR_MS, job, node, quota_of

NOW = Instant(100 * HOUR_MS)
PROTECTION = Protection(Duration(HOUR_MS), Duration(HOUR_MS), 2)


def policy(evictions: Evictions | None = None) -> Policy:
    """The owner is guaranteed two nodes, the others one and a half."""
    return policy_of(
        (
            Queue(QueueName("owner"), quota=(quota_of("H100", 16),)),
            Queue(QueueName("others"), quota=(quota_of("H100", 16, 16, 16), quota_of("A100", 8))),
        ),
        (PriorityClass("plain", protection=PROTECTION), PriorityClass("solid", preemptible=False)),
        SchedulingPolicy("plain", evictions=evictions or Evictions(per_round=1)),
    )


def running(name: str, on: str, first: int, hours: int, priority: str = "plain") -> Job:
    """A job that holds four GPUs of a node."""
    made = msgspec.structs.replace(job(name, "others", 1, 4, priority_class=priority), phase="running", attempt=1)
    devices = tuple(DeviceId(f"{on}/{index}") for index in range(first, first + 4))
    placement = (TaskPlacement("worker", 0, NodeName(on), devices),)
    return msgspec.structs.replace(made, placement=placement, started_at=NOW.after(-hours * HOUR_MS))


TAKER = msgspec.structs.replace(job("taker", "owner", 1, 8, types=("H100",)), submitted_at=NOW.after(-9 * HOUR_MS))
NODES = [node("n1", 8, rack="r1"), node("n2", 8, rack="r1"), node("n3", 8, rack="r2"), node("a1", 8, "A100")]
JOBS = [
    running("moves", "n1", 0, 5),
    running("stays", "n2", 0, 6),
    running("solid", "n3", 0, 7, "solid"),
    TAKER,
]
WORLD = snapshot_of(NOW, NODES, JOBS)
SPOT = ("n2/4", "n2/5", "n2/6", "n2/7")


def good(world: Snapshot = WORLD, under: Policy | None = None) -> Plan:
    return solve(world, under or policy(), None)


def with_(plan: Plan, kind: type, name: str, **fields: object) -> Plan:
    """The plan with the steps of one kind and job changed."""
    steps = (
        msgspec.structs.replace(step, **fields) if isinstance(step, kind) and getattr(step, "job", "") == name else step
        for step in plan.steps
    )
    return msgspec.structs.replace(plan, steps=tuple(steps))


def without(plan: Plan, kind: type, name: str) -> Plan:
    steps = tuple(step for step in plan.steps if not (isinstance(step, kind) and getattr(step, "job", "") == name))
    return msgspec.structs.replace(plan, steps=steps)


def at(on: str, *devices: str) -> tuple[TaskPlacement, ...]:
    return (TaskPlacement("worker", 0, NodeName(on), tuple(map(DeviceId, devices))),)


def job_changed(name: str, **fields: object) -> Snapshot:
    """The world with one job changed."""
    jobs = (msgspec.structs.replace(known, **fields) if known.name == name else known for known in WORLD.jobs)
    return snapshot_of(NOW, NODES, jobs, WORLD.in_flight)


def said(world: Snapshot, under: Policy, plan: Plan) -> set[str]:
    """The rules that a plan breaks, as if it had been made for this world and policy."""
    named = msgspec.structs.replace(plan, snapshot=world.digest, policy=under.digest)
    return {violation.rule for violation in violations(world, under, named)}


def test_the_good_plan_is_good() -> None:
    plan = good()
    assert moving(plan) == {"moves"}
    assert {step.job: step.tasks for step in plan.steps if isinstance(step, Nominate)} == {
        "moves": at("n2", *SPOT),
        "taker": at("n1", *(f"n1/{index}" for index in range(8))),
    }
    assert violations(WORLD, policy(), plan) == ()


SPOILED: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "without a place to go on": (lambda plan: without(plan, Nominate, "moves"), "S8"),
    "for a taker that is promised nothing": (lambda plan: without(plan, Nominate, "taker"), "S8"),
    "for a job that does not exist": (lambda plan: with_(plan, Evict, "moves", beneficiary=JobName("x")), "S8"),
    "for itself": (lambda plan: with_(plan, Evict, "moves", beneficiary=JobName("moves")), "S8"),
    "for nobody": (lambda plan: with_(plan, Evict, "moves", beneficiary=None), "S8"),
    "an attempt that is over": (lambda plan: with_(plan, Evict, "moves", attempt=2), "S11"),
    "one that waits": (lambda plan: with_(plan, Evict, "moves", job=JobName("taker")), "S11"),
    "another than is promised a place": (lambda plan: with_(plan, Evict, "moves", job=JobName("stays")), "S8"),
    "one that is not preemptible": (
        lambda plan: with_(with_(plan, Nominate, "moves", job=JobName("solid")), Evict, "moves", job=JobName("solid")),
        "S4",
    ),
    "for a taker that does not use its place": (
        lambda plan: with_(plan, Nominate, "taker", tasks=at("n3", *(f"n3/{i}" for i in range(8)))),
        "S8",
    ),
    "called a reclaim": (lambda plan: with_(plan, Evict, "moves", means="reclaim"), "S4"),
    "to fewer GPUs": (lambda plan: with_(plan, Nominate, "moves", tasks=at("n2", *SPOT[:2])), "S4"),
    "to another type": (
        lambda plan: with_(plan, Nominate, "moves", tasks=at("a1", "a1/0", "a1/1", "a1/2", "a1/3")),
        "S4",
    ),
    "to what somebody holds": (
        lambda plan: with_(plan, Nominate, "moves", tasks=at("n2", "n2/0", "n2/1", "n2/2", "n2/3")),
        "S9",
    ),
    "to where the taker is to be": (
        lambda plan: with_(plan, Nominate, "moves", tasks=at("n1", "n1/4", "n1/5", "n1/6", "n1/7")),
        "S1",
    ),
    "for an attempt that is not the next": (lambda plan: with_(plan, Nominate, "moves", attempt=1), "S2"),
    "said to run on": (
        lambda plan: msgspec.structs.replace(
            plan,
            verdicts=tuple(
                Runs(known.job, known.queue) if isinstance(known, Moves) else known for known in plan.verdicts
            ),
        ),
        "verdicts",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_spoiled_is_found(name: str) -> None:
    spoil, rule = SPOILED[name]
    assert rule in said(WORLD, policy(), spoil(good()))


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        pytest.param({"started_at": NOW.after(-1000)}, "S9", id="too soon after its start"),
        pytest.param({"evicted_at": (NOW.after(-1000),)}, "S9", id="too soon after an eviction"),
        pytest.param(
            {"evicted_at": (NOW.after(-3 * HOUR_MS), NOW.after(-2 * HOUR_MS))}, "S9", id="too often within a day"
        ),
        pytest.param(
            {"spec": msgspec.structs.replace(JOBS[0].spec, type="service")}, "S4", id="a service with its replicas"
        ),
    ],
)
def test_who_is_protected_does_not_move(changed: dict[str, object], rule: str) -> None:
    """Although the preemptor has waited for longer than `reclaimWithin`."""
    world = job_changed("moves", **changed)
    assert rule in said(world, policy(), good())
    assert "moves" not in moving(good(world))
    assert violations(world, policy(), good(world)) == ()


@pytest.mark.parametrize(
    "evictions",
    [
        pytest.param(Evictions(moves_per_round=0), id="nobody may be moved"),
        pytest.param(Evictions(per_round=0), id="nobody may be evicted"),
        pytest.param(Evictions(min_gain=3.0), id="too little is gained"),
    ],
)
def test_the_limits_of_the_policy_hold(evictions: Evictions) -> None:
    strict = policy(evictions)
    assert "S9" in said(WORLD, strict, good())
    assert moving(good(WORLD, strict)) == frozenset()


def test_who_is_being_moved_is_not_moved_again_and_counts_once() -> None:
    """The others hold 12 GPUs of at most 16: counted twice, the one that moves would be above the limits of queue and user."""
    world = applied(WORLD, good())
    plan = good(world)
    assert violations(world, policy(), plan) == ()
    assert plan.steps == ()
    again = msgspec.structs.replace(good(), snapshot=world.digest)
    assert "S11" in said(world, policy(), again)


def test_nothing_that_a_job_on_the_move_was_promised_is_given_to_another() -> None:
    world = applied(WORLD, good())
    other = snapshot_of(NOW, NODES, [*world.jobs, job("other", "owner", 1, 4, types=("H100",))], world.in_flight)
    plan = solve(other, policy(), None)
    taken = tuple(
        msgspec.structs.replace(step, tasks=at("n2", *SPOT)) if getattr(step, "job", "") == "other" else step
        for step in plan.steps
    )
    assert violations(other, policy(), plan) == ()
    assert "S1" in said(other, policy(), msgspec.structs.replace(plan, steps=taken))


def test_a_gang_is_not_moved_further_apart() -> None:
    spec = msgspec.structs.replace(
        job("moves", "others", 2, 2, priority_class="plain").spec, topology=TopologyRequest(preferred="rack")
    )
    tasks = tuple(
        TaskPlacement("worker", index, NodeName("n1"), (DeviceId(f"n1/{2 * index}"), DeviceId(f"n1/{2 * index + 1}")))
        for index in range(2)
    )
    world = job_changed("moves", spec=spec, placement=tasks)
    apart = (
        TaskPlacement("worker", 0, NodeName("n2"), (DeviceId("n2/4"), DeviceId("n2/5"))),
        TaskPlacement("worker", 1, NodeName("n3"), (DeviceId("n3/4"), DeviceId("n3/5"))),
    )
    plan = good(world)
    assert moving(plan) == {"moves"}
    assert "S4" in said(world, policy(), with_(plan, Nominate, "moves", tasks=apart))


def test_an_unasked_promise_to_a_job_that_runs_is_taken_back() -> None:
    """As after a crash between telling a job where it goes on, and asking it to leave."""
    promise = Intent("nominate", JobName("moves"), 2, NOW, NOW.after(HOUR_MS), at("n2", *SPOT))
    world = snapshot_of(NOW, NODES, JOBS[:1], InFlight(intents=(promise,)))
    plan = good(world)
    assert [type(step).__name__ for step in plan.steps] == ["Withdraw"]
    assert violations(world, policy(), plan) == ()
