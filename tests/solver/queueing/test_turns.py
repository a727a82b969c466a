"""Each queue's own order: what it goes by, what it inherits, and that strict queues let nobody pass."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.milp.highs import optimise
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, QueueName
from solver.plan.plan import Bind, Nominate
from solver.policy.ordering import OrderBy, Ordering
from solver.policy.policy import Policy, PriorityClass, Queue, policy_of
from solver.policy.precedence import ordering_of
from solver.policy.tree import QueueTree
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.round.test_against_brute_force import candidates_of
from tests.solver.worlds import HOUR_MS, ORDERS, job, node, policies, snapshots

CLASSES = (PriorityClass("low", 1), PriorityClass("high", 9), PriorityClass("fast", 1, aging_per_hour=8.0))


def waiting(name: str, *, waited_h: int = 0, limit_h: int = 0, served: int = 0, priority_class: str = "low") -> Job:
    made = job(name, "q", 1, 1, submitted=-waited_h * HOUR_MS, priority_class=priority_class)
    spec = msgspec.structs.replace(made.spec, time_limit=Duration(limit_h * HOUR_MS) if limit_h else None)
    return msgspec.structs.replace(made, spec=spec, served_gpu_ms=served)


def order(by: OrderBy, *jobs: Job) -> str:
    policy = policy_of((Queue(QueueName("q"), ordering=Ordering(by)),), CLASSES)
    world = snapshot_of(Instant(0), [node("n1", 8)], jobs)
    return " ".join(candidate.job.name for candidate in candidates_of(world, policy)[0])


@pytest.mark.parametrize(
    ("by", "expected"),
    [("priority", "c a b"), ("fifo", "a b c"), ("shortest", "b c a"), ("least-served", "b a c")],
)
def test_what_a_queue_goes_by(by: OrderBy, expected: str) -> None:
    jobs = (
        waiting("a", waited_h=3, served=2),
        waiting("b", waited_h=2, limit_h=1, served=1),
        waiting("c", waited_h=1, limit_h=2, served=3, priority_class="high"),
    )
    assert order(by, *jobs) == expected


def test_a_class_that_ages_faster_passes_elsewhere_and_never_in_fifo() -> None:
    jobs = waiting("slow", waited_h=2), waiting("fast", waited_h=1, priority_class="fast")
    assert order("priority", *jobs) == "fast slow"
    assert order("fifo", *jobs) == "slow fast"


def test_the_nearest_statement_counts() -> None:
    strict, by_time = Ordering(strict=True), Ordering("fifo")
    rows: list[tuple[str, str | None, Ordering | None]] = [
        ("root", None, None), ("org", "root", strict), ("a", "org", None), ("b", "org", by_time),
    ]  # fmt: skip
    tree = QueueTree.of(
        policy_of(tuple(Queue(QueueName(n), QueueName(p) if p else None, ordering=o) for n, p, o in rows))
    )
    found = {name: ordering_of(tree, QueueName(name)) for name in ("root", "org", "a", "b")}
    assert found == {"root": Ordering(), "org": strict, "a": strict, "b": by_time}


@worlds(100)
@given(snapshots(), policies(), st.sampled_from(ORDERS))
def test_merging_queues_keeps_the_order_of_each(snapshot: Snapshot, policy: Policy, by: OrderBy) -> None:
    queues = tuple(msgspec.structs.replace(queue, ordering=Ordering(by)) for queue in policy.queues)
    policy = policy_of(queues, policy.priority_classes)
    together = [candidate.job for candidate in candidates_of(snapshot, policy)[0]]
    for queue in policy.queues:
        mine = [known for known in together if known.spec.queue == queue.name]
        others = {known.name for known in together} - {known.name for known in mine}
        alone = snapshot_of(snapshot.time, snapshot.nodes, [j for j in snapshot.jobs if j.name not in others])
        assert [candidate.job.name for candidate in candidates_of(alone, policy)[0]] == [known.name for known in mine]


@worlds(100)
@given(snapshots(), policies(), st.sampled_from(ORDERS))
def test_the_last_of_a_strict_queue_changes_nothing_for_those_before_it(
    snapshot: Snapshot, policy: Policy, by: OrderBy
) -> None:
    """All in one strict queue, on one type: whoever comes last may start or wait, and those are served that are without it.

    Which of these start now, and which are promised what leaves, the program decides for all of them together.
    """
    queue = Queue(QueueName("left"), ordering=Ordering(by, strict=True))
    policy = policy_of((queue,), policy.priority_classes)
    jobs = [msgspec.structs.replace(j, spec=msgspec.structs.replace(j.spec, queue=queue.name)) for j in snapshot.jobs]
    nodes = [msgspec.structs.replace(known, gpu_type="H100") for known in snapshot.nodes]
    world = snapshot_of(snapshot.time, nodes, jobs)
    candidates, _ = candidates_of(world, policy)
    if candidates:
        last = candidates[-1].job.name
        without = snapshot_of(snapshot.time, nodes, [known for known in jobs if known.name != last])
        assert served(world, policy) - {last} == served(without, policy)


def served(world: Snapshot, policy: Policy) -> set[JobName]:
    """Who waits and starts, or is promised its devices."""
    waiting = {job.name for job in world.jobs if job.phase == "pending"}
    steps = solve(world, policy, optimise).steps
    return waiting & {step.job for step in steps if isinstance(step, Bind | Nominate)}
