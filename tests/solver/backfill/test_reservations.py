"""Reservations: who holds them, who may run around them, and that nobody who waits for one starves."""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.sharing import sharing_of
from solver.checker.check import violations
from solver.milp.cells import Cells
from solver.milp.certificate import better
from solver.milp.classes import classes_of
from solver.milp.conversion import point_of, starts_of
from solver.milp.formulation import Formulation
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort
from solver.milp.start_decision import able_to_start, begin, cell_level
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.inflight import InFlight, Intent, Reservation
from solver.model.quantities import Cpu, Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.placement.starts import layer_values
from solver.plan.plan import Bind, Reserve
from solver.policy.harm import Protection
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, Reservations, SchedulingPolicy, policy_of
from solver.queueing.demand import sub_layers_of
from solver.round.solve import solve, standing_back
from solver.simulation.replay import Replay
from solver.simulation.trace import ReplayedRound, TraceJob
from tests.drawn import counted, worlds
from tests.solver.aftermath import assert_lawful_and_at_rest
from tests.solver.backfill.reserved_worlds import reserved_worlds
from tests.solver.brute_force import best_values
from tests.solver.round.test_against_brute_force import candidates_of
from tests.solver.worlds import job, node

MINUTE = 60_000
EXAMPLES = counted(250)


@pytest.mark.thorough
@worlds(60, suppress_health_check=list(HealthCheck))
@given(reserved_worlds())
def test_no_plan_breaks_a_rule_and_a_world_that_stands_still_comes_to_rest(world: tuple[Snapshot, Policy]) -> None:
    assert_lawful_and_at_rest(*world)


@dataclass
class Tally:
    """How often reservations bound the round, and how often it was as good as the best answer."""

    rounds: int = 0
    best: int = 0
    best_by_program: int = 0
    bound: int = 0
    bound_and_tight: int = 0


@pytest.mark.thorough
def test_around_reservations_the_round_is_as_good_as_trying_everything() -> None:
    tally = Tally()

    @seed(2027)
    @settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(reserved_worlds(nodes_max=4, jobs_max=3, later_max=3))
    def compare(world: tuple[Snapshot, Policy]) -> None:
        snapshot, policy = world
        all_candidates, shares = candidates_of(snapshot, policy)
        candidates, kept = standing_back(snapshot, policy, all_candidates, shares)
        room = FreeCapacity.of(snapshot, sharing_of(policy, shares.tree, snapshot.nodes).domain)
        room.reserved = kept
        able = able_to_start(candidates, room, shares)[:3]
        sub_layers, classes = sub_layers_of(able), classes_of(able)
        answer = begin(able, room, shares, policy.scheduling.solver, optimise).answer()
        best = best_values(able, room, shares, sub_layers)
        reached = layer_values(answer.starts, sub_layers, shares)
        assert not better(reached, best), "the answer is better than possible: it breaks a rule"
        proven = all(layer.status == "proven" for layer in answer.certificate.layers)
        assert not (proven and better(best, reached)), "the certificate proves a value that is not the best"
        formulation = Formulation(classes, Cells(room, cell_level(classes)), shares, sub_layers)
        formulation.state()
        program = formulation.builder.build()
        solution = optimise(program, point_of((), formulation, program, room), Effort(0.0, 10.0, 0))
        assert solution is not None
        wanted = layer_values(starts_of(solution.values, formulation, room, able, shares), sub_layers, shares)
        assert not better(wanted, best), "the program's answer is better than possible: it lacks a row"
        tally.rounds += 1
        tally.best += not better(best, reached)
        tally.best_by_program += not better(best, wanted)
        if any(candidate.against for candidate in able):
            tally.bound += 1
            tally.bound_and_tight += not better([layer.value for layer in solution.reached], best)

    compare()
    assert tally.rounds == EXAMPLES
    assert tally.bound >= EXAMPLES // 25, "hardly any reservation held anybody back"
    assert tally.bound_and_tight >= 0.9 * tally.bound, "the program does not see what is kept for others"
    assert tally.best >= 0.98 * tally.rounds
    assert tally.best_by_program >= 0.95 * tally.rounds


def policy_with(reservations: int) -> Policy:
    """One queue, whose order is that of submission."""
    scheduling = SchedulingPolicy(reservations=Reservations(reservations))
    return policy_of((Queue(QueueName("a")),), scheduling=scheduling)


def traced(one: Job, limit: int, minutes: int) -> TraceJob:
    """A job with a limit in minutes, and how long it will run."""
    spec = msgspec.structs.replace(one.spec, time_limit=Duration(limit * MINUTE))
    return TraceJob(msgspec.structs.replace(one, spec=spec), Duration(minutes * MINUTE))


