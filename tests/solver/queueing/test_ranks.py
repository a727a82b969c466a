"""Ranks of priority values: in a table that can be checked by hand, and against what the words of the rule say one by one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.model.workload import Job, JobName, QueueName
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, PriorityClass, Queue, Scope, policy_of
from solver.policy.tree import QueueTree
from solver.queueing.ranks import RANKS_MAX, ranks_of
from tests.drawn import worlds
from tests.solver.worlds import job

Row = tuple[str, int, Scope]
"""A waiting job: its queue, its value, and where that compares."""

many = worlds(300)


@pytest.mark.parametrize(
    ("why", "rows", "expected"),
    [
        ("each queue on its own", [("a", 9, "queue"), ("a", 5, "queue"), ("b", 1, "queue")], [0, 1, 0]),
        ("across queues where both say so", [("a", 9, "cluster"), ("b", 1, "cluster")], [0, 1]),
        ("with nobody else", [("a", 9, "cluster"), ("b", 5, "queue"), ("c", 1, "queue")], [0, 0, 0]),
        ("nobody is put before others of its queue", [("a", 9, "queue"), ("a", 5, "cluster")], [0, 1]),
        ("what follows goes along", [("a", 9, "cluster"), ("b", 5, "cluster"), ("b", 1, "queue")], [0, 1, 2]),
        (
            "who is held back in its own queue holds back nobody elsewhere",
            [("a", 9, "queue"), ("a", 8, "queue"), ("a", 5, "cluster"), ("b", 1, "cluster")],
            [0, 1, 2, 1],
        ),
        ("equal values are one rank", [("a", 5, "cluster"), ("b", 5, "cluster"), ("c", 1, "cluster")], [0, 0, 1]),
        ("the last is shared", [("a", 20 - n, "queue") for n in range(10)], [0, 1, 2, 3, 4, 5, 6, 7, 7, 7]),
    ],
)
def test_ranks(why: str, rows: list[Row], expected: list[int]) -> None:
    jobs, policy = world_of(rows)
    assert list(ranks_of(jobs, policy, QueueTree.of(policy)).values()) == expected, why


def test_an_slo_class_is_not_moved_by_values_of_another() -> None:
    jobs, policy = world_of([("a", 9, "cluster"), ("b", 1, "cluster")])
    urgent = msgspec.structs.replace(policy.priority_classes[0], slo_class="latency-critical")
    assert urgent.value == 9
    policy = policy_of(policy.queues, (urgent, *policy.priority_classes[1:]))
    assert set(ranks_of(jobs, policy, QueueTree.of(policy)).values()) == {0}


def test_queues_that_do_not_go_by_priority_take_no_part() -> None:
    jobs, policy = world_of([("a", 9, "cluster"), ("b", 5, "cluster"), ("b", 1, "cluster")])
    fifo = (msgspec.structs.replace(queue, ordering=Ordering("fifo")) for queue in policy.queues if queue.name == "b")
    policy = policy_of((*(queue for queue in policy.queues if queue.name != "b"), *fifo), policy.priority_classes)
    assert list(ranks_of(jobs, policy, QueueTree.of(policy)).values()) == [0, 0, 0]


def world_of(rows: list[Row]) -> tuple[list[Job], Policy]:
    """Jobs in the order of the rows, and the policy that gives each its value and scope."""
    jobs = [job(f"j{place}", queue, 1, 1, priority_class=f"{place:02}") for place, (queue, _, _) in enumerate(rows)]
    classes = tuple(PriorityClass(f"{place:02}", value, scope=scope) for place, (_, value, scope) in enumerate(rows))
    return jobs, policy_of(tuple(Queue(QueueName(name)) for name in sorted({row[0] for row in rows})), classes)


rows_of = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.sampled_from(["queue", "cluster"])), max_size=8
)


def ranked(rows: list[Row]) -> dict[JobName, int]:
    """The ranks of the jobs of these rows."""
    jobs, policy = world_of(rows)
    return ranks_of(jobs, policy, QueueTree.of(policy))


@many
@given(rows_of)
def test_a_larger_value_comes_first_in_its_queue_and_no_rank_is_larger_than_it_must_be(rows: list[Row]) -> None:
    ranks = [ranked(rows)[JobName(f"j{place}")] for place in range(len(rows))]
    for mine, (queue, value, scope) in zip(ranks, rows, strict=True):
        own = [rank for rank, (other, more, _) in zip(ranks, rows, strict=True) if other == queue and more > value]
        across = {more for _, more, where in rows if where == scope == "cluster" and more > value}
        distinct = {more for other, more, _ in rows if other == queue and more > value}
        assert all(rank < mine or mine == RANKS_MAX - 1 for rank in own)
        assert mine == min(RANKS_MAX - 1, max(len(distinct), len(across), *(rank + 1 for rank in own), 0))


@many
@given(rows_of, st.sampled_from("abc"), st.integers(1, 1000))
def test_what_one_team_writes_on_its_own_classes_moves_no_job_of_another(rows: list[Row], loud: str, by: int) -> None:
    louder = [
        (queue, value * by if (queue, scope) == (loud, "queue") else value, scope) for queue, value, scope in rows
    ]
    before, after = ranked(rows), ranked(louder)
    others = [JobName(f"j{place}") for place, (queue, _, _) in enumerate(rows) if queue != loud]
    assert [before[name] for name in others] == [after[name] for name in others]
