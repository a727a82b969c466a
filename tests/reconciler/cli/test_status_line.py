"""What a person who waits is told, and a program is not."""

from __future__ import annotations

import sys

import pytest

from reconciler.cli import status_line
from reconciler.cli.status_line import busy


def test_what_takes_long_says_what_it_does(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    monkeypatch.setattr(status_line, "QUICK_S", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with busy("adding up"):
        while "adding up" not in "".join(told):
            told.append(capsys.readouterr().err)


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_quick_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr(status_line, "QUICK_S", 3600.0 if terminal else 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with busy("adding up"):
        pass
    assert capsys.readouterr().err == ""
