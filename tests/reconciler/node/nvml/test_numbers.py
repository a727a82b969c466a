"""Which GPU is number N is decided once: a GPU that is gone gives its number to nobody but the board in its slot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconciler.node.nvml.driver import BusId, GpuUuid
from reconciler.node.nvml.numbers import Seat, Seats, seat_boards
from tests.drawn import worlds

Found = dict[GpuUuid, BusId]


def machine(*slots: str) -> Found:
    """GPU-a in slot a, and so on; `b=x`: board x in slot b."""
    pairs = ((slot.partition("=")[2] or slot, slot[0]) for slot in slots)
    return {GpuUuid(f"GPU-{board}"): BusId(slot) for board, slot in pairs}


def names(seats: Seats) -> list[str]:
    return [seat.uuid.removeprefix("GPU-") for seat in seats]


def test_at_first_they_are_numbered_by_their_slots() -> None:
    assert names(seat_boards((), machine("b", "a", "c"))) == ["a", "b", "c"]


def test_a_lost_gpu_keeps_its_number_and_its_neighbours_theirs() -> None:
    before = seat_boards((), machine("a", "b", "c"))
    assert seat_boards(before, machine("a", "c")) == before
    assert seat_boards(seat_boards(before, machine("a", "c")), machine("a", "b", "c")) == before


def test_the_board_that_replaces_one_takes_its_number() -> None:
    before = seat_boards((), machine("a", "b", "c"))
    assert names(seat_boards(before, machine("a", "b=x", "c"))) == ["a", "x", "c"]


def test_boards_that_changed_places_keep_their_numbers() -> None:
    before = seat_boards((), machine("a", "b"))
    assert seat_boards(before, machine("a=b", "b=a")) == (
        Seat(GpuUuid("GPU-a"), BusId("b")),
        Seat(GpuUuid("GPU-b"), BusId("a")),
    )


def test_one_more_gets_the_next_number_even_before_the_others_in_the_order_of_slots() -> None:
    before = seat_boards((), machine("b", "c"))
    assert names(seat_boards(before, machine("a", "b", "c"))) == ["b", "c", "a"]


boards = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("uvwxyz"), max_size=6).map(
    lambda slots: {GpuUuid(board): BusId(slot) for slot, board in slots.items()}
)


@given(st.lists(boards, max_size=6))
@worlds(250)
def test_a_board_never_changes_its_number_and_no_two_here_share_one(restarts: list[Found]) -> None:
    seats: Seats = ()
    numbers: dict[GpuUuid, int] = {}
    for found in restarts:
        seats = seat_boards(seats, found)
        now = {seat.uuid: number for number, seat in enumerate(seats)}
        assert len(now) == len(seats)
        assert found.keys() <= now.keys()
        assert all(now[board] == numbers[board] for board in found.keys() & numbers.keys() if board in now)
        assert seat_boards(seats, found) == seats
        numbers = now
