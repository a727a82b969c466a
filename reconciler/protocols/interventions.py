"""The protocol that says what people do by hand; its conformance suite is tests/contracts/test_interventions.py."""

from __future__ import annotations

from typing import Protocol

from reconciler.model.intervention_record import Ending, Intervention, InterventionKind, Subject
from reconciler.protocols.backend import Epoch
from solver.model.quantities import Instant


class Interventions(Protocol):
    """At most one of a kind is in force about a subject."""

    def begin(self, asked: Intervention) -> Intervention:
        """Put one in force, with its number, in place of the one of its kind about its subject (which ends as `replaced`).

        The same again, by author, reason and end, or soon after by how long it lasts (`Intervention.is_repeated_by`), returns the
        one that is there.
        """

    def release(self, kind: InterventionKind, subject: Subject, at: Instant, by: str) -> Intervention | None:
        """End what is in force, as a person wants it: returns it as it is then; None where nothing was."""

    def end(self, epoch: Epoch, number: int, at: Instant, ending: Ending, by: str) -> bool:
        """One is over; returns whether it was not before, for the first ending stays. Raises StaleEpochError."""

    def in_force(self) -> tuple[Intervention, ...]:
        """All that have not ended, the oldest first; those past their time are among them until they are ended."""

    def newest(self, limit: int = 100, before: int | None = None) -> tuple[Intervention, ...]:
        """The newest, ended or not, newest first; with `before`, of those with a smaller number."""