def promised(rounds: list[ReplayedRound]) -> list[tuple[JobName, Instant]]:
    """Every start that a reservation ever said."""
    return [(step.job, step.start) for decided in rounds for step in decided.plan.steps if isinstance(step, Reserve)]


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    """Jobs of one queue that arrive over an hour, most of which end before their limits."""
    made = []
    for number in range(draw(st.integers(3, 12))):
        one = job(
            f"j{number:02}", "a", draw(st.integers(1, 3)), draw(st.sampled_from([1, 2])), submitted=number * 5 * MINUTE
        )
        limit = draw(st.integers(5, 60))
        made.append(traced(one, limit, draw(st.integers(1, limit))))
    return made


@pytest.mark.thorough
@worlds(150)
@given(traces(), st.booleans())
def test_whoever_has_a_reservation_starts_no_later_than_it_said(trace: list[TraceJob], by_program: bool) -> None:
    policy = policy_with(1)
    nodes = tuple(node(f"n{number}", 2) for number in range(3))
    held = Replay(nodes, policy, optimise if by_program else None, Duration(1))
    rounds = list(held.rounds(trace, Instant(10_000 * MINUTE)))
    assert all(violations(decided.snapshot, policy, decided.plan) == () for decided in rounds)
    for name, start in promised(rounds):
        started = held.runs[name].started_at
        assert started is not None
        assert started <= start
    assert all(run.ended_at is not None for run in held.runs.values())


def stream(jobs: int, every: int, minutes: int) -> list[TraceJob]:
    """Small jobs without an end in sight."""
    return [
        traced(job(f"s{number:03}", "a", 1, 1, submitted=number * every * MINUTE), minutes, minutes)
        for number in range(jobs)
    ]


def wait_of_the_gang(reservations: int) -> int:
    """Minutes that a gang of the whole cluster waits among a stream of small jobs that would keep it full."""
    gang = traced(job("gang", "a", 2, 2, submitted=MINUTE), 20, 20)
    held = Replay((node("n1", 2), node("n2", 2)), policy_with(reservations), optimise, Duration(1))
    list(held.rounds([gang, *stream(40, 2, 10)], Instant(1_000 * MINUTE)))
    wait = held.runs[JobName("gang")].wait_ms
    assert wait is not None
    return wait // MINUTE


def test_a_large_gang_does_not_starve_among_small_jobs() -> None:
    """With reservations it waits for at most the longest limit of what ran when it came first; without, for the stream's end."""
    assert wait_of_the_gang(1) <= 10
    assert wait_of_the_gang(0) >= 75


def running_until(name: str, on: str, gpus: int, minutes: int) -> Job:
    """Holds the first devices of a node for so many minutes from now."""
    placement = (TaskPlacement("worker", 0, NodeName(on), tuple(DeviceId(f"{on}/{i}") for i in range(gpus))),)
    return msgspec.structs.replace(
        job(name, "guest", 1, gpus),
        phase="running",
        attempt=1,
        started_at=Instant(0),
        placement=placement,
        time_limit=Duration(minutes * MINUTE),
    )


def held_for_a_pair(queue: str, minutes: int) -> tuple[Snapshot, Snapshot]:
    """One job that wants a node held for a pair from minute 60, for so many minutes; and the same world without the reservation."""
    jobs = [
        running_until("runner", "n2", 2, 60),
        traced(job("pair", "guest", 2, 2), 30, 30).job,
        traced(job("single", queue, 1, 2, submitted=1), minutes, minutes).job,
    ]
    tasks = tuple(
        TaskPlacement("worker", place, NodeName(name), (DeviceId(f"{name}/0"), DeviceId(f"{name}/1")))
        for place, name in enumerate(("n1", "n2"))
    )
    held = Reservation(JobName("pair"), tasks, Instant(60 * MINUTE), Instant(90 * MINUTE))
    nodes = (node("n1", 2), node("n2", 2))
    return snapshot_of(Instant(1), nodes, jobs, InFlight(reservations=(held,))), snapshot_of(Instant(1), nodes, jobs)


def test_the_program_proves_that_only_one_finds_room_beside_what_is_kept() -> None:
    """Two unlike jobs that are held back share n3: a bound that counted what is kept on n1 could not be reached."""
    reserved, _ = held_for_a_pair("guest", 60)
    one = job("one", "guest", 1, 1, submitted=2)
    (group,) = one.spec.task_groups
    larger = msgspec.structs.replace(group, shape=msgspec.structs.replace(group.shape, cpu=Cpu(1)))
    other = msgspec.structs.replace(
        one, name=JobName("other"), spec=msgspec.structs.replace(one.spec, task_groups=(larger,))
    )
    waiting = [known for known in reserved.jobs if known.name != "single"]
    world = snapshot_of(reserved.time, (*reserved.nodes, node("n3", 1)), (*waiting, one, other), reserved.in_flight)
    plan = solve(world, policy_of((Queue(QueueName("guest")),)), optimise)
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == ["one"]
    assert all(layer.status == "proven" for layer in plan.certificate.layers)


