"""Users that share a queue fill it up evenly by weight: on tiny worlds by trying every division, and never by their names."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import log
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.alarm import findings
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import GpuType
from solver.model.inflight import InFlight, Usage
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Bind, Evict, Plan, Starts, Waits, Yields
from solver.plan.reasons import UserShare
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, Queue, SchedulingPolicy, policy_of
from solver.policy.user_shares import UserShares
from solver.quota.user_shares import _Claim, _filled
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import applied, assert_lawful_and_at_rest, victims_gone
from tests.solver.round.test_against_brute_force import candidates_of
from tests.solver.worlds import CLASSES, HOUR_MS, job, node, policies, shared_by_users, snapshots

H, Q = GpuType("H100"), QueueName("q")


class Users(NamedTuple):
    """One number by user."""

    ada: int
    bob: int
    eve: int


def of_user(made: Job, user: str) -> Job:
    return msgspec.structs.replace(made, user=user)


def running(name: str, user: str, at: int, count: int) -> Job:
    """A job of so many tasks on GPUs of the one node."""
    made = of_user(job(name, Q, count, 1, submitted=-HOUR_MS), user)
    on = node("n1", 16).gpus[at : at + count]
    tasks = tuple(TaskPlacement("worker", n, node("n1", 1).name, (gpu.id,)) for n, gpu in enumerate(on))
    return msgspec.structs.replace(made, phase="running", placement=tasks, started_at=Instant(-HOUR_MS), attempt=1)


def shared(weights: dict[str, int] | None = None, ordering: Ordering | None = None) -> Policy:
    return policy_of((Queue(Q, ordering=ordering, users=UserShares(True, weights or {})),), CLASSES)


def world(gpus: int, held: Users, waiting: Users, first: str = "ada") -> Snapshot:
    """Jobs of one GPU each; those of `first` were submitted before all others."""
    jobs, at = list[Job](), 0
    for user, mine, asks in zip(Users._fields, held, waiting, strict=True):
        jobs += [running(f"{user}-runs", user, at, mine)] if mine else []
        at += mine
        submitted = 0 if user == first else 1
        jobs += [of_user(job(f"{user}-{n}", Q, 1, 1, submitted=submitted), user) for n in range(asks)]
    return snapshot_of(Instant(10), [node("n1", gpus)], jobs)


def started(snapshot: Snapshot, plan: Plan) -> Counter[str]:
    users = {known.name: known.user for known in snapshot.jobs}
    return Counter(users[step.job] for step in plan.steps if isinstance(step, Bind))


counts = st.builds(Users, st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))


@worlds(80)
@given(st.integers(0, 6), counts, counts, st.sampled_from(Users._fields), st.booleans())
def test_without_weights_no_division_has_the_users_more_even(
    free: int, held: Users, waiting: Users, first: str, exact: bool
) -> None:
    """Of all divisions of what is free, the plan's has the ascending vector of what users hold at its best."""
    snapshot, policy = world(sum(held) + free, held, waiting, first), shared()
    plan = solve(snapshot, policy, optimise if exact else None)
    got = started(snapshot, plan)
    divisions = [
        Users(*given)
        for given in product(*(range(asks + 1) for asks in waiting))
        if sum(given) == min(free, sum(waiting))
    ]
    best = max(sorted(mine + more for mine, more in zip(held, given, strict=True)) for given in divisions)
    assert sorted(mine + got[user] for user, mine in zip(Users._fields, held, strict=True)) == best
    assert violations(snapshot, policy, plan) == findings(snapshot, policy, plan) == ()


@worlds(80)
@given(st.integers(0, 6), counts, counts, st.builds(Users, *[st.integers(1, 4)] * 3), st.sampled_from(Users._fields))
def test_by_weight_no_user_would_give_its_last_gpu_to_another_that_waits(
    free: int, held: Users, waiting: Users, weights: Users, first: str
) -> None:
    snapshot, policy = world(sum(held) + free, held, waiting, first), shared(weights._asdict())
    plan = solve(snapshot, policy, optimise)
    got = started(snapshot, plan)
    assert sum(got.values()) == min(free, sum(waiting))
    has = {user: (mine + got[user], weight) for user, mine, weight in zip(Users._fields, held, weights, strict=True)}
    for one, other in product(Users._fields, repeat=2):
        if got[one] and got[other] < getattr(waiting, other):
            (mine, my_weight), (theirs, their_weight) = has[one], has[other]
            assert (mine - 1) * their_weight <= theirs * my_weight
    assert violations(snapshot, policy, plan) == findings(snapshot, policy, plan) == ()


