"""Reservations of Slurm as Reservation documents: nodes that are kept for users or for an account's queue."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from reconciler.importers.draft import DocumentDraft
from reconciler.importers.inventory import node_name
from reconciler.importers.slugs import Slugs
from reconciler.importers.slurm.cluster import place_hosts
from reconciler.importers.slurm.hosts import split_list
from reconciler.importers.source import SourceRecord
from reconciler.importers.system import RESERVATIONS, Drawing
from reconciler.model.problem import InvalidDocumentsError, problem_of
from solver.model.quantities import Duration

_LONGEST: Final = timedelta(days=90)


class _Repeat(NamedTuple):
    """How one comes again, by its flag, for ever: an RRULE of RFC 5545, section 3.3.10, and the days on which it begins."""

    flag: str
    rule: str
    weekdays: range
    apart: timedelta = timedelta(days=1)


_REPEATS: Final = (
    _Repeat("DAILY", "FREQ=DAILY", range(7)),
    _Repeat("WEEKDAY", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", range(5)),
    _Repeat("WEEKEND", "FREQ=WEEKLY;BYDAY=SA,SU", range(5, 7)),
    _Repeat("WEEKLY", "FREQ=WEEKLY", range(7), timedelta(days=7)),
)
_KEYS: Final = {
    "name": ("reservationname", "name"),
    "start": ("starttime", "start_time"),
    "end": ("endtime", "end_time"),
    "nodes": ("nodes", "node_list"),
    "users": ("users",),
    "accounts": ("accounts",),
    "flags": ("flags",),
}
"""What `scontrol show reservation` prints as text, and as JSON."""


def draw_reservations(drawing: Drawing, records: Collection[SourceRecord], nodes: Collection[str]) -> None:
    """A document for each that keeps known nodes for somebody. `nodes`: those that pools have, as Slurm calls them."""
    names = Slugs("Reservation")
    for record in records:
        _draw(drawing, record, nodes, names)


def _draw(drawing: Drawing, record: SourceRecord, nodes: Collection[str], names: Slugs) -> None:
    account, key = drawing.account, {what: _key(record, what) for what in _KEYS}
    flags = [flag.upper() for flag in _list(record, "flags")]
    kept = [name for name in _nodes(record) if name in nodes]
    users = [user for user in _list(record, "users") if not user.startswith("-")]
    queues = [drawing.queues.known(f"account/{each}") for each in _list(record, "accounts")]
    known = sorted({queue for queue in queues if queue})
    if {"MAINT", "HOURLY"} & set(flags):
        account.dropped(record, (), "maintenance, or one that comes again each hour: cordon the nodes for that time")
        return
    if not kept or not (users or known) or len(known) > 1:
        why = "it names no node of a pool, or neither users nor an account, or several accounts: write a Reservation for each"
        account.asked(record, (), "Reservation", why)
        return
    spec = _when(drawing, record, flags)
    spec |= {"queue": known[0]} if known else {}
    spec |= {"users": sorted(users)} if users else {}
    spec["nodes"] = [node_name(name) for name in kept]
    comments = [f"From {record.label}, {record.origin}."]
    drawing.draft.documents.append(DocumentDraft("Reservation", names.of(record.name), RESERVATIONS, spec, comments))
    if isinstance(record.get(key["start"]), str):
        for what in ("start", "end"):
            account.asked(record, (key[what],), what, "Slurm prints local time without its zone: it is taken as UTC")
    for what in ("name", "start", "end", "nodes", "users", "accounts"):
        account.carried(record, (key[what],), "Reservation")
    for leaf in ("nodecnt", "node_count", "duration", "state", "corecnt", "core_count", "tres"):
        account.carried(record, (leaf,), "Reservation nodes")
    account.dropped(record, (), "whole nodes are kept, from one time until another, and nothing else")


def _when(drawing: Drawing, record: SourceRecord, flags: Collection[str]) -> dict[str, Any]:
    """From when until when the nodes are kept, once or again and again."""
    account, start, end = drawing.account, _time(record, "start"), _time(record, "end")
    if end - start > _LONGEST:
        account.changed(record, (_key(record, "end"),), "until", "a Reservation lasts 90 days at most: it is cut")
        end = start + _LONGEST
    lasts, again = end - start, next((known for known in _REPEATS if known.flag in flags), None)
    if again is None or lasts > again.apart:
        note = "flags of a reservation have no equal: jobs beyond it may start if they end before it"
        account.dropped(record, (_key(record, "flags"),), note if again is None else "it would begin before it is over")
        return {"from": _written(start), "until": _written(end)}
    note = "it comes again for ever, by the hours of its zone. Other flags have no equal"
    account.changed(record, (_key(record, "flags"),), "repeat", note)
    first = next(day for day in (start + timedelta(n) for n in range(7)) if day.weekday() in again.weekdays)
    duration = Duration(lasts // timedelta(milliseconds=1))
    return {"from": _written(first), "repeat": {"rule": again.rule, "duration": str(duration), "timeZone": "UTC"}}


def _written(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _key(record: SourceRecord, what: str) -> str:
    return next((name for name in _KEYS[what] if record.has(name)), _KEYS[what][0])


def _list(record: SourceRecord, what: str) -> list[str]:
    value = record.get(_key(record, what))
    parts = value if isinstance(value, list) else split_list(str(value or ""))
    return [str(part) for part in parts if str(part) not in ("(null)", "")]


def _nodes(record: SourceRecord) -> list[str]:
    written = record.text(_key(record, "nodes"))
    return [] if written in ("(null)", "") else place_hosts(record, _key(record, "nodes"))


def _time(record: SourceRecord, what: str) -> datetime:
    value = record.get(_key(record, what))
    try:
        if isinstance(value, int):
            return datetime.fromtimestamp(value, UTC)
        return datetime.fromisoformat(str(value)).replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        message = f"{record.label}: {value!r} is no time such as 2026-12-01T08:00:00"
        raise InvalidDocumentsError([problem_of(record.origin, "time", message, "Correct it.")]) from error
