"""What a ledger keeps as one document each, written anew: past use, and the clocks of limits that are to be kept again."""

from __future__ import annotations

from typing import Final

from sqlalchemy import delete, insert, select

from reconciler.protocols.backend import Epoch
from reconciler.protocols.past_use import PastUse
from reconciler.store.database import Database
from reconciler.store.tables import kept, leadership
from solver.model.document import encode
from solver.model.inflight import ConvergenceClock

TIED_TO: Final = "tied-to"


class SqlKept:
    """A part of the ledger."""

    _database: Database

    def keep_past_use(self, epoch: Epoch, past: PastUse) -> None:
        """One document, written anew."""
        self._keep(epoch, "past-use", past)

    def past_use(self) -> PastUse:
        """What was kept last."""
        with self._database.reading() as connection:
            stored = connection.execute(select(kept.c.document).where(kept.c.what == "past-use")).scalar()
        return PastUse() if stored is None else self._database.read_document(stored, PastUse)

    def tie(self, to: str) -> str:
        """To what the store is tied for good: the first that was ever named."""
        wanted = select(kept.c.document).where(kept.c.what == TIED_TO)
        with self._database.writing() as connection:
            first: str | None = connection.execute(wanted).scalar_one_or_none()
            if first is None:
                first = to
                connection.execute(insert(kept).values(what=TIED_TO, document=to))
        return first

    def epoch_of(self, holder: str) -> Epoch | None:
        """Under which somebody leads; None: somebody else does, or nobody. A lease that is over counts until it is taken."""
        with self._database.reading() as connection:
            led = select(leadership.c.epoch).where(leadership.c.holder == holder)
            epoch = connection.execute(led).scalar_one_or_none()
        return None if epoch is None else Epoch(epoch)

    def keep_clocks(self, epoch: Epoch, clocks: tuple[ConvergenceClock, ...]) -> None:
        """One document, written anew."""
        self._keep(epoch, "convergence", clocks)

    def clocks(self) -> tuple[ConvergenceClock, ...]:
        """What was kept last."""
        with self._database.reading() as connection:
            stored = connection.execute(select(kept.c.document).where(kept.c.what == "convergence")).scalar()
        return () if stored is None else self._database.read_document(stored, tuple[ConvergenceClock, ...])

    def _keep(self, epoch: Epoch, what: str, document: object) -> None:
        with self._database.writing(epoch) as connection:
            connection.execute(delete(kept).where(kept.c.what == what))
            connection.execute(insert(kept).values(what=what, document=encode(document).decode()))
