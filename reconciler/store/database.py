"""Opens the database and runs transactions on it: the epoch is checked inside, and errors say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import local
from time import perf_counter
from typing import Final, Literal, TypeVar

import msgspec
from sqlalchemy import Connection, Engine, func, select, update
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.store_errors import StoreFullError, StoreUnreachableError, StoreUnusableError
from reconciler.store.engines import postgresql_engine, postgresql_url, sqlite_engine
from reconciler.store.migrations import alone, bring_up_to_date, misfit_of
from reconciler.store.problems import explain, is_full, may_pass
from reconciler.store.reserve import DiskReserve
from reconciler.store.tables import leadership
from solver.model.document import decode
from solver.model.quantities import Instant

T = TypeVar("T")

LeaseClock = Literal["caller", "database"]
TransactionKind = Literal["read", "write"]

_COUNT_WRITE: Final = update(leadership).values(written=leadership.c.written + 1)
_NEWEST_EPOCH: Final = select(leadership.c.epoch).with_for_update()


class Database:
    """One SQLite file (given as a path) or PostgreSQL database (given as a URL). Threads may share it.

    Every method raises StoreUnusableError where the database can't do its work, StoreUnreachableError (one of these) where
    that may pass; what was committed is kept, and after the second, what was being committed may be: read to learn it.
    `failure` is the first that does not pass, for the caller that has to end what depends on the database.

    `reserve`: room on the disk that is held for it; None: none is. `timed`: hears how many seconds each transaction took.

    `told_time`: hears what time it is there whenever it was asked, and how many milliseconds ago that may have been.

    `lease_clock`: the clock by which leases run out. On one machine all have the same; of PostgreSQL's clients each has its
    own, so there it is the database's.

    `as_found`: neither made nor brought up to date, for commands that read it.
    """

    def __init__(
        self,
        where: Path | str,
        password_file: Path | None = None,
        lease_clock: LeaseClock | None = None,
        *,
        as_found: bool = False,
    ) -> None:
        self.failure: StoreUnusableError | None = None
        self._block = local()
        self.reserve: DiskReserve | None = None
        self.timed: Callable[[TransactionKind, float], None] = lambda _, __: None
        self.told_time: Callable[[Instant, float], None] = lambda _, __: None
        self.lease_clock: LeaseClock = lease_clock or ("caller" if isinstance(where, Path) else "database")
        url = postgresql_url(where) if isinstance(where, str) else None
        self.place = str(where) if url is None else url.render_as_string(hide_password=True)
        with self._errors():
            if url is None:
                self.engine = sqlite_engine(Path(where), may_create=not as_found)
                self._reader: Engine = self.engine
                # The same connections; transactions begun here take the write lock at once, not at their first write.
                self._writer: Engine = self.engine.execution_options(quorate_begin="BEGIN IMMEDIATE")
            else:
                self.engine = postgresql_engine(url, password_file)
                # Several statements of one transaction see one state, as they do in SQLite.
                self._reader = self.engine.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
                self._writer = self.engine
            with ExitStack() as undoing:
                undoing.callback(self.engine.dispose)
                self._prepare(as_found=as_found)
                undoing.pop_all()

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database and changes nothing."""
        joined: Connection | None = getattr(self._block, "reader", None)
        if joined is not None:
            with self._errors(), self._timing("read"):
                yield joined
            return
        with self._errors(), self._timing("read"), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def reading_together(self) -> Iterator[None]:
        """What this thread reads in the block, by whatever store of this database, sees one state; once it has written, the newest.

        Of SQLite, where beginning and ending cost as much as most reads. PostgreSQL ends a session that is idle in a transaction
        for as long as the block may compute.
        """
        if self.engine.dialect.name != "sqlite":
            yield
            return
        with self._errors(), self._reader.begin() as connection:
            self._block.reader = connection
            try:
                yield
            finally:
                self._block.reader = None

    @contextmanager
    def writing(self, epoch: Epoch | None = None, *, counted: bool = True) -> Iterator[Connection]:
        """A transaction that is committed whole at the end, or not at all; with an epoch, only if that one still leads.

        Raises StaleEpochError. Writers come one after the other: each locks the leader's row until its
        end. So no epoch can end in between, what is read before it is written stays true, and numbers rise in the order
        in which they are committed. `counted`: those that look for changes are to see one.
        """
        joined: Connection | None = getattr(self._block, "connection", None)
        if joined is not None:
            if epoch is not None:
                check_epoch(epoch, joined.execute(_NEWEST_EPOCH).scalar_one())
            yield joined
            return
        self._block.reader = None
        with self._errors(), self._timing("write"), self._writer.begin() as connection:
            if counted:
                connection.execute(_COUNT_WRITE)
            if epoch is not None or not counted:
                # What counts has locked the row already.
                newest = connection.execute(_NEWEST_EPOCH).scalar_one()
                if epoch is not None:
                    check_epoch(epoch, newest)
            yield connection
        if self.reserve is not None:
            self.reserve.refill()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What this thread writes in the block, by whatever store of this database, is one transaction: all of it or nothing.

        Nothing is to be read in the block: a reading takes another connection, of which there may be none while other writers wait
        for this one, and sees what was committed before. A block in another is a part of it.
        """
        if getattr(self._block, "connection", None) is not None:
            yield
            return
        later: list[Callable[[], None]] = []
        with self.writing() as connection:
            self._block.connection, self._block.later = connection, later
            try:
                yield
            finally:
                self._block.connection = None
        for do in later:
            do()

    def once_committed(self, do: Callable[[], None]) -> None:
        """Do it once what this thread writes is on record: after its block, which may also come to nothing, or else now."""
        if getattr(self._block, "connection", None) is None:
            do()
        else:
            self._block.later.append(do)

    @contextmanager
    def changing_schema(self) -> Iterator[Connection]:
        """A transaction in which no other changes the tables. Other writers wait, or fail and try again."""
        with self._errors(), self._writer.begin() as connection:
            alone(connection)
            yield connection

    def now(self, connection: Connection, caller: Instant) -> Instant:
        """What time it is for leases. Of the database: as this is asked, which is after any wait for a lock."""
        if self.lease_clock == "caller":
            return caller
        asked_s = perf_counter()
        now = _time(connection)
        self.told_time(now, (perf_counter() - asked_s) * 1_000)
        return now

    def time(self) -> Instant:
        """What time it is by the clock of the database, which is another machine's."""
        with self.reading() as connection:
            return _time(connection)

    def read_document(self, stored: str | bytes, kind: type[T]) -> T:
        """A document from the text of a column."""
        try:
            return decode(stored, kind)
        except msgspec.MsgspecError as error:
            raise self.unreadable(kind, error) from error

    def unreadable(self, kind: type[object], error: Exception) -> StoreUnusableError:
        """What is said of a document that can't be read."""
        return StoreUnusableError(
            f"{self.place}: a stored {kind.__name__} can't be read ({error}). "
            "Restore the database from a backup, and keep the damaged one for examination."
        )

    @contextmanager
    def _timing(self, kind: TransactionKind) -> Iterator[None]:
        began_s = perf_counter()
        try:
            yield
        finally:
            self.timed(kind, perf_counter() - began_s)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            if is_full(error):
                # What is tried again finds the room of the reserve.
                released = self.reserve is not None and self.reserve.release()
                more = " The room that is held in reserve is in use now." if released else ""
                raise StoreFullError(f"{self.place}: {explain(error)}{more}") from error
            if may_pass(error):
                # A host that was the primary may still answer, and refuse to write: the next connection finds the right one.
                if isinstance(error, DBAPIError):
                    self.engine.dispose()
                raise StoreUnreachableError(f"{self.place}: {explain(error)}") from error
            failure = StoreUnusableError(f"{self.place}: {explain(error)}")
            self.failure = self.failure or failure
            raise failure from error

    def _prepare(self, *, as_found: bool) -> None:
        if as_found:
            with self.reading() as connection:
                problem = misfit_of(connection)
        else:
            with self.changing_schema() as connection:
                problem = bring_up_to_date(connection)
        if problem:
            raise StoreUnusableError(f"{self.place}: {problem}")


def _time(connection: Connection) -> Instant:
    seconds = connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one()
    return Instant(int(seconds * 1_000))


def check_epoch(epoch: Epoch, newest: int) -> None:
    """Refuse a writer that does not lead any more; raises StaleEpochError."""
    if epoch != newest:
        raise StaleEpochError(f"epoch {epoch} is over; epoch {newest} leads")
