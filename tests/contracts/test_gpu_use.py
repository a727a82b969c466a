"""Every store keeps what GPUs did, by minutes, hours and days; see reconciler/protocols/gpu_use.py."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from reconciler.model.gpu_use import GpuMinute, NodeMinute, UseFigures, UseSource, UseSpread, record_of
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.gpu_use import STEPS, GpuPast, UseStep, UseStretch
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Instant
from tests.contracts.stores import Stores, lead

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START = Instant.parse("2026-03-01T00:00:00Z")
N1, N2 = NodeName("n1"), NodeName("n2")
UUID = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"


def minute(at: int, active: float, source: UseSource = "gpm", samples: int = 12, gpu: str = "n1/0") -> NodeMinute:
    use = UseFigures(source, samples, active=UseSpread(active, active / 2))
    return NodeMinute(START.after(at * MINUTE), (GpuMinute(DeviceId(gpu), UUID, record_of(use)),))


def told(stores: Stores, step: UseStep, start: int = 0, end: int = 40 * DAY) -> tuple[GpuPast, ...]:
    return stores.gpu_uses.of_nodes([N1, N2], step, START.after(start), START.after(end))


def figures(stores: Stores, step: UseStep) -> list[tuple[int, float, int]]:
    """Of the only GPU: when, the mean of `active`, and of how much."""
    found = told(stores, step)
    if not found:
        return []
    (only,) = found
    return [
        (point.start - START, point.use.active.mean, point.use.covered) for point in only.points if point.use.active
    ]


def test_minutes_are_told_as_they_were_kept_and_hours_and_days_are_made_of_them(stores: Stores) -> None:
    epoch = lead(stores)
    stores.gpu_uses.keep(epoch, {N1: [minute(at, 20.0 if at < 60 else 50.0) for at in range(90)]})
    stores.reopen()
    assert figures(stores, "minute") == [(at * MINUTE, 20.0 if at < 60 else 50.0, 12) for at in range(90)]
    assert figures(stores, "hour") == [(0, 20.0, 60), (HOUR, 50.0, 30)]
    assert figures(stores, "day") == [(0, 30.0, 90)]
    (past,) = told(stores, "hour")
    assert (past.node, past.gpu, past.uuid) == (N1, "n1/0", UUID)
    assert past.points[0].use == UseFigures("gpm", 60, active=UseSpread(20.0, 10.0, 20.0, 20.0))


def test_minutes_that_are_told_again_late_and_in_any_order_change_no_sum(stores: Stores) -> None:
    epoch, chance = lead(stores), random.Random(7)
    minutes = [minute(at, float(chance.randint(0, 100))) for at in range(150)]
    stores.gpu_uses.keep(epoch, {N1: minutes})
    once = [figures(stores, step) for step in ("minute", "hour", "day")]
    again = minutes * 2
    chance.shuffle(again)
    for first, last in pairwise(range(0, 301, 50)):
        stores.gpu_uses.keep(epoch, {N1: again[first:last]})
    assert [figures(stores, step) for step in ("minute", "hour", "day")] == once


def test_any_order_in_which_minutes_come_ends_in_the_same_figures(stores: Stores) -> None:
    epoch, chance = lead(stores), random.Random(3)
    minutes = [minute(at, float(chance.randint(0, 100))) for at in range(30)]
    by_two = [minute(at, 77.0, "utilisation", 3) for at in range(30)] + minutes
    chance.shuffle(by_two)
    for one in by_two:
        stores.gpu_uses.keep(epoch, {N1: [one]})
    stores.gpu_uses.keep(epoch, {N2: [minute(at, 0.0, gpu="n2/0") for at in range(30)]})
    stores.gpu_uses.keep(epoch, {N2: minutes_of_other(minutes)})
    ours, theirs = told(stores, "day")
    assert ours.points == theirs.points


def minutes_of_other(minutes: list[NodeMinute]) -> list[NodeMinute]:
    """The same of n2/0."""
    return [
        NodeMinute(one.start, tuple(GpuMinute(DeviceId("n2/0"), gpu.uuid, gpu.record) for gpu in one.gpus))
        for one in minutes
    ]


def test_of_two_samplers_the_better_counts_and_nothing_twice(stores: Stores) -> None:
    epoch = lead(stores)
    stores.gpu_uses.keep(epoch, {N1: [minute(0, 90.0, "utilisation", 60), minute(0, 30.0)]})
    stores.gpu_uses.keep(epoch, {N1: [minute(0, 99.0, "utilisation", 60), minute(0, 10.0, samples=4)]})
    assert figures(stores, "minute") == [(0, 30.0, 12)]
    assert figures(stores, "hour") == [(0, 30.0, 1)]


def test_an_hour_has_one_source_the_one_of_most_of_its_minutes(stores: Stores) -> None:
    epoch = lead(stores)
    stores.gpu_uses.keep(epoch, {N1: [minute(at, 90.0, "utilisation") for at in range(20)]})
    stores.gpu_uses.keep(epoch, {N1: [minute(at, 10.0) for at in range(20, 25)]})
    assert figures(stores, "hour") == [(0, 90.0, 20)]
    stores.gpu_uses.keep(epoch, {N1: [minute(at, 10.0) for at in range(25, 50)]})
    assert figures(stores, "hour") == [(0, 10.0, 30)]


def test_what_is_measured_as_nothing_is_not_what_is_not_known(stores: Stores) -> None:
    epoch = lead(stores)
    stores.gpu_uses.keep(epoch, {N1: [minute(0, 0.0), minute(2, 0.0)]})
    (past,) = told(stores, "minute")
    assert [point.start - START for point in past.points] == [0, 2 * MINUTE]
    assert past.points[0].use.active == UseSpread(0.0, 0.0)
    assert past.points[0].use.tensor is None
    assert told(stores, "minute")[0].points[0].use == UseFigures("gpm", 12, active=UseSpread(0.0, 0.0))


def test_a_window_begins_and_ends_exactly(stores: Stores) -> None:
    stores.gpu_uses.keep(lead(stores), {N1: [minute(at, 1.0) for at in range(58, 63)]})
    found = stores.gpu_uses.of_nodes([N1], "minute", START.after(59 * MINUTE), START.after(61 * MINUTE))
    assert [(point.start - START) // MINUTE for point in found[0].points] == [59, 60]
    assert stores.gpu_uses.of_nodes([N2], "minute", START, START.after(DAY)) == ()


def test_a_board_that_changes_its_place_has_a_past_in_each(stores: Stores) -> None:
    stores.gpu_uses.keep(lead(stores), {N1: [minute(0, 10.0)], N2: [minute(5, 20.0, gpu="GPU-7/odd")]})
    assert [(past.node, past.gpu, past.uuid) for past in told(stores, "hour")] == [
        (N1, "n1/0", UUID),
        (N2, "GPU-7/odd", UUID),
    ]


def test_old_minutes_go_and_the_hours_made_of_them_stay(stores: Stores) -> None:
    epoch = lead(stores)
    stores.gpu_uses.keep(epoch, {N1: [minute(at, 40.0) for at in range(120)]})
    assert stores.gpu_uses.prune(epoch, "minute", START.after(2 * HOUR - 1)) == 1
    assert stores.gpu_uses.prune(epoch, "minute", START.after(2 * HOUR - 1)) == 0
    assert [at for at, _, _ in figures(stores, "minute")] == [at * MINUTE for at in range(60, 120)]
    assert figures(stores, "hour") == [(0, 40.0, 60), (HOUR, 40.0, 60)]
    stores.gpu_uses.keep(epoch, {N1: [minute(3, 100.0)]})
    assert figures(stores, "hour") == [(0, 40.0, 60), (HOUR, 40.0, 60)]


def test_prune_stops_at_its_limit(stores: Stores) -> None:
    epoch = lead(stores)
    stores.gpu_uses.keep(epoch, {N1: [minute(at, 1.0) for at in range(0, 300, 60)]})
    assert stores.gpu_uses.prune(epoch, "minute", START.after(DAY), limit=2) == 2
    assert [stores.gpu_uses.prune(epoch, "minute", START.after(DAY), limit=2) for _ in range(3)] == [2, 1, 0]


def test_a_leader_of_before_keeps_and_deletes_nothing(stores: Stores) -> None:
    old = lead(stores)
    stores.gpu_uses.keep(old, {N1: [minute(0, 1.0)]})
    lead(stores, "second", START.after(400 * DAY))
    with pytest.raises(StaleEpochError):
        stores.gpu_uses.keep(old, {N1: [minute(1, 1.0)]})
    with pytest.raises(StaleEpochError):
        stores.gpu_uses.prune(old, "minute", START.after(DAY))
    assert figures(stores, "minute") == [(0, 1.0, 12)]


def activity(stores: Stores, step: UseStep, *starts: int, steps: int = 1) -> dict[int, tuple[int, int]]:
    """Of n1/0, in so many steps from each of these on."""
    wanted = {UseStretch(START.after(at), START.after(at + steps * STEPS[step])) for at in starts}
    found = stores.gpu_uses.active(step, {N1: wanted})
    return {
        stretch.start - START: (active.minutes, active.half_percents)
        for stretch, active in found.get((N1, DeviceId("n1/0")), {}).items()
    }


def test_how_active_gpus_were_in_chosen_stretches_adds_up(stores: Stores) -> None:
    epoch = lead(stores)
    stores.gpu_uses.keep(epoch, {N1: [minute(at, 20.0 if at < 60 else 50.5) for at in range(90)]})
    assert activity(stores, "minute", 0, 60 * MINUTE, 95 * MINUTE) == {0: (1, 40), 60 * MINUTE: (1, 101)}
    assert activity(stores, "hour", 0, HOUR, 2 * HOUR) == {0: (60, 60 * 40), HOUR: (30, 30 * 101)}
    # Half per cents are a day's steps, too.
    assert activity(stores, "day", 0, DAY) == {0: (90, 90 * 60)}
    assert activity(stores, "minute", 50 * MINUTE, steps=20) == {50 * MINUTE: (20, 10 * 40 + 10 * 101)}
    assert activity(stores, "minute", -70 * MINUTE, steps=300) == {-70 * MINUTE: (90, 60 * 40 + 30 * 101)}
    nowhere = {N2: {UseStretch(START, START.after(DAY))}}
    assert stores.gpu_uses.active("day", nowhere) == stores.gpu_uses.active("hour", {}) == {}


def test_two_boards_that_follow_each_other_in_one_place_add_up_and_never_to_more_than_there_is(stores: Stores) -> None:
    epoch, other = lead(stores), "GPU-other"
    after = [
        NodeMinute(one.start, (GpuMinute(one.gpus[0].gpu, other, one.gpus[0].record),))
        for one in (minute(at, 100.0) for at in range(30, 60))
    ]
    stores.gpu_uses.keep(epoch, {N1: [minute(at, 10.0) for at in range(30)]})
    stores.gpu_uses.keep(epoch, {N1: after})
    assert activity(stores, "hour", 0) == {0: (60, 30 * 20 + 30 * 200)}
    stores.gpu_uses.keep(epoch, {N1: [minute(at, 10.0) for at in range(30, 40)]})
    assert activity(stores, "hour", 0) == {0: (40, 40 * 20)}
    assert activity(stores, "minute", 35 * MINUTE) == {35 * MINUTE: (1, 200)}
