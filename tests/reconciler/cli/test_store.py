"""`quorate store`, and the options that name a database."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.exits import ExitCode
from reconciler.protocols.store_errors import StoreUnusableError
from reconciler.server.folder import StateFolder
from reconciler.store.engines import read_passwords
from reconciler.store.schema import SCHEMA_VERSION
from reconciler.store.store import open_store
from solver.model.workload import JobName
from tests.contracts.stores import NOW, SPEC
from tests.reconciler.cli.conftest import Quorate

SECRET = "canary-of-a-password"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with one job."""
    folder = tmp_path / "state"
    folder.mkdir()
    store = open_store(folder / "quorate.db")
    store.jobs.submit(JobName("a"), SPEC, "ada", NOW, "key")
    store.close()
    return folder


def test_a_copy_is_made_and_restored(quorate: Quorate, state: Path, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy.gz", tmp_path / "other"
    assert quorate("store", "backup", str(copy), "--state", str(state)).exit_code == ExitCode.OK
    ran = quorate("store", "restore", str(copy), "--state", str(other))
    assert (ran.exit_code, "as it was at" in ran.err) == (ExitCode.OK, True)
    store = open_store(other / "quorate.db")
    assert [record.name for record in store.jobs.jobs()] == ["a"]
    store.close()
    again = quorate("store", "restore", str(copy), "--state", str(other))
    assert (again.exit_code, "it has jobs already" in again.err) == (ExitCode.ERROR, True)


def test_what_is_no_copy_makes_nothing(quorate: Quorate, tmp_path: Path) -> None:
    (tmp_path / "copy.gz").write_bytes(b"to whom it may concern")
    ran = quorate("store", "restore", str(tmp_path / "copy.gz"), "--state", str(tmp_path / "other"))
    assert (ran.exit_code, "no whole copy" in ran.err) == (ExitCode.ERROR, True)
    assert not (tmp_path / "other").exists()


def test_damage_is_found(quorate: Quorate, state: Path) -> None:
    ran = quorate("store", "check", "--state", str(state))
    assert (ran.exit_code, ran.out) == (ExitCode.OK, "nothing is wrong\n")
    with sqlite3.connect(state / "quorate.db") as database:
        database.execute("UPDATE jobs SET spec = '{}'")
    database.close()
    ran = quorate("store", "check", "--state", str(state), "-o", "json")
    found = json.loads(ran.out)
    assert (ran.exit_code, found["kind"], len(found["problems"])) == (ExitCode.ERROR, "StoreCheck", 1)
    assert found["problems"][0].startswith("jobs 1: its spec can't be read")


def test_the_schema_is_taken_back_and_the_release_before_can_run(quorate: Quorate, state: Path) -> None:
    assert quorate("store", "downgrade", "--state", str(state)).exit_code == ExitCode.OK
    with sqlite3.connect(state / "quorate.db") as database:
        assert database.execute("SELECT version FROM schema_version").fetchall() == [(SCHEMA_VERSION - 1,)]
        assert database.execute("SELECT name FROM jobs").fetchall() == [("a",)]
    database.close()


@pytest.mark.parametrize("command", ["restore", "downgrade"])
def test_nothing_is_changed_below_a_control_plane(quorate: Quorate, state: Path, tmp_path: Path, command: str) -> None:
    copy = tmp_path / "copy.gz"
    assert quorate("store", "backup", str(copy), "--state", str(state)).exit_code == ExitCode.OK
    with StateFolder(state).locked():
        file = (str(copy),) if command == "restore" else ()
        ran = quorate("store", command, *file, "--state", str(state))
    assert (ran.exit_code, "uses this state folder" in ran.err) == (ExitCode.ERROR, True)


@pytest.mark.parametrize("command", ["backup", "check", "downgrade"])
def test_a_store_that_is_not_there_is_not_made(quorate: Quorate, tmp_path: Path, command: str) -> None:
    file = (str(tmp_path / "copy.gz"),) if command == "backup" else ()
    ran = quorate("store", command, *file, "--state", str(tmp_path / "absent"))
    assert (ran.exit_code, "there is no store here" in ran.err, "--store" in ran.err) == (ExitCode.ERROR, True, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("store", "backup", "copy.gz"), ("store", "check"), ("replay", "1")])
