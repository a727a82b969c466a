"""What is remembered of attempts that run, in SQL."""

from __future__ import annotations

from sqlalchemy import update

from reconciler.protocols.backend import Epoch
from reconciler.protocols.marks import Marks
from reconciler.store.database import Database
from reconciler.store.tables import claims
from solver.model.document import encode
from solver.model.workload import JobName


class SqlMarks:
    """The part of Ledger that is about what is remembered of a claim."""

    _database: Database

    def mark(self, epoch: Epoch, job: JobName, attempt: int, marks: Marks) -> None:
        """One column of the claim's row."""
        with self._database.writing(epoch) as connection:
            held = (claims.c.job == job) & (claims.c.attempt == attempt)
            connection.execute(update(claims).where(held).values(marks=encode(marks).decode()))
