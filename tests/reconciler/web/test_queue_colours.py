"""A queue has the same colour in every picture: that of the deepest level for which there are enough."""

from __future__ import annotations

from reconciler.web.queue_colours import QueueColours
from solver.model.workload import QueueName
from solver.policy.policy import Queue, policy_of


def colours(*paths: str) -> QueueColours:
    queues = []
    for path in paths:
        *above, name = path.split("/")
        queues.append(Queue(QueueName(name), QueueName(above[-1]) if above else None))
    return QueueColours.of(policy_of(tuple(queues)))


def test_leaves_have_colours_where_there_are_enough() -> None:
    found = colours("org", "org/a", "org/b", "org/a/a1", "org/b/b1")
    assert found.named == (("c0", "a1"), ("c1", "b1"))
    assert [found.of_queue(QueueName(name)) for name in ("a1", "b1", "a", "org", "gone")] == ["c0", "c1"] + [
        "other"
    ] * 3


def test_queues_below_the_level_have_its_colour() -> None:
    found = colours("org", "org/a", "org/b", *(f"org/a/a{number}" for number in range(9)))
    assert found.named == (("c0", "a"), ("c1", "b"))
    assert {found.of_queue(QueueName(f"a{number}")) for number in range(9)} == {"c0"}


def test_of_too_many_queues_without_parents_the_first_have_colours() -> None:
    found = colours(*(f"q{number}" for number in range(10)))
    assert [found.of_queue(QueueName(f"q{number}")) for number in (0, 7, 8)] == ["c0", "c7", "other"]
    assert len(found.named) == 8