def test_a_state_folder_that_is_closed_to_us_is_said_to_be(
    quorate: Quorate, state: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    closed_to_us(state, monkeypatch)
    ran = quorate(*command, "--state", str(state))
    assert ran == (
        1,
        "",
        f"error: {state}: can't be read (Permission denied). Run this as the user of the control plane\n",
    )


def closed_to_us(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, to whom nothing is closed."""
    real = os.stat

    def stat_of(path: str | Path, **options: Any) -> os.stat_result:
        if isinstance(path, str | Path) and Path(path).parent == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat_of)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (f"postgresql://quorate:{SECRET}@db/quorate", "off the list of processes"),
        (f"postgresql://quorate@db/quorate?password={SECRET}", "off the list of processes"),
        ("mysql://quorate@db/quorate", "no store is kept in mysql"),
        ("sqlite:///quorate.db", "no store is kept in sqlite"),
        ("quorate.db", "Give it as postgresql://"),
    ],
)
def test_a_url_that_will_not_do_is_refused(quorate: Quorate, url: str, problem: str) -> None:
    ran = quorate("store", "check", "--store", url)
    assert (ran.exit_code, problem in " ".join(ran.err.split())) == (ExitCode.USAGE, True)
    assert SECRET not in ran.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--tasks", "t"), "--tasks is shared by control planes of one --store"),
        (("--store", "postgresql://u@h/d", "--kubernetes"), "with --kubernetes the API server does"),
        (("--store", "postgresql://u@h/d", "--tasks", "t", "--run-as-submitter"), "Leave --tasks out"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(
    quorate: Quorate, options: tuple[str, ...], problem: str
) -> None:
    ran = quorate("run", "--policies-repo", "policy", *options)
    assert (ran.exit_code, problem in " ".join(ran.err.split())) == (ExitCode.USAGE, True)


def test_two_stores_are_one_too_many(quorate: Quorate, state: Path) -> None:
    ran = quorate("store", "check", "--state", str(state), "--store", "postgresql://u@h/d")
    assert (ran.exit_code, "Leave one of them out" in ran.err) == (ExitCode.USAGE, True)


def test_a_password_comes_from_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "password"
    with pytest.raises(StoreUnusableError, match="can't be read"):
        read_passwords(path)
    path.write_text(f"{SECRET}\n")
    path.chmod(0o644)
    with pytest.raises(StoreUnusableError, match="chmod 600"):
        read_passwords(path)
    path.chmod(0o600)
    assert read_passwords(path) == (SECRET,)
    path.write_text("\n")
    with pytest.raises(StoreUnusableError, match="it is empty"):
        read_passwords(path)


def version_in(state: Path) -> int:
    database = sqlite3.connect(state / "quorate.db")
    (version,) = database.execute("SELECT version FROM schema_version").fetchone()
    database.close()
    return int(version)


@pytest.mark.parametrize(
    "command", [("store", "check"), ("store", "backup", "copy.gz"), ("replay", "1"), ("store", "downgrade")]
)
def test_only_control_planes_bring_a_store_up_to_date(
    quorate: Quorate, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Whoever took a store back for the release before finds it so, whatever was read of it meanwhile."""
    monkeypatch.chdir(tmp_path)
    assert quorate("store", "downgrade", "--state", str(state)).exit_code == ExitCode.OK
    quorate(*command, "--state", str(state))
    assert version_in(state) == SCHEMA_VERSION - 1


def test_a_store_that_was_taken_back_can_be_checked_and_copied(quorate: Quorate, state: Path, tmp_path: Path) -> None:
    quorate("store", "downgrade", "--state", str(state))
    assert quorate("store", "check", "--state", str(state)) == (ExitCode.OK, "nothing is wrong\n", "")
    copy, other = tmp_path / "copy.gz", tmp_path / "other"
    assert quorate("store", "backup", str(copy), "--state", str(state)).exit_code == ExitCode.OK
    assert quorate("store", "restore", str(copy), "--state", str(other)).exit_code == ExitCode.OK
    store = open_store(other / "quorate.db")
    assert [record.name for record in store.jobs.jobs()] == ["a"]
    store.close()


def test_a_store_is_taken_back_by_the_release_that_wrote_it_alone(quorate: Quorate, state: Path) -> None:
    quorate("store", "downgrade", "--state", str(state))
    again = quorate("store", "downgrade", "--state", str(state))
    assert (again.exit_code, f"has version {SCHEMA_VERSION - 1}" in again.err) == (ExitCode.ERROR, True)


def test_a_file_without_a_store_is_not_made_into_one(quorate: Quorate, tmp_path: Path) -> None:
    (tmp_path / "quorate.db").touch()
    ran = quorate("store", "check", "--state", str(tmp_path))
    assert (ran.exit_code, "there is no store in it" in ran.err) == (ExitCode.ERROR, True)
    assert (tmp_path / "quorate.db").stat().st_size == 0
