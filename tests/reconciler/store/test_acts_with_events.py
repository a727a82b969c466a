"""What passes do by themselves and the event that says so are one write: a kill between the two leaves neither, or both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event as sql_event

from reconciler.store.store import open_store
from tests.contracts.stores import postgresql_schema
from tests.fresh_store import fresh_store
from tests.reconciler.control.killed_passes import Successor, prepare, told_wrongly

KILLS = 10
KILLED = str(int(signal.SIGKILL))


KINDS = pytest.mark.parametrize(
    "kind",
    [pytest.param("sqlite", marks=pytest.mark.thorough), pytest.param("postgresql", marks=pytest.mark.postgresql)],
)


@KINDS
def test_a_kill_between_the_two_leaves_neither_or_both(tmp_path: Path, kind: str) -> None:
    with _database(kind, tmp_path) as where:
        store = open_store(where)
        prepare(store)
        command = [sys.executable, "-m", "tests.reconciler.control.killed_passes", str(where), str(KILLS)]
        ran = subprocess.run(command, capture_output=True, check=True, env=os.environ)
        ended = [line.split("\t") for line in ran.stdout.decode().splitlines()]
        assert ended == [[("before", "after")[number % 2], KILLED, ""] for number in range(KILLS)]
        last = Successor(store, 10_000)
        last.until_all_have_ended()
        assert list(told_wrongly(store)) == []
        store.close()


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[Path | str]:
    if kind == "sqlite":
        fresh_store(folder / "quorate.db").close()
        yield folder / "quorate.db"
    else:
        with postgresql_schema() as url:
            yield url


def test_it_takes_fewer_commits_and_statements_than_two_writes_would(tmp_path: Path) -> None:
    one, two = _counted(tmp_path / "one.db", is_one=True), _counted(tmp_path / "two.db", is_one=False)
    assert one["commits"] < two["commits"]
    assert one["statements"] < two["statements"]


def _counted(path: Path, *, is_one: bool) -> Counter[str]:
    """Of passes in which jobs begin, run and end."""
    found, store = Counter[str](), fresh_store(path)
    prepare(store)
    site = Successor(store, 1)
    if not is_one:
        site.only_plane = replace(site.only_plane, together=nullcontext)

    def keep(_: object, __: object, statement: str, *___: object) -> None:
        found["commits"] += statement.startswith("BEGIN IMMEDIATE")
        found["statements"] += 1

    sql_event.listen(store.database.engine, "before_cursor_execute", keep)
    site.passes(12)
    sql_event.remove(store.database.engine, "before_cursor_execute", keep)
    store.close()
    return found
