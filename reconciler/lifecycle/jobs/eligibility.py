"""Which jobs rounds are asked about: those that may begin. What holds the others back is not a round's to decide."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from reconciler.lifecycle.interventions.effects import HeldByHand
from reconciler.lifecycle.jobs.budget_holds import BudgetSpent
from reconciler.lifecycle.jobs.dependencies import Depends, unmet
from reconciler.lifecycle.jobs.throttle import Throttled, throttled_elements
from reconciler.model.failure import FailureKind
from reconciler.model.job_groups import Tally
from reconciler.model.job_record import JobRecord
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import JobName


class Suspended(Document, frozen=True, tag_field="block", tag="suspended"):
    """A user has suspended it."""

    by: str

    def __str__(self) -> str:
        return f"suspended by {self.by}, until it is resumed"


class Unread(Document, frozen=True, tag_field="block", tag="unread"):
    """Its newest checkpoint is read again before it goes on from there."""

    step: int

    def __str__(self) -> str:
        return f"its checkpoint of step {self.step} is being read again, before it goes on from there"


class Retrying(Document, frozen=True, tag_field="block", tag="retrying"):
    """Its last attempt failed, and the next begins no earlier than `until`."""

    attempt: int
    kind: FailureKind
    until: Instant

    def __str__(self) -> str:
        return f"attempt {self.attempt} ended by {self.kind}; it is tried again at {self.until}"


Block = Suspended | Retrying | Unread | Depends | Throttled | HeldByHand | BudgetSpent


def blocks(
    records: Iterable[JobRecord],
    now: Instant,
    holding: Collection[JobName],
    tallies: Mapping[JobName, Tally],
    unread: Mapping[JobName, int] = MappingProxyType({}),
    held: Mapping[JobName, HeldByHand | BudgetSpent] = MappingProxyType({}),
) -> dict[JobName, Block]:
    """What holds back each live job that may not begin now. One that is `holding` devices is not among those that begin.

    `tallies`: what has become of all that jobs depend on. `unread`: the steps of checkpoints that are still to be read again.
    `held`: those that a user, or a budget that is spent, keeps from beginning for a while.
    """
    records = tuple(records)
    found = {
        record.name: block for record in records for block in _first(_blocks_of(record, now, tallies, unread, held))
    }
    return {**found, **throttled_elements(records, holding, found)}


def _blocks_of(
    record: JobRecord,
    now: Instant,
    tallies: Mapping[JobName, Tally],
    unread: Mapping[JobName, int],
    held: Mapping[JobName, HeldByHand | BudgetSpent],
) -> Iterator[Block]:
    """The one that will last longest first: it is what the job's owner is told."""
    if record.outcome is not None:
        return
    if record.suspended_by:
        yield Suspended(record.suspended_by)
    waited_for = unmet(record, tallies)
    if waited_for:
        yield Depends(waited_for)
    if record.name in held:
        yield held[record.name]
    last = record.last_failure
    if last is not None and last.not_before > now:
        yield Retrying(last.attempt, last.kind, last.not_before)
    if record.name in unread:
        yield Unread(unread[record.name])


def _first(found: Iterator[Block]) -> Iterator[Block]:
    first = next(found, None)
    if first is not None:
        yield first
