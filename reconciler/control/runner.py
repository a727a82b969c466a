"""Runs the loop's passes in real time: when woken, after a debounce; otherwise at a steady poll, which also renews the lease.

A lease is renewed beside a pass that takes longer than it lasts: a round of a large cluster may.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Final, Literal

from reconciler.control.control import ControlPlane, NoPolicyError
from reconciler.control.event_settler import EventSettler
from reconciler.control.ledger_site import one_pass
from reconciler.control.narrow_rounds import NarrowRounds
from reconciler.control.passes import NoPlanError, Pass, PlanRefusedError
from reconciler.control.quietness import Quietness
from reconciler.protocols.backend import BackendUnreachableError, Epoch, StaleEpochError
from reconciler.protocols.ledger import NotLeaderError
from reconciler.protocols.store_errors import StoreFullError, StoreUnreachableError, StoreUnusableError

Condition = Literal[
    "beginning", "leading", "observing", "standing-by", "no-policy", "backend-unreachable", "plan-refused", "solver-failed",
    "store-unreachable", "store-full", "store-unusable", "ended",
]  # fmt: skip

_AWAY: Final[frozenset[Condition]] = frozenset({"beginning", "standing-by", "store-unusable", "ended"})
"""Where it does not lead, or does not know yet whether it does."""

_CUT_OFF: Final[frozenset[Condition]] = frozenset({"store-unreachable", "store-full"})
"""Where the pass is taken again as soon as the store takes what is written."""

PASS_S_MAX: Final = 300.0
"""Rounds take less even where 50,000 gangs wait. A control plane with a longer pass hangs, and another is to lead."""

_RENEWALS_PER_LEASE: Final = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """`debounce_s` gathers wake-ups that come together; woken passes are `apart_s` apart; `poll_s` is the longest rest."""

    debounce_s: float = 0.1
    apart_s: float = 1.0
    poll_s: float = 1.0

    def next_pass_s(self, last_s: float, last_woken_s: float, woken_s: float | None) -> float:
        """When the next pass is due, given when the last pass and the last woken pass began, and what woke it since."""
        polled_s = last_s + self.poll_s
        if woken_s is None:
            return polled_s
        return min(polled_s, max(woken_s + self.debounce_s, last_woken_s + self.apart_s))


@dataclass(frozen=True, slots=True)
class LoopStatus:
    """How the loop fares: `message` says why it does not lead or act, `last` is the last pass that went through."""

    condition: Condition = "beginning"
    message: str = ""
    last: Pass | None = None


_INTERRUPTED: Final[tuple[tuple[type[Exception], Condition], ...]] = (
    (StoreFullError, "store-full"),
    (StoreUnreachableError, "store-unreachable"),
    (NoPolicyError, "no-policy"),
    (BackendUnreachableError, "backend-unreachable"),
    (PlanRefusedError, "plan-refused"),
    (NoPlanError, "solver-failed"),
)

INTERRUPTIONS: Final = tuple(error for error, _ in _INTERRUPTED)
"""What ends a pass and not the process: the next one begins by looking."""


def status_after(status: LoopStatus, error: Exception) -> LoopStatus:
    """How the loop fares after one of these."""
    condition = next(condition for kind, condition in _INTERRUPTED if isinstance(error, kind))
    return replace(status, condition=condition, message=str(error))


class Runner:
    """Call `run` in a thread of its own; `wake`, `stop` and `status` from any. `report` hears what came of each pass."""

    def __init__(
        self,
        plane: ControlPlane,
        pace: Pace = Pace(),
        report: Callable[[LoopStatus], None] = lambda _: None,
        narrow: NarrowRounds | None = None,
        events: EventSettler | None = None,
    ) -> None:
        self.status = LoopStatus()
        self._plane = plane
        self._pace = pace
        self._report = report
        self._narrow = narrow
        self._events = events
        self._changed = threading.Condition()
        self._stopping = False
        self._woken_s: float | None = plane.clock.monotonic_s()
        self._last_s = self._last_woken_s = self._led_s = float("-inf")
        self._is_woken = True
        self._quietness = Quietness(plane)

    def wake(self) -> None:
        """Something happened that a pass should see soon: a job, a commit, the end of a task."""
        with self._changed:
            if self._woken_s is None:
                self._woken_s = self._plane.clock.monotonic_s()
                self._changed.notify()

    def epoch(self) -> Epoch | None:
        """The epoch of the last pass; None before there was one. It may be over: the store tells its user."""
        return self.status.last.epoch if self.status.last else None

    def leads(self) -> bool:
        """Whether it does, as it knows: one that has not reached the store for as long as a lease lasts may have been followed."""
        condition = self.status.condition
        if condition in _CUT_OFF:
            return self._plane.clock.monotonic_s() < self._led_s + self._plane.lease.seconds
        return condition not in _AWAY

    def stop(self) -> None:
        """Let `run` return after the pass that is under way."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def run(self) -> None:
        """Take passes until stopped, then give leadership up. Raises StoreUnusableError: nothing can be done without a store.

        While it can't be reached, the pass is taken again: it begins by reading what is true, also of a write
        whose outcome is not known.
        """
        try:
            while self._wait():
                before, self.status = self.status, self._one_pass()
                if self.status is not before:
                    self._report(self.status)
            if self.leads() and self.status.last is not None:
                # A store that does not answer now: a standby waits until the lease is over.
                with suppress(StoreUnreachableError):
                    self._plane.ledger.resign(self.status.last.epoch)
        except StoreUnusableError as error:
            self.status = replace(self.status, condition="store-unusable", message=str(error))
            raise
        self.status = replace(self.status, condition="ended", message="")

    def _wait(self) -> bool:
        """Rest until the next pass is due; False once the runner shall stop."""
        with self._changed:
            while not self._stopping:
                now_s = self._plane.clock.monotonic_s()
                due_s = self._pace.next_pass_s(self._last_s, self._last_woken_s, self._woken_s)
                if now_s >= due_s:
                    self._last_s, self._is_woken = now_s, self._woken_s is not None
                    if self._woken_s is not None:
                        self._last_woken_s, self._woken_s = now_s, None
                    return True
                self._changed.wait(due_s - now_s)
            return False

    def _one_pass(self) -> LoopStatus:
        began_s, status = self._plane.clock.monotonic_s(), self._passed()
        if status.condition not in _CUT_OFF:
            self._led_s = float("-inf") if status.condition in _AWAY else max(began_s, self._led_s)
        return status

    def _renewed(self, at_s: float) -> None:
        self._led_s = at_s

    def _rests(self) -> bool:
        """Whether it leads on, and nothing is new: then the last pass says all that another one would."""
        plane, last = self._plane, self.status.last
        if self._is_woken or last is None or self.status.condition != "leading":
            return False
        epoch = plane.ledger.lead(plane.holder, plane.clock.now(), plane.lease)
        return epoch == last.epoch and self._quietness.holds()

    def _passed(self) -> LoopStatus:
        try:
            if self._rests():
                return self.status
            with lease_renewal(self._plane, self._renewed):
                self._quietness.begin()
                done = one_pass(self._plane, self._narrow, self._events)
            self._quietness.end(done)
        except (NotLeaderError, StaleEpochError) as other:
            # What was true when this process led is not any more.
            return LoopStatus("standing-by", str(other))
        except INTERRUPTIONS as error:
            return status_after(self.status, error)
        return LoopStatus("leading", done.fault, done)


@contextmanager
def lease_renewal(plane: ControlPlane, renewed: Callable[[float], None] = lambda _: None) -> Iterator[None]:
    """Renew the lease beside what the block does, if this process leads: without that, a standby would take over in its middle,
    take as long, and be followed in turn, so that no round would ever be acted on.

    `renewed` hears, in another thread, of each time it was: when that was asked for, by the monotonic clock.
    """
    over, every_s = Event(), plane.lease.seconds / _RENEWALS_PER_LEASE

    def renew() -> None:
        for _ in range(int(PASS_S_MAX / every_s)):
            if over.wait(every_s):
                return
            asked_s = plane.clock.monotonic_s()
            # The pass meets the same trouble, and says so.
            with suppress(StoreUnusableError):
                if plane.ledger.renew(plane.holder, plane.clock.now(), plane.lease):
                    renewed(asked_s)

    thread = Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
