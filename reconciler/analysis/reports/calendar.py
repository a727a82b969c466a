"""The calendar of a policy: its windows between two times, also as a file that calendars read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from reconciler.model.calendar_windows import CalendarWindow, calendar_windows
from solver.model.document import API_VERSION, Document
from solver.model.quantities import Instant
from solver.policy.policy import Policy

LINE_MAX = 75
"""Bytes of a line, by RFC 5545: what is longer goes on in the next, after a blank."""


class PolicyCalendar(Document, frozen=True, omit_defaults=False):
    """What `quorate calendar -o json` prints: the windows that lie, at least in part, between `since` and `until`, in order."""

    since: Instant
    until: Instant
    windows: tuple[CalendarWindow, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["PolicyCalendar"] = "PolicyCalendar"


def calendar_of(policy: Policy, since: Instant, until: Instant) -> PolicyCalendar:
    """The windows of a policy between two times."""
    return PolicyCalendar(since, until, calendar_windows(policy, since, until))


def icalendar(calendar: PolicyCalendar, made_at: Instant) -> str:
    """The same as a file that calendars read: every window an event in UTC, so that no program has to know the rule."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Quorate//quorate calendar//EN"]
    for window in calendar.windows:
        lines += ["BEGIN:VEVENT", f"UID:{window.name}", f"DTSTAMP:{_time(made_at)}"]
        lines += [f"DTSTART:{_time(window.start)}", f"DTEND:{_time(window.until)}"]
        leave = "" if window.evict == "none" else f"; evict: {window.evict}"
        what = window.reservation or f"{window.hours}, {window.kept_for}"
        lines.append(f"SUMMARY:{_escaped(f'{what}: {window.keeps}')}")
        why = f"kept for {window.kept_for}{leave}" if window.reservation else f"the quota of {window.kept_for}"
        lines.append(f"DESCRIPTION:{_escaped(why)}")
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
