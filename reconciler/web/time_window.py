"""A window of time as an address says it: in words or as moments; and its neighbours, its scale and its marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import urlencode

from reconciler.api.problems import RequestRefusedError
from reconciler.api.timeline import TimeWindow
from solver.model.quantities import Duration, Instant

_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_SHORTEST: Final = 5 * _MINUTE
_LONGEST: Final = 5 * 366 * _DAY
"""As the API takes it."""

LENGTHS: Final = (
    ("1 hour", _HOUR),
    ("6 hours", 6 * _HOUR),
    ("1 day", _DAY),
    ("3 days", 3 * _DAY),
    ("1 week", 7 * _DAY),
    ("30 days", 30 * _DAY),
)
_MARK_STEPS: Final = tuple(
    minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 10_080, 43_200)
)
_MARKS_MAX: Final = 8

_AGO: Final = re.compile(r"-?\s*(\w+)(?:\s+ago)?")
_AHEAD: Final = re.compile(r"(?:in\s+|\+\s*)(\w+)")
_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d(?:\.\d{1,3})?)?)?\s*([Zz]|[+-]\d\d:\d\d)?", re.ASCII
)
FORMS: Final = "12h ago, now, in 12h, 2026-11-28 or 2026-11-28T18:00Z"


class TimeMark(NamedTuple):
    """A moment on the scale; `x` in percent of its width."""

    at: Instant
    x: float
    label: str


class ShownWindow(NamedTuple):
    """From `start` to `end`, as seen at `now`; `since` and `to` as they were written."""

    start: Instant
    end: Instant
    now: Instant
    since: str
    to: str

    @property
    def length(self) -> int:
        """In milliseconds."""
        return self.end - self.start

    @property
    def past(self) -> TimeWindow:
        """The part of it that is over; it has no length where all of it is to come."""
        return TimeWindow(self.start, Instant(max(self.start, min(self.end, self.now))), self.now)

    @property
    def has_past(self) -> bool:
        """Whether any of it is over."""
        return self.start < self.now

    def x(self, at: int) -> float:
        """Where a moment lies, in percent of the width; what lies outside is at its edge."""
        return round(100 * min(max(at - self.start, 0), self.length) / self.length, 3)

    def marks(self) -> tuple[TimeMark, ...]:
        """Moments in a step that people count in, in UTC."""
        step = next((each for each in _MARK_STEPS if self.length <= each * _MARKS_MAX), _MARK_STEPS[-1])
        first = -(-self.start // step) * step
        return tuple(
            TimeMark(Instant(at), self.x(at), _label(Instant(at), step)) for at in range(first, self.end + 1, step)
        )

    # Its neighbours, as what an address says of them.

    def earlier(self) -> dict[str, str]:
        """Half its length before."""
        return self._moved(-self.length // 2)

    def later(self) -> dict[str, str]:
        """Half its length after."""
        return self._moved(self.length // 2)

    def around_now(self) -> dict[str, str]:
        """Of the same length, with now in its middle: it goes on as time does."""
        return _around_now(self.length)

    def until_now(self) -> dict[str, str]:
        """Of the same length, with now at its end."""
        return _until_now(self.length)

    def lengths_of_past(self) -> Iterator[tuple[str, bool, dict[str, str]]]:
        """As `lengths`, with the same end."""
        for words, length in LENGTHS:
            asked = _until_now(length) if self.to == "now" else _between(self.end - length, self.end)
            yield words, length == self.length, asked

    def lengths(self) -> Iterator[tuple[str, bool, dict[str, str]]]:
        """Others, longer or shorter: their words, whether it is this one, and how it is asked for."""
        middle = self.start + self.length // 2
        for words, length in LENGTHS:
            if self.start <= self.now <= self.end:
                asked = _around_now(length)
            else:
                asked = _between(middle - length // 2, middle + length // 2)
            yield words, length == self.length, asked

    def _moved(self, by: int) -> dict[str, str]:
        return _between(self.start + by, self.end + by)


def window_asked(since: str, to: str, now: Instant) -> ShownWindow:
    """What an address asks for. Raises RequestRefusedError.

    Words count from the minute that has begun: all that ask in one minute ask for the same.
    """
    minute = Instant(now // _MINUTE * _MINUTE)
    start, end = _moment("from", since, minute), _moment("to", to, minute)
    if not 0 <= start < end:
        raise _wrong("from", f"{since} has to be before `to`, {to}")
    if not _SHORTEST <= end - start <= _LONGEST:
        raise _wrong("to", "a window has five minutes at least and five years at most")
    return ShownWindow(start, end, now, since.strip(), to.strip())


def address(path: str, *stated: tuple[str, str] | dict[str, str]) -> str:
    """With what is stated, and nothing that is empty."""
    pairs = [pair for each in stated for pair in (each.items() if isinstance(each, dict) else (each,)) if pair[1] != ""]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _moment(name: str, written: str, now: Instant) -> Instant:
    words = written.strip()
    if words.lower() == "now":
        return now
    try:
        if stated := _MOMENT.fullmatch(words):
            day, minutes, seconds, zone = stated.groups()
            return Instant.parse(f"{day}T{minutes or '00:00'}{seconds or ':00'}{(zone or 'Z').upper()}")
        if ahead := _AHEAD.fullmatch(words):
            return now.after(Duration.parse(ahead[1]))
        if ago := _AGO.fullmatch(words):
            return now.after(-Duration.parse(ago[1]))
    except ValueError as error:
        raise _wrong(name, f"{written} is no moment: {error}") from error
    raise _wrong(name, f"{written} is no moment")


def _wrong(name: str, told: str) -> RequestRefusedError:
    return RequestRefusedError(422, "invalid-parameter", f"{name}: {told}.", f"Write {FORMS}.")


def _around_now(length: int) -> dict[str, str]:
    half = Duration(length // 2 // _MINUTE * _MINUTE)
    return {"from": f"{half} ago", "to": f"in {half}"}


def _until_now(length: int) -> dict[str, str]:
    return {"from": f"{Duration(length // _MINUTE * _MINUTE)} ago", "to": "now"}


def _between(start: int, end: int) -> dict[str, str]:
    return {"from": _written(max(0, start)), "to": _written(max(0, end))}


def _written(at: int) -> str:
    """To the minute, as short as that is."""
    return str(Instant(at // _MINUTE * _MINUTE)).replace(":00Z", "Z")


def _label(at: Instant, step: int) -> str:
    day, _, rest = str(at).partition("T")
    if step >= _DAY:
        return day
    return f"{day[5:]} {rest[:5]}" if rest.startswith("00:00") else rest[:5]
