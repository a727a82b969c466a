"""The command line, run in this process as a user would."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import pytest

from reconciler.cli.main import run


class Ran(NamedTuple):
    """What one command line did."""

    exit_code: int
    out: str
    err: str


class Quorate(Protocol):
    """Runs `quorate` with arguments."""

    def __call__(self, *arguments: str) -> Ran: ...


@pytest.fixture
def quorate(capsys: pytest.CaptureFixture[str]) -> Quorate:
    def run_it(*arguments: str) -> Ran:
        exit_code = run(arguments)
        captured = capsys.readouterr()
        return Ran(exit_code, captured.out, captured.err)

    return run_it
