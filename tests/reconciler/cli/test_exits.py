"""The contract of exit codes: each is reached through a command, as a script would reach it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.api.server import ApiServer
from reconciler.cli.exits import ExitCode
from tests.reconciler.api.conftest import Site
from tests.reconciler.cli.conftest import Quorate, submitted

NOT_YET = {ExitCode.CHANGES, ExitCode.STALE_PLAN, ExitCode.GUARDRAIL_REFUSED}
"""Promised to commands that are not there yet, and used by no other."""

NOBODY = "http://127.0.0.1:1"
REACHED = [
    (ExitCode.OK, ("get",)),
    (ExitCode.ERROR, ("get", "nowhere")),
    (ExitCode.POLICY_INVALID, ("validate", "{broken}")),
    (ExitCode.WAIT_TIMED_OUT, ("wait", "job", "--timeout", "1ms")),
    (ExitCode.SERVER_UNREACHABLE, ("get", "--server", NOBODY)),
    (ExitCode.USAGE, ("get", "--nope")),
    (ExitCode.USAGE, ("wait", "job", "--timeout", "soon")),
    (ExitCode.USAGE, ("wait", "job", "--timeout", "0s")),
]
ASKING_THE_SERVER = ["get", "describe job", "why job", "logs job", "wait job", "cancel job", "queues", "nodes", "rounds", "status",
                     "submit --name a --queue team -- true"]  # fmt: skip


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "queue.yaml").write_text("apiVersion: quorate.dev/v1\nkind: Quue\n")
    return tmp_path


@pytest.mark.parametrize(("exit_code", "arguments"), REACHED)
def test_it_is_reached(
    quorate: Quorate, site: Site, at_server: ApiServer, broken: Path, exit_code: ExitCode, arguments: tuple[str, ...]
) -> None:
    submitted(site, "job")
    ran = quorate(*(argument.format(broken=broken) for argument in arguments))
    assert ran.exit_code == exit_code, ran.err


@pytest.mark.parametrize("command", ASKING_THE_SERVER)
def test_every_command_says_that_nobody_answers(quorate: Quorate, command: str) -> None:
    name, *rest = command.split()
    ran = quorate(name, "--server", NOBODY, *rest)
    assert (ran.exit_code, ran.out) == (ExitCode.SERVER_UNREACHABLE, "")
    assert "Start it with `quorate run`" in ran.err


@pytest.mark.parametrize("command", ASKING_THE_SERVER)
def test_every_command_says_that_it_may_not(
    quorate: Quorate, at_server: ApiServer, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("QUORATE_TOKEN", "wrong")
    ran = quorate(*command.split())
    assert (ran.exit_code, ran.out) == (ExitCode.NOT_AUTHORISED, "")
    assert "QUORATE_TOKEN" in ran.err


def test_a_token_file_that_others_can_read_is_not_used(
    quorate: Quorate, at_server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("QUORATE_TOKEN")
    monkeypatch.setenv("QUORATE_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text("t" * 43)
    (tmp_path / "token").chmod(0o644)
    ran = quorate("get")
    assert ran.exit_code == ExitCode.NOT_AUTHORISED
    assert "others can read" in ran.err


def test_a_token_file_that_is_named_and_not_there_is_said(
    quorate: Quorate, at_server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("QUORATE_TOKEN")
    monkeypatch.setenv("QUORATE_TOKEN_FILE", str(tmp_path / "tokn"))
    ran = quorate("get")
    assert ran == (6, "", f"error: {tmp_path}/tokn: the token can't be read: No such file or directory\n")


def test_a_token_that_is_missing_is_said_with_where_it_is_looked_for(
    quorate: Quorate, at_server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("QUORATE_TOKEN")
    monkeypatch.setenv("QUORATE_STATE", str(tmp_path))
    ran = quorate("get")
    assert (ran.exit_code, ran.out) == (6, "")
    assert "QUORATE_STATE" in ran.err


def test_each_code_is_in_the_table_or_not_used_yet() -> None:
    elsewhere = {ExitCode.NOT_AUTHORISED, ExitCode.INTERRUPTED, ExitCode.AUDIT_BROKEN}
    assert {code for code, _ in REACHED} | elsewhere | NOT_YET == set(ExitCode)
