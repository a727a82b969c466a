"""Which GPU of a machine is number N: decided once, so that a GPU that is lost never gives its number to its neighbour.

The driver numbers what it finds. After a restart without one GPU, the next one would be called as it was, and what one job holds
would be given to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.node.nvml.driver import BusId, GpuUuid
from solver.model.document import Document


class Seat(Document, frozen=True):
    """Number N was given to this GPU, in this slot."""

    uuid: GpuUuid
    bus: BusId


Seats = tuple[Seat, ...]
"""By number. Kept on disk; a GPU that is gone keeps its seat until another board is in its slot."""


def seat_boards(known: Seats, found: Mapping[GpuUuid, BusId]) -> Seats:
    """The seats with what was found now: a board with one keeps it, a new one takes that of its slot, else the next one."""
    here = {seat.uuid for seat in known} & found.keys()
    new = {bus: uuid for uuid, bus in found.items() if uuid not in here}
    kept = tuple(
        Seat(uuid, seat.bus) if seat.uuid not in here and (uuid := new.pop(seat.bus, None)) else _moved(seat, found)
        for seat in known
    )
    return (*kept, *_in_order_of_slots(new.items()))


def _moved(seat: Seat, found: Mapping[GpuUuid, BusId]) -> Seat:
    return Seat(seat.uuid, found.get(seat.uuid, seat.bus))


def _in_order_of_slots(boards: Iterable[tuple[BusId, GpuUuid]]) -> Iterable[Seat]:
    return (Seat(uuid, bus) for bus, uuid in sorted(boards))
