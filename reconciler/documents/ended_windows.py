"""Windows that come again no more, or soon will not: what was to hold by night, or for a season, and does not hold any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reconciler.documents.recurrence import is_endless
from reconciler.model.problem import Problem, problem_of
from solver.model.quantities import Duration, Instant
from solver.policy.policy import Policy
from solver.policy.repeat import Repeat

SOON: Final = Duration(30 * 86_400_000)
"""For how long before the end of the last window it is warned of; of rules that go on for at least twice as long."""


def ended_windows(policy: Policy, now: Instant) -> Iterator[Problem]:
    """A warning for each hours of a queue, and each Reservation that comes again, whose last window is over or soon will be."""
    for what, repeat, origin in _repeating(policy):
        end = _end(repeat)
        if end is None:
            continue
        fix = (
            "Move from to a later window."
            if is_endless(repeat.rule)
            else "Let the rule end later, or leave its end out."
        )
        if end <= now:
            message = f"the last window of {what} ended at {end}: it comes no more"
            yield problem_of(origin, "windows-over", message, fix, "warning")
        elif end <= now.after(SOON) and repeat.windows[0].start.after(2 * SOON) <= end:
            message = f"the last window of {what} ends at {end}"
            yield problem_of(origin, "windows-end-soon", message, fix, "warning")


def ends_of_windows(policy: Policy) -> Iterator[tuple[str, Instant]]:
    """When the last window of each ends: `hours nights of queue research`, or `Reservation night`."""
    for what, repeat, _ in _repeating(policy):
        if (end := _end(repeat)) is not None:
            yield what, end


def _end(repeat: Repeat) -> Instant | None:
    return repeat.windows[-1].until if repeat.windows else None


def _repeating(policy: Policy) -> Iterator[tuple[str, Repeat, str]]:
    for queue in policy.queues:
        for hours in queue.hours:
            yield f"hours {hours.name} of queue {queue.name}", hours.repeat, hours.origin
    for document in policy.reservations:
        if document.repeat is not None:
            yield f"Reservation {document.name}", document.repeat, document.origin
