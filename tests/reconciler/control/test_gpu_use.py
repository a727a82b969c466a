"""What nodes tell of their GPUs' use is judged: what can't be true counts in no figure, is counted by its reason, and is told."""

from __future__ import annotations

import pytest

from reconciler.control.gpu_use import TOLD_EVERY, WAITING_MAX, UseBook, UseRefused
from reconciler.model.clock import VirtualClock
from reconciler.model.gpu_use import GpuMinute, NodeMinute, UseFigures, UseSpread, record_of
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory

NOW = Instant.parse("2026-03-01T12:00:00Z")
N1, N2 = NodeName("n1"), NodeName("n2")
RECORD = record_of(UseFigures("gpm", 12, active=UseSpread(50.0)))
KEEP = Duration(48 * 3_600_000)


def node_of(name: NodeName) -> Node:
    gpus = tuple(Gpu(DeviceId(f"{name}/{number}"), number) for number in range(2))
    return Node(name, "pool", Cpu(64_000), Memory(2**38), GpuType("H100"), gpus)


class Told:
    """A book, and what it told."""

    def __init__(self) -> None:
        self.clock = VirtualClock(NOW)
        self.refusals: list[UseRefused] = []
        declared = {name: node_of(name) for name in (N1, N2)}
        self.book = UseBook(self.clock, declared.get, lambda: KEEP, self.refusals.append)

    def hear(self, at: int, *gpus: GpuMinute, node: NodeName = N1) -> None:
        """Of the minute that begins so many minutes from now."""
        self.book.hear(node, [NodeMinute(Instant(NOW + at * 60_000), gpus)])

    def waiting(self) -> dict[NodeName, list[int]]:
        """Minutes from now, by node."""
        due = self.book.due(100)
        self.book.give_back(due)
        return {node: [(one.start - NOW) // 60_000 for one in minutes] for node, minutes in due.items()}


@pytest.fixture
def told() -> Told:
    return Told()


def gpu(number: int = 0, uuid: str = "GPU-1", node: NodeName = N1, record: bytes = RECORD) -> GpuMinute:
    return GpuMinute(DeviceId(f"{node}/{number}"), uuid, record)


def test_minutes_wait_to_be_kept_and_the_newest_is_the_latest(told: Told) -> None:
    for at in (-1, -3, -2):
        told.hear(at, gpu())
    assert told.waiting() == {N1: [-1, -3, -2]}
    assert (told.book.latest()[N1].start - NOW) // 60_000 == -1
    assert told.refusals == []


@pytest.mark.parametrize(
    ("at", "given", "why"),
    [
        (2, gpu(), "future"),
        (-48 * 60 - 1, gpu(), "late"),
        (-1, gpu(7), "unknown-gpu"),
        (-1, gpu(0, node=N2), "unknown-gpu"),
        (-1, gpu(record=b"?"), "unreadable"),
    ],
)
def test_what_can_not_be_true_does_not_count_and_is_told(told: Told, at: int, given: GpuMinute, why: str) -> None:
    told.hear(at, given)
    assert told.waiting() == {}
    assert told.book.latest() == {}
    assert told.book.refused() == {why: 1}
    assert [(each.node, each.why) for each in told.refusals] == [(N1, why)]


def test_a_minute_that_begins_between_minutes_is_none(told: Told) -> None:
    told.book.hear(N1, [NodeMinute(Instant(NOW - 60_001), (gpu(),))])
    assert told.book.refused() == {"unreadable": 1}


def test_clocks_may_differ_a_little(told: Told) -> None:
    told.hear(1, gpu())
    assert told.book.refused() == {}


def test_one_gpu_that_is_refused_leaves_the_others(told: Told) -> None:
    told.hear(-1, gpu(0), gpu(5, "GPU-2"), gpu(1, "GPU-3"))
    assert [one.gpu for one in told.book.latest()[N1].gpus] == ["n1/0", "n1/1"]
    assert told.refusals == [UseRefused(N1, "n1/5", "unknown-gpu")]


def test_a_node_that_git_does_not_declare_has_no_gpus(told: Told) -> None:
    told.hear(-1, gpu(node=NodeName("n9")), node=NodeName("n9"))
    assert told.book.refused() == {"unknown-gpu": 1}


def test_a_board_is_in_one_place_in_each_minute(told: Told) -> None:
    told.hear(-5, gpu())
    told.hear(-5, gpu(node=N2), node=N2)
    assert told.refusals == [UseRefused(N2, "n2/0", "two-places")]
    told.hear(-4, gpu(node=N2), node=N2)
    assert told.waiting() == {N1: [-5], N2: [-4]}, "it has moved"
    told.hear(-4, gpu())
    told.hear(-6, gpu())
    assert told.book.refused() == {"two-places": 3}
    told.hear(-9, gpu(node=N2), node=N2)
    assert told.waiting()[N2] == [-4, -9], "late minutes of where it is now count"


def test_simulated_gpus_have_no_board(told: Told) -> None:
    told.hear(-1, gpu(uuid=""))
    told.hear(-1, gpu(uuid="", node=N2), node=N2)
    assert told.book.refused() == {}


def test_a_reason_is_told_once_an_hour_of_each_node_and_counted_each_time(told: Told) -> None:
    for _ in range(3):
        told.hear(-1, gpu(7))
    told.hear(-1, gpu(7), node=N2)
    told.clock.advance(TOLD_EVERY)
    told.hear(-1, gpu(7))
    assert [each.node for each in told.refusals] == [N1, N2, N1]
    assert told.book.refused() == {"unknown-gpu": 5}


def test_nodes_take_turns_to_be_kept(told: Told) -> None:
    for _ in range(2):
        told.hear(-1, gpu())
        told.hear(-1, gpu(uuid="GPU-2", node=N2), node=N2)
    assert list(told.book.due(1)) == [N1]
    told.hear(-1, gpu())
    assert list(told.book.due(1)) == [N2]
    assert list(told.book.due(1)) == [N1]
    assert told.book.due(1) == {}


def test_what_could_not_be_kept_waits_on_in_its_order_and_within_bounds(told: Told) -> None:
    told.hear(-9, gpu())
    due = told.book.due(10)
    told.hear(-8, gpu())
    told.book.give_back(due)
    assert told.waiting() == {N1: [-9, -8]}
    for at in range(WAITING_MAX):
        told.hear(-7 if at else -6, gpu())
    assert len(told.waiting()[N1]) == WAITING_MAX
    assert told.waiting()[N1][0] == -6
    assert told.book.refused() == {"not-kept": 2}
