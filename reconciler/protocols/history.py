"""What happened: rounds, to be replayed; events, to be read. The conformance suite is tests/contracts/test_history.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from reconciler.protocols.backend import Epoch
from reconciler.protocols.rounds import NarrowRecord, RoundRecord, RoundSummary
from solver.model.document import Document
from solver.model.quantities import Instant


class Event(Document, frozen=True):
    """One thing that happened, why, and by which user. `subject` is a job, node or revision; `state` what a job is from then on.

    `attempt`: of the job, where it is of one. `purpose` and `beneficiary`: why a gang was asked to stop, and for which job.
    """

    time: Instant
    kind: str
    subject: str
    cause: str
    actor: str
    state: str = ""
    attempt: int = 0
    purpose: str = ""
    beneficiary: str = ""


class KeptEvent(Document, frozen=True):
    """An event and its number, which rises in the order in which events are kept."""

    number: int
    event: Event


class EventQuery(Document, frozen=True):
    """Which events: of one actor, of kinds, about one subject, from an instant on and before another. Nothing stated: all."""

    actor: str = ""
    kinds: tuple[str, ...] = ()
    subject: str = ""
    since: Instant | None = None
    until: Instant | None = None


class History(Protocol):
    """What happened: rounds, to be replayed; events, to be read."""

    def record_round(self, epoch: Epoch, record: RoundRecord) -> int:
        """Keep a round; returns its number (the record's own number is ignored). Raises StaleEpochError."""

    def conclude_round(self, epoch: Epoch, record: RoundRecord) -> None:
        """Replace what is kept of the round that has the record's number. Raises StaleEpochError, KeyError."""

    def record_narrow(self, epoch: Epoch, record: NarrowRecord) -> int:
        """Keep that jobs were started alone, under the next number of rounds. Raises StaleEpochError; KeyError without its base."""

    def round(self, number: int) -> RoundRecord:
        """One round; where jobs were started alone, the one that it was based on, with all of these up to it. Raises KeyError."""

    def rounds(self, limit: int = 20, before: int | None = None) -> tuple[RoundSummary, ...]:
        """The newest rounds, newest first; with `before`, of those with a smaller number."""

    def prune_rounds(self, epoch: Epoch, before: Instant, limit: int = 500) -> int:
        """Delete the oldest rounds of before an instant, and never the newest; returns how many.

        No more are deleted once there were `limit`. Rounds that are packed together, up to 100, go together, once all of
        them are of before. Numbers are never used again, and events stay. Raises StaleEpochError.
        """

    def record_event(self, event: Event) -> None:
        """Append an event."""

    def record_events(self, told: Iterable[Event]) -> None:
        """Append events in this order, all or none: in one write, however many they are."""

    def events(self, subject: str, limit: int = 100) -> tuple[Event, ...]:
        """The newest events of a subject, oldest first."""

    def events_before(self, subject: str, before: int | None = None, limit: int = 100) -> tuple[KeptEvent, ...]:
        """The newest events of a subject, oldest first; with `before`, of those with a smaller number."""

    def events_since(self, number: int, subject: str = "", limit: int = 1000) -> tuple[KeptEvent, ...]:
        """The oldest events with a larger number, oldest first; subject "": of all. None is ever added below one that was seen."""

    def find_events(self, query: EventQuery, before: int | None = None, limit: int = 100) -> tuple[KeptEvent, ...]:
        """The newest events that a query asks for, newest first; with `before`, of those with a smaller number."""

    def newest_event(self) -> int:
        """The number of the newest event; 0 before the first."""
