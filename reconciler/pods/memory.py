"""What no object of the cluster says, kept in the state folder's store: evictions, past use, the clocks of lowered limits, rounds.

A successor with another state folder begins without it: then shares of past use, the least rest between evictions and the clocks
of lowered limits start anew; nothing that runs depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from reconciler.backend import Epoch
from reconciler.clock import Clock
from reconciler.passes import accrue, record_news
from reconciler.pods.sight import Remembered
from reconciler.store.protocols import Claim, Event, History, Ledger
from reconciler.store.rounds import RoundRecord
from solver.rules.departures import clocks_of
from solver.rules.policy import Policy
from solver.world.cluster import Node
from solver.world.quantities import Duration, Instant
from solver.world.snapshot import Snapshot
from solver.world.workload import JobName, QueueName

NO_EPOCH = Epoch(0)
EVICTED = "asked-to-stop"
"""The event of a gang that is asked to leave."""
EVENTS_READ = 10_000
"""So far back are evictions looked for at the start."""


@dataclass
class Memory:
    """`holder` leads the store, which lies in a locked folder: whose writes of the cluster are the leader's is another question."""

    ledger: Ledger
    history: History
    clock: Clock
    holder: str
    lease: Duration
    _epoch: Epoch = field(default=NO_EPOCH)
    _evictions: dict[JobName, tuple[Instant, ...]] = field(default_factory=dict)
    _is_read: bool = False
    _revision: str = ""

    @property
    def epoch(self) -> Epoch | None:
        """Under which the store is written; None before the first pass."""
        return self._epoch or None

    def open(self) -> None:
        """Be sure of the store, before a pass. Raises NotLeaderError, StoreUnusableError."""
        self._epoch = self.ledger.lead(self.holder, self.clock.now(), self.lease)
        if not self._is_read:
            self._read_evictions()
            self._is_read = True

    def is_new(self, revision: str) -> bool:
        """Whether this revision of the policy is another than that of the pass before."""
        before, self._revision = self._revision, revision
        return before != revision

    def remembered(self) -> Remembered:
        """For the next snapshot."""
        return Remembered(dict(self._evictions), self.ledger.past_use().usage, self.ledger.clocks())

    def accrue(
        self, policy: Policy, claims: Iterable[Claim], queues: dict[JobName, QueueName], nodes: Iterable[Node]
    ) -> None:
        """Bring past use up to date, where the policy lets it count: before a pass changes who holds what."""
        holders = ((queues[claim.job], claim) for claim in claims)
        accrue(self.ledger, self._epoch, self.clock.now(), policy, holders, nodes)

    def wind(self, snapshot: Snapshot, policy: Policy, commit: str) -> Snapshot:
        """Keep the clocks of limits that are broken, and put them into the snapshot: they outlive this process."""
        clocks = clocks_of(snapshot, policy, commit)
        if clocks == snapshot.in_flight.convergence:
            return snapshot
        self.ledger.keep_clocks(self._epoch, clocks)
        in_flight = msgspec.structs.replace(snapshot.in_flight, convergence=clocks)
        return msgspec.structs.replace(snapshot, in_flight=in_flight)

    def keep_round(self, record: RoundRecord) -> int | None:
        """Keep a round that says something new, before it is acted on."""
        return record_news(self.history, self._epoch, record)

    def note(self, kind: str, subject: str, cause: str, *, state: str = "", attempt: int = 0, **why: str) -> None:
        """One line on record; `why`: an eviction's purpose and beneficiary."""
        now = self.clock.now()
        self.history.record_event(Event(now, kind, subject, cause, self.holder, state, attempt, **why))
        if kind == EVICTED and why.get("purpose") == "evict":
            job = JobName(subject)
            self._evictions[job] = (*self._evictions.get(job, ()), now)

    def _read_evictions(self) -> None:
        newest = self.history.newest_event()
        for kept in self.history.events_since(max(0, newest - EVENTS_READ), limit=EVENTS_READ):
            event = kept.event
            if event.kind == EVICTED and event.purpose == "evict":
                job = JobName(event.subject)
                self._evictions[job] = (*self._evictions.get(job, ()), event.time)
