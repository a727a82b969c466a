"""Which jobs rounds are asked about: those that may begin. What holds the others back is not a round's to decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.jobs.failure import FailureKind
from reconciler.jobs.record import JobRecord
from solver.world.document import Document
from solver.world.quantities import Instant
from solver.world.workload import JobName


class Suspended(Document, frozen=True, tag_field="block", tag="suspended"):
    """Somebody has suspended it."""

    by: str

    def __str__(self) -> str:
        return f"suspended by {self.by}, until it is resumed"


class Retrying(Document, frozen=True, tag_field="block", tag="retrying"):
    """Its last attempt failed, and the next begins no earlier than `until`."""

    attempt: int
    kind: FailureKind
    until: Instant

    def __str__(self) -> str:
        return f"attempt {self.attempt} ended by {self.kind}; it is tried again at {self.until}"


Block = Suspended | Retrying


def blocks(records: Iterable[JobRecord], now: Instant) -> dict[JobName, Block]:
    """What holds back each live job that may not begin now. One that holds devices is not among those that begin."""
    return {record.name: block for record in records for block in _first(_blocks_of(record, now))}


def _blocks_of(record: JobRecord, now: Instant) -> Iterator[Block]:
    """The one that will last longest first: it is what the job's owner is told."""
    if record.outcome is not None:
        return
    if record.suspended_by:
        yield Suspended(record.suspended_by)
    last = record.last_failure
    if last is not None and last.not_before > now:
        yield Retrying(last.attempt, last.kind, last.not_before)


def _first(found: Iterator[Block]) -> Iterator[Block]:
    first = next(found, None)
    if first is not None:
        yield first
