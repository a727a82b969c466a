"""Reservation documents: nobody whom they keep away is ever there while they do, and they stay where they are."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from solver.backfill.reservation_documents import document_reservations, with_document_reservations
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.sharing import sharing_of
from solver.checker.check import violations
from solver.milp.certificate import better
from solver.milp.highs import optimise
from solver.milp.start_decision import able_to_start, begin
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.inflight import InFlight, Intent
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.placement.starts import layer_values
from solver.plan.plan import Bind, Grow, Plan, Reserve, Step, Unreserve, Waits, Withdraw
from solver.policy.policy import Policy, Queue, Quota, policy_of
from solver.policy.reservation import DeclaredReservation
from solver.policy.windows import policy_at
from solver.queueing.demand import sub_layers_of
from solver.round.solve import solve, standing_back
from solver.simulation.replay import Replay
from solver.simulation.trace import TraceJob
from tests.drawn import worlds
from tests.solver.aftermath import applied, assert_lawful_and_at_rest
from tests.solver.backfill.document_worlds import declared_worlds
from tests.solver.brute_force import best_values
from tests.solver.round.test_against_brute_force import candidates_of
from tests.solver.worlds import job, node

MINUTE = 60_000
EXAMPLES = 150
TEAM = QueueName("team")


@pytest.mark.thorough
@worlds(100, suppress_health_check=list(HealthCheck))
@given(declared_worlds())
def test_no_plan_breaks_a_rule_and_a_world_that_stands_still_comes_to_rest(world: tuple[Snapshot, Policy]) -> None:
    assert_lawful_and_at_rest(*world)


@dataclass
class Tally:
    """How often documents bound the round, and how often it was as good as the best answer."""

    rounds: int = 0
    best: int = 0
    bound: int = 0


@pytest.mark.thorough
def test_beside_documents_the_round_is_as_good_as_trying_everything() -> None:
    tally = Tally()

    @seed(2026)
    @settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(declared_worlds(nodes_max=4, jobs_max=3, later_max=3))
    def compare(world: tuple[Snapshot, Policy]) -> None:
        policy = policy_at(world[1], world[0].time)
        snapshot = with_document_reservations(world[0], policy)
        all_candidates, shares = candidates_of(snapshot, policy)
        candidates, kept = standing_back(snapshot, policy, all_candidates, shares)
        room = FreeCapacity.of(snapshot, sharing_of(policy, shares.tree, snapshot.nodes).domain)
        room.reserved = kept
        able = able_to_start(candidates, room, shares)[:3]
        sub_layers = sub_layers_of(able)
        answer = begin(able, room, shares, policy.scheduling.solver, optimise).answer()
        best = best_values(able, room, shares, sub_layers)
        reached = layer_values(answer.starts, sub_layers, shares)
        assert not better(reached, best), "the answer is better than possible: it breaks a rule"
        proven = all(layer.status == "proven" for layer in answer.certificate.layers)
        assert not (proven and better(best, reached)), "the certificate proves a value that is not the best"
        tally.rounds += 1
        tally.best += not better(best, reached)
        tally.bound += any(candidate.against for candidate in able)

    compare()
    assert tally.rounds == EXAMPLES
    assert tally.bound >= EXAMPLES // 25, "hardly any document held anybody back"
    assert tally.best >= 0.98 * tally.rounds


def document(start: int, until: int, **what: object) -> DeclaredReservation:
    """Kept for queue `team` from a minute until another."""
    return msgspec.structs.replace(
        DeclaredReservation("held", Instant(start * MINUTE), Instant(until * MINUTE), TEAM, origin="p.yaml:3"), **what
    )


def policy_with(*documents: DeclaredReservation) -> Policy:
    """Queue `others` is guaranteed all there is, `team` nothing."""
    quota = {
        name: (Quota(GpuType("H100"), guaranteed=MilliGpu.gpus(gpus)),) for name, gpus in (("others", 6), ("team", 0))
    }
    return policy_of(tuple(Queue(QueueName(name), quota=q) for name, q in quota.items()), reservations=documents)


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    """Jobs of both queues that arrive over two hours; some have no limit."""
    made = []
    for number in range(draw(st.integers(4, 14))):
        queue = draw(st.sampled_from(["others", "others", "team"]))
        at = draw(st.integers(0, 120)) * MINUTE
        one = job(f"j{number:02}", queue, draw(st.integers(1, 3)), draw(st.sampled_from([1, 2])), submitted=at)
        limit = draw(st.one_of(st.none(), st.integers(5, 60)))
        spec = msgspec.structs.replace(one.spec, time_limit=None if limit is None else Duration(limit * MINUTE))
        minutes = draw(st.integers(1, limit or 90))
        made.append(TraceJob(msgspec.structs.replace(one, spec=spec), Duration(minutes * MINUTE)))
    return made


counted = st.builds(
    lambda count, size: {"gpu_type": GpuType("H100"), "count": count, "gpus_per_node": size},
    st.integers(1, 2),
    st.sampled_from([1, 2]),
)
named = st.sampled_from([{"nodes": ("n0",)}, {"nodes": ("n1", "n2")}])


@pytest.mark.thorough
@worlds(150)
@given(traces(), st.one_of(counted, named), st.integers(0, 90), st.integers(1, 120), st.booleans())
def test_nobody_else_is_ever_there_while_it_is_kept(
    trace: list[TraceJob], what: dict[str, object], start: int, minutes: int, by_program: bool
) -> None:
    kept = document(start, start + minutes, **what)
    policy, nodes = policy_with(kept), tuple(node(f"n{number}", 2) for number in range(3))
    replay = Replay(nodes, policy, optimise if by_program else None, Duration(1))
    where, binds = set[tuple[DeviceId, ...]](), list[tuple[Instant, Bind]]()
    for decided in replay.rounds(trace, Instant(10_000 * MINUTE)):
        assert violations(decided.snapshot, policy, decided.plan) == ()
        binds += [(decided.snapshot.time, step) for step in decided.plan.steps if isinstance(step, Bind)]
        where |= {tuple(d for t in step.tasks for d in t.devices) for step in kept_steps(decided.plan)}
    assert len(where) <= 1, "it moved although nothing was lost"
    queues, runs = {one.job.name: one.job.spec.queue for one in trace}, replay.runs
    for began, bind in binds:
        ended = runs[bind.job].ended_at
        evicted = runs[bind.job].evictions
        devices = {device for task in bind.tasks for device in task.devices}
        assert ended is not None
        if queues[bind.job] != TEAM and not evicted and any(devices & set(held) for held in where):
            assert ended <= kept.start or began >= kept.until


def kept_steps(plan: Plan) -> list[Reserve]:
    """What the plan keeps for documents."""
    return [step for step in plan.steps if isinstance(step, Reserve) and step.job == "reservation:held"]


def waiting(queue: str, minutes: int | None, gpus: int = 2) -> Job:
    """One job of one task, with a limit."""
    one = job("one", queue, 1, gpus)
    limit = None if minutes is None else Duration(minutes * MINUTE)
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, time_limit=limit))


def without_documents(snapshot: Snapshot, policy: Policy) -> Plan:
    """What a round would do that knew of no document but kept what they keep: names the right policy."""
    free = msgspec.structs.replace(policy, reservations=())
    plan = solve(snapshot, free, optimise)
    keeping = [step for step in solve(snapshot, policy, optimise).steps if isinstance(step, Reserve | Unreserve)]
    steps: list[Step] = [step for step in plan.steps if not isinstance(step, Reserve | Unreserve)]
    return msgspec.structs.replace(plan, policy=policy.digest, steps=(*steps, *keeping))


@pytest.mark.parametrize("what", [{"nodes": ("n1",)}, {"gpu_type": "H100", "count": 1, "gpus_per_node": 2}])
@pytest.mark.parametrize(
    ("queue", "limit", "broken"),
    [("others", 59, False), ("others", 61, True), ("others", None, True), ("team", None, False)],
)
def test_the_checker_finds_who_would_be_there_inside_a_guarantee_or_not(
    what: dict[str, object], queue: str, limit: int | None, broken: bool
) -> None:
    policy = policy_with(document(61, 120, **what))
    world = snapshot_of(Instant(MINUTE), [node("n1", 2)], [waiting(queue, limit)])
    careless = without_documents(world, policy)
    assert [step.job for step in careless.steps if isinstance(step, Bind)] == ["one"]
    assert {found.rule for found in violations(world, policy, careless)} == ({"S10"} if broken else set())
    evictable = solve(world, policy, optimise)
    assert [step.job for step in evictable.steps if isinstance(step, Bind)] == ([] if broken else ["one"])
    assert violations(world, policy, evictable) == ()


@pytest.mark.parametrize(("whom", "starts"), [("one", True), ("another", False)])
def test_nodes_that_came_for_one_job_are_its_own_whatever_queue_it_is_of(whom: str, starts: bool) -> None:
    policy = policy_with(document(0, 120, nodes=("n1",), queue=None, job=JobName(whom)))
    world = snapshot_of(Instant(MINUTE), [node("n1", 2)], [waiting("others", None)])
    careless = without_documents(world, policy)
    assert {found.rule for found in violations(world, policy, careless)} == (set() if starts else {"S10"})
    plan = solve(world, policy, optimise)
    assert violations(world, policy, plan) == ()
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == (["one"] if starts else [])
    if not starts:
        (verdict,) = plan.verdicts
        said = [str(reason) for reason in verdict.reasons] if isinstance(verdict, Waits) else []
        assert said == [
            "Reservation held (p.yaml:3) holds 2 GPUs for others from 1970-01-01T00:00:00Z; it would not end before that"
        ]


def test_of_two_jobs_of_one_queue_only_the_one_that_they_came_for_has_them() -> None:
    policy = policy_with(document(0, 120, nodes=("n1", "n2"), queue=None, job=JobName("another")))
    both = [waiting("others", None), msgspec.structs.replace(waiting("others", None), name=JobName("another"))]
    world = snapshot_of(Instant(MINUTE), [node("n1", 2), node("n2", 2)], both)
    plan = solve(world, policy, optimise)
    assert violations(world, policy, plan) == ()
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == ["another"]


def test_the_checker_finds_cpu_of_a_whole_node_that_is_lent() -> None:
    policy = policy_with(document(0, 120, nodes=("n1",)))
    cpu_only = job("one", "others", 1, 0, cpu=4)
    world = snapshot_of(Instant(MINUTE), [node("n1", 2)], [cpu_only])
    assert [found.rule for found in violations(world, policy, without_documents(world, policy))] == ["S10"]
    assert [step for step in solve(world, policy, optimise).steps if isinstance(step, Bind)] == []


def test_gpus_are_kept_with_their_share_of_cpu() -> None:
    """Of 96 cores the two of four GPUs keep 48: 48 are lent, 49 are not."""
    policy = policy_with(document(0, 120, gpu_type="H100", count=1, gpus_per_node=2))
    for cores, starts in ((48, ["one"]), (49, [])):
        world = snapshot_of(Instant(MINUTE), [node("n1", 4)], [job("one", "others", 1, 0, cpu=cores)])
        plan = solve(world, policy, optimise)
        assert [step.job for step in plan.steps if isinstance(step, Bind)] == starts


SIX = tuple(node(f"n{number}", 2) for number in range(3))


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ([], "there are more to keep"),
        (["n0/0", "n0/1"], "can't keep"),
        (["n0/0 n0/1", "n1/0 n1/1"], "more than"),
        (["n1/0 n1/1"], "moves although"),
        (None, "keeps nothing"),
    ],
)
def test_the_checker_finds_a_document_that_is_not_kept(tasks: list[str] | None, problem: str) -> None:
    policy = policy_with(document(0, 120, gpu_type="H100", count=1, gpus_per_node=2))
    world = snapshot_of(Instant(MINUTE), SIX, [])
    plan = solve(world, policy, None)
    (right,) = kept_steps(plan)
    held = applied(world, plan)
    if tasks is None:
        wrong: tuple[Step, ...] = (Unreserve(right.job),)
    else:
        placed = [
            TaskPlacement("held", index, NodeName(task.split("/")[0]), tuple(map(DeviceId, task.split())))
            for index, task in enumerate(tasks)
        ]
        wrong = (msgspec.structs.replace(right, tasks=tuple(placed)),)
    assert violations(held, policy, solve(held, policy, None)) == ()
    found = violations(held, policy, msgspec.structs.replace(solve(held, policy, None), steps=wrong))
    assert any(problem in one.problem for one in found if one.rule == "S10")


def test_what_was_promised_and_would_be_there_too_long_is_withdrawn() -> None:
    policy = policy_with(document(30, 120, nodes=("n1",)))
    tasks = (TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"), DeviceId("n1/1"))),)
    promise = Intent("nominate", JobName("one"), 1, Instant(0), Instant(60 * MINUTE), tasks)
    for limit, step in ((29, Bind), (30, Withdraw)):
        world = snapshot_of(Instant(MINUTE), [node("n1", 2)], [waiting("others", limit)], InFlight(intents=(promise,)))
        plan = solve(world, policy, optimise)
        assert [type(one) for one in plan.steps if not isinstance(one, Reserve)] == [step]
        assert violations(world, policy, plan) == ()


def test_what_is_over_is_given_up_and_what_is_not_over_is_the_same_in_any_order() -> None:
    first, second = document(0, 5, nodes=("n0",)), document(0, 9, gpu_type="H100", count=1, gpus_per_node=2)
    documents = [first, msgspec.structs.replace(second, name="other")]
    world = applied(
        snapshot_of(Instant(MINUTE), SIX, []),
        solve(snapshot_of(Instant(MINUTE), SIX, []), policy_with(*documents), None),
    )
    assert [held.holder for held in document_reservations(world)] == ["reservation:held", "reservation:other"]
    later = msgspec.structs.replace(world, time=Instant(5 * MINUTE))
    steps = {solve(later, policy_with(*order), None).steps for order in (documents, documents[::-1])}
    assert steps == {(Unreserve(JobName("reservation:held")),)}


def test_a_running_gang_does_not_grow_into_what_is_kept() -> None:
    gang = job("gang", "others", 3, 2)
    (group,) = gang.spec.task_groups
    spec = msgspec.structs.replace(gang.spec, task_groups=(msgspec.structs.replace(group, min_replicas=1),))
    placement = (TaskPlacement("worker", 0, NodeName("n0"), (DeviceId("n0/0"), DeviceId("n0/1"))),)
    running = msgspec.structs.replace(
        gang, spec=spec, phase="running", attempt=1, started_at=Instant(0), placement=placement
    )
    world = snapshot_of(Instant(MINUTE), SIX, [running])
    policy = policy_with(document(30, 120, nodes=("n1",)))
    for known, nodes in ((policy_with(), ["n1", "n2"]), (policy, ["n2"])):
        plan = solve(world, known, None)
        assert [task.node for step in plan.steps if isinstance(step, Grow) for task in step.tasks] == nodes
        assert violations(world, known, plan) == ()
    assert {found.rule for found in violations(world, policy, without_documents(world, policy))} == {"S10"}
