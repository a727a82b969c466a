"""The calendar of a policy: the windows of its Reservations between two times, also as a file that calendars read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from solver.model.document import API_VERSION, Document
from solver.model.quantities import Instant
from solver.policy.policy import Policy
from solver.policy.reservation import DeclaredReservation
from solver.policy.windows import windows_between

LINE_MAX = 75
"""Bytes of a line, by RFC 5545: what is longer goes on in the next, after a blank."""


class CalendarWindow(Document, frozen=True, omit_defaults=False):
    """One window: what is kept then, for whom, and who leaves for it."""

    name: str
    reservation: str
    start: Instant
    until: Instant
    keeps: str
    kept_for: str
    evict: str
    origin: str


class PolicyCalendar(Document, frozen=True, omit_defaults=False):
    """What `quorate calendar -o json` prints: the windows that lie, at least in part, between `since` and `until`, in order."""

    since: Instant
    until: Instant
    windows: tuple[CalendarWindow, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["PolicyCalendar"] = "PolicyCalendar"


def calendar_of(policy: Policy, since: Instant, until: Instant) -> PolicyCalendar:
    """The windows of a policy between two times."""
    found = (one for document in policy.reservations for one in _windows(document, since, until))
    return PolicyCalendar(since, until, tuple(sorted(found, key=lambda one: (one.start, one.name))))


def _windows(document: DeclaredReservation, since: Instant, until: Instant) -> Iterator[CalendarWindow]:
    for window in windows_between(document, since, until):
        name = document.during(window).name if document.repeat else document.name
        of = (window.start, window.until, _keeps(document), _kept_for(document))
        yield CalendarWindow(name, document.name, *of, document.evict, document.origin)


def _keeps(document: DeclaredReservation) -> str:
    if document.nodes is not None:
        return ", ".join(document.nodes)
    return f"{document.count} x {document.gpus_per_node} {document.gpu_type}"


def _kept_for(document: DeclaredReservation) -> str:
    queue = f"queue {document.queue}" if document.queue is not None else ""
    users = f"{', '.join(document.users)}" if document.users is not None else ""
    return f"{users} in {queue}" if queue and users else queue or users


def icalendar(calendar: PolicyCalendar, made_at: Instant) -> str:
    """The same as a file that calendars read: every window an event in UTC, so that no program has to know the rule."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Quorate//quorate calendar//EN"]
    for window in calendar.windows:
        lines += ["BEGIN:VEVENT", f"UID:{window.name}", f"DTSTAMP:{_time(made_at)}"]
        lines += [f"DTSTART:{_time(window.start)}", f"DTEND:{_time(window.until)}"]
        leave = "" if window.evict == "none" else f"; evict: {window.evict}"
        lines.append(f"SUMMARY:{_escaped(f'{window.reservation}: {window.keeps}')}")
        lines.append(f"DESCRIPTION:{_escaped(f'kept for {window.kept_for}{leave}')}")
        lines.append("END:VEVENT")
    return "".join(f"{part}\r\n" for line in (*lines, "END:VCALENDAR") for part in _folded(line))


def _time(at: Instant) -> str:
    return f"{str(at)[:19]}Z".replace("-", "").replace(":", "")


def _escaped(text: str) -> str:
    for special in ("\\", ";", ","):
        text = text.replace(special, f"\\{special}")
    return text


def _folded(line: str) -> Iterable[str]:
    """Names of nodes and queues are plain letters, those of users may be any: no letter is cut in two."""
    part = ""
    for letter in line:
        if len(f"{part}{letter}".encode()) > LINE_MAX:
            yield part
            part = " "
        part += letter
    yield part
