"""Every GPU is in exactly one state at every moment, and that adds up to the capacity: nothing is left out or counted twice."""

from __future__ import annotations

from collections import Counter

import pytest

from reconciler.analysis.showback.account import GpuAccount, GpuKind, account_of, unwatched
from reconciler.protocols.capacity import WatchSpan
from solver.model.cluster import GpuType
from tests.reconciler.analysis.showback.facts import (
    A100,
    H100,
    RandomCluster,
    at,
    instance,
    part,
    placed,
    span,
    whole,
)

P = GpuKind("p", H100)
UNKNOWN = GpuKind("", H100)


def totals(account: GpuAccount) -> dict[GpuKind, dict[str, int]]:
    return {kind: {state: amount for state, amount in of.items() if amount} for kind, of in account.totals.items()}


def held(account: GpuAccount) -> list[tuple[str, GpuKind, int, int, int]]:
    return [(one.placement.job, one.kind, one.since - at(0), one.until - at(0), one.milli) for one in account.held]


def test_what_is_not_held_is_in_the_state_that_it_has() -> None:
    account = account_of(at(0), at(100), [span("n", -5, None, "idle", "reserved", "unhealthy", "partitioning")], [])
    each = 100_000
    assert totals(account) == {P: {"idle": each, "reserved": each, "unhealthy": each, "partitioning": each}}
    assert account.capacity(P) == 4 * each


def test_what_is_held_is_allocated_whatever_state_it_has() -> None:
    gang = placed("a", "n", 10, 60, whole("n", 0, 1))
    account = account_of(at(0), at(100), [span("n", 0, None, "idle", "unhealthy")], [gang])
    assert totals(account) == {P: {"allocated": 100_000, "idle": 50_000, "unhealthy": 50_000}}
    assert held(account) == [("a", P, 10, 60, 2000)]


def test_parts_of_a_gpu_count_by_their_share_and_the_rest_is_in_its_state() -> None:
    jobs = [
        placed("a", "n", 0, 100, part("n", 0, 250)),
        placed("b", "n", 0, 100, instance("n", 1, 0), instance("n", 1, 4, milli=500)),
        placed("c", "n", 50, 100, part("n", 0, 750)),
    ]
    account = account_of(at(0), at(100), [span("n", 0, None, "idle", "unhealthy")], jobs)
    assert totals(account) == {P: {"allocated": 62_500 + 62_500, "idle": 37_500, "unhealthy": 37_500}}


def test_gpus_count_from_when_they_come_until_they_go() -> None:
    spans = [span("n", 10, 30, "idle"), span("n", 40, 50, "idle", "idle", pool="q", gpu_type=A100)]
    account = account_of(at(0), at(100), spans, [])
    assert totals(account) == {P: {"idle": 20_000}, GpuKind("q", A100): {"idle": 20_000}}


def test_what_is_held_of_what_is_not_known_counts_as_far_as_it_is_held() -> None:
    jobs = [placed("a", "n", 0, 100, whole("n", 0, 1)), placed("b", "gone", 0, 10, part("gone", 0, 300))]
    account = account_of(at(0), at(100), [span("n", 20, 60, "idle")], jobs)
    assert totals(account) == {P: {"allocated": 80_000}, UNKNOWN: {"allocated": 120_000 + 3_000}}
    assert held(account) == [
        ("b", UNKNOWN, 0, 10, 300),
        ("a", UNKNOWN, 0, 20, 2000),
        ("a", P, 20, 60, 2000),
        ("a", UNKNOWN, 60, 100, 2000),
    ]


def test_a_node_that_comes_to_be_of_another_kind_cuts_what_is_held_of_it() -> None:
    spans = [span("n", 0, 40, "idle"), span("n", 40, 50, "unhealthy"), span("n", 50, None, "idle", pool="q")]
    account = account_of(at(0), at(100), spans, [placed("a", "n", 10, None, whole("n", 0))])
    q = GpuKind("q", H100)
    assert held(account) == [("a", P, 10, 50, 1000), ("a", q, 50, 100, 1000)]
    assert totals(account) == {P: {"idle": 10_000, "allocated": 40_000}, q: {"allocated": 50_000}}


def test_jobs_without_gpus_take_no_part() -> None:
    driver = placed("a", "n", 0, 10, gpu_type=GpuType(""))
    assert (totals(account := account_of(at(0), at(10), [], [driver])), account.held) == ({}, [])


def test_what_would_be_held_twice_is_told_and_counted_once() -> None:
    jobs = [placed("a", "n", 0, 60, whole("n", 0)), placed("b", "n", 50, 100, whole("n", 0))]
    account = account_of(at(0), at(100), [span("n", 0, None, "idle")], jobs)
    assert (totals(account), account.overheld) == ({P: {"allocated": 100_000}}, 10_000)


@pytest.mark.parametrize("seed", range(200))
def test_every_gpu_is_in_one_state_at_every_moment(seed: int) -> None:
    cluster, length = RandomCluster(seed), 60
    account = account_of(at(0), at(length), cluster.spans, cluster.placed)
    counted: Counter[tuple[str, str]] = Counter()
    capacity = allocated = 0
    for ms in range(length):
        for device in cluster.devices():
            there, milli = cluster.state_at(ms, device), cluster.held_at(ms, device)
            assert milli <= 1000
            capacity += 1000 if there else milli
            allocated += milli
            if there:
                counted[there[0], there[2]] += 1000 - milli
    assert account.overheld == 0
    assert sum(account.capacity(kind) for kind in account.totals) == capacity
    assert sum(of["allocated"] for of in account.totals.values()) == allocated
    states = {(kind.pool, state): amount for kind, of in account.totals.items() for state, amount in of.items()}
    assert {key: amount for key, amount in states.items() if amount and key[1] != "allocated"} == +counted
    by_kind: Counter[GpuKind] = Counter()
    for piece in account.held:
        assert at(0) <= piece.since < piece.until <= at(length)
        by_kind[piece.kind] += piece.amount
    assert by_kind == +Counter({kind: of["allocated"] for kind, of in account.totals.items()})


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_a_window_add_up_to_the_whole(seed: int) -> None:
    cluster = RandomCluster(seed)
    whole_window = account_of(at(0), at(60), cluster.spans, cluster.placed)
    added: Counter[tuple[GpuKind, str]] = Counter()
    for start, end in ((0, 7), (7, 8), (8, 43), (43, 60)):
        for kind, of in account_of(at(start), at(end), cluster.spans, cluster.placed).totals.items():
            added.update({(kind, state): amount for state, amount in of.items()})
    assert +added == +Counter(
        {(kind, state): amount for kind, of in whole_window.totals.items() for state, amount in of.items()}
    )


@pytest.mark.parametrize(
    ("watches", "missing"),
    [([], 100), ([(-5, 99)], 0), ([(0, 20), (50, 80)], 50), ([(30, 95), (95, 200)], 30), ([(0, 95)], 0)],
)
def test_when_no_leader_was_there(watches: list[tuple[int, int]], missing: int) -> None:
    spans = [WatchSpan(at(since), at(until)) for since, until in watches]
    assert unwatched(at(0), at(100), spans, 10) == missing
