"""Why an attempt of a job did not come to a good end."""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document
from solver.model.quantities import Instant

FailureKind = Literal["exit", "signal", "out-of-memory", "node", "gpu", "launch", "time-limit", "stuck"]


class Failure(Document, frozen=True):
    """What ended one attempt that is followed by another, which begins no earlier than `not_before`.

    `outlived`: of failures that an attempt went on after, its number among them, from 1; 0: it ended the attempt. Then
    `not_before` is when the tasks that failed may begin again.

    `counts`: it is one of the failures of which a job may have so many. `exit_code`: of the task that failed first.
    """

    attempt: int
    kind: FailureKind
    at: Instant
    not_before: Instant
    counts: bool = True
    exit_code: int | None = None
    message: str = ""
    outlived: int = 0
