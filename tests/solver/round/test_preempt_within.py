"""How queues preempt and lend, on random tiny worlds: by the rules of a book, and by trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.quantities import Duration, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.plan.plan import Evict, Plan, Shrink, Waits, Yields
from solver.plan.reasons import Protected
from solver.policy.ordering import Ordering, Turns
from solver.policy.policy import Policy, PreemptWithin, Queue, Quota, Reclaim, Scope
from solver.round.solve import solve
from tests.solver.laws.book import Book
from tests.solver.laws.generator import drawn
from tests.solver.laws.judge import greedy, judged, production
from tests.solver.laws.loop import Decide
from tests.solver.laws.test_laws import more_than
from tests.solver.laws.worlds import World, world_of

KNOWN: tuple[dict[str, int], dict[str, int]] = (
    {"in-vain": 2, "not-least-harm": 1},
    {"in-vain": 1, "needless": 3, "not-least-harm": 1, "fewer-entitled": 1},
)
"""Kinds of findings, and in how many worlds the judge has them: of 150 by the program, of 60 by search."""

BY_VALUE: tuple[dict[str, int], dict[str, int]] = ({}, {})
"""The same where work leaves by value: of 15, and of 20."""


def saying(policy: Policy, within: PreemptWithin | None = None, reclaimed_for: Reclaim | None = None) -> Policy:
    """The same policy, all of whose queues say this."""
    queues = (
        msgspec.structs.replace(queue, preempt_within=within, reclaimed_for=reclaimed_for) for queue in policy.queues
    )
    return msgspec.structs.replace(policy, queues=tuple(queues))


def mixed(number: int) -> World:
    """A random tiny world whose queues differ in how they preempt, and in for what their borrowed work is reclaimed."""
    random, (snapshot, policy) = Random(number), drawn(number, seed=2)
    withins: tuple[PreemptWithin | None, ...] = (None, "never", "lower-priority", "lower-or-newer")
    modes: tuple[Reclaim | None, ...] = (None, None, "guaranteed", "fair-share")
    queues = tuple(
        msgspec.structs.replace(queue, preempt_within=random.choice(withins), reclaimed_for=random.choice(modes))
        for queue in policy.queues
    )
    return World(snapshot, msgspec.structs.replace(policy, queues=queues))


def by_value(number: int) -> World:
    """A random tiny world in which a job waits for which what others borrowed could leave by its value; all values compare."""
    for attempt in range(1000):
        world = _by_value(number + 1000 * attempt)
        book = Book.of(*world)
        parts = [part for job in book.running for part in job.parts]
        if any(
            book.jobs[part.job].queue != taker.queue and book.yields_by_value(part, taker)
            for taker in book.waiting
            for part in parts
        ):
            return world
    raise ValueError(f"there is no such world {number}")


def _by_value(number: int) -> World:
    random, (snapshot, policy) = Random(number), drawn(number, seed=3)
    queues = tuple(
        msgspec.structs.replace(queue, reclaim_below=random.choice((None, 0, 1, 3)), quota=_halved(queue, random))
        for queue in policy.queues
    )
    classes = tuple(msgspec.structs.replace(known, scope="cluster") for known in policy.priority_classes)
    reclaim: Reclaim = "guaranteed" if random.random() < 0.7 else "fair-share"
    scheduling = msgspec.structs.replace(policy.scheduling, reclaim=reclaim)
    policy = msgspec.structs.replace(policy, queues=queues, priority_classes=classes, scheduling=scheduling)
    fixed = {known.name for known in classes if not known.preemptible}
    jobs = [job for job in snapshot.jobs if job.spec.priority_class not in fixed]
    return World(snapshot_of(snapshot.time, snapshot.nodes, jobs), policy)


def _halved(queue: Queue, random: Random) -> tuple[Quota, ...]:
    """Its quota, of which it is guaranteed nothing any more in most cases: then there is more to borrow."""
    keeps = random.random() < 0.3
    return queue.quota if keeps else tuple(msgspec.structs.replace(q, guaranteed=MilliGpu(0)) for q in queue.quota)


def means(plan: Plan) -> set[tuple[str, str]]:
    """Who leaves, and by which means."""
    return {(str(step.job), step.means) for step in plan.steps if isinstance(step, Evict | Shrink)}


def reasons(plan: Plan) -> list[Protected]:
    """Which protections verdicts name."""
    waits = (verdict for verdict in plan.verdicts if isinstance(verdict, Waits))
    return [reason for verdict in waits for reason in verdict.reasons if isinstance(reason, Protected)]


def test_newer_work_leaves_by_age_also_where_jobs_take_turns() -> None:
    world = world_of("nodes n1=2; queue q -; run newer q 1@n1 for 30m; wait older q 2x1 for 300m")
    turns = Ordering("shortest", turns=Turns(Duration(3_600_000)))
    queues = (
        msgspec.structs.replace(queue, preempt_within="lower-or-newer", ordering=turns) for queue in world.policy.queues
    )
    world = World(world.snapshot, msgspec.structs.replace(world.policy, queues=tuple(queues)))
    for decide in (production, greedy):
        plan = decide(*world)
        assert means(plan) == {("newer", "preempt")}
        assert violations(*world, plan) == ()


@pytest.mark.parametrize("optimiser", [optimise, None], ids=["program", "search"])
def test_the_defaults_in_words_change_no_plan(optimiser: object) -> None:
    for number in range(3):
        snapshot, policy = drawn(number)
        plan = solve(snapshot, policy, optimiser)  # type: ignore[arg-type]
        same = solve(snapshot, saying(policy, "lower-priority", "fair-share"), optimiser)  # type: ignore[arg-type]
        assert msgspec.structs.replace(same, policy=plan.policy).digest == plan.digest, number


@pytest.mark.parametrize(
    ("worlds", "optimiser"),
    [
        (range(4), optimise),
        (range(4), None),
        pytest.param(range(4, 400), optimise, marks=pytest.mark.long),
        pytest.param(range(4, 400), None, marks=pytest.mark.long),
    ],
    ids=["4", "4 by search", "400", "400 by search"],
)
def test_the_checker_finds_nothing(worlds: range, optimiser: object) -> None:
    for number in worlds:
        world = mixed(number)
        plan = solve(*world, optimiser)  # type: ignore[arg-type]
        assert violations(*world, plan) == (), number
        book = Book.of(*world)
        for name, by in means(plan):
            if by == "preempt":
                assert book.within[book.jobs[name].queue] != "never", number


@pytest.mark.parametrize(
    ("worlds", "decide"),
    [
        pytest.param(range(150), production, marks=pytest.mark.long),
        pytest.param(range(60), greedy, marks=pytest.mark.long),
    ],
    ids=["150", "60 by search"],
)
def test_no_law_is_broken_however_queues_preempt(
    worlds: range, decide: Decide, record_property: Callable[[str, object], None]
) -> None:
    """Among them that other names change nothing, and that who can be served is, by trying everything."""
    found = Counter[str]()
    for number in worlds:
        found.update({finding.kind for finding in judged(mixed(number), decide)[1]})
    record_property(
        "figure", f"of {len(worlds)} tiny worlds whose queues preempt differently: {dict(sorted(found.items()))}"
    )
    assert more_than(KNOWN[decide is greedy], found) == {}


# By hand, and the checker alone.

LOWER = "nodes n1=4; class high 1; class low -1; queue a 4; run old a 4@n1 for 60m low; wait new a 4 for 2m high"
EQUAL = "nodes n1=4; queue a 4; run late a 4@n1 for 60m; wait early a 4 for 90m"
EARLY = "nodes n1=4; queue a 4; run early a 4@n1 for 60m/200m; wait late a 4 for 90m"


@pytest.mark.parametrize(
    ("text", "within", "leaves"),
    [
        (LOWER, None, True),
        (LOWER, "never", False),
        (LOWER, "lower-or-newer", True),
        (EQUAL, None, False),
        (EQUAL, "never", False),
        (EQUAL, "lower-or-newer", True),
        (EARLY, "lower-or-newer", False),
    ],
    ids=["lower", "never lower", "lower or newer", "equal", "never equal", "newer", "older"],
)
@pytest.mark.parametrize("optimiser", [optimise, None], ids=["program", "search"])
def test_who_leaves_for_a_job_of_its_queue(
    text: str, within: PreemptWithin | None, leaves: bool, optimiser: object
) -> None:
    snapshot, policy = world_of(text)
    policy = saying(policy, within)
    plan = solve(snapshot, policy, optimiser)  # type: ignore[arg-type]
    assert violations(snapshot, policy, plan) == ()
    assert bool(means(plan)) == leaves
    assert [(one.by, one.queue) for one in reasons(plan)] == [("preemptWithin", "a")] * (text is LOWER and not leaves)
    # The checker judges by itself: a plan in which it leaves is lawful under the same policies alone.
    other = text if text is LOWER else text.replace("queue a", "class high 1; queue a") + " high"
    taken = solve(*world_of(other), optimise)
    assert {by for _, by in means(taken)} == {"preempt"}
    found = violations(snapshot, policy, msgspec.structs.replace(taken, snapshot=snapshot.digest, policy=policy.digest))
    assert ("S4" in {known.rule for known in found}) == (not leaves), found


def test_the_verdict_says_that_the_older_goes_before() -> None:
    snapshot, policy = world_of(EQUAL)
    queues = tuple(msgspec.structs.replace(queue, origin="a.yaml:4") for queue in policy.queues)
    policy = saying(msgspec.structs.replace(policy, queues=queues), "lower-or-newer")
    (verdict,) = (known for known in solve(snapshot, policy, optimise).verdicts if isinstance(known, Yields))
    assert "was submitted first; preemptWithin (a.yaml:4) is lower-or-newer" in str(verdict)


SHARE = "nodes n1=8; queue a 0; queue b 0; run b1 b 4@n1 for 60m; run b2 b 4@n1 for 50m; wait a1 a 4 for 5m"
OWNED = SHARE.replace("queue a 0", "queue a 4")


@pytest.mark.parametrize("optimiser", [optimise, None], ids=["program", "search"])
def test_for_what_borrowed_work_leaves(optimiser: object) -> None:
    for text, mode, leaves in (
        (SHARE, None, True),
        (SHARE, "guaranteed", False),
        (OWNED, "guaranteed", True),
    ):
        snapshot, policy = world_of(text)
        said = saying(policy, None, mode)  # type: ignore[arg-type]
        plan = solve(snapshot, said, optimiser)  # type: ignore[arg-type]
        assert violations(snapshot, said, plan) == ()
        assert bool(means(plan)) == leaves
        assert [(one.by, one.queue) for one in reasons(plan)] == [("reclaimedFor", "b")] * (not leaves)
        taken = msgspec.structs.replace(solve(snapshot, policy, optimise), policy=said.digest)
        assert ("S12" in {known.rule for known in violations(snapshot, said, taken)}) == (not leaves)


VALUE = (
    "nodes n1=8; rules reclaim=guaranteed; class low 1; class high 5; queue a 0; queue b 0; "
    "run b1 b 8@n1 for 60m low; wait a1 a 8 for 5m high"
)


@pytest.mark.parametrize(
    ("text", "below", "scope", "leaves"),
    [
        (VALUE, 2, "cluster", True),
        (VALUE, None, "cluster", False),
        (VALUE, 1, "cluster", False),
        (VALUE, 2, "queue", False),
        (VALUE.replace("low; wait", "high; wait"), 9, "cluster", False),
        (VALUE.replace("queue b 0", "queue b 8"), 2, "cluster", False),
        (VALUE.replace("reclaim=guaranteed", "reclaim=fair-share"), 2, "cluster", False),
    ],
    ids=[
        "below",
        "says nothing",
        "not below",
        "values of a queue",
        "not lower",
        "not borrowed",
        "keeps its fair share",
    ],
)
@pytest.mark.parametrize("optimiser", [optimise, None], ids=["program", "search"])
def test_what_others_borrowed_leaves_by_its_value(
    text: str, below: int | None, scope: Scope, leaves: bool, optimiser: object
) -> None:
    def with_value(known: Policy) -> Policy:
        queues = tuple(msgspec.structs.replace(q, reclaim_below=below if q.name == "a" else None) for q in known.queues)
        classes = tuple(msgspec.structs.replace(one, scope=scope) for one in known.priority_classes)
        return msgspec.structs.replace(known, queues=queues, priority_classes=classes)

    snapshot, policy = world_of(text)
    said = with_value(policy)
    plan = solve(snapshot, said, optimiser)  # type: ignore[arg-type]
    assert violations(snapshot, said, plan) == ()
    assert bool(means(plan)) == leaves
    # The checker judges by itself: the same is taken for a guarantee.
    owned = world_of(text.replace("queue a 0", "queue a 8").replace("queue b 8", "queue b 0"))
    taken = msgspec.structs.replace(solve(*owned, optimise), policy=said.digest)
    assert means(taken) == {("b1", "reclaim")}
    assert (violations(snapshot, said, taken) == ()) == leaves


@pytest.mark.parametrize(
    ("worlds", "optimiser"),
    [
        (range(3), optimise),
        (range(3), None),
        pytest.param(range(3, 400), optimise, marks=pytest.mark.long),
        pytest.param(range(3, 400), None, marks=pytest.mark.long),
    ],
    ids=["3", "3 by search", "400", "400 by search"],
)
def test_the_checker_finds_nothing_where_work_leaves_by_value(worlds: range, optimiser: object) -> None:
    for number in worlds:
        world = by_value(number)
        assert violations(*world, solve(*world, optimiser)) == (), number  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("worlds", "decide"),
    [
        pytest.param(range(15), production, marks=pytest.mark.long),
        pytest.param(range(20), greedy, marks=pytest.mark.long),
    ],
    ids=["15", "20 by search"],
)
def test_no_law_is_broken_where_work_leaves_by_value(
    worlds: range, decide: Decide, record_property: Callable[[str, object], None]
) -> None:
    """Among them that nobody is evicted twice, and that the world comes to rest."""
    found = Counter[str]()
    for number in worlds:
        found.update({finding.kind for finding in judged(by_value(number), decide)[1]})
    record_property(
        "figure", f"of {len(worlds)} tiny worlds in which work leaves by value: {dict(sorted(found.items()))}"
    )
    assert more_than(BY_VALUE[decide is greedy], found) == {}
