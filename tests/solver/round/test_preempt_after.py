"""A delay before others leave for a waiting job: on random tiny worlds, by the rules of a book of its own, and by trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from solver.checker.alarm import findings
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.plan.plan import Evict, Plan, Shrink
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.solver.laws.book import Book
from tests.solver.laws.generator import drawn
from tests.solver.laws.judge import greedy, judged, production
from tests.solver.laws.loop import Decide
from tests.solver.laws.worlds import MINUTE_MS, World
from tests.solver.round.test_protections import ClosedCourse, asked


def delayed(number: int) -> World:
    """A random tiny world some of whose queues and classes have jobs wait before others leave for them."""
    random, (snapshot, policy) = Random(number), drawn(number)

    def said() -> Duration | None:
        return random.choice((None, Duration(0), *(Duration(m * MINUTE_MS) for m in (30, 120, 300, 500))))

    queues = tuple(msgspec.structs.replace(queue, preempt_after=said()) for queue in policy.queues)
    classes = tuple(
        msgspec.structs.replace(known, preempt_after=said() if random.random() < 0.3 else None)
        for known in policy.priority_classes
    )
    within = Duration(random.choice((60, 2000)) * MINUTE_MS)
    scheduling = msgspec.structs.replace(policy.scheduling, reclaim_within=within)
    return World(
        snapshot, msgspec.structs.replace(policy, queues=queues, priority_classes=classes, scheduling=scheduling)
    )


def without_delays(policy: Policy, preempt_after: Duration | None) -> Policy:
    """The same policy, all of whose queues and classes say this."""
    queues = tuple(msgspec.structs.replace(queue, preempt_after=preempt_after) for queue in policy.queues)
    classes = tuple(msgspec.structs.replace(known, preempt_after=preempt_after) for known in policy.priority_classes)
    return msgspec.structs.replace(policy, queues=queues, priority_classes=classes)


def too_early(world: World, plan: Plan) -> list[str]:
    """Who leaves for a waiting job that has not waited for long enough, by the book; overdue guarantees apart."""
    book = Book.of(*world)
    takers = (step.beneficiary for step in plan.steps if isinstance(step, Evict | Shrink) and step.means != "move")
    jobs = [book.jobs[name] for name in takers if name is not None]
    return [job.name for job in jobs if not job.spots and book.is_early(job) and not book.is_overdue(job)]


@pytest.mark.parametrize("optimiser", [optimise, None], ids=["program", "search"])
def test_a_delay_of_nothing_changes_no_plan(optimiser: object) -> None:
    for number in range(40):
        snapshot, policy = drawn(number)
        plan = solve(snapshot, policy, optimiser)  # type: ignore[arg-type]
        same = solve(snapshot, without_delays(policy, Duration(0)), optimiser)  # type: ignore[arg-type]
        same = msgspec.structs.replace(same, policy=plan.policy)
        assert same.digest == plan.digest, number


@pytest.mark.parametrize(
    ("worlds", "optimiser"),
    [
        (range(60), optimise),
        (range(60), None),
        pytest.param(range(60, 1200), optimise, marks=pytest.mark.thorough),
        pytest.param(range(60, 1200), None, marks=pytest.mark.thorough),
    ],
    ids=["60", "60 by search", "1200", "1200 by search"],
)
def test_nobody_leaves_for_a_job_that_has_not_waited_and_the_checker_finds_nothing(
    worlds: range, optimiser: object
) -> None:
    delays = 0
    for number in worlds:
        world = delayed(number)
        plan = solve(*world, optimiser)  # type: ignore[arg-type]
        assert violations(*world, plan) == (), number
        assert too_early(world, plan) == [], number
        accused = findings(*world, plan)
        assert not accused or findings(world.snapshot, *_undelayed(world, optimiser)), (number, accused)
        without = solve(world.snapshot, without_delays(world.policy, None), optimiser)  # type: ignore[arg-type]
        delays += bool(too_early(world, without))
    assert delays >= len(worlds) / 20


def _undelayed(world: World, optimiser: object) -> tuple[Policy, Plan]:
    policy = without_delays(world.policy, None)
    return policy, solve(world.snapshot, policy, optimiser)  # type: ignore[arg-type]
