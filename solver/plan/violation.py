"""A broken rule, as the checker reports it."""

from __future__ import annotations

from solver.model.document import Document


class Violation(Document, frozen=True):
    """One broken rule, by its name in PROMISES, with what breaks it."""

    rule: str
    subject: str
    problem: str

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}: {self.problem}"
