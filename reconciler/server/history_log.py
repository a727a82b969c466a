"""A History that also tells the log, one line per recorded round and event, and what counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from reconciler.control.job_counts import JobTally
from reconciler.protocols.backend import Epoch
from reconciler.protocols.history import Event, EventQuery, History, KeptEvent
from reconciler.protocols.rounds import NarrowRecord, RoundRecord, RoundSummary
from solver.model.quantities import Instant
from solver.plan.plan import Bind, Evict


def _at_once(do: Callable[[], None]) -> None:
    do()


@dataclass(frozen=True, slots=True)
class LoggedHistory:
    """Implements History on another one. What it logs and counts was committed before.

    `once_committed`: does what it is given once what this thread has written is.
    """

    kept: History
    log: FilteringBoundLogger
    tally: JobTally = field(default_factory=JobTally)
    once_committed: Callable[[Callable[[], None]], None] = _at_once

    def record_round(self, epoch: Epoch, record: RoundRecord) -> int:
        """Keep a round, and say what it decided; of one that is only begun once it is whole."""
        number = self.kept.record_round(epoch, record)
        self.tally.decided(record)
        if record.is_whole:
            self._say(record, number)
        return number

    def record_narrow(self, epoch: Epoch, record: NarrowRecord) -> int:
        """Keep it, and say it."""
        number = self.kept.record_narrow(epoch, record)
        self.tally.decided_beside(record)
        starts = [step.job for step in record.steps if isinstance(step, Bind)]
        evicts = [step.job for step in record.steps if isinstance(step, Evict)]
        self.log.info(
            "narrow-round", round=number, base=record.base, starts=starts, evicts=evicts, ended=list(record.freed_by)
        )
        return number

    def conclude_round(self, epoch: Epoch, record: RoundRecord) -> None:
        """Keep the whole round, and say what it decided."""
        self.kept.conclude_round(epoch, record)
        self._say(record, record.number)

    def _say(self, record: RoundRecord, number: int) -> None:
        line = record.summary
        self.log.info(
            "round",
            number=number,
            revision=line.revision[:12],
            starts=line.starts,
            waits=line.waits,
            inadmissible=line.inadmissible,
            stage=line.stage,
            ms=round(line.duration_ms, 1),
        )

    def round(self, number: int) -> RoundRecord:
        """As kept."""
        return self.kept.round(number)

    def rounds(self, limit: int = 20, before: int | None = None) -> tuple[RoundSummary, ...]:
        """As kept."""
        return self.kept.rounds(limit, before)

    def prune_rounds(self, epoch: Epoch, before: Instant, limit: int = 500) -> int:
        """Delete old rounds, and say how many."""
        number = self.kept.prune_rounds(epoch, before, limit)
        if number:
            self.log.info("rounds-pruned", number=number, before=str(before))
        return number

    def record_event(self, event: Event) -> None:
        """Append an event, and say it."""
        self.record_events((event,))

    def record_events(self, told: Iterable[Event]) -> None:
        """Append events, and say each."""
        events = tuple(told)
        self.kept.record_events(events)
        self.once_committed(lambda: self._tell(events))

    def _tell(self, events: Sequence[Event]) -> None:
        self.tally.happened(events)
        for event in events:
            # Below the first line there may be a task's output, which is its owner's to read and may hold secrets.
            cause, *_ = event.cause.splitlines() or [""]
            self.log.info(event.kind, subject=event.subject, cause=cause, by=event.actor)

    def events(self, subject: str, limit: int = 100) -> tuple[Event, ...]:
        """As kept."""
        return self.kept.events(subject, limit)

    def events_before(self, subject: str, before: int | None = None, limit: int = 100) -> tuple[KeptEvent, ...]:
        """As kept."""
        return self.kept.events_before(subject, before, limit)

    def events_since(self, number: int, subject: str = "", limit: int = 1000) -> tuple[KeptEvent, ...]:
        """As kept."""
        return self.kept.events_since(number, subject, limit)

    def find_events(self, query: EventQuery, before: int | None = None, limit: int = 100) -> tuple[KeptEvent, ...]:
        """As kept."""
        return self.kept.find_events(query, before, limit)

    def newest_event(self) -> int:
        """As kept."""
        return self.kept.newest_event()
