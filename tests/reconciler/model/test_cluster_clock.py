"""The time of a cluster goes on as time passes, whatever a wall clock is set to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.cluster_clock import (
    SLEW,
    ClusterClock,
    HeardClock,
    KeptTime,
    TimeReference,
    boot_of_this_machine,
    continued,
)
from solver.model.quantities import Instant

BEGAN = Instant.parse("2026-11-29T10:00:00Z")
HOUR_MS = 3_600_000


@dataclass
class Machine:
    """Implements Clock: a wall clock that can be set, and how long the machine has been up."""

    wall: int = BEGAN
    up_ms: int = 7_000

    def now(self) -> Instant:
        return Instant(self.wall)

    def monotonic_s(self) -> float:
        return self.up_ms / 1_000

    def passes(self, ms: int, stepped_ms: int = 0) -> None:
        self.wall, self.up_ms = self.wall + ms + stepped_ms, self.up_ms + ms


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(-(10**9), 10**9)), max_size=20))
def test_no_span_is_off_by_more_than_a_hundredth_of_it(steps: list[tuple[int, int]]) -> None:
    machine = Machine()
    clock = ClusterClock(machine)
    for ms, stepped_ms in steps:
        before = clock.now()
        machine.passes(ms, stepped_ms)
        # What is read at the same moment is the same: reading it moves nothing.
        assert clock.now() == clock.now()
        assert abs((clock.now() - before) - ms) <= ms * SLEW + 1
        assert clock.now() >= before


def test_a_clock_that_is_right_is_followed() -> None:
    machine = Machine()
    clock = ClusterClock(machine)
    for _ in range(1_000):
        machine.passes(1_001)
        assert clock.now() == machine.now()


def test_after_an_hour_that_a_clock_was_set_by_it_is_reached_in_a_hundred() -> None:
    for step in (HOUR_MS, -HOUR_MS):
        machine = Machine()
        clock = ClusterClock(machine)
        machine.passes(0, step)
        assert clock.behind_ms() == step
        machine.passes(99 * HOUR_MS)
        assert 0 < abs(clock.behind_ms()) <= HOUR_MS // 100
        machine.passes(2 * HOUR_MS)
        assert clock.behind_ms() == 0


def test_a_clock_that_was_set_and_set_right_has_left_next_to_nothing() -> None:
    machine = Machine()
    clock = ClusterClock(machine)
    machine.passes(0, HOUR_MS)
    for _ in range(60):
        machine.passes(1_000)
        clock.now()
    machine.passes(0, -HOUR_MS)
    assert abs(clock.behind_ms()) <= 600


def test_a_process_that_starts_again_goes_on_with_the_time_of_the_one_before(tmp_path: Path) -> None:
    machine, boot_id = Machine(), tmp_path / "boot_id"
    boot_id.write_text("this start\n")
    first, up = ClusterClock(machine), boot_of_this_machine(machine, boot_id)
    machine.passes(5_000, HOUR_MS)
    kept, expected = first.ahead_of(up), first.now()
    machine.passes(60_000, -3 * HOUR_MS)
    assert continued(kept, up) == expected.after(60_000)
    boot_id.write_text("another start")
    assert continued(kept, boot_of_this_machine(machine, boot_id)) is None
    assert continued(None, up) is None


def test_where_nothing_says_which_start_it_is_nothing_is_continued(tmp_path: Path) -> None:
    nowhere = boot_of_this_machine(Machine(), tmp_path / "none")
    assert nowhere.name == ""
    assert continued(KeptTime("", 5), nowhere) is None


def test_what_was_heard_goes_on_whatever_the_own_clock_says() -> None:
    machine = Machine()
    heard = HeardClock(machine)
    assert (heard.is_heard, heard.now()) == (False, BEGAN)
    heard.hear(BEGAN.after(HOUR_MS))
    machine.passes(2_000, -HOUR_MS)
    assert heard.now() == BEGAN.after(HOUR_MS + 2_000)


def test_an_answer_that_may_be_late_says_as_much_as_it_can() -> None:
    machine = Machine()
    heard = HeardClock(machine)
    heard.hear(BEGAN)
    for at, late_ms, found in ((0, 3_000, 1_000), (-4_000, 3_000, -1_000), (500, 0, 500), (0, 999, 999)):
        machine.passes(1_000)
        heard._heard = BEGAN.after(1_000) if found == 1_000 else heard.now(), machine.monotonic_s()
        heard.hear(BEGAN.after(at), late_ms)
        assert heard.now() == BEGAN.after(found)


def test_the_first_that_is_heard_is_where_a_clock_begins() -> None:
    machine = Machine(wall=BEGAN + HOUR_MS)
    clock = ClusterClock(HeardClock(machine))
    clock.begin(BEGAN)
    machine.passes(1_000)
    # The wall clock is still an hour ahead of that.
    assert clock.now() == BEGAN.after(1_010)


def test_several_references_are_told_apart() -> None:
    machine = Machine()
    clock = ClusterClock(machine)
    kept = clock.ahead_of(TimeReference("database", lambda: BEGAN))
    assert kept == KeptTime("database", 0)
    assert continued(kept, TimeReference("other", lambda: BEGAN)) is None
