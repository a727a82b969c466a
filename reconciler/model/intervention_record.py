"""One thing that a user did by hand, and how it came to be over."""

from __future__ import annotations

from typing import Final, Literal

from solver.model.document import Document
from solver.model.quantities import Duration, Instant

InterventionKind = Literal["cordon", "hold", "boost"]
"""cordon: nothing new starts on a node. hold: a job, or no job of a queue and those below it, begins. boost: a job comes first of
its queue, SLO class and rank."""

SubjectKind = Literal["node", "queue", "job"]

Ending = Literal["released", "replaced", "expired", "agreed", "over"]
"""released: by a person. replaced: by a newer one of the same kind. expired: its time was over. agreed: Git says the same now.
over: what it was about has ended, or is not declared any more."""

DEFAULT_SPAN: Final = Duration(4 * 3_600_000)
"""How long one lasts that does not say it: long enough for a night's fix, and over by the morning."""

REASON_MAX: Final = 500
"""Characters of a reason."""


REPEAT: Final = Duration(60_000)
"""Within this time the same again, for as long, is a request that was sent twice, such as by a button pressed twice."""


class Subject(Document, frozen=True):
    """What an intervention is about."""

    kind: SubjectKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Intervention(Document, frozen=True):
    """In force from `at` until `until`, unless it is over before (`ended_at`). `number` 0: it is not on record yet."""

    kind: InterventionKind
    subject: Subject
    author: str
    reason: str
    at: Instant
    until: Instant
    number: int = 0
    ended_at: Instant | None = None
    ended_as: Ending | Literal[""] = ""
    ended_by: str = ""

    def is_repeated_by(self, asked: Intervention) -> bool:
        """Whether what is asked for is this one again, and not another in its place."""
        is_sent_twice = asked.until - asked.at == self.until - self.at and asked.at - self.at <= REPEAT
        same = (self.kind, self.subject, self.author, self.reason) == (
            asked.kind,
            asked.subject,
            asked.author,
            asked.reason,
        )
        return same and (self.until == asked.until or is_sent_twice)

    def __str__(self) -> str:
        return f"{self.kind} by {self.author} until {self.until}: {self.reason}"
