"""What PostgreSQL itself saw of who held which GPU, and from when until when: it trusts no control plane."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Engine, text

from tests.e2e.witness import Use

_SET_UP = """
CREATE TABLE audit_holdings (device text, job text, since bigint, until bigint);
CREATE FUNCTION now_us() RETURNS bigint LANGUAGE sql AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;
CREATE FUNCTION audit_holding() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP <> 'INSERT' THEN
    UPDATE audit_holdings SET until = now_us() WHERE device = OLD.device AND job = OLD.job AND until IS NULL;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO audit_holdings (device, job, since) VALUES (NEW.device, NEW.job, now_us());
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER audit_holding AFTER INSERT OR UPDATE OR DELETE ON holdings FOR EACH ROW EXECUTE FUNCTION audit_holding();
"""


def audit(engine: Engine) -> None:
    """From here on it is written down, in a database whose tables are there."""
    with engine.begin() as connection:
        connection.exec_driver_sql(_SET_UP)


def allocations(engine: Engine) -> Iterator[Use]:
    """Each time that a job held a device, in microseconds since 1970."""
    seen = text("SELECT device, since, coalesce(until, now_us()), job FROM audit_holdings ORDER BY since")
    with engine.begin() as connection:
        yield from (Use(*row) for row in connection.execute(seen))
