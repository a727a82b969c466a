"""Plans that people accepted, in SQL."""

from __future__ import annotations

import zlib

from sqlalchemy import delete, insert, select

from reconciler.review.envelope import AcceptedPlan, SavedPlan
from reconciler.store.sql.database import Database
from reconciler.store.sql.tables import accepted_plans
from solver.world.document import encode
from solver.world.quantities import Instant


class SqlAcceptedPlans:
    """Implements AcceptedPlans."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def accept(self, plan: AcceptedPlan) -> None:
        """The newest replaces what there was."""
        meaning, kept = plan.plan.meaning, zlib.compress(encode(plan.plan))
        row = {"meaning": meaning, "plan": kept, "author": plan.author, "why": plan.why, "at": plan.at}
        with self._database.writing() as connection:
            connection.execute(delete(accepted_plans).where(accepted_plans.c.meaning == meaning))
            connection.execute(insert(accepted_plans).values(row))

    def accepted(self, meaning: str) -> AcceptedPlan | None:
        """None: nobody accepted one."""
        with self._database.reading() as connection:
            row = connection.execute(select(accepted_plans).where(accepted_plans.c.meaning == meaning)).one_or_none()
        if row is None:
            return None
        plan = self._database.read_document(row.plan, SavedPlan)
        return AcceptedPlan(plan, row.author, row.why, Instant(row.at))
