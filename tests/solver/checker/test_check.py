"""The checker finds every fault that is put into a good plan on purpose. A checker that never objects proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.amounts import amounts_of
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import InFlight, Intent
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import (
    Bundle,
    GroupTopology,
    Job,
    JobName,
    JobSpec,
    QueueName,
    Spread,
    TaskGroup,
    TaskPlacement,
    Together,
    TopologyRequest,
)
from solver.plan.estimates import EarliestStart
from solver.plan.extent import extent_of
from solver.plan.plan import Bind, LayerResult, Plan, Release, Reserve, Starts, Waits
from solver.policy.ordering import OrderBy, Ordering
from solver.policy.policy import (
    NamespaceAccess,
    NamespaceSelector,
    PriorityClass,
    Queue,
    QueueAccess,
    SchedulingPolicy,
    StopPolicy,
    policy_of,
)
from solver.round.solve import solve
from tests.solver.worlds import job, node, quota_of

POLICY = policy_of((Queue(QueueName("q"), quota=(quota_of("H100", 16, 24),)),))


def running(name: str, on: str, first: int, gpus: int) -> Job:
    devices = tuple(DeviceId(f"{on}/{index}") for index in range(first, first + gpus))
    placement = (TaskPlacement("worker", 0, NodeName(on), devices),)
    return msgspec.structs.replace(job(name, "q", 1, gpus), phase="running", attempt=1, placement=placement)


def asked(name: str, on: str, first: int, gpus: int) -> Intent:
    placement = running(name, on, first, gpus).placement
    return Intent("start", JobName(name), 1, Instant(0), Instant(9_999), placement)


NOW = Instant(1_000)
NODES = [
    node("n1", 8, rack="r1", block="b"),
    node("n2", 8, rack="r1", block="b"),
    node("n3", 8, rack="r2", block="b"),
    msgspec.structs.replace(node("n4", 8, rack="r2", block="b"), cordoned=True),
    node("a1", 8, "A100"),
]
WORLD = snapshot_of(
    NOW,
    NODES,
    [
        running("held", "n3", 0, 4),
        msgspec.structs.replace(running("asked", "n3", 4, 1), phase="starting"),
        job("gang", "q", 2, 8, types=["H100"], required="rack", cpu=40),
        job("late", "q", 2, 8, types=["H100"]),
    ],
    InFlight(intents=(asked("asked", "n3", 4, 1),)),
)
Change = Callable[[Plan], Plan]
STOPS: tuple[tuple[str, StopPolicy], ...] = (("q", "None"), ("drained", "HoldAndDrain"))


def good() -> Plan:
    return solve(WORLD, POLICY, optimise)


def bind_of(plan: Plan) -> Bind:
    (bind,) = (step for step in plan.steps if isinstance(step, Bind))
    return bind


def with_bind(**fields: Any) -> Change:
    return lambda plan: msgspec.structs.replace(plan, steps=(msgspec.structs.replace(bind_of(plan), **fields),))


def with_task(number: int, **fields: Any) -> Change:
    def change(plan: Plan) -> Plan:
        tasks = list(bind_of(plan).tasks)
        tasks[number] = msgspec.structs.replace(tasks[number], **fields)
        return with_bind(tasks=tuple(tasks))(plan)

    return change


def telling_extent(world: Snapshot, plan: Plan) -> Plan:
    """The plan, with the verdict that suits where its gang lies."""
    nodes, bind = {known.name: known for known in world.nodes}, bind_of(plan)
    (spec,) = (known.spec for known in world.jobs if known.name == bind.job)
    extent = extent_of(
        spec, [nodes[task.node] for task in bind.tasks], [(task.group, task.index) for task in bind.tasks]
    )
    told = (msgspec.structs.replace(v, extent=extent) if isinstance(v, Starts) else v for v in plan.verdicts)
    return msgspec.structs.replace(plan, verdicts=tuple(told))


def with_estimate(at: Instant, after_protection_of: str = "") -> Change:
    after = JobName(after_protection_of) if after_protection_of else None

    def change(plan: Plan) -> Plan:
        told = tuple(
            msgspec.structs.replace(v, estimate=EarliestStart(at, after_protection_of=after))
            if isinstance(v, Waits)
            else v
            for v in plan.verdicts
        )
        return msgspec.structs.replace(plan, verdicts=told)

    return change


def devices(on: str, first: int = 0, count: int = 8) -> tuple[DeviceId, ...]:
    return tuple(DeviceId(f"{on}/{index}") for index in range(first, first + count))


def test_the_plan_is_good_before_it_is_spoilt() -> None:
    assert [task.node for task in bind_of(good()).tasks] == ["n1", "n2"]
    assert violations(WORLD, POLICY, good()) == ()


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("S1", with_task(1, node="n1", devices=devices("n1"))),
        ("S1", with_task(1, node="n3", devices=devices("n3"))),
        ("S1", with_task(1, node="n4", devices=devices("n4"))),
        ("S1", with_task(1, node="nowhere")),
        ("S1", with_task(1, devices=devices("n1"))),
        ("S1", with_task(1, devices=(*devices("n2", 0, 7), DeviceId("n2/99")))),
        ("S2", with_task(1, devices=devices("n2", 0, 7))),
        ("S2", with_task(1, devices=(*devices("n2", 0, 7), DeviceId("n2/0")))),
        ("S2", with_task(1, index=0)),
        ("S2", with_task(1, index=7)),
        ("S2", with_task(1, node="a1", devices=devices("a1"))),
        ("S2", with_bind(attempt=3)),
        ("S2", with_bind(tasks=())),
        ("S2", with_bind(job="held")),
        ("S2", with_bind(job="nobody")),
        ("S2", lambda plan: with_bind(tasks=bind_of(plan).tasks[:1])(plan)),
        ("S2", lambda plan: msgspec.structs.replace(plan, steps=plan.steps * 2)),
        ("S2", lambda plan: msgspec.structs.replace(plan, steps=(*plan.steps, Release(JobName("asked"), 1)))),
        ("S5", with_task(1, node="n3", devices=devices("n3"))),
        ("verdicts", lambda plan: msgspec.structs.replace(plan, verdicts=plan.verdicts[1:])),
        ("verdicts", lambda plan: msgspec.structs.replace(plan, steps=())),
        (
            "verdicts",
            lambda plan: msgspec.structs.replace(
                plan,
                verdicts=tuple(Waits(v.job, v.queue, ()) if v.job == "held" else v for v in plan.verdicts),
            ),
        ),
        ("S2", with_bind(time_limit=Duration(1))),
        ("estimate", with_estimate(NOW)),
        ("estimate", with_estimate(NOW.after(8 * 86_400_000))),
        ("estimate", with_estimate(NOW.after(1))),
        ("estimate", with_estimate(NOW.after(1), after_protection_of="nobody")),
        ("stale", lambda plan: msgspec.structs.replace(plan, snapshot="sha256:0")),
        ("stale", lambda plan: msgspec.structs.replace(plan, policy="sha256:0")),
        (
            "bound",
            lambda plan: msgspec.structs.replace(
                plan,
                certificate=msgspec.structs.replace(
                    plan.certificate, layers=(LayerResult("entitled", 9.0, 8.0, "proven"),)
                ),
            ),
        ),
    ],
)
def test_a_fault_is_found(rule: str, change: Change) -> None:
    assert rule in {violation.rule for violation in violations(WORLD, POLICY, change(good()))}


def problems(world: Snapshot, plan: Plan) -> list[str]:
    return [str(found) for found in violations(world, POLICY, msgspec.structs.replace(plan, snapshot=world.digest))]


def test_a_broken_gpu_is_given_to_nobody() -> None:
    gpus = NODES[1].gpus
    broken = (msgspec.structs.replace(gpus[0], healthy=False), *gpus[1:])
    nodes = [msgspec.structs.replace(known, gpus=broken) if known.name == "n2" else known for known in NODES]
    world = snapshot_of(NOW, nodes, WORLD.jobs, WORLD.in_flight)
    assert problems(world, good()) == ["S1 gang: device n2/0 is not a healthy device of n2"]


@pytest.mark.parametrize(
    ("accepted", "hosts", "found"),
    [
        (["H100"], "n1 n2", []),
        ([], "a1 a2", []),
        (["H100"], "a1 a2", ["S2 gang: group worker is on A100"]),
        ([], "n1 a1", ["S2 gang: group worker is on A100, H100"]),
    ],
)
def test_a_group_is_on_one_of_the_types_that_it_accepts(accepted: list[str], hosts: str, found: list[str]) -> None:
    nodes = [*NODES, node("a2", 8, "A100")]
    world = snapshot_of(NOW, nodes, [job("gang", "q", 2, 8, types=accepted)])
    plan = solve(world, POLICY, None)
    tasks = tuple(
        TaskPlacement("worker", index, NodeName(host), devices(host)) for index, host in enumerate(hosts.split())
    )
    elsewhere = telling_extent(world, with_bind(tasks=tasks)(plan))
    assert [told for told in problems(world, elsewhere) if told.startswith("S2")] == found


def test_what_was_promised_before_counts_for_a_max() -> None:
    """Of at most 20 five are held and 16 given; promised to `late` are 8 more."""
    tasks = (TaskPlacement("worker", 0, NodeName("n3"), devices("n3", 5, 3)),)
    promised = Intent("nominate", JobName("late"), 1, NOW, NOW.after(9_999), tasks)
    world = snapshot_of(NOW, NODES, WORLD.jobs, InFlight(intents=(*WORLD.in_flight.intents, promised)))
    for most, found in ((24, []), (23, ["S3 q: 8 + 16 H100 is above max 23"])):
        policy = policy_of((Queue(QueueName("q"), quota=(quota_of("H100", 16, most),)),))
        plan = msgspec.structs.replace(good(), policy=policy.digest, snapshot=world.digest)
        assert [str(one) for one in violations(world, policy, plan) if one.rule == "S3"] == found


def test_what_may_not_be_lent_starts_inside_the_guarantee_to_the_last_gpu() -> None:
    firm = PriorityClass("firm", preemptible=False)
    world = snapshot_of(NOW, NODES, [job("gang", "q", 2, 8, types=["H100"], priority_class="firm")])
    enough, less = (
        policy_of((Queue(QueueName("q"), quota=(quota_of("H100", guaranteed, 24),)),), (firm,))
        for guaranteed in (16, 15)
    )
    plan = solve(world, enough, None)
    assert violations(world, enough, plan) == ()
    found = violations(world, less, msgspec.structs.replace(plan, policy=less.digest))
    told = "S14 q: 16 H100 start that may not be lent, 15 of its guarantee are left"
    assert told in map(str, found)


@pytest.mark.parametrize(("pools", "found"), [(("h100",), 0), (("a100",), 2), ((), 2)])
def test_a_task_in_a_pool_that_is_not_open_is_found(pools: tuple[str, ...], found: int) -> None:
    of_queue = policy_of((Queue(QueueName("q"), quota=POLICY.queues[0].quota, pools=pools),))
    plan = msgspec.structs.replace(good(), policy=of_queue.digest)
    told = [str(one) for one in violations(WORLD, of_queue, plan) if "may not use pool" in one.problem]
    assert told == [f"S2 gang: task worker/{n} is on n{n + 1}, and queue q may not use pool h100" for n in range(found)]


@pytest.mark.parametrize("late_ms", [0, 1])
def test_a_reservation_is_for_an_instant_to_come(late_ms: int) -> None:
    tasks = (TaskPlacement("worker", 0, NodeName("n3"), devices("n3")),)
    kept = Reserve(JobName("late"), tasks, NOW.after(-late_ms), NOW.after(9_999))
    found = problems(WORLD, msgspec.structs.replace(good(), steps=(*good().steps, kept)))
    assert f"S10 late: has a reservation from {kept.start}, which is not to come" in found


def test_a_job_that_runs_is_not_started_again() -> None:
    tasks = (TaskPlacement("worker", 0, NodeName("n1"), devices("n1", 0, 4)),)
    assert "S2 held: is bound while running" in problems(WORLD, with_bind(job="held", attempt=2, tasks=tasks)(good()))


def test_a_job_with_a_limit_is_not_started_without() -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(2)),), time_limit=Duration(60_000))
    world = snapshot_of(NOW, NODES, [Job(JobName("short"), Instant(0), spec)])
    plan = solve(world, POLICY, None)
    assert problems(world, plan) == []
    assert problems(world, with_bind(time_limit=None)(plan)) == [
        f"S2 short: is bound for None, its limit is {spec.time_limit}"
    ]


@pytest.mark.parametrize(
    ("indexes", "found"),
    [
        ((0, 1, 2), []),
        ((0, 1), []),
        ((0,), ["S2"]),
        ((0, 2), ["S2"]),
        ((0, 1, 1), ["S1", "S2"]),
        ((0, 1, 2, 3), ["S2"]),
    ],
)
def test_an_elastic_gang_has_a_lawful_size(indexes: tuple[int, ...], found: list[str]) -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 3, Shape(2), min_replicas=2),))
    world = snapshot_of(NOW, NODES, [Job(JobName("gang"), Instant(0), spec)])
    plan = solve(world, POLICY, None)
    assert len(bind_of(plan).tasks) == 3
    tasks = tuple(TaskPlacement("worker", index, NodeName("n1"), devices("n1", 2 * index, 2)) for index in indexes)
    resized = telling_extent(world, with_bind(tasks=tasks)(plan))
    assert sorted({violation.rule for violation in violations(world, POLICY, resized)}) == found


@pytest.mark.parametrize(("tasks", "found"), [(1, []), (2, ["S2"]), (3, [])])
def test_a_gang_grows_by_whole_steps(tasks: int, found: list[str]) -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 3, Shape(2), min_replicas=1, replica_step=2),))
    world = snapshot_of(NOW, NODES, [Job(JobName("gang"), Instant(0), spec)])
    plan = solve(world, POLICY, None)
    assert len(bind_of(plan).tasks) == 3
    fewer = telling_extent(world, with_bind(tasks=bind_of(plan).tasks[:tasks])(plan))
    assert sorted({violation.rule for violation in violations(world, POLICY, fewer)}) == found


CLOSE = TopologyRequest(group=Bundle(2, "island"))
NESTED = TopologyRequest(group=(Bundle(2, "island"), Bundle(4, "rack")))
APART = TopologyRequest(spread=Spread("rack", 2))


@pytest.mark.parametrize(
    ("whole", "group", "hosts", "found"),
    [
        (CLOSE, GroupTopology(), "n1 n1 n2 n2", []),
        (CLOSE, GroupTopology(), "n1 n2 n2 n1", ["S5", "S5"]),
        (CLOSE, GroupTopology(), "n1 n1 n1 n2", ["S5"]),
        (CLOSE, GroupTopology(group=Bundle(1, "island")), "n1 n2 n1 n2", []),
        (NESTED, GroupTopology(), "n1 n1 n2 n2", []),
        (NESTED, GroupTopology(), "n1 n1 n3 n3", ["S5"]),
        (NESTED, GroupTopology(), "n1 n2 n2 n3", ["S5", "S5", "S5"]),
        (TopologyRequest(), GroupTopology("rack", Bundle(2, "island")), "n1 n1 n2 n1", ["S5"]),
        (TopologyRequest(group=Bundle(2, preferred="island")), GroupTopology(preferred="rack"), "n1 n2 n1 n3", ["fit"]),
        (TopologyRequest(), GroupTopology(required="rack"), "n1 n2 n1 n2", []),
        (TopologyRequest(), GroupTopology(required="rack"), "n1 n2 n1 n3", ["S5"]),
        (APART, GroupTopology(), "n1 n2 n3 n3", []),
        (APART, GroupTopology(), "n1 n2 n1 n3", ["S5"]),
        (TopologyRequest(), GroupTopology(spread=Spread("node", 3)), "n1 n1 n1 n3", []),
        (TopologyRequest(), GroupTopology(spread=Spread("node", 2)), "n1 n1 n1 n3", ["S5"]),
    ],
)
def test_tasks_keep_together_and_apart(
    whole: TopologyRequest, group: GroupTopology, hosts: str, found: list[str]
) -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 4, Shape(1), topology=group),), topology=whole)
    nodes = [node("n1", 8, rack="r1"), node("n2", 8, rack="r1"), node("n3", 8, rack="r2")]
    world = snapshot_of(NOW, nodes, [Job(JobName("gang"), Instant(0), spec)])
    tasks = tuple(
        TaskPlacement("worker", index, NodeName(host), devices(host, index, 1))
        for index, host in enumerate(hosts.split())
    )
    plan = solve(world, POLICY, None)
    assert violations(world, POLICY, plan) == ()
    elsewhere = telling_extent(world, with_bind(tasks=tasks)(plan))
    assert [violation.rule for violation in violations(world, POLICY, elsewhere)] == found


@pytest.mark.parametrize(
    ("hosts", "found"),
    [("n1 n2 n3", []), ("n1 n3 n2", ["S5 gang: the groups a and b are spread over h100/r1, h100/r2"])],
)
def test_groups_keep_together(hosts: str, found: list[str]) -> None:
    groups = tuple(TaskGroup(name, 1, Shape(1)) for name in "abc")
    topology = TopologyRequest(together=(Together(("a", "b"), "rack"),))
    nodes = [node("n1", 8, rack="r1"), node("n2", 8, rack="r1"), node("n3", 8, rack="r2")]
    world = snapshot_of(
        NOW, nodes, [Job(JobName("gang"), Instant(0), JobSpec(QueueName("q"), groups, topology=topology))]
    )
    plan = solve(world, POLICY, None)
    tasks = tuple(
        TaskPlacement(name, 0, NodeName(host), devices(host, 0, 1))
        for name, host in zip("abc", hosts.split(), strict=True)
    )
    elsewhere = telling_extent(world, with_bind(tasks=tasks)(plan))
    assert problems(world, elsewhere) == found


def test_going_above_a_max_is_found() -> None:
    tighter = policy_of((Queue(QueueName("q"), quota=(quota_of("H100", 16, 20),)),))
    plan = msgspec.structs.replace(good(), policy=tighter.digest)
    assert [str(v) for v in violations(WORLD, tighter, plan)] == ["S3 q: 5 + 16 H100 is above max 20"]


def test_starting_what_a_queue_does_not_let_in_is_found() -> None:
    batch, capped = (
        PriorityClass("batch"),
        quota_of("H100", 16, 24, 20),
    )
    for rule, spoilt in (
        (
            "hold",
            policy_of((Queue(QueueName("q"), parent=QueueName("org")), Queue(QueueName("org"), stop_policy="Hold"))),
        ),
        ("class", policy_of((Queue(QueueName("q"), priority_classes=("batch",)),), (batch,))),
        ("S3", policy_of((Queue(QueueName("q"), quota=(capped,)),))),
    ):
        plan = msgspec.structs.replace(good(), policy=spoilt.digest)
        assert [violation.rule for violation in violations(WORLD, spoilt, plan)] == [rule]


def test_starting_what_a_namespace_may_not_is_found() -> None:
    world = msgspec.structs.replace(
        WORLD,
        jobs=tuple(
            msgspec.structs.replace(known, namespace="vision", namespace_labels=("env=", "team=a"))
            for known in WORLD.jobs
        ),
    )
    batch = PriorityClass("batch")
    for listed, unlisted, found in (
        ((NamespaceAccess("vision"),), "allowed", 0),
        ((NamespaceAccess("vis*"),), "refused", 0),
        ((NamespaceAccess("vision-*"),), "allowed", 1),
        ((NamespaceAccess("visio"), NamespaceAccess("vision", ("batch",))), "allowed", 1),
        ((NamespaceAccess("vision", ("batch",)), NamespaceAccess("*")), "allowed", 0),
        ((NamespaceAccess(selector=NamespaceSelector({"team": "a", "env": ""})),), "refused", 0),
        ((NamespaceAccess(selector=NamespaceSelector({"team": "a", "tier": "gpu"})),), "allowed", 1),
        ((NamespaceAccess(selector=NamespaceSelector({"team": "a"}), priority_classes=("batch",)),), "allowed", 1),
        ((), "allowed", 0),
        ((), "refused", 1),
    ):
        settings = SchedulingPolicy(unlisted_namespaces=unlisted)  # type: ignore[arg-type]
        queue = Queue(QueueName("q"), access=QueueAccess(namespaces=listed))
        policy = policy_of((queue,), (batch,), settings)
        plan = msgspec.structs.replace(good(), policy=policy.digest, snapshot=world.digest)
        rules = [violation.rule for violation in violations(world, policy, plan)]
        assert rules == ["namespace"] * found, (listed, unlisted)


@pytest.mark.parametrize(
    ("by", "first", "found"),
    [
        ("fifo", {}, ["gang starts before first of strict queue q"]),
        ("priority", {"priority_class": "high"}, ["gang starts before first of strict queue q"]),
        ("priority", {"priority_class": "low"}, []),
        ("shortest", {"time_limit": Duration(1)}, ["gang starts before first of strict queue q"]),
        ("shortest", {}, []),
        ("fifo", {"types": ["A100"]}, []),
        ("fifo", {"tasks": 3}, ["gang starts before first of strict queue q"]),
    ],
)
def test_passing_one_of_a_strict_queue_is_found(by: OrderBy, first: dict[str, Any], found: list[str]) -> None:
    own: dict[str, Any] = {"tasks": 1, "gpus": 8, "types": ["H100"], "submitted": -1} | first
    limit = own.pop("time_limit", None)
    ahead = job("first", "q", **own)
    ahead = msgspec.structs.replace(ahead, spec=msgspec.structs.replace(ahead.spec, time_limit=limit))
    late = msgspec.structs.replace(ahead, submitted_at=Instant(500)) if by == "shortest" else ahead
    world = snapshot_of(NOW, WORLD.nodes, [*WORLD.jobs, late], WORLD.in_flight)
    classes = (PriorityClass("high", 9), PriorityClass("low", -9))
    strict = policy_of((Queue(QueueName("q"), ordering=Ordering(by, strict=True)),), classes)
    verdicts = (*good().verdicts, Waits(late.name, QueueName("q"), ()))
    plan = msgspec.structs.replace(good(), policy=strict.digest, snapshot=world.digest, verdicts=verdicts)
    assert [f"{v.subject} {v.problem}" for v in violations(world, strict, plan) if v.rule == "order"] == found


def test_a_user_above_its_cap_is_told_from_others() -> None:
    others = [msgspec.structs.replace(known, user="ada") if known.name == "held" else known for known in WORLD.jobs]
    world: Snapshot = msgspec.structs.replace(WORLD, jobs=tuple(others))
    for cap, found in ((17, []), (16, ["S3 q: 1 + 16 H100 of user (none) is above perUser 16"])):
        policy = policy_of(
            (
                Queue(
                    QueueName("q"),
                    quota=(quota_of("H100", 16, 24, cap),),
                ),
            )
        )
        plan = msgspec.structs.replace(good(), policy=policy.digest, snapshot=world.digest)
        assert [str(violation) for violation in violations(world, policy, plan)] == found


def test_who_is_made_to_leave_counts_against_no_cap_of_its_user() -> None:
    """The queue of `held` drains in the round that starts the gang: its user holds one GPU then, not five."""
    held = next(known for known in WORLD.jobs if known.name == "held")
    moved = msgspec.structs.replace(held, spec=msgspec.structs.replace(held.spec, queue=QueueName("drained")))
    world = snapshot_of(NOW, NODES, [moved, *(known for known in WORLD.jobs if known.name != "held")], WORLD.in_flight)
    org = Queue(QueueName("org"), quota=(quota_of("H100", per_user=17),))
    queues = (Queue(QueueName(name), org.name, stop_policy=stop) for name, stop in STOPS)
    policy = policy_of((org, *queues))
    plan = solve(world, policy, optimise)
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == ["gang"]
    assert violations(world, policy, plan) == ()


def test_the_order_of_a_strict_queue_knows_what_compares_across_queues() -> None:
    """Of two equal values the one of scope cluster comes after a larger one that waits elsewhere, and so after the other."""
    queues = (
        Queue(QueueName("a"), quota=(quota_of("H100", 0),)),
        Queue(QueueName("b"), quota=(quota_of("H100", 8),), ordering=Ordering(strict=True)),
    )
    jobs = [
        job("elsewhere", "a", 1, 8, priority_class="nine"),
        job("early", "b", 1, 8, priority_class="five-across"),
        job("late", "b", 1, 8, priority_class="five", submitted=500),
    ]
    world = snapshot_of(NOW, [node("n1", 8)], jobs)
    across = (PriorityClass("nine", 9, scope="cluster"), PriorityClass("five-across", 5, scope="cluster"))
    alone = (msgspec.structs.replace(known, scope="queue") for known in across)
    policy, other = (policy_of(queues, (*classes, PriorityClass("five", 5))) for classes in (across, alone))
    plan, by_submission = solve(world, policy, optimise), solve(world, other, optimise)
    assert [bind_of(known).job for known in (plan, by_submission)] == ["late", "early"]
    assert violations(world, policy, plan) == () == violations(world, other, by_submission)
    found = violations(world, policy, msgspec.structs.replace(by_submission, policy=policy.digest))
    assert [str(violation) for violation in found] == ["order early: starts before late of strict queue b"]


def test_taking_what_another_queue_does_not_lend_is_found() -> None:
    """Of 32 H100, on a cordoned node too, 5 are held and 16 are given: 11 may be kept back beside them, and no more."""
    found = {}
    for lendable in (5, 4):
        owner = Queue(QueueName("owner"), quota=(quota_of("H100", 16, lendable=lendable),))
        policy = policy_of((*POLICY.queues, owner))
        plan = msgspec.structs.replace(good(), policy=policy.digest)
        found[lendable] = [str(violation) for violation in violations(WORLD, policy, plan)]
    assert found == {
        5: [],
        4: ["S3 H100: 33 H100 are in use or kept back, 17 without this plan; there are 32"],
    }


def test_what_is_kept_back_and_already_lent_is_open_to_nobody_but_its_owner() -> None:
    """The same plan, where too much is lent before: it is good for the queue that keeps it back, and for no other."""
    for owner, other, faults in (("q", "other", 0), ("other", "q", 1)):
        queues = (Queue(QueueName(owner), quota=(quota_of("H100", 32, lendable=0),)), Queue(QueueName(other)))
        policy = policy_of(queues)
        plan = msgspec.structs.replace(good(), policy=policy.digest)
        assert len(violations(WORLD, policy, plan)) == faults


def test_filling_a_node_beyond_its_cores_is_found() -> None:
    nodes = [msgspec.structs.replace(n, cpu=type(n.cpu)(39_000)) if n.name == "n2" else n for n in WORLD.nodes]
    small: Snapshot = msgspec.structs.replace(WORLD, nodes=tuple(nodes))
    plan = msgspec.structs.replace(good(), snapshot=small.digest)
    assert [v.rule for v in violations(small, POLICY, plan)] == ["S1"]


@pytest.mark.parametrize(
    ("resource", "amount", "has", "found"),
    [
        ("nic", 1, {"nic": 2}, []),
        ("nic", 1, {"nic": 1}, ["S1"]),
        ("nic", 1, {}, ["S1"]),
        ("hostPort/TCP/80", 500, {}, []),
        ("hostPort/TCP/80", 501, {}, ["S1"]),
        ("hostPort/TCP/80", 1, {"hostPort/TCP/80": 1}, ["S1"]),
    ],
)
def test_giving_a_node_more_than_it_has_of_a_resource_is_found(
    resource: str, amount: int, has: dict[str, int], found: list[str]
) -> None:
    """One runs there and has as much as the one that starts."""

    def asking(known: Job) -> Job:
        (group,) = known.spec.task_groups
        shape = msgspec.structs.replace(group.shape, resources=amounts_of({resource: amount}))
        spec = msgspec.structs.replace(known.spec, task_groups=(msgspec.structs.replace(group, shape=shape),))
        return msgspec.structs.replace(known, spec=spec)

    jobs = [asking(known) for known in (running("runs", "n", 0, 2), job("comes", "q", 1, 2))]
    policy = policy_of((Queue(QueueName("q"), quota=(quota_of("H100", 8),)),))

    def world(**resources: int) -> Snapshot:
        return snapshot_of(Instant(0), [msgspec.structs.replace(node("n", 8), resources=amounts_of(resources))], jobs)

    plan = solve(world(**{resource: 2_000}), policy, None)
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == ["comes"]
    small = world(**has)
    judged = msgspec.structs.replace(plan, snapshot=small.digest)
    assert [one.rule for one in violations(small, policy, judged)] == found
