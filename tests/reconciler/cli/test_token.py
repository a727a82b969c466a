"""`quorate token create`: a token is shown once, and its hash kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.access.caller import Caller
from reconciler.access.tokens import UserTokenFile
from reconciler.cli.exits import ExitCode
from reconciler.cli.main import run


def test_a_token_is_printed_once_and_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens"
    asked = ["token", "create", "--tokens", str(path), "--user", "ada", "--group", "vision", "--group", "leads"]
    assert run(asked) == ExitCode.OK
    (token,) = capsys.readouterr().out.splitlines()
    assert UserTokenFile(path).caller(token) == Caller("ada", frozenset({"vision", "leads"}))
    assert token not in path.read_text()


def test_a_name_that_can_not_be_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token", "create", "--tokens", str(tmp_path / "tokens"), "--user", "a b"]) == ExitCode.ERROR
    assert "can't be a user or group" in capsys.readouterr().err
    assert not (tmp_path / "tokens").exists()
