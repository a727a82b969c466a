"""What is wrong with the rules of documents that repeat, and the windows that they come to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from reconciler.documents.declarations import Declaration
from reconciler.documents.rate_cards import is_zone
from reconciler.documents.recurrence import RecurrenceError, windows_of
from reconciler.model.problem import Path, Problem
from solver.model.quantities import Duration, Instant
from solver.policy.repeat import Repeat

LONGEST = Duration(90 * 86_400_000)
"""For how long a window may last: what holds for ever is said without windows."""


def with_windows(repeat: Repeat, start: Instant) -> Repeat:
    """A rule with all its windows; as it is where it is wrong, which `repeat_problems` tells."""
    if not is_zone(repeat.time_zone) or not repeat.duration:
        return repeat
    try:
        windows = windows_of(repeat.rule, start, repeat.duration, repeat.time_zone)
    except RecurrenceError:
        return repeat
    return msgspec.structs.replace(repeat, windows=windows)


def repeat_problems(document: Declaration[Any], at: Path, repeat: Repeat, start: Instant) -> Iterator[Problem]:
    """`at`: where in the document it stands."""
    if not is_zone(repeat.time_zone):
        message = f"there is no time zone {repeat.time_zone}"
        fix = "Write it as the IANA database does: Europe/Berlin."
        yield document.problem((*at, "timeZone"), "unknown-time-zone", message, fix)
    elif not 0 < repeat.duration <= LONGEST:
        fix = f"Let it be more than nothing and at most {LONGEST}."
        yield document.problem((*at, "duration"), "wrong-window", f"each window lasts for {repeat.duration}", fix)
    elif not repeat.windows:
        try:
            windows_of(repeat.rule, start, repeat.duration, repeat.time_zone)
        except RecurrenceError as error:
            yield document.problem((*at, "rule"), "wrong-rule", str(error), error.fix)
