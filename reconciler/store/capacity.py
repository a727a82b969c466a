"""What there was of GPUs, in SQL: a row for each span in which a node had the same. What still is so is over at `HELD`.

No round depends on it, so that it is not counted as a write: a loop that rests goes on resting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from reconciler.protocols.backend import Epoch
from reconciler.protocols.capacity import CapacitySpan, DeviceState, NodeCapacity, WatchSpan
from reconciler.store.database import Database
from reconciler.store.placements import HELD, device_of, short_device
from reconciler.store.rows import pieces
from reconciler.store.tables import capacity, capacity_watches
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import Duration, Instant

_LETTERS: Final[Mapping[DeviceState, str]] = {"idle": "i", "reserved": "r", "unhealthy": "u", "partitioning": "p"}
_STATES: Final = {letter: state for state, letter in _LETTERS.items()}


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """Ids without the name of their node, and a letter for the state of each."""

    states: str
    devices: tuple[str, ...]


_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder(_Packed)


class SqlCapacities:
    """Implements Capacities."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, epoch: Epoch, changed: Mapping[NodeName, NodeCapacity | None], at: Instant) -> None:
        """What was is over when what is begins; what lasted no time goes."""
        if not changed:
            return
        with self._database.writing(epoch, counted=False) as connection:
            starts = _end(connection, changed, at)
            number = connection.execute(select(func.coalesce(func.max(capacity.c.number), 0))).scalar_one()
            there = [(node, has) for node, has in changed.items() if has is not None]
            rows = [_row(number + place, node, has, starts.get(node, at)) for place, (node, has) in enumerate(there, 1)]
            if rows:
                connection.execute(insert(capacity), rows)

    def current(self) -> dict[NodeName, NodeCapacity]:
        """By the index of ends."""
        with self._database.reading() as connection:
            rows = connection.execute(select(capacity).where(capacity.c.until == HELD)).all()
        return {NodeName(row.node): _capacity(row) for row in rows}

    def spans(self, start: Instant, end: Instant) -> tuple[CapacitySpan, ...]:
        """By the index of ends."""
        within = (capacity.c.until > start) & (capacity.c.since < end)
        with self._database.reading() as connection:
            rows = connection.execute(select(capacity).where(within)).all()
        return tuple(
            CapacitySpan(
                NodeName(row.node),
                Instant(row.since),
                None if row.until == HELD else Instant(row.until),
                _capacity(row),
            )
            for row in sorted(rows, key=lambda row: (row.node, row.since))
        )

    def begun(self) -> Instant | None:
        """The first of all spans."""
        with self._database.reading() as connection:
            first = connection.execute(select(func.min(capacity.c.since))).scalar_one_or_none()
        return None if first is None else Instant(first)

    def watch(self, epoch: Epoch, at: Instant, gap: Duration) -> None:
        """The newest row grows, or another begins."""
        with self._database.writing(epoch, counted=False) as connection:
            newest = connection.execute(select(func.max(capacity_watches.c.until))).scalar_one_or_none()
            if newest is None or at - newest > gap:
                connection.execute(insert(capacity_watches).values(since=at, until=at))
            elif at > newest:
                own = update(capacity_watches).where(capacity_watches.c.until == newest)
                connection.execute(own.values(until=at))

    def watches(self, start: Instant, end: Instant) -> tuple[WatchSpan, ...]:
        """By since when."""
        within = (capacity_watches.c.until > start) & (capacity_watches.c.since < end)
        with self._database.reading() as connection:
            rows = connection.execute(select(capacity_watches).where(within).order_by(capacity_watches.c.since)).all()
        return tuple(WatchSpan(Instant(row.since), Instant(row.until)) for row in rows)

    def prune(self, epoch: Epoch, before: Instant, limit: int = 500) -> int:
        """In pieces: no other writes meanwhile."""
        old = select(capacity.c.number).where(capacity.c.until <= before).order_by(capacity.c.until).limit(limit)
        with self._database.writing(epoch) as connection:
            connection.execute(delete(capacity_watches).where(capacity_watches.c.until <= before))
            return connection.execute(delete(capacity).where(capacity.c.number.in_(old))).rowcount


def _end(connection: Connection, changed: Mapping[NodeName, object], at: Instant) -> dict[NodeName, Instant]:
    """End what is known of nodes; from when on something else can be so: later than `at` where the clock was set back."""
    starts: dict[NodeName, Instant] = {}
    ended: list[dict[str, int]] = []
    empty: list[int] = []
    for some in pieces(changed):
        late = select(capacity.c.number, capacity.c.node, capacity.c.since, capacity.c.until)
        for row in connection.execute(late.where(capacity.c.node.in_(some), capacity.c.until > at)):
            over = max(at, row.since) if row.until == HELD else row.until
            starts[NodeName(row.node)] = Instant(max(over, starts.get(NodeName(row.node), 0)))
            if row.until == HELD and over == row.since:
                empty.append(row.number)
            elif row.until == HELD:
                ended.append({"of": row.number, "at": over})
    if ended:
        own = update(capacity).where(capacity.c.number == bindparam("of"))
        connection.execute(own.values(until=bindparam("at")), ended)
    if empty:
        connection.execute(delete(capacity).where(capacity.c.number == bindparam("of")), [{"of": one} for one in empty])
    return starts


def _row(number: int, node: NodeName, has: NodeCapacity, since: Instant) -> dict[str, object]:
    packed = _Packed(
        "".join(_LETTERS[state] for state in has.states), tuple(short_device(node, device) for device in has.devices)
    )
    return {
        "number": number,
        "node": node,
        "pool": has.pool,
        "gpu_type": has.gpu_type,
        "since": since,
        "until": HELD,
        "devices": _PACK.encode(packed),
    }


def _capacity(row: Row[Any]) -> NodeCapacity:
    packed, node = _UNPACK.decode(row.devices), NodeName(row.node)
    devices: tuple[DeviceId, ...] = tuple(device_of(node, short) for short in packed.devices)
    return NodeCapacity(row.pool, GpuType(row.gpu_type), devices, tuple(_STATES[letter] for letter in packed.states))