@worlds(64)
@given(snapshots(jobs_max=9), policies().map(shared_by_users), st.booleans())
def test_whatever_else_holds_the_checker_finds_the_same_order(snapshot: Snapshot, policy: Policy, strict: bool) -> None:
    """Gangs of several sizes and types, all orders, limits on every level: strict queues are judged job by job."""
    queues = (
        msgspec.structs.replace(queue, ordering=msgspec.structs.replace(queue.ordering or Ordering(), strict=strict))
        for queue in policy.queues
    )
    policy = msgspec.structs.replace(policy, queues=tuple(queues))
    plan = solve(snapshot, policy, optimise)
    assert violations(snapshot, policy, plan) == ()
    assert [found for found in findings(snapshot, policy, plan) if found.rule == "users"] == []


@worlds(40)
@given(snapshots(jobs_max=9), policies().map(shared_by_users), st.permutations(("ada", "bob", "")))
def test_names_of_users_decide_nothing(snapshot: Snapshot, policy: Policy, others: list[str]) -> None:
    names = dict(zip(("ada", "bob", ""), others, strict=True))
    policy = msgspec.structs.replace(policy, queues=tuple(unnamed(queue, names) for queue in policy.queues))
    renamed = msgspec.structs.replace(policy, queues=tuple(unnamed(queue, names, back=True) for queue in policy.queues))
    jobs = [of_user(known, names[known.user]) for known in snapshot.jobs]
    other = snapshot_of(snapshot.time, snapshot.nodes, jobs, snapshot.in_flight, snapshot.node_sets)
    assert solve(other, renamed, optimise).steps == solve(snapshot, policy, optimise).steps


def unnamed(queue: Queue, names: dict[str, str], back: bool = False) -> Queue:
    """The queue with the weights of users that have other names, and as many."""
    if queue.users is None:
        return queue
    weights = {"ada": 2, "bob": 3, "": 1}
    mine = {names[user] if back else user: weight for user, weight in weights.items()}
    return msgspec.structs.replace(queue, users=msgspec.structs.replace(queue.users, weights=mine))


def order(snapshot: Snapshot, policy: Policy) -> str:
    return " ".join(candidate.job.name for candidate in candidates_of(snapshot, policy)[0])


def test_jobs_without_a_user_are_those_of_one() -> None:
    assert order(world(1, Users(0, 0, 0), Users(2, 0, 0)), shared()) == "ada-0 ada-1"
    jobs = [job(f"none-{n}", Q, 1, 1) for n in range(2)] + [of_user(job("ada-0", Q, 1, 1, submitted=1), "ada")]
    assert order(snapshot_of(Instant(10), [node("n1", 1)], jobs), shared()) == "none-0 ada-0 none-1"


def test_what_comes_before_the_order_of_a_queue_comes_before_its_users() -> None:
    """A higher value of bob's comes before all of ada's, who holds nothing; a boosted job before both of its value."""
    high = [of_user(job("bob-high", Q, 1, 1, submitted=9, priority_class="training"), "bob")]
    low = [of_user(job(f"{user}-low", Q, 1, 1, priority_class="batch"), user) for user in ("ada", "bob")]
    also = [of_user(job("bob-also", Q, 1, 1, submitted=9, priority_class="batch"), "bob")]
    boosted = [msgspec.structs.replace(known, boosted=True) for known in also]
    nodes = [node("n1", 16)]
    assert order(snapshot_of(Instant(10), nodes, [*high, *low, *also]), shared()) == "bob-high ada-low bob-low bob-also"
    assert order(snapshot_of(Instant(10), nodes, [*high, *low, *boosted]), shared()) == (
        "bob-high bob-also ada-low bob-low"
    )


