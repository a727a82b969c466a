"""What PostgreSQL alone has to show: whose clock leases go by, sessions that are held up, connections that are lost."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from hack.crash.clocks import SteppedClock
from hack.postgresql.server import private_server
from reconciler.model.clock import SystemClock
from reconciler.model.cluster_clock import KeptTime
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import NotLeaderError
from reconciler.protocols.store_errors import StoreUnreachableError, StoreUnusableError
from reconciler.server.cluster_time import cluster_time
from reconciler.store import engines
from reconciler.store.database import Database
from reconciler.store.engines import postgresql_url
from reconciler.store.store import SqlStore, open_store
from solver.milp.highs import optimise
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from tests.contracts.stores import NOW, SPEC, claim_of, intent_of, postgresql_schema
from tests.reconciler.cli.conftest import Quorate, quorate
from tests.reconciler.control.optimiser.test_recording import recorded

__all__ = ["quorate"]

pytestmark = pytest.mark.postgresql

MINUTE = Duration(60_000)


@pytest.fixture
def url() -> Iterator[str]:
    with postgresql_schema() as made:
        yield made


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.mark.parametrize("wrong_by", [-86_400_000, 0, 86_400_000])
def test_leases_go_by_the_clock_of_the_database_however_wrong_a_process_is(store: SqlStore, wrong_by: int) -> None:
    now = Instant(time.time_ns() // 1_000_000)
    store.ledger.lead("first", now.after(wrong_by), MINUTE)
    with pytest.raises(NotLeaderError) as refused:
        store.ledger.lead("second", now.after(-wrong_by + 2 * MINUTE), MINUTE)
    assert 0 < refused.value.until - now <= 2 * MINUTE
    assert store.ledger.leader() == "first"
    with pytest.raises(NotLeaderError):
        store.ledger.lead("second", now.after(3_600_000), Duration(1))


@pytest.mark.parametrize("wrong_by", [-86_400_000, 86_400_000])
def test_so_does_the_time_of_the_cluster(store: SqlStore, wrong_by: int) -> None:
    machine = SteppedClock(SystemClock(), wrong_by)
    first = cluster_time(store, machine)
    # Where everything runs on one machine, the clock of the database is that of this test.
    assert abs(first.clock.now() - SystemClock().now()) < 60_000
    first.keeper(store.ledger).keep(store.ledger.lead("first", machine.now(), MINUTE))
    machine.ahead = 0
    assert abs(first.clock.now() - SystemClock().now()) < 60_000
    kept = store.ledger.kept_time()
    assert kept is not None
    assert abs(kept.ahead) < 1_000
    # The clock of the database has been set by an hour since: the next process goes on all the same.
    store.ledger.keep_time(store.ledger.lead("first", NOW, MINUTE), KeptTime(kept.reference, -3_600_000))
    behind = SystemClock().now() - cluster_time(store, machine).clock.now()
    assert abs(behind - 3_600_000) < 60_000


def test_each_renewal_says_what_time_it_is(store: SqlStore) -> None:
    heard: list[Instant] = []
    store.database.told_time = lambda at, late_ms: heard.append(at.after(int(late_ms)))
    for _ in range(2):
        store.ledger.lead("first", NOW, MINUTE)
    assert len(heard) == 2
    assert heard == sorted(heard)


def test_a_lease_ends_by_that_clock(store: SqlStore) -> None:
    first = store.ledger.lead("first", NOW, Duration(1))
    time.sleep(0.01)
    assert store.ledger.leader() == ""
    assert store.ledger.epoch_of("first") == first
    assert store.ledger.lead("second", NOW, MINUTE) > first
    assert store.ledger.epoch_of("first") is None


def test_who_is_held_up_in_a_transaction_keeps_nobody_waiting_for_long(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends its session: what it had begun is undone, and a successor gets the lock that it held."""
    successor = open_store(
        url
    )  # It makes the tables: a busy machine may be held up in that for longer than the other one may.
    monkeypatch.setattr(engines, "IDLE_IN_TRANSACTION_S", 3)
    held_up = open_store(url)
    epoch = held_up.ledger.lead("first", NOW, Duration(1))
    held_up.jobs.submit(JobName("a"), SPEC, "ada", NOW, "key")

    def write_slowly() -> None:
        with held_up.database.writing(epoch) as connection:
            connection.execute(text("UPDATE jobs SET cancel_requested_by = 'nobody'"))
            assert successor.ledger.lead("second", NOW, MINUTE) > epoch  # waits for the lock, and gets it
            connection.execute(text("SELECT 1"))

    with pytest.raises(StoreUnreachableError, match=r"held up in a transaction|can't be reached"):
        write_slowly()
    assert successor.jobs.job(JobName("a")).cancel_requested_by == ""
    assert held_up.database.failure is None
    claim = claim_of("a", "n1/0")
    with pytest.raises(StaleEpochError):
        held_up.ledger.claim(epoch, claim, intent_of(claim))
    held_up.close()
    successor.close()


