"""What users decide or ask for and the event that says so are one write: a kill between the two leaves neither."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import structlog
from sqlalchemy import event as sql_event
from structlog.testing import capture_logs

from reconciler.protocols.history import Event
from reconciler.server.history_log import LoggedHistory
from reconciler.store.store import SqlStore, open_store
from tests.contracts.stores import postgresql_schema
from tests.fresh_store import fresh_store
from tests.reconciler.api.conftest import NOW, Site
from tests.reconciler.api.decisions import ASKED, MOMENTS, prepare


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_a_kill_between_the_two_leaves_neither(tmp_path: Path, kind: str) -> None:
    with _database(kind, tmp_path) as where:
        store = open_store(where)
        prepare(store)
        before = _on_record(store)
        command = [sys.executable, "-m", "tests.reconciler.api.decisions", str(where), str(tmp_path)]
        ran = subprocess.run(command, capture_output=True, check=True, env=os.environ)
        ended = [line.split("\t") for line in ran.stdout.decode().splitlines()]
        assert ended == [[asked, moment, str(int(signal.SIGKILL))] for asked in ASKED for moment in MOMENTS]
        assert _on_record(store) == before
        store.close()


def _on_record(store: SqlStore) -> tuple[object, ...]:
    """What could have come of any of it."""
    return store.jobs.jobs(), store.interventions.newest(), store.history.events_since(0)


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[Path | str]:
    if kind == "sqlite":
        fresh_store(folder / "quorate.db").close()
        yield folder / "quorate.db"
    else:
        with postgresql_schema() as url:
            yield url


@pytest.mark.parametrize("asked", ASKED)
def test_it_is_one_write_with_one_event(site: Site, asked: str) -> None:
    prepare(site.store)
    begun: list[str] = []

    def keep(_: object, __: object, statement: str, *___: object) -> None:
        begun.extend([statement] if statement.startswith("BEGIN IMMEDIATE") else [])

    sql_event.listen(site.store.database.engine, "before_cursor_execute", keep)
    ask, subject = ASKED[asked]
    ask(site)
    sql_event.remove(site.store.database.engine, "before_cursor_execute", keep)
    assert (len(begun), len(site.store.history.events(subject))) == (1, 1)


def test_what_fails_in_the_block_undoes_all_of_it_and_the_next_is_on_its_own(site: Site) -> None:
    store = site.store
    with suppress(RuntimeError), store.database.together():
        store.history.record_event(Event(NOW, "queue-held", "team", "", "ada"))
        raise RuntimeError
    assert store.history.events("team") == ()
    with store.database.together():
        store.history.record_event(Event(NOW, "queue-held", "team", "", "ada"))
        assert store.history.events("team") == (), "nobody sees half of it"
    assert len(store.history.events("team")) == 1
    store.history.record_event(Event(NOW, "queue-released", "team", "", "ada"))
    assert len(store.history.events("team")) == 2


def test_a_block_in_another_is_a_part_of_it(site: Site) -> None:
    store = site.store
    with suppress(RuntimeError), store.database.together():
        with store.database.together():
            store.history.record_event(Event(NOW, "queue-held", "team", "", "ada"))
        store.history.record_event(Event(NOW, "queue-held", "other", "", "ada"))
        raise RuntimeError
    assert store.history.events_since(0) == ()


def test_the_log_says_what_is_on_record_and_no_more(site: Site) -> None:
    database = site.store.database
    history = LoggedHistory(site.store.history, structlog.get_logger(), once_committed=database.once_committed)
    with capture_logs() as lines:
        with suppress(RuntimeError), database.together():
            history.record_event(Event(NOW, "queue-held", "undone", "", "ada"))
            raise RuntimeError
        with database.together():
            history.record_event(Event(NOW, "queue-held", "kept", "", "ada"))
            assert not lines
        history.record_event(Event(NOW, "queue-held", "alone", "", "ada"))
    assert [line["subject"] for line in lines] == ["kept", "alone"]