def test_what_users_have_held_counts_where_the_past_does() -> None:
    """Ada has held 3.9 GPUs on average and holds none: bob, who holds 3, comes first until he has 4."""
    policy = shared()
    with_past = msgspec.structs.replace(policy, scheduling=SchedulingPolicy(usage_half_life=Duration(24 * HOUR_MS)))
    snapshot = world(6, Users(0, 3, 0), Users(2, 2, 0))
    used = (Usage(Q, H, 3.9 * 24 / log(2), "ada"), Usage(Q, H, 50.0))
    past = snapshot_of(snapshot.time, snapshot.nodes, snapshot.jobs, InFlight(usage=used))
    assert order(past, with_past) == "bob-0 ada-0 bob-1 ada-1"
    assert order(past, policy) == "ada-0 ada-1 bob-0 bob-1"
    plan = solve(past, with_past, optimise)
    assert violations(past, with_past, plan) == findings(past, with_past, plan) == ()


def reasons(plan: Plan, name: str) -> list[str]:
    said = next(verdict for verdict in plan.verdicts if verdict.job == name)
    assert isinstance(said, Waits)
    return [str(reason) for reason in said.reasons if isinstance(reason, UserShare)]


def test_who_waits_beyond_its_share_is_told_so() -> None:
    """Bob holds 12 of 16 GPUs, and waits for more; ada starts on those that are free, and still is below her share."""
    snapshot = world(16, Users(0, 12, 0), Users(5, 1, 0))
    plan = solve(snapshot, shared(), optimise)
    assert reasons(plan, "bob-0") == [
        "user bob holds 12 of 16 H100 of queue q, beyond its fair share of 11 among 2 users that ask"
    ]
    assert reasons(plan, "ada-4") == []
    weighed = solve(snapshot, shared({"bob": 3}), optimise)
    assert reasons(weighed, "bob-0") == [
        "user bob holds 12 of 16 H100 of queue q, its fair share among 2 users that ask"
    ]


@pytest.mark.parametrize("strict", [False, True])
def test_a_start_before_one_of_a_user_that_has_less_is_found(strict: bool) -> None:
    """Seeded: the last of two GPUs goes to a second job of ada's, in the place of bob's. A strict queue's plan is refused."""
    snapshot, policy = world(2, Users(0, 0, 0), Users(2, 1, 0)), shared(ordering=Ordering(strict=strict))
    plan = solve(snapshot, policy, optimise)
    assert started(snapshot, plan) == {"ada": 1, "bob": 1}
    steps = (
        msgspec.structs.replace(step, job=JobName("ada-1")) if isinstance(step, Bind) and step.job == "bob-0" else step
        for step in plan.steps
    )
    starts = next(said for said in plan.verdicts if said.job == "bob-0")
    assert isinstance(starts, Starts)
    wrong = {"bob-0": Waits(JobName("bob-0"), Q, ()), "ada-1": msgspec.structs.replace(starts, job=JobName("ada-1"))}
    verdicts = tuple(wrong.get(said.job, said) for said in plan.verdicts)
    seeded = msgspec.structs.replace(plan, steps=tuple(steps), verdicts=verdicts)
    refused = [f"{one.subject} {one.problem}" for one in violations(snapshot, policy, seeded) if one.rule == "order"]
    assert refused == (["ada-1 starts before bob-0 of strict queue q"] if strict else [])
    told = [f"{one.subject} {one.problem}" for one in findings(snapshot, policy, seeded) if one.rule == "users"]
    assert told == ["ada-1 starts before bob-0 of user bob, who has less of queue q"]


def taking_back(policy: Policy) -> Policy:
    """The policy, where users take back their shares, too."""
    queues = (
        msgspec.structs.replace(queue, users=msgspec.structs.replace(queue.users, reclaim=True))
        if queue.users
        else queue
        for queue in policy.queues
    )
    return msgspec.structs.replace(policy, queues=tuple(queues))


