"""A delay before others leave for a waiting job, on random tiny worlds: by the rules of a book, and by trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from solver.checker.alarm import findings
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import snapshot_of
from solver.model.workload import JobName
from solver.plan.plan import Evict, Plan, Shrink
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.solver.laws.book import Book
from tests.solver.laws.generator import drawn
from tests.solver.laws.judge import greedy, judged, production
from tests.solver.laws.loop import Decide
from tests.solver.laws.test_laws import more_than
from tests.solver.laws.worlds import MINUTE_MS, World, world_of
from tests.solver.round.test_protections import ClosedCourse, asked, protections

KNOWN: tuple[dict[str, int], dict[str, int]] = ({}, {"not-least-harm": 2, "entitled-waits": 1})
"""Kinds of findings, and in how many worlds the judge has them: of 150 by the program, of 60 by search."""


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
    for number in range(6):
        snapshot, policy = drawn(number)
        plan = solve(snapshot, policy, optimiser)  # type: ignore[arg-type]
        same = solve(snapshot, without_delays(policy, Duration(0)), optimiser)  # type: ignore[arg-type]
        same = msgspec.structs.replace(same, policy=plan.policy)
        assert same.digest == plan.digest, number


@pytest.mark.parametrize(
    ("worlds", "optimiser"),
    [
        (range(12), optimise),
        (range(12), None),
        pytest.param(range(12, 400), optimise, marks=pytest.mark.long),
        pytest.param(range(12, 400), None, marks=pytest.mark.long),
    ],
    ids=["12", "12 by search", "400", "400 by search"],
)
def test_nobody_leaves_for_a_job_that_has_not_waited_and_the_checker_finds_nothing(
    worlds: range, optimiser: object
) -> None:
    kept = 0
    for number in worlds:
        world = delayed(number)
        plan = solve(*world, optimiser)  # type: ignore[arg-type]
        assert violations(*world, plan) == (), number
        assert too_early(world, plan) == [], number
        undelayed = without_delays(world.policy, None)
        without = solve(world.snapshot, undelayed, optimiser)  # type: ignore[arg-type]
        assert not findings(*world, plan) or findings(world.snapshot, undelayed, without), number
        kept += bool(too_early(world, without))
    assert kept >= len(worlds) / 20


@pytest.mark.parametrize(
    ("worlds", "decide"),
    [
        pytest.param(range(150), production, marks=pytest.mark.long),
        pytest.param(range(60), greedy, marks=pytest.mark.long),
    ],
    ids=["150", "60 by search"],
)
def test_no_law_is_broken_that_is_not_without_delays(
    worlds: range, decide: Decide, record_property: Callable[[str, object], None]
) -> None:
    """Among them that other names change nothing, and that all are served who can be, by trying everything."""
    found = Counter[str]()
    for number in worlds:
        found.update({finding.kind for finding in judged(delayed(number), decide)[1]})
    record_property("figure", f"of {len(worlds)} tiny worlds with delays: {dict(sorted(found.items()))}")
    assert more_than(KNOWN[decide is greedy], found) == {}


@pytest.mark.parametrize(
    ("worlds", "optimiser", "least"),
    [
        (range(8), optimise, 1),
        pytest.param(range(60), optimise, 10, marks=pytest.mark.long),
        pytest.param(range(60), None, 10, marks=pytest.mark.long),
    ],
    ids=["8", "60", "60 by search"],
)
def test_when_a_job_has_waited_for_long_enough_it_starts_as_was_said(
    worlds: range, optimiser: object, least: int, record_property: Callable[[str, object], None]
) -> None:
    kept, broken = 0, list[tuple[int, JobName, int]]()
    for number in worlds:
        snapshot, policy = asked(delayed(number))
        course = ClosedCourse(snapshot, policy, lambda seen, rules: solve(seen, rules, optimiser))  # type: ignore[arg-type]
        course.run()
        kept += len(course.kept)
        broken += [(number, *known) for known in course.broken]
    record_property("figure", f"of {kept + len(broken)} ends of waits {kept} as they were said")
    assert broken == []
    assert kept >= least


# The checker, alone.

LENT = "nodes n1=2\nqueue a 2\nqueue b 0\nrun b1 b 2@n1 for 17m\nwait w a 2 for 2m"


@pytest.mark.parametrize(
    ("queue_m", "class_m", "within_m", "told"),
    [
        (0, None, 60, False),
        (2, None, 60, False),
        (3, None, 60, True),
        (3, 0, 60, False),
        (0, 3, 60, True),
        (3, None, 1, False),
    ],
    ids=["no delay", "has waited", "too early", "its class goes first", "too early by its class", "overdue"],
)
def test_the_checker_refuses_an_eviction_for_a_job_that_has_not_waited(
    queue_m: int, class_m: int | None, within_m: int, told: bool
) -> None:
    snapshot, policy = world_of(LENT)
    plan = solve(snapshot, policy, optimise)
    assert any(isinstance(step, Evict) for step in plan.steps)
    queues = tuple(
        msgspec.structs.replace(queue, preempt_after=Duration(queue_m * MINUTE_MS)) for queue in policy.queues
    )
    after = None if class_m is None else Duration(class_m * MINUTE_MS)
    classes = tuple(msgspec.structs.replace(known, preempt_after=after) for known in policy.priority_classes)
    scheduling = msgspec.structs.replace(policy.scheduling, reclaim_within=Duration(within_m * MINUTE_MS))
    later = msgspec.structs.replace(policy, queues=queues, priority_classes=classes, scheduling=scheduling)
    plan = msgspec.structs.replace(plan, policy=later.digest)
    found = [known for known in violations(snapshot, later, plan) if known.rule == "S9"]
    assert bool(found) == told, found


def test_a_job_that_was_evicted_waits_anew() -> None:
    snapshot, policy = world_of(LENT)
    policy = without_delays(policy, Duration(MINUTE_MS))
    assert any(isinstance(step, Evict) for step in solve(snapshot, policy, optimise).steps)
    jobs = [
        job if job.placement else msgspec.structs.replace(job, evicted_at=(Instant(snapshot.time - 1000),))
        for job in snapshot.jobs
    ]
    again = snapshot_of(snapshot.time, snapshot.nodes, jobs, snapshot.in_flight)
    plan = solve(again, policy, optimise)
    assert not any(isinstance(step, Evict) for step in plan.steps)
    (reason,) = protections(plan)
    assert (reason.by, reason.job, reason.queue) == ("preemptAfter", "b1", "")
    assert reason.until == Instant(snapshot.time + MINUTE_MS - 1000)
