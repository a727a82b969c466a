"""Which connections are let in: the newest, in place of the one that has waited longest without a complete request."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.connections.limits import ConnectionLimits

CLOSING_MAX: Final = 16
"""So many that have been displaced may still be open, until the event loop has closed them."""

TELL_EVERY_S: Final = 60.0


class OpenConnection:
    """One that was let in. `displace` lets go of it at once; `late`, if set, is called when `deadline_s` is over."""

    __slots__ = ("deadline_s", "displace", "is_counted", "is_displaced", "late", "peer")

    def __init__(self, peer: str, displace: Callable[[], None]) -> None:
        self.peer = peer
        self.displace = displace
        self.late: Callable[[], None] | None = None
        self.deadline_s: float | None = None
        self.is_counted = True
        self.is_displaced = False


class ConnectionGate:
    """Used in the thread of one event loop alone.

    A connection waits until its request is complete, and again once that is answered. Those that wait may be displaced; those
    that are answered, or are kept, may not.
    """

    def __init__(
        self, limits: ConnectionLimits, log: FilteringBoundLogger, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self.clock_s = clock_s
        self._log = log
        self._open: dict[int, OpenConnection] = {}
        self._waiting: dict[str, dict[OpenConnection, float]] = {}  # by peer; of each the oldest first
        self._of_peer: Counter[str] = Counter()
        self._untold: Counter[str] = Counter()
        self._told_s = float("-inf")

    @property
    def is_overfull(self) -> bool:
        """None can be let in before those that have been displaced are closed."""
        return len(self._open) >= self.limits.connections_max + CLOSING_MAX

    def admit(self, descriptor: int, address: str, displace: Callable[[], None]) -> bool:
        """Whether a new connection may stay; if need be, another one goes for it."""
        peer = peer_of(address)
        peer_is_full = self._of_peer[peer] >= self.limits.per_peer_max
        if peer_is_full or len(self._open) >= self.limits.connections_max:
            victim = self._oldest(peer if peer_is_full else None)
            if victim is None:
                self._tell("refused", peer)
                return False
            self._stop_waiting(victim)
            victim.is_displaced = True
            victim.displace()
            self._tell("displaced", victim.peer)
        self._open[descriptor] = connection = OpenConnection(peer, displace)
        self._of_peer[peer] += 1
        self.wait(connection)
        return True

    def found(self, descriptor: int) -> OpenConnection:
        """The connection of an open descriptor."""
        return self._open[descriptor]

    def wait(self, connection: OpenConnection, deadline_s: float | None = None) -> None:
        """It has no complete request from now on. It is late if that is still so at the deadline."""
        self._stop_waiting(connection)
        connection.deadline_s = deadline_s
        if connection.is_displaced:
            return  # its protocol begins only now, and finds the end: another has to go for the next one
        self._waiting.setdefault(connection.peer, {})[connection] = self.clock_s()

    def answer(self, connection: OpenConnection) -> None:
        """Its request is complete."""
        self._stop_waiting(connection)

    def keep(self, connection: OpenConnection) -> None:
        """It is known which client that is, and it stays for long: it counts for no peer any more."""
        self._stop_waiting(connection)
        self._discount(connection)

    def gone(self, descriptor: int) -> None:
        """Its descriptor is about to be closed."""
        connection = self._open.pop(descriptor, None)
        if connection is not None:
            self._stop_waiting(connection)
            self._discount(connection)

    def sweep(self) -> None:
        """Tell those that are past their time. What is still there a sweep later is let go of."""
        now_s = self.clock_s()
        over = [each for each in self._open.values() if each.deadline_s is not None and each.deadline_s <= now_s]
        for connection in over:
            late, connection.late = connection.late, None
            (late or connection.displace)()

    def _oldest(self, peer: str | None = None) -> OpenConnection | None:
        """The one that has waited longest, of a peer or of all."""
        among = self._waiting.values() if peer is None else [self._waiting.get(peer, {})]
        firsts = (next(iter(waiting.items())) for waiting in among if waiting)
        return min(firsts, key=lambda each: each[1], default=(None, 0.0))[0]

    def _stop_waiting(self, connection: OpenConnection) -> None:
        connection.deadline_s = None
        waiting = self._waiting.get(connection.peer, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(connection.peer, None)

    def _discount(self, connection: OpenConnection) -> None:
        if connection.is_counted:
            connection.is_counted = False
            self._of_peer[connection.peer] -= 1
            if not self._of_peer[connection.peer]:
                del self._of_peer[connection.peer]

    def _tell(self, what: str, peer: str) -> None:
        """At most once a minute, however many there are."""
        self._untold[what] += 1
        if self.clock_s() - self._told_s >= TELL_EVERY_S:
            self._told_s = self.clock_s()
            open_now, most = len(self._open), self.limits.connections_max
            self._log.warning("connections-full", open=open_now, most=most, peer=peer, **self._untold)
            self._untold.clear()


def peer_of(address: str) -> str:
    """The peer that an address counts for: in IPv6 its /64, which one machine can have as a whole."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped or ipaddress.IPv6Network((found, 64), strict=False))
    return str(found)