@worlds(64)
@given(st.integers(0, 4), counts, counts, st.builds(Users, *[st.integers(1, 3)] * 3), st.booleans())
def test_users_take_back_their_shares_and_none_is_left_below_its_own(
    free: int, each: Users, waiting: Users, weights: Users, exact: bool
) -> None:
    """All running jobs are of one GPU: once rounds have no more to do, no user that waits would gain by another's last GPU, and
    as many GPUs are held as are asked for.
    """
    policy = taking_back(shared(weights._asdict()))
    names = [(f"{user}-runs-{n}", user) for user, mine in each._asdict().items() for n in range(mine)]
    jobs = [running(name, user, at, 1) for at, (name, user) in enumerate(names)]
    pending = [
        of_user(job(f"{user}-{n}", Q, 1, 1), user) for user, n_of in waiting._asdict().items() for n in range(n_of)
    ]
    snapshot = snapshot_of(Instant(10), [node("n1", len(jobs) + free)], [*jobs, *pending])
    plan = solve(snapshot, policy, optimise if exact else None)
    for _ in range(8):
        assert violations(snapshot, policy, plan) == ()
        if not plan.steps:
            break
        snapshot = victims_gone(applied(snapshot, plan))
        plan = solve(snapshot, policy, optimise if exact else None)
    assert not plan.steps, "rounds go on and on"
    held = Counter(known.user for known in snapshot.jobs if known.placement)
    asks = Counter(known.user for known in snapshot.jobs if not known.placement)
    assert sum(held.values()) == min(len(jobs) + free, len(jobs) + len(pending))
    for one, other in product(Users._fields, repeat=2):
        if one != other and held[one] and asks[other]:
            mine, theirs = (weights._asdict()[user] for user in (one, other))
            assert (held[one] - 1) * theirs <= held[other] * mine


@worlds(40)
@given(snapshots(jobs_max=9), policies().map(shared_by_users).map(taking_back))
def test_what_is_taken_back_is_lawful_and_not_taken_back_and_forth(snapshot: Snapshot, policy: Policy) -> None:
    assert_lawful_and_at_rest(snapshot, policy)


def taken_back() -> tuple[Snapshot, Policy, Plan]:
    """Bob runs four jobs, and two of ann's wait: his last two leave."""
    jobs = [running(f"bob-{n}", "bob", n, 1) for n in range(4)]
    jobs = [msgspec.structs.replace(known, started_at=Instant(n - HOUR_MS)) for n, known in enumerate(jobs)]
    pending = [of_user(job(f"ann-{n}", Q, 1, 1), "ann") for n in range(3)]
    snapshot, policy = snapshot_of(Instant(10), [node("n1", 4)], [*jobs, *pending]), taking_back(shared())
    return snapshot, policy, solve(snapshot, policy, optimise)


def test_the_last_job_beyond_a_share_leaves_first() -> None:
    snapshot, policy, plan = taken_back()
    assert violations(snapshot, policy, plan) == findings(snapshot, policy, plan) == ()
    assert sorted((step.job, step.means) for step in plan.steps if isinstance(step, Evict)) == [
        ("bob-2", "turn"),
        ("bob-3", "turn"),
    ]
    (told, _) = sorted(str(said) for said in plan.verdicts if isinstance(said, Yields))
    assert "in queue q it lies beyond the fair share of user bob, and job ann-0 inside that of user ann" in told


def test_what_leaves_inside_a_share_and_for_more_than_a_share_is_refused() -> None:
    """Seeded: bob's first job leaves in the place of his last; and one job more of his than is fair."""
    snapshot, policy, plan = taken_back()
    steps = [
        msgspec.structs.replace(step, job=JobName("bob-0")) if isinstance(step, Evict) and step.job == "bob-3" else step
        for step in plan.steps
    ]
    seeded = msgspec.structs.replace(plan, steps=tuple(steps))
    refused = [found.problem for found in violations(snapshot, policy, seeded) if found.rule == "S4"]
    assert any("lies inside that of user bob" in problem for problem in refused)
    without = msgspec.structs.replace(policy, queues=shared().queues)
    kept = msgspec.structs.replace(plan, policy=without.digest)
    refused = [found.problem for found in violations(snapshot, without, kept) if found.rule == "S4"]
    assert any("what runs stays" in problem for problem in refused)


@worlds(400)
@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5), st.integers(0, 6)), max_size=6))
def test_shares_are_filled_in_one_gpu_after_the_other(gpus: int, users: list[tuple[int, int, int]]) -> None:
    """Each is what comes of handing them out one by one, from nothing, to the user that has least by weight."""
    claims = [_Claim(f"u{n}", asked, weight, held, n) for n, (asked, weight, held) in enumerate(users)]
    given = dict.fromkeys((claim.user for claim in claims), 0)
    for _ in range(gpus):
        hungry = [claim for claim in claims if given[claim.user] < claim.asked]
        if hungry:
            given[min(hungry, key=lambda claim: claim.turn(given[claim.user])).user] += 1
    assert _filled(gpus, claims) == given
