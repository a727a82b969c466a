"""`quorate attach` and `submit --pty` where they can't work; with terminals they are tried in tests/e2e/test_terminal.py."""

from __future__ import annotations

import pytest

from reconciler.api.server import ApiServer
from reconciler.cli.exits import ExitCode
from tests.reconciler.api.conftest import Site
from tests.reconciler.cli.conftest import Quorate

SHELL = ("submit", "--pty", "--name", "shell", "--queue", "team")


def test_without_a_terminal_nothing_is_submitted(at_server: ApiServer, site: Site, quorate: Quorate) -> None:
    for command in ((*SHELL, "--", "bash"), ("attach", "shell")):
        ran = quorate(*command)
        assert (ran.exit_code, "stdin and stdout must be a terminal" in ran.err) == (ExitCode.USAGE, True)
    assert site.store.jobs.jobs() == ()


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        (("-o", "json", "--", "bash"), "one job's own terminal"),
        (("--wait", "--", "bash"), "one job's own terminal"),
        (("--array", "0-3", "--", "bash"), "one job's own terminal"),
        (("--tasks", "2", "--", "bash"), "has one task, not 2"),
        (("-f", "job.yaml"), "-f describes the whole job"),
    ],
)
def test_what_does_not_go_with_it(quorate: Quorate, beside: tuple[str, ...], told: str) -> None:
    ran = quorate(*SHELL, *beside)
    assert (ran.exit_code, told in ran.err) == (ExitCode.USAGE, True)


def test_what_would_happen_needs_no_terminal(at_server: ApiServer, quorate: Quorate) -> None:
    ran = quorate(*SHELL, "--test-only", "--", "bash")
    assert (ran.exit_code, "shell" in ran.out) == (ExitCode.OK, True)