def guest_and_owner(protected: int = 5) -> Policy:
    """The guest is guaranteed nothing, the owner two GPUs; whoever starts runs for so many minutes undisturbed."""
    queues = (
        Queue(QueueName("guest"), quota=(Quota(GpuType("H100"), guaranteed=MilliGpu(0)),)),
        Queue(QueueName("owner"), quota=(Quota(GpuType("H100"), guaranteed=MilliGpu.gpus(2)),)),
    )
    known = PriorityClass("known", protection=Protection(Duration(protected * MINUTE)))
    return policy_of(queues, (known,), SchedulingPolicy("known"))


@pytest.mark.parametrize(
    ("queue", "minutes", "protected", "broken"),
    [("guest", 59, 60, []), ("guest", 60, 60, ["S10"]), ("guest", 60, 59, []), ("owner", 60, 60, [])],
    ids=["ends before", "still there", "can be gone", "inside its guarantee"],
)
def test_the_checker_finds_who_would_still_be_there(
    queue: str, minutes: int, protected: int, broken: list[str]
) -> None:
    policy = guest_and_owner(protected)
    reserved, free = held_for_a_pair(queue, minutes)
    careless = msgspec.structs.replace(solve(free, policy, optimise), snapshot=reserved.digest)
    assert [step.job for step in careless.steps if isinstance(step, Bind)] == ["single"]
    assert sorted({found.rule for found in violations(reserved, policy, careless)}) == broken
    evictable = solve(reserved, policy, optimise)
    assert [step.job for step in evictable.steps if isinstance(step, Bind)] == ([] if broken else ["single"])
    assert violations(reserved, policy, evictable) == ()


def test_cores_of_a_start_that_is_not_confirmed_are_back_an_hour_after_it_was_asked_for() -> None:
    """Its limit counts from then, so others may have the cores that a reserved gang finds beside its GPUs all the same."""
    first = msgspec.structs.replace(running_until("first", "n1", 2, 60), phase="starting", started_at=None)
    (group,) = first.spec.task_groups
    shape = msgspec.structs.replace(group.shape, cpu=Cpu(8000))
    spec = msgspec.structs.replace(first.spec, task_groups=(msgspec.structs.replace(group, shape=shape),))
    first = msgspec.structs.replace(first, spec=spec)
    waiting = [
        traced(job("gang", "guest", 2, 2, cpu=8), 30, 30).job,
        traced(job("other", "guest", 1, 1, cpu=4, submitted=1), 90, 90).job,
    ]
    tasks = (
        TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/2"), DeviceId("n1/3"))),
        TaskPlacement("worker", 1, NodeName("n2"), (DeviceId("n2/0"), DeviceId("n2/1"))),
    )
    in_flight = InFlight(
        intents=(Intent("start", first.name, 1, Instant(0), Instant(5 * MINUTE), first.placement),),
        reservations=(Reservation(JobName("gang"), tasks, Instant(60 * MINUTE)),),
    )
    policy, runner = guest_and_owner(60), running_until("runner", "n2", 2, 60)
    nodes = [node("n1", 6, cpu=16), node("n2", 2)]
    world = snapshot_of(Instant(MINUTE), nodes, [first, runner, *waiting], in_flight)
    plan = solve(world, policy, None)
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == ["other"]
    assert violations(world, policy, plan) == ()


def test_what_is_left_of_a_reservation_with_a_broken_gpu_holds_nobody_back() -> None:
    """It is given up in the same round in which somebody else starts on it."""
    policy = guest_and_owner(60)
    reserved, _ = held_for_a_pair("guest", 60)
    n1, n2 = reserved.nodes
    gpus = tuple(msgspec.structs.replace(gpu, healthy=gpu.index == 0) for gpu in n2.gpus)
    spare = msgspec.structs.replace(node("spare", 2), cordoned=True)
    nodes = (n1, msgspec.structs.replace(n2, gpus=gpus), spare)
    broken = snapshot_of(reserved.time, nodes, reserved.jobs, reserved.in_flight)
    plan = solve(broken, policy, None)
    assert violations(broken, policy, plan) == ()
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == ["single"]


