"""The policy as it stands at an instant: in place of documents that repeat, their windows that are not over."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from solver.model.quantities import Instant
from solver.policy.policy import Policy
from solver.policy.reservation import DeclaredReservation, ReservedWindow


def policy_at(policy: Policy, now: Instant) -> Policy:
    """The policy that a round at `now` goes by. It is the very same object until a window ends, so that what is kept of it lasts.

    Of each document that repeats it has the first window that is not over, and those that begin within `etaHorizon` after that.
    Later ones bind no round: whatever starts now and would reach one of them would reach the first as well.
    """
    if not policy.repeats:
        return policy
    passed = tuple(_passed(known, now) for known in policy.reservations)
    if passed not in policy.standing:
        policy.standing.clear()
        ahead = policy.scheduling.eta_horizon
        found = (
            one for known, first in zip(policy.reservations, passed, strict=True) for one in _of(known, first, ahead)
        )
        by_name = tuple(sorted(found, key=lambda known: known.name))
        policy.standing[passed] = msgspec.structs.replace(policy, reservations=by_name)
    return policy.standing[passed]


def windows_between(document: DeclaredReservation, start: Instant, until: Instant) -> tuple[ReservedWindow, ...]:
    """When a document keeps its capacity, as far as it does so between two instants."""
    known = document.repeat.windows if document.repeat else (ReservedWindow(document.start, document.until),)
    return tuple(window for window in known if window.start < until and start < window.until)


def _passed(document: DeclaredReservation, now: Instant) -> int:
    """How many of its windows are over."""
    windows = document.repeat.windows if document.repeat else ()
    return bisect_right(windows, now, key=lambda window: window.until)


def _of(document: DeclaredReservation, first: int, ahead: int) -> Iterator[DeclaredReservation]:
    if document.repeat is None:
        yield document
        return
    windows = document.repeat.windows[first:]
    for window in windows:
        if window.start > windows[0].until + ahead:
            break
        yield document.during(window)
