"""The time that a control plane goes by, put together: which clock it follows, and against what it is kept over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from reconciler.control.time_keeper import TimeKeeper
from reconciler.model.clock import Clock, SystemClock
from reconciler.model.cluster_clock import (
    BOOT_ID,
    ClusterClock,
    HeardClock,
    TimeReference,
    boot_of_this_machine,
    continued,
)
from reconciler.protocols.ledger import Ledger
from reconciler.store.store import SqlStore
from solver.model.quantities import Instant

DATABASE: Final = "database"


class ClusterTime(NamedTuple):
    """`clock`: what passes go by. `reference`: against what it is kept, so that the next process can go on with it."""

    clock: ClusterClock
    reference: TimeReference

    def keeper(self, ledger: Ledger) -> TimeKeeper:
        """What keeps it there."""
        return TimeKeeper(ledger, self.clock, self.reference)


def cluster_time(
    store: SqlStore, own: Clock | None = None, boot_id: Path = BOOT_ID, *, anew: bool = False
) -> ClusterTime:
    """Where several control planes share a database, by its clock, which all of them hear; else by that of this machine.

    A process that starts again goes on with the time of the one before: on the same machine, if that was not started again, or with
    the same database. `anew`: it takes the clock as it is. Raises StoreUnusableError.
    """
    own = own or SystemClock()
    if store.database.lease_clock == "database":
        wall: Clock = _heard(store, own)
        reference = TimeReference(DATABASE, wall.now)
    else:
        wall, reference = own, boot_of_this_machine(own, boot_id)
    kept = None if anew else store.ledger.kept_time()
    return ClusterTime(ClusterClock(wall, continued(kept, reference)), reference)


class ServedTime:
    """Where jobs are pods: the time of the API server, by whose clock pods begin. Until it was heard, that of this machine."""

    def __init__(self, own: Clock | None = None) -> None:
        self._wall = HeardClock(own or SystemClock())
        self.clock = ClusterClock(self._wall)

    def hear(self, at: Instant, late_ms: float) -> None:
        """What time it is there. The first answer comes before the first pass, so that nothing was counted before."""
        is_first = not self._wall.is_heard
        self._wall.hear(at, late_ms)
        if is_first:
            self.clock.begin(at)


def _heard(store: SqlStore, own: Clock) -> HeardClock:
    heard = HeardClock(own)
    heard.hear(store.database.time())
    store.database.told_time = heard.hear
    return heard