def test_who_was_promised_what_is_reserved_gets_it_however_late() -> None:
    """The promise came first, and was kept later than the reservation had reckoned with: that one moves."""
    policy = guest_and_owner(60)
    reserved, free = held_for_a_pair("guest", 60)
    (bind,) = (step for step in solve(free, policy, optimise).steps if isinstance(step, Bind))
    now = reserved.time
    promise = Intent("nominate", bind.job, bind.attempt, now.after(-1), now.after(MINUTE), bind.tasks)
    in_flight = msgspec.structs.replace(reserved.in_flight, intents=(promise,))
    promised = msgspec.structs.replace(reserved, in_flight=in_flight)
    plan = solve(promised, policy, optimise)
    assert bind.job in [step.job for step in plan.steps if isinstance(step, Bind)]
    assert violations(promised, policy, plan) == ()
    elsewhere = msgspec.structs.replace(promise, tasks=())
    other = msgspec.structs.replace(promised, in_flight=msgspec.structs.replace(in_flight, intents=(elsewhere,)))
    careless = msgspec.structs.replace(plan, snapshot=other.digest)
    assert "S10" in {found.rule for found in violations(other, policy, careless)}


@pytest.mark.long
def test_large_gangs_wait_less_and_the_cluster_is_as_full() -> None:
    """A random stream of many small jobs and few large gangs, at about its capacity. Backfill is what keeps it full."""
    chance = random.Random(7)
    trace, minute = [], 0.0
    for number in range(90):
        minute += chance.expovariate(1 / 3)
        tasks, gpus = (3, 4) if number % 9 == 4 else (1, chance.choice([1, 1, 1, 2, 4]))
        limit = chance.choice([10, 20, 40, 80])
        one = job(f"j{number:03}", "a", tasks, gpus, submitted=int(minute * MINUTE))
        trace.append(traced(one, limit, max(1, int(limit * chance.uniform(0.5, 1)))))
    waits, finished = {}, {}
    for reservations in (0, 1):
        held = Replay(tuple(node(f"n{n}", 4) for n in range(4)), policy_with(reservations), None, Duration(1))
        list(held.rounds(trace, Instant(100_000 * MINUTE)))
        large = [run.wait_ms or 0 for run in held.runs.values() if run.gpus == MilliGpu.gpus(12)]
        waits[reservations] = sum(large) / len(large)
        finished[reservations] = max(run.ended_at or 0 for run in held.runs.values())
    assert waits[1] < 0.9 * waits[0]
    # All jobs run in both, so the cluster is as busy as it takes less time to finish them.
    assert finished[1] <= 1.02 * finished[0]


def test_what_is_lent_is_given_back_in_time() -> None:
    """The pair's node stands idle for an hour; a guest without a limit runs on it meanwhile, and never costs the pair a minute."""
    starts: dict[int, Instant | None] = {}
    for protected in (5, 60):
        runner, pair = job("runner", "guest", 1, 2), job("pair", "guest", 2, 2, submitted=1)
        guest = job("guest", "guest", 1, 2, submitted=2)
        trace = [traced(runner, 60, 60), traced(pair, 30, 30), TraceJob(guest, Duration(500 * MINUTE))]
        replay = Replay((node("n1", 2), node("n2", 2)), guest_and_owner(protected), None, Duration(1))
        list(replay.rounds(trace, Instant(1000 * MINUTE)))
        starts[protected] = replay.runs[guest.name].started_at
        assert replay.runs[pair.name].started_at == 60 * MINUTE
    assert starts == {5: 2, 60: 90 * MINUTE}


@given(reserved_worlds())
@worlds(60, suppress_health_check=list(HealthCheck))
def test_whoever_is_asked_to_give_back_was_lent_it(world: tuple[Snapshot, Policy]) -> None:
    """An hour and more later: what runs on reserved devices is asked in time, and the checker agrees with each."""
    snapshot, policy = world
    for held in snapshot.in_flight.reservations:
        later = Instant(held.start - policy.scheduling.evictions.grace)
        if later > snapshot.time:
            then = snapshot_of(later, snapshot.nodes, snapshot.jobs, snapshot.in_flight)
            assert violations(then, policy, solve(then, policy, None)) == ()


def test_what_a_withdrawn_promise_would_have_cost_leaves_room_inside_the_guarantee() -> None:
    policy = guest_and_owner()
    reserved, _ = held_for_a_pair("owner", 60)
    late = traced(job("late", "owner", 1, 2, submitted=2), 60, 60).job
    (held,) = reserved.in_flight.reservations
    promise = Intent("nominate", late.name, 1, Instant(0), reserved.time, held.tasks[:1])
    in_flight = InFlight(intents=(promise,), reservations=(held,))
    world = snapshot_of(reserved.time, reserved.nodes, (*reserved.jobs, late), in_flight)
    plan = solve(world, policy, optimise)
    assert [step.job for step in plan.steps if isinstance(step, Bind)] == ["single"]
    assert violations(world, policy, plan) == ()
