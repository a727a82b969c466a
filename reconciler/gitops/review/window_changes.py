"""Which windows move: those of Reservations and of quota in the days to come, under the base and under the head."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from reconciler.gitops.review.side import Played
from reconciler.model.calendar_windows import CalendarWindow, calendar_windows
from reconciler.model.review_findings import WindowChange
from solver.model.quantities import Duration, Instant

AHEAD: Final = Duration(7 * 86_400_000)
"""How far ahead windows are compared: a week has each window that comes weekly once."""

NEAR: Final = Duration(12 * 3_600_000)
"""A window that is gone, and one of the same document that comes within so long before or after it, are one that is moved."""


def window_changes(base: Played, head: Played, now: Instant) -> Iterator[WindowChange]:
    """In the order of their begins."""
    until = now.after(AHEAD)
    # One that is moved a little beyond the week is moved, and not gone.
    before, after = (calendar_windows(side.policy, now, until.after(NEAR)) for side in (base, head))
    found = list[WindowChange]()
    sides = _by_series(before), _by_series(after)
    for series in sides[0].keys() | sides[1].keys():
        found += _changes(sides[0][series], sides[1][series])
    yield from sorted((one for one in found if _begin(one) < until), key=lambda one: (_begin(one), one.window))


def _changes(before: Sequence[CalendarWindow], after: Sequence[CalendarWindow]) -> Iterator[WindowChange]:
    same = {_meaning(one) for one in before} & {_meaning(one) for one in after}
    left = [one for one in after if _meaning(one) not in same]
    for old in (one for one in before if _meaning(one) not in same):
        new = min(left, key=lambda one: abs(one.start - old.start), default=None)
        if new is not None and abs(new.start - old.start) <= NEAR:
            left.remove(new)
            yield _change(old, new)
        else:
            yield _change(old, None)
    for new in left:
        yield _change(None, new)


def _change(old: CalendarWindow | None, new: CalendarWindow | None) -> WindowChange:
    either = [one for one in (new, old) if one is not None]
    named, origin = _named(either[0]), either[0].origin
    return WindowChange(
        named,
        old.start if old else None,
        old.until if old else None,
        _holds(old),
        new.start if new else None,
        new.until if new else None,
        _holds(new),
        origin,
    )


def _named(one: CalendarWindow) -> str:
    return f"Reservation {one.reservation}" if one.reservation else f"{one.kept_for}, hours {one.hours}"


def _holds(one: CalendarWindow | None) -> str | None:
    if one is None:
        return None
    evicts = "" if one.evict == "none" else f", evicts {one.evict}"
    return f"{one.keeps} for {one.kept_for}{evicts}" if one.reservation else one.keeps


def _by_series(windows: Sequence[CalendarWindow]) -> defaultdict[tuple[str, str, str], list[CalendarWindow]]:
    found = defaultdict[tuple[str, str, str], list[CalendarWindow]](list)
    for one in windows:
        found[one.series].append(one)
    return found


def _meaning(one: CalendarWindow) -> tuple[Instant, Instant, str | None]:
    return one.start, one.until, _holds(one)


def _begin(change: WindowChange) -> Instant:
    return min(at for at in (change.start_before, change.start_after) if at is not None)
