"""Whether a pass would see anything that the one before did not: where nothing has changed, nothing is decided anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from reconciler.control.control import ControlPlane
from reconciler.control.passes import Pass
from reconciler.model.clock import Clock
from reconciler.protocols.backend import BackendChanges, Cursor
from solver.model.quantities import Instant
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Runs, Waits
from solver.plan.reasons import Protected
from solver.policy.windows import changes_at

REST_S_MAX: Final = 30.0
"""So late at most comes what follows from time alone, such as the end of a protection, and is not counted on below."""

REST_PER_PASS: Final = 10
"""A pass that was found to be needless is taken again after so many times what it took: passes in which nothing happens cost
little, and a small cluster, of which each is short, is looked at as often as ever."""


class Rest(NamedTuple):
    """Until when a pass need not be taken again, as far as time alone goes: by the monotonic clock, and by that of the cluster."""

    until_s: float
    due: Instant

    def holds(self, clock: Clock) -> bool:
        """Whether nothing follows from time alone yet."""
        return clock.monotonic_s() < self.until_s and clock.now() < self.due


def rest_after(began_s: float, due: Iterable[Instant], clock: Clock) -> Rest:
    """For a pass that began then, and found nothing to do. `due`: when something follows from time alone (`due_times` and more)."""
    now_s = clock.monotonic_s()
    return Rest(now_s + min(REST_S_MAX, REST_PER_PASS * (now_s - began_s)), min(due, default=Instant(2**62)))


class _Quiet(NamedTuple):
    """What the last pass saw, and for how long that is enough."""

    written: int
    revision: str
    cursor: Cursor
    rest: Rest


class Quietness:
    """Of one loop. `begin` and `end` belong around each pass."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._written = 0
        self._began_s = 0.0
        self._quiet: _Quiet | None = None

    def begin(self) -> None:
        """A pass is about to read."""
        self._quiet = None
        self._written, self._began_s = self._plane.ledger.written(), self._plane.clock.monotonic_s()

    def end(self, done: Pass) -> None:
        """It has gone through. One that did something, or waits for something that was asked, is followed by another."""
        if not done.idle or done.round is not None or done.refused or done.fault or done.snapshot.in_flight.intents:
            return
        rest = rest_after(self._began_s, due_times(done), self._plane.clock)
        self._quiet = _Quiet(self._written, done.revision, done.sighted.cursor, rest)

    def holds(self) -> bool:
        """Whether nothing has changed since. Raises what the parts of a pass do."""
        quiet, plane = self._quiet, self._plane
        return (
            quiet is not None
            and quiet.rest.holds(plane.clock)
            and plane.policies.current().revision == quiet.revision
            and plane.ledger.written() == quiet.written
            and _is_empty(plane.backend.changes(quiet.cursor))
        )


def due_times(done: Pass) -> Iterator[Instant]:
    """When something follows from time alone, as far as a pass knows: limits, reservations and who leaves for them, another quota,
    what people did, earliest starts, and what protects others from a job that waits.
    """
    now = done.snapshot.time
    changes = changes_at(done.policy, now)
    if changes is not None:
        yield changes
    for job in done.snapshot.jobs:
        if job.started_at is not None and job.time_limit is not None:
            yield job.started_at.after(job.time_limit)
    for kept in done.snapshot.in_flight.reservations:
        yield from (at for at in (kept.start, kept.until) if at is not None and at > now)
    yield from (clock.deadline for clock in done.snapshot.in_flight.convergence if clock.deadline > now)
    yield from (each.until for each in done.by_hand if each.until > now)
    for verdict in done.plan.verdicts:
        if isinstance(verdict, Runs) and verdict.leaves_at is not None and verdict.leaves_at > now:
            yield verdict.leaves_at
        if isinstance(verdict, Waits) and isinstance(verdict.estimate, EarliestStart) and verdict.estimate.at > now:
            yield verdict.estimate.at
        for reason in verdict.reasons if isinstance(verdict, Waits) else ():
            if isinstance(reason, Protected) and reason.until is not None and reason.until > now:
                yield reason.until


def _is_empty(changes: BackendChanges) -> bool:
    return changes == BackendChanges(changes.cursor)
