"""Plans that people accepted, in SQL."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from reconciler.model.envelope import AcceptedPlan, Envelope
from reconciler.store.database import Database
from reconciler.store.people import accepted_plans
from solver.model.document import encode
from solver.model.quantities import Instant


class SqlAcceptedPlans:
    """Implements AcceptedPlans."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def accept(self, plan: AcceptedPlan) -> None:
        """The newest replaces what there was."""
        meaning, kept = plan.envelope.meaning, encode(plan.envelope).decode()
        row = {"meaning": meaning, "envelope": kept, "author": plan.author, "why": plan.why, "at": plan.at}
        with self._database.writing() as connection:
            connection.execute(delete(accepted_plans).where(accepted_plans.c.meaning == meaning))
            connection.execute(insert(accepted_plans).values(row))

    def use(self, meaning: str) -> None:
        """Forgotten."""
        with self._database.writing() as connection:
            connection.execute(delete(accepted_plans).where(accepted_plans.c.meaning == meaning))

    def accepted(self, meaning: str) -> AcceptedPlan | None:
        """None: nobody accepted one."""
        with self._database.reading() as connection:
            row = connection.execute(select(accepted_plans).where(accepted_plans.c.meaning == meaning)).one_or_none()
        if row is None:
            return None
        envelope = self._database.read_document(row.envelope, Envelope)
        return AcceptedPlan(envelope, row.author, row.why, Instant(row.at))
