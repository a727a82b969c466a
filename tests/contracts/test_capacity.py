"""Every store keeps which GPUs there were and what they were while no job held them; see reconciler/protocols/capacity.py."""

from __future__ import annotations

import random

import pytest

from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.capacity import DeviceState, NodeCapacity, WatchSpan
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import Duration
from tests.contracts.stores import LEASE, NOW, Stores, lead

N1, N2 = NodeName("n1"), NodeName("n2")
DAY = 86_400_000
GAP = Duration(100)


def having(*states: DeviceState, node: str = "n1", pool: str = "p") -> NodeCapacity:
    return NodeCapacity(pool, GpuType("H100"), tuple(DeviceId(f"{node}/{at}") for at in range(len(states))), states)


def told(
    stores: Stores, start: int = -DAY, end: int = DAY
) -> list[tuple[str, int, int | None, tuple[DeviceState, ...]]]:
    return [
        (span.node, span.since - NOW, None if span.until is None else span.until - NOW, span.capacity.states)
        for span in stores.capacities.spans(NOW.after(start), NOW.after(end))
    ]


def test_what_nodes_have_is_told_from_then_on_over_a_crash(stores: Stores) -> None:
    epoch = lead(stores)
    odd = NodeCapacity("q", GpuType("A100"), (DeviceId("GPU-1"), DeviceId("n2/=x")), ("reserved", "partitioning"))
    stores.capacities.keep(epoch, {N1: having("idle", "unhealthy"), N2: odd}, NOW)
    stores.capacities.keep(epoch, {N1: having("idle", "idle")}, NOW.after(10))
    stores.reopen()
    assert told(stores) == [
        ("n1", 0, 10, ("idle", "unhealthy")),
        ("n1", 10, None, ("idle", "idle")),
        ("n2", 0, None, ("reserved", "partitioning")),
    ]
    assert stores.capacities.current() == {N1: having("idle", "idle"), N2: odd}
    assert stores.capacities.begun() == NOW


def test_only_what_lasted_in_a_window_is_in_it(stores: Stores) -> None:
    epoch = lead(stores)
    stores.capacities.keep(epoch, {N1: having("idle")}, NOW)
    stores.capacities.keep(epoch, {N1: having("unhealthy")}, NOW.after(10))
    assert [since for _, since, _, _ in told(stores, 0, 10)] == [0]
    assert [since for _, since, _, _ in told(stores, 10, 11)] == [10]
    assert [since for _, since, _, _ in told(stores, 9, 11)] == [0, 10]
    assert told(stores, -5, 0) == []


def test_a_node_that_goes_and_comes_leaves_a_gap(stores: Stores) -> None:
    epoch = lead(stores)
    stores.capacities.keep(epoch, {N1: having("idle")}, NOW)
    stores.capacities.keep(epoch, {N1: None}, NOW.after(10))
    assert stores.capacities.current() == {}
    stores.capacities.keep(epoch, {N1: having("idle", "idle")}, NOW.after(30))
    assert told(stores) == [("n1", 0, 10, ("idle",)), ("n1", 30, None, ("idle", "idle"))]


def test_a_clock_that_is_set_back_leaves_neither_gap_nor_overlap(stores: Stores) -> None:
    epoch = lead(stores)
    stores.capacities.keep(epoch, {N1: having("idle")}, NOW.after(-10))
    stores.capacities.keep(epoch, {N1: having("unhealthy")}, NOW.after(50))
    stores.capacities.keep(epoch, {N1: having("reserved")}, NOW.after(20))
    stores.capacities.keep(epoch, {N1: None}, NOW.after(10))
    stores.capacities.keep(epoch, {N1: having("idle")}, NOW)
    assert told(stores) == [("n1", -10, 50, ("idle",)), ("n1", 50, None, ("idle",))]


@pytest.mark.parametrize("seed", range(10))
def test_spans_of_a_node_follow_each_other_whatever_the_clock_does(stores: Stores, seed: int) -> None:
    chance, epoch, now = random.Random(seed), lead(stores), NOW
    is_there = False
    for _ in range(40):
        now = now.after(chance.choice((0, 1, 7, 30, -20, -100)))
        has = having(*chance.choices(("idle", "reserved", "unhealthy"), k=2)) if chance.random() < 0.8 else None
        stores.capacities.keep(epoch, {N1: has}, now)
        is_there = has is not None
        assert len(stores.capacities.current()) == is_there
    found = told(stores)
    ends = [until for _, _, until, _ in found]
    assert all(until is not None and until <= since for until, (_, since, _, _) in zip(ends, found[1:], strict=False))
    assert all(until is None or until > since for _, since, until, _ in found)
    assert ends.count(None) == is_there


def test_only_the_leader_keeps(stores: Stores) -> None:
    old = lead(stores)
    lead(stores, holder="other", now=NOW.after(LEASE + 1))
    for write in (
        lambda: stores.capacities.keep(old, {N1: having("idle")}, NOW),
        lambda: stores.capacities.watch(old, NOW, GAP),
        lambda: stores.capacities.prune(old, NOW),
    ):
        with pytest.raises(StaleEpochError):
            write()
    assert (told(stores), stores.capacities.begun()) == ([], None)


def watched(stores: Stores, epoch: Epoch, *at: int) -> list[tuple[int, int]]:
    for each in at:
        stores.capacities.watch(epoch, NOW.after(each), GAP)
    return [(since - NOW, until - NOW) for since, until in stores.capacities.watches(NOW, NOW.after(DAY))]


def test_a_leader_that_says_nothing_for_longer_than_a_gap_was_not_there(stores: Stores) -> None:
    epoch = lead(stores)
    assert watched(stores, epoch, 0, 100, 200, 150) == [(0, 200)]
    assert watched(stores, epoch, 301, 350) == [(0, 200), (301, 350)]
    found = stores.capacities.watches(NOW.after(200), NOW.after(400))
    assert found == (WatchSpan(NOW.after(301), NOW.after(350)),)


def test_what_was_over_before_an_instant_goes_and_no_more(stores: Stores) -> None:
    epoch = lead(stores)
    for at, has in ((0, having("idle")), (10, having("reserved")), (20, having("idle"))):
        stores.capacities.keep(epoch, {N1: has}, NOW.after(at))
    watched(stores, epoch, 1, 5, 200)
    assert [stores.capacities.prune(epoch, NOW.after(15), 1) for _ in range(2)] == [1, 0]
    assert [since for _, since, _, _ in told(stores)] == [10, 20]
    assert watched(stores, epoch, 250) == [(200, 250)]
    assert stores.capacities.begun() == NOW.after(10)
