"""Whether a pass would see anything that the one before did not: where nothing has changed, nothing is decided anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from reconciler.control.control import ControlPlane
from reconciler.control.passes import Pass
from reconciler.protocols.backend import BackendChanges, Cursor
from solver.model.quantities import Instant
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Waits

REST_S_MAX: Final = 30.0
"""So late at most comes what follows from time alone, such as the end of a protection, and is not counted on below."""

REST_PER_PASS: Final = 10
"""A pass that was found to be needless is taken again after so many times what it took: passes in which nothing happens cost
little, and a small cluster, of which each is short, is looked at as often as ever."""


class _Rest(NamedTuple):
    """What the last pass saw, and until when it need not be taken again."""

    written: int
    revision: str
    cursor: Cursor
    until_s: float
    due: Instant


class Quietness:
    """Of one loop. `begin` and `end` belong around each pass."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._written = 0
        self._began_s = 0.0
        self._rest: _Rest | None = None

    def begin(self) -> None:
        """A pass is about to read."""
        self._rest = None
        self._written, self._began_s = self._plane.ledger.written(), self._plane.clock.monotonic_s()

    def end(self, done: Pass) -> None:
        """It has gone through. One that did something, or waits for something that was asked, is followed by another."""
        if not done.idle or done.round is not None or done.refused or done.fault or done.snapshot.in_flight.intents:
            return
        now_s = self._plane.clock.monotonic_s()
        until_s = now_s + min(REST_S_MAX, REST_PER_PASS * (now_s - self._began_s))
        due = min(_due(done), default=Instant(2**62))
        self._rest = _Rest(self._written, done.revision, done.sighted.cursor, until_s, due)

    def holds(self) -> bool:
        """Whether nothing has changed since. Raises what the parts of a pass do."""
        rest, plane = self._rest, self._plane
        return (
            rest is not None
            and plane.clock.monotonic_s() < rest.until_s
            and plane.clock.now() < rest.due
            and plane.policies.current().revision == rest.revision
            and plane.ledger.written() == rest.written
            and _is_empty(plane.backend.changes(rest.cursor))
        )


def _due(done: Pass) -> Iterator[Instant]:
    """When something follows from time alone, as far as a pass knows: limits, reservations, what people did, earliest starts."""
    now = done.snapshot.time
    for job in done.snapshot.jobs:
        if job.started_at is not None and job.time_limit is not None:
            yield job.started_at.after(job.time_limit)
    for kept in done.snapshot.in_flight.reservations:
        yield from (at for at in (kept.start, kept.until) if at is not None and at > now)
    yield from (clock.deadline for clock in done.snapshot.in_flight.convergence if clock.deadline > now)
    yield from (each.until for each in done.by_hand if each.until > now)
    for verdict in done.plan.verdicts:
        if isinstance(verdict, Waits) and isinstance(verdict.estimate, EarliestStart) and verdict.estimate.at > now:
            yield verdict.estimate.at


def _is_empty(changes: BackendChanges) -> bool:
    return changes == BackendChanges(changes.cursor)
