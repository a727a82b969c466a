"""Since when GPUs do nothing, by the minutes that are known of them: what is missing, old or shared is unknown, never idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.lifecycle.jobs.idle_gpus import GpuStill, still_of, whole_gpus
from reconciler.model.gpu_use import MINUTE
from reconciler.model.idle_policy import GpuActivityBelow
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import TaskPlacement

A, B = DeviceId("n1/0"), DeviceId("n1/1")
BEGUN = Instant.parse("2026-03-01T12:00:00Z")
BOUND = GpuActivityBelow(5, Duration(10 * MINUTE))


def minutes(**active: str) -> dict[DeviceId, dict[Instant, float]]:
    """A letter for each minute from BEGUN on: `.` idle, `x` busy, `?` not known."""
    gpus = {"a": A, "b": B}
    return {
        gpus[name]: {BEGUN.after(at * MINUTE): 80.0 if one == "x" else 0.0 for at, one in enumerate(told) if one != "?"}
        for name, told in active.items()
    }


def still(now: float, begun: Instant = BEGUN, **active: str) -> tuple[int, int] | None:
    """Since and until which minute."""
    known = minutes(**active)
    found = still_of(known, known, BOUND, begun, Instant(BEGUN + int(now * MINUTE)))
    return None if found is None else ((found.since - BEGUN) // MINUTE, (found.seen_at - BEGUN) // MINUTE)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("..........", (0, 10)),
        ("x.........", (1, 10)),
        (".........x", (10, 10)),
        (".x.x......", (4, 10)),
        ("....?.....", (0, 10)),
        ("...??.....", None),
        ("xxx" + 10 * ".", (3, 13)),
        ("", None),
    ],
)
def test_one_gpu(told: str, found: tuple[int, int] | None) -> None:
    assert still(max(len(told), 1), a=told) == found


def test_a_job_is_as_active_as_its_most_active_gpu() -> None:
    assert still(10, a="..........", b="....x.....") == (5, 10)
    assert still(10, a="..........", b="") is None
    assert still(10, a="..........", b="........") == (0, 8)


def test_what_is_old_or_ahead_is_not_known() -> None:
    assert still(12.5, a=10 * ".") == (0, 10)
    assert still(13, a=10 * ".") is None
    assert still(4, a=10 * ".") is None


def test_minutes_before_the_job_began_do_not_count() -> None:
    begun = BEGUN.after(Duration(3 * MINUTE + 1))
    assert still(10, begun, a=10 * ".") == (4, 10)
    assert still(10, BEGUN.after(Duration(10 * MINUTE)), a=10 * ".") is None


def test_parts_of_gpus_and_none_are_not_known() -> None:
    whole = TaskPlacement("g", 0, NodeName("n1"), (A,))
    assert whole_gpus([whole, TaskPlacement("g", 1, NodeName("n1"), (B,))]) == (A, B)
    assert whole_gpus([whole, TaskPlacement("g", 1, NodeName("n1"), (B,), share=MilliGpu(500))]) is None
    assert whole_gpus([TaskPlacement("g", 0, NodeName("n1"))]) is None


@given(
    st.lists(st.sampled_from(".x?"), min_size=1, max_size=25), st.lists(st.sampled_from(".x?"), min_size=1, max_size=25)
)
def test_it_is_never_still_in_a_minute_that_was_busy_and_forgetting_makes_none_idle(a: list[str], b: list[str]) -> None:
    known, now = minutes(a="".join(a), b="".join(b)), BEGUN.after(Duration(max(len(a), len(b)) * MINUTE))
    found = still_of(known, known, BOUND, BEGUN, now)
    if found is None:
        return
    busy = [at for of_gpu in known.values() for at, active in of_gpu.items() if active >= BOUND.below]
    assert all(not found.since <= at < found.seen_at for at in busy)
    assert found.lasts <= BOUND.lasts
    less = {gpu: {at: active for at, active in of_gpu.items() if active < 5} for gpu, of_gpu in known.items()}
    quieter = still_of(less, less, BOUND, BEGUN, now)
    assert quieter is None or found.seen_at != quieter.seen_at or quieter.since <= found.since


def test_how_long() -> None:
    assert GpuStill(BEGUN, BEGUN.after(BOUND.lasts)).lasts == BOUND.lasts
