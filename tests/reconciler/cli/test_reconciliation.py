"""`quorate apply`, `reconcile`, `suspend-reconcile` and `resume-reconcile`."""

from __future__ import annotations

import pytest

from reconciler.api.server import ApiServer
from reconciler.model.git_status import PolicyCondition, PolicyStatus
from tests.reconciler.api.conftest import IN_FORCE, REVISION, Site
from tests.reconciler.cli.conftest import Now, Quorate

HELD = "b" * 40


@pytest.fixture(autouse=True)
def found(at_server: ApiServer, now: Now) -> None:
    """A server, and a clock that stands still."""


def told(kind: str, reason: str) -> PolicyStatus:
    """What the follower says of HELD; the message has what a terminal would obey."""
    message = f"{reason} \x1b[2J"
    return PolicyStatus((PolicyCondition(kind, True, reason, message),), REVISION, HELD, acceptable=True)  # type: ignore[arg-type]


def test_a_held_revision_is_accepted(quorate: Quorate, site: Site) -> None:
    site.told = told("Stalled", "HistoryRewritten")
    done = quorate("apply", HELD[:12], "--reason=rebased")
    assert (done.exit_code, done.out) == (0, "bbbbbbbbbbbb: HistoryRewritten accepted by alice: rebased\n")
    assert quorate("apply", "c" * 12, "--reason=rebased").exit_code == 1
    assert quorate("apply", HELD[:12]).exit_code == 64


def test_following_is_suspended_and_resumed(quorate: Quorate, site: Site) -> None:
    assert quorate("resume-reconcile").out == "Git was being followed.\n"
    out = quorate("suspend-reconcile", "--reason=moving", "--until=2h").out
    assert out == "Git is not followed until 2023-11-15 02:13:20 +02:00: moving\n"
    refused = quorate("reconcile", "--wait")
    assert (refused.exit_code, "suspended by alice" in refused.err) == (1, True)
    assert quorate("resume-reconcile").out.startswith("Git is followed again. It was suspended by alice until")
    out = quorate("suspend-reconcile", "--reason=moving").out
    assert out == "Git is not followed until `quorate resume-reconcile`: moving\n"


@pytest.mark.parametrize(
    ("status", "exit_code"),
    [(IN_FORCE, 0), (told("Stalled", "InvalidPolicy"), 1), (told("Reconciling", "FetchFailed"), 7)],
)
def test_who_waits_is_told_by_the_exit_code(quorate: Quorate, site: Site, status: PolicyStatus, exit_code: int) -> None:
    site.told = status
    ran = quorate("reconcile", "--wait", "--timeout=100ms")
    assert (ran.exit_code, site.looks) == (exit_code, 1)
    assert "\x1b" not in ran.out + ran.err
    assert status.truth.reason in ran.out + ran.err
    assert quorate("reconcile").exit_code == 0