def test_a_password_is_changed_beneath_a_store(url: str, tmp_path: Path) -> None:
    """While it is changed the file has both, so that it does not matter which of the two the server takes at a moment."""
    made, path, user = make_url(url), tmp_path / "password", f"rotated_{uuid.uuid4().hex}"
    admin = create_engine(postgresql_url(url), isolation_level="AUTOCOMMIT")

    def has(password: str) -> None:
        with admin.connect() as connection:
            connection.execute(text(f"ALTER ROLE {user} PASSWORD '{password}'"))
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = :u"), {"u": user}
            )

    with admin.connect() as connection:
        connection.execute(text(f"CREATE ROLE {user} LOGIN SUPERUSER"))
    try:
        has("first")
        path.touch(mode=0o600)
        path.write_text("first\n")
        store = open_store(made.set(username=user, password=None).render_as_string(), path)
        for step in (
            lambda: path.write_text("second\nfirst\n"),
            lambda: has("second"),
            lambda: path.write_text("second\n"),
        ):
            step()
            store.database.engine.dispose()
            assert store.ledger.leader() == ""
        path.write_text("")
        store.database.engine.dispose()
        assert store.ledger.leader() == "", "a file that is empty for a moment ends nothing"
        has("third")
        with pytest.raises(StoreUnreachableError):
            store.ledger.leader()
        path.write_text("third\n")
        assert store.ledger.leader() == ""
        store.close()
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP OWNED BY {user} CASCADE"))
            connection.execute(text(f"DROP ROLE {user}"))
        admin.dispose()


def test_a_lost_connection_is_made_again(url: str) -> None:
    store, other = open_store(f"{url}&application_name=loses"), Database(url)
    epoch = store.ledger.lead("first", NOW, MINUTE)
    end_all = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'loses'")
    with other.engine.begin() as connection:
        connection.execute(end_all)
    assert store.ledger.lead("first", NOW, MINUTE) == epoch, "noticed before it is used"

    def write_while_it_ends() -> None:
        with store.database.writing(epoch) as begun:
            begun.execute(text("DELETE FROM jobs"))
            with other.engine.begin() as connection:
                connection.execute(end_all)
            begun.execute(text("SELECT 1"))

    with pytest.raises(StoreUnreachableError):
        write_while_it_ends()
    assert store.database.failure is None
    store.jobs.submit(JobName("a"), SPEC, "ada", NOW, "key")
    other.close()
    store.close()


def test_a_server_that_restarts_is_waited_for() -> None:
    """What is said meanwhile names the place and the fix, and not the password."""
    with private_server() as server:
        store = open_store(server.url())
        store.jobs.submit(JobName("a"), SPEC, "ada", NOW, "key")
    with pytest.raises(StoreUnreachableError, match=r"127\.0\.0\.1.*can't be reached .*Check that it runs") as refused:
        store.jobs.jobs()
    assert server.password not in str(refused.value)
    assert store.database.failure is None
    store.close()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"database": "absent"}, "no such database|can't be reached"),
        ({"password": "wrong"}, "does not let this user in|can't be reached"),
        ({"username": "nobody-known"}, "does not let this user in|can't be reached"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str, change: dict[str, str], problem: str) -> None:
    wrong = engines.postgresql_url(url).set(**change)  # type: ignore[arg-type]
    with pytest.raises(StoreUnusableError, match=problem) as refused:
        open_store(wrong.render_as_string(hide_password=False))
    assert "wrong" not in str(refused.value).replace("something wrong", "")


def test_commits_wait_for_the_disk_whatever_the_database_was_told(url: str) -> None:
    admin = Database(url)
    with admin.engine.begin() as connection:
        connection.execute(text("ALTER ROLE CURRENT_USER SET synchronous_commit = off"))
    try:
        store = open_store(url)
        with store.database.reading() as connection:
            names = "synchronous_commit", "idle_in_transaction_session_timeout", "transaction_isolation"
            found = {name: connection.execute(text(f"SHOW {name}")).scalar_one() for name in names}
        store.close()
    finally:
        with admin.engine.begin() as connection:
            connection.execute(text("ALTER ROLE CURRENT_USER RESET synchronous_commit"))
        admin.close()
    assert list(found.values()) == ["on", "5s", "repeatable read"]


def test_a_reader_sees_one_state_while_others_write(store: SqlStore) -> None:
    with store.database.reading() as connection:
        count = text("SELECT count(*) FROM jobs")
        before = connection.execute(count).scalar_one()
        store.jobs.submit(JobName("a"), SPEC, "ada", NOW, "key")
        assert connection.execute(count).scalar_one() == before == 0


def test_events_are_numbered_in_the_order_in_which_they_can_be_seen(store: SqlStore) -> None:
    """Who has seen a number never misses a smaller one, however many write."""
    seen: list[int] = []
    over = threading.Event()

    def write(writer: int) -> None:
        for number in range(20):
            store.history.record_event(Event(NOW, "kind", f"{writer}-{number}", "", "plane"))

    def read() -> None:
        while not over.is_set():
            seen.extend(kept.number for kept in store.history.events_since(seen[-1] if seen else 0))

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    reader.start()
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    reader.join()
    seen.extend(kept.number for kept in store.history.events_since(seen[-1] if seen else 0))
    assert len(seen) == 80


def test_a_round_is_replayed_from_it(url: str, store: SqlStore, quorate: Quorate, tmp_path: Path) -> None:
    """The password is in a file: on the command line everybody would see it."""
    made, password = make_url(url), tmp_path / "password"
    password.write_text(str(made.password or ""))
    password.chmod(0o600)
    named = "--store", made._replace(password=None).render_as_string(), "--store-password-file", str(password)
    epoch = store.ledger.lead("first", NOW, MINUTE)
    record = recorded(optimise)
    assert store.history.record_round(epoch, record) == 1
    ran = quorate("replay", "1", *named)
    assert (ran.exit_code, ran.out, ran.err) == (0, f"round 1: identical, {record.plan.digest}\n", "")
    missing = quorate("replay", "2", *named)
    assert (missing.exit_code, "there is no round 2" in missing.err) == (1, True)
    assert store.ledger.leader() == "first", "who leads goes on"
