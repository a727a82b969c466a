"""Guarantees that a queue shares with those below it, on random tiny worlds: by the rules of a book, and by trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from solver.checker.alarm import findings
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.quantities import MilliGpu
from solver.plan.plan import Evict, Nominate, Plan, Shrink
from solver.policy.policy import Policy, Quota
from solver.round.solve import solve
from tests.solver.laws.book import Book
from tests.solver.laws.generator import drawn
from tests.solver.laws.judge import greedy, judged, production
from tests.solver.laws.loop import Decide
from tests.solver.laws.test_laws import more_than
from tests.solver.laws.worlds import World, world_of

KNOWN: tuple[dict[str, int], dict[str, int]] = (
    {"not-least-harm": 1, "needless": 1},
    {"not-least-harm": 6, "needless": 2},
)
"""Kinds of findings, and in how many worlds the judge has them: of 150 by the program, of 60 by search."""


def with_shared(policy: Policy, *names: str) -> Policy:
    """The same policy, in which these queues share their guarantees, and no others."""
    queues = tuple(
        msgspec.structs.replace(
            queue, quota=tuple(msgspec.structs.replace(entry, shared=queue.name in names) for entry in queue.quota)
        )
        for queue in policy.queues
    )
    return msgspec.structs.replace(policy, queues=queues)


def sharing(number: int) -> World:
    """A random tiny world in which a job waits inside what a queue above its own shares, and beyond the guarantee of its own.

    In half of them work is taken back for guarantees alone.
    """
    for attempt in range(1000):
        random, (snapshot, policy) = Random(f"{number}/{attempt}"), drawn(number + 1000 * attempt, seed=1)
        parents = sorted({str(queue.parent) for queue in policy.queues if queue.parent})
        changed = {name: random.randint(1, 8) for name in parents}
        changed |= {
            str(queue.name): 0 for queue in policy.queues if queue.name not in parents and random.random() < 0.5
        }
        scheduling = policy.scheduling
        if random.random() < 0.5:
            scheduling = msgspec.structs.replace(scheduling, reclaim="guaranteed")
        queues = tuple(
            msgspec.structs.replace(queue, quota=(_guaranteed(queue.quota[0], changed.get(str(queue.name))),))
            for queue in policy.queues
        )
        policy = msgspec.structs.replace(policy, queues=queues, scheduling=scheduling)
        world = World(snapshot, with_shared(policy, *parents))
        book = Book.of(*world)
        given = {name: sum(book.stated[child] or 0 for child in book.below(name)) for name in (*parents, None)}
        is_sound = all(
            given[name] <= (book.capacity if name is None else book.guaranteed[name]) for name in (*parents, None)
        )
        lasting = all(book.admissible(job) for job in book.waiting) and not any(
            job for job in book.running if not job.preemptible
        )
        if is_sound and lasting and any(book.is_in_common(j) and not book.might_be_entitled(j) for j in book.waiting):
            return world
    raise ValueError(f"there is no such world {number}")


def _guaranteed(entry: Quota, gpus: int | None) -> Quota:
    guaranteed = entry.guaranteed if gpus is None else MilliGpu.gpus(gpus)
    most = entry.max if guaranteed is None or entry.max is None else max(entry.max, guaranteed)
    return msgspec.structs.replace(entry, guaranteed=guaranteed, max=most)


def claims(world: World, plan: Plan) -> list[str]:
    """Who has others leave beyond the guarantee of its own queue, inside what one above shares."""
    book, found = Book.of(*world), list[str]()
    takers = {step.job for step in plan.steps if isinstance(step, Nominate)}
    for step in plan.steps:
        if isinstance(step, Evict | Shrink) and step.beneficiary in takers and step.means in ("reclaim", "straddle"):
            job = book.jobs[str(step.beneficiary)]
            if not job.spots and not book.might_be_entitled(job) and book.is_in_common(job):
                found.append(job.name)
    return found


@pytest.mark.parametrize("optimiser", [optimise, None], ids=["program", "search"])
def test_a_queue_with_none_below_it_has_nobody_to_share_with(optimiser: object) -> None:
    for number in range(3):
        snapshot, policy = drawn(number)
        parents = {queue.parent for queue in policy.queues}
        leaves = [queue.name for queue in policy.queues if queue.name not in parents]
        plan = solve(snapshot, policy, optimiser)  # type: ignore[arg-type]
        same = solve(snapshot, with_shared(policy, *leaves), optimiser)  # type: ignore[arg-type]
        assert msgspec.structs.replace(same, policy=plan.policy).digest == plan.digest, number


@pytest.mark.parametrize(
    ("worlds", "optimiser", "least"),
    [
        (range(6), optimise, 1),
        (range(6), None, 1),
        pytest.param(range(6, 400), optimise, 20, marks=pytest.mark.long),
        pytest.param(range(6, 400), None, 20, marks=pytest.mark.long),
    ],
    ids=["6", "6 by search", "400", "400 by search"],
)
def test_what_is_shared_is_claimed_and_the_checker_finds_nothing(worlds: range, optimiser: object, least: int) -> None:
    claimed = worse = 0
    for number in worlds:
        world = sharing(number)
        plan = solve(*world, optimiser)  # type: ignore[arg-type]
        assert violations(*world, plan) == (), number
        undivided = with_shared(world.policy)
        without = solve(world.snapshot, undivided, optimiser)  # type: ignore[arg-type]
        worse += bool(findings(*world, plan)) and not findings(world.snapshot, undivided, without)
        claimed += bool(claims(world, plan))
    assert claimed >= least
    # Of what leaves for one tier, another may make use.
    assert worse <= len(worlds) // 200


@pytest.mark.parametrize(
    ("worlds", "decide"),
    [
        pytest.param(range(150), production, marks=pytest.mark.long),
        pytest.param(range(60), greedy, marks=pytest.mark.long),
    ],
    ids=["150", "60 by search"],
)
def test_no_law_is_broken_where_guarantees_are_shared(
    worlds: range, decide: Decide, record_property: Callable[[str, object], None]
) -> None:
    """Among them that other names change nothing, and that who can be served is, by trying everything."""
    found = Counter[str]()
    for number in worlds:
        found.update({finding.kind for finding in judged(sharing(number), decide)[1]})
    record_property("figure", f"of {len(worlds)} tiny worlds that share guarantees: {dict(sorted(found.items()))}")
    assert more_than(KNOWN[decide is greedy], found) == {}


# By hand, and the checker alone.

TAKES = "run s1 s 4@n1 for 90m; run s2 s 4@n1 for 80m; wait a1 a 8 for 5m"
"""Queue s has borrowed all, and one of queue a waits, below org, for as much as org is guaranteed."""


@pytest.mark.parametrize(
    ("queues", "jobs", "lawful"),
    [
        ("queue org shared 8; queue a in org 0; queue b in org 0; queue s 0", TAKES, True),
        ("queue org 8; queue a in org 0; queue b in org 0; queue s 0", TAKES, False),
        ("queue org shared 7; queue a in org 0; queue b in org 0; queue s 0", TAKES, False),
        ("queue org shared 8; queue a in org 0; queue b in org 0; queue s in org 0", TAKES, False),
        ("queue org shared 8; queue a in org 0; queue b in org 0; queue s 4", TAKES, False),
        ("queue top 8; queue org in top shared 8; queue a in org 0; queue s in top 0", TAKES, True),
        ("queue top 4; queue org in top shared 4; queue a in org 0; queue s 4", TAKES, False),
    ],
    ids=[
        "shared",
        "not shared",
        "too little",
        "of a sibling",
        "inside another guarantee",
        "below a root",
        "too little above",
    ],
)
def test_the_checker_knows_what_is_shared(queues: str, jobs: str, lawful: bool) -> None:
    snapshot, policy = world_of(f"nodes n1=8; rules reclaim=guaranteed; {queues}; {jobs}")
    granted = world_of(f"nodes n1=8; queue org 8; queue a in org 8; queue b in org 0; queue s 0; queue top 0; {jobs}")
    plan = solve(snapshot, granted.policy, optimise)
    assert {step.job for step in plan.steps if isinstance(step, Evict)} == {"s1", "s2"}
    found = violations(snapshot, policy, msgspec.structs.replace(plan, policy=policy.digest))
    assert (found == ()) == lawful, found
    decided = solve(snapshot, policy, optimise)
    assert any(isinstance(step, Evict) for step in decided.steps) == lawful


def test_from_a_sibling_a_fair_share_is_claimed_and_no_more() -> None:
    queues = "queue org shared 8; queue a in org 0; queue s in org 0"
    snapshot, policy = world_of(f"nodes n1=8; {queues}; {TAKES}")
    granted = world_of(f"nodes n1=8; queue a 8; queue s 0; {TAKES}")
    plan = msgspec.structs.replace(solve(*granted, optimise), policy=policy.digest)
    assert {found.rule for found in violations(snapshot, policy, plan)} == {"S12"}
