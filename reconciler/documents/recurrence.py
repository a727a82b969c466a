"""When a document repeats: an RRULE of RFC 5545 and a time zone become windows, each an instant and another.

The rule counts in the hours of the zone, so that a window at 20:00 begins at 20:00 in summer as in winter; a window lasts for its
duration, whatever clocks do meanwhile. A begin that the clocks skip comes as much later (02:30 is 03:30 that day), and of one that
is there twice the first counts, as RFC 5545 reads such times (section 3.3.5). What it says in 3.3.10, to leave out a window whose
begin is skipped, is not followed: nobody expects one night without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr

from solver.model.quantities import Duration, Instant
from solver.policy.repeat import RepeatedWindow

WINDOWS_MAX: Final = 1_000
"""How many windows a rule may have: each window of a Reservation is one of its own to a round."""

LONGEST: Final = timedelta(days=2 * 366)
"""How far behind the first window the last may begin that a rule says."""

AHEAD: Final = timedelta(days=10 * 366)
"""How far behind the first window a rule without an end is worked out. No clock decides it: a revision always means the same."""

AHEAD_MAX: Final = 4_000
"""How many windows it then has at most: ten years of days."""

_FREQUENCIES: Final = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_PARTS: Final = (
    *(
        "FREQ",
        "INTERVAL",
        "COUNT",
        "UNTIL",
        "WKST",
        "BYSETPOS",
        "BYMONTH",
        "BYMONTHDAY",
        "BYYEARDAY",
        "BYWEEKNO",
        "BYDAY",
    ),
    *("BYHOUR", "BYMINUTE", "BYSECOND"),
)
_PART: Final = re.compile(r"([A-Z-]+)=([A-Z0-9+,-]+)")
_UNTIL: Final = re.compile(r"\d{8}T\d{6}Z")
_COUNT: Final = re.compile(r"[1-9]\d{0,5}")


class RecurrenceError(ValueError):
    """A rule that can't be followed. `fix`: what to write instead."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


@lru_cache(128)
def windows_of(rule: str, start: Instant, duration: Duration, time_zone: str) -> tuple[RepeatedWindow, ...]:
    """The windows of a rule, the first from `start` on; raises RecurrenceError, and what ZoneInfo does of a wrong zone."""
    parts, zone = _parts(rule), ZoneInfo(time_zone)
    starts = _starts(parts, start, zone)
    if len(starts) > WINDOWS_MAX and not is_endless(rule):
        raise RecurrenceError(
            f"it has more than {WINDOWS_MAX} windows", "End it earlier, and write further ones in time."
        )
    if not starts or starts[0] != start:
        local = datetime.fromtimestamp(start / 1_000, zone)
        first = f"; its first window is {starts[0]}" if starts else ""
        raise RecurrenceError(
            f"it does not give {local:%a %Y-%m-%d %H:%M}, from which on it counts{first}",
            "Let from be the begin of the first window.",
        )
    found = tuple(RepeatedWindow(at, at.after(duration)) for at in starts)
    for window, following in pairwise(found):
        if window.until > following.start:
            raise RecurrenceError(
                f"the window from {window.start} lasts until {window.until}, and the next begins at {following.start}",
                "Shorten duration, or let it repeat less often.",
            )
    return found


def is_endless(rule: str) -> bool:
    """Whether a rule says no end."""
    return not any(part.startswith(("UNTIL=", "COUNT=")) for part in rule.split(";"))


def _parts(rule: str) -> dict[str, str]:
    """The parts of a rule by name, if it is one that can be followed."""
    parts: dict[str, str] = {}
    for written in rule.split(";"):
        part = _PART.fullmatch(written)
        if part is None:
            raise RecurrenceError(
                f"{written!r} is not NAME=VALUE", "Write it as RFC 5545 does: FREQ=WEEKLY;BYDAY=MO,TU."
            )
        if part[1] not in _PARTS:
            raise RecurrenceError(f"RFC 5545 has no {part[1]}", f"It has {', '.join(_PARTS)}.")
        if part[1] in parts:
            raise RecurrenceError(f"{part[1]} is there twice", "Delete one.")
        parts[part[1]] = part[2]
    if parts.get("FREQ") not in _FREQUENCIES:
        given = f"FREQ={parts['FREQ']}" if "FREQ" in parts else "FREQ is missing"
        raise RecurrenceError(
            f"{given}; windows begin on days, not in every hour or second", f"FREQ is one of {', '.join(_FREQUENCIES)}."
        )
    if "UNTIL" in parts and "COUNT" in parts:
        raise RecurrenceError(
            "it has UNTIL and COUNT: a rule says in one way when it ends",
            "Keep one of them; without both it has no end.",
        )
    if "UNTIL" in parts and not _UNTIL.fullmatch(parts["UNTIL"]):
        raise RecurrenceError(f"UNTIL={parts['UNTIL']} is not in UTC", "Write UNTIL=20270101T000000Z, with its Z.")
    if "COUNT" in parts and not _COUNT.fullmatch(parts["COUNT"]):
        raise RecurrenceError(f"COUNT={parts['COUNT']} is not how often", "Write COUNT=30.")
    if not parts.get("INTERVAL", "1").strip("0"):
        raise RecurrenceError("INTERVAL=0 never goes on", "Leave it out for 1.")
    return parts


def _starts(parts: dict[str, str], start: Instant, zone: ZoneInfo) -> list[Instant]:
    """When windows begin, in order: at most one more than there may be, of a rule without an end as many as there may be."""
    first = datetime.fromtimestamp(start / 1_000, zone).replace(tzinfo=None)
    endless = "UNTIL" not in parts and "COUNT" not in parts
    last, most = (first + AHEAD, AHEAD_MAX) if endless else (first + LONGEST, WINDOWS_MAX + 1)
    text = ";".join(f"{name}={value}" for name, value in parts.items() if name not in ("UNTIL", "COUNT"))
    try:
        until, count = _until(parts), int(parts.get("COUNT", most))
        known = [_instant(local, zone) for local in islice(_days(text, first, last), min(count, most))]
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError) as error:
        raise RecurrenceError(f"it can't be read: {error}", "Write it as RFC 5545 does.") from error
    if until is not None and until > _instant(last, zone):
        raise RecurrenceError(f"it ends more than {LONGEST.days} days after from", "End it earlier.")
    if "COUNT" in parts and len(known) < min(count, most):
        told = f"it gives {len(known)} of {count} windows in {LONGEST.days} days after from"
        raise RecurrenceError(told, "Lower COUNT.")
    return [at for at in known if until is None or at <= until]


def _days(rule: str, first: datetime, last: datetime) -> Iterator[datetime]:
    """What a rule gives in hours of the zone, which the library is not told.

    It looks for a rule that never comes until the year 9999: 15 s for `FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30`. Dates and days of the
    week come again after 400 years, so it is asked of the last years there are.
    """
    later = (9_996 - first.year) // 400 * 400
    given = rrulestr(rule, dtstart=first.replace(year=first.year + later))
    found = (local.replace(year=local.year - later) for local in given)
    return takewhile(lambda local: local <= last, found)


def _instant(local: datetime, zone: ZoneInfo) -> Instant:
    """When clocks of a zone show a time: the first of two, and of one that they skip, as much after the skip as it is in it."""
    return Instant(int(local.replace(tzinfo=zone, fold=0).timestamp()) * 1_000)


def _until(parts: dict[str, str]) -> Instant | None:
    if "UNTIL" not in parts:
        return None
    return Instant(int(datetime.strptime(parts["UNTIL"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()) * 1_000)
