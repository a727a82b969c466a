"""Windows that come again no more: what was to hold by night, or for a season, and does not hold any more."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.model.problem import Problem, problem_of
from solver.model.quantities import Instant
from solver.policy.policy import Policy
from solver.policy.repeat import Repeat


def ended_windows(policy: Policy, now: Instant) -> Iterator[Problem]:
    """A warning for each hours of a queue, and each Reservation that comes again, whose last window is over."""
    for what, repeat, origin in _repeating(policy):
        ended = repeat.windows[-1].until if repeat.windows else None
        if ended is not None and ended <= now:
            message = f"the last window of {what} ended at {ended}: it comes no more"
            yield problem_of(origin, "windows-over", message, "Let the rule end later, or delete it.", "warning")


def _repeating(policy: Policy) -> Iterator[tuple[str, Repeat, str]]:
    for queue in policy.queues:
        for hours in queue.hours:
            yield f"hours {hours.name} of queue {queue.name}", hours.repeat, hours.origin
    for document in policy.reservations:
        if document.repeat is not None:
            yield f"Reservation {document.name}", document.repeat, document.origin
