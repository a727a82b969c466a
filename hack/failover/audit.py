"""What the database itself saw: who led under which epoch, and who wrote what under which. It trusts no control plane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sqlalchemy import Engine, text

_FENCED: Final = (
    "claims", "holdings", "intents", "attempts", "failures", "nominations", "reservations", "evictions", "rounds",
    "partitions", "partition_changes", "checkpoints",
)  # fmt: skip
"""Tables that only who leads may write."""

_SET_UP: Final = """
CREATE TABLE audit_leads (epoch bigint, who text, at double precision);
CREATE TABLE audit_writes (number bigserial, what text, who text, epoch bigint, at double precision);
CREATE FUNCTION audit_lead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO audit_leads VALUES (NEW.epoch, current_setting('application_name'), extract(epoch FROM clock_timestamp()));
  RETURN NULL;
END $$;
CREATE FUNCTION audit_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO audit_writes (what, who, epoch, at)
    SELECT TG_OP || ' ' || TG_TABLE_NAME, current_setting('application_name'), epoch, extract(epoch FROM clock_timestamp())
    FROM leadership;
  RETURN NULL;
END $$;
CREATE TRIGGER audit_lead AFTER UPDATE ON leadership FOR EACH ROW WHEN (NEW.epoch > OLD.epoch) EXECUTE FUNCTION audit_lead();
CREATE TRIGGER audit_end AFTER UPDATE OF ended_at ON jobs FOR EACH ROW EXECUTE FUNCTION audit_write();
"""


class Led(NamedTuple):
    """Who took the lead, under which epoch, and when by the database's clock (seconds since 1970)."""

    epoch: int
    who: str
    at_s: float


class Audit:
    """Triggers in a database whose tables are there."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        fenced = (
            f"CREATE TRIGGER audit_write AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION audit_write()"
            for table in _FENCED
        )
        with engine.begin() as connection:
            connection.exec_driver_sql(_SET_UP)
            for statement in fenced:
                connection.exec_driver_sql(statement)

    def now_s(self) -> float:
        """The database's clock."""
        with self._engine.begin() as connection:
            return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def leads(self) -> Led | None:
        """Who took the lead last."""
        with self._engine.begin() as connection:
            row = connection.execute(text("SELECT * FROM audit_leads ORDER BY epoch DESC LIMIT 1")).one_or_none()
        return None if row is None else Led(*row)

    def writes(self) -> int:
        """How many there were."""
        with self._engine.begin() as connection:
            return int(connection.execute(text("SELECT count(*) FROM audit_writes")).scalar_one())

    def cut_off(self, who: str) -> None:
        """End every session of somebody, whatever it is doing."""
        sessions = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :who")
        with self._engine.begin() as connection:
            connection.execute(sessions, {"who": who})

    def last_write(self) -> str:
        """What was written last, such as `INSERT rounds`."""
        newest = text("SELECT what FROM audit_writes ORDER BY number DESC LIMIT 1")
        with self._engine.begin() as connection:
            return connection.execute(newest).scalar_one_or_none() or ""

    def first_deed_s(self, epoch: int) -> float | None:
        """When who leads under an epoch first wrote something of a round."""
        first = text("SELECT min(at) FROM audit_writes WHERE epoch = :epoch")
        with self._engine.begin() as connection:
            found = connection.execute(first, {"epoch": epoch}).scalar_one()
        return None if found is None else float(found)

    def stale_writes(self) -> Iterator[str]:
        """Writes of one who did not lead any more."""
        strange = text(
            "SELECT w.what, w.who, w.epoch FROM audit_writes w LEFT JOIN audit_leads l USING (epoch) "
            "WHERE l.who IS DISTINCT FROM w.who ORDER BY w.number"
        )
        with self._engine.begin() as connection:
            for what, who, epoch in connection.execute(strange):
                yield f"stale write accepted: {what} by {who} under epoch {epoch}"
