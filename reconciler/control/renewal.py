"""Keeps the lease of a leader whose pass takes longer than a lease lasts: a round of a large cluster may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Final

from reconciler.control.control import ControlPlane
from reconciler.protocols.stores import StoreUnusableError

PASS_S_MAX: Final = 300.0
"""Rounds take less even where 50,000 gangs wait. Whose pass takes longer hangs, and somebody else is to lead."""

_RENEWALS_PER_LEASE: Final = 4


@contextmanager
def renewing(plane: ControlPlane, renewed: Callable[[float], None] = lambda _: None) -> Iterator[None]:
    """Renew the lease beside what the block does, if this process leads: without that, who stands by would take over in its middle,
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
