"""A change of policy on a running control plane, from the plan to its effects, and the way back with `git revert`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from reconciler.cli.times import local
from solver.world.quantities import Instant
from tests.e2e.control_plane import ControlPlane, until
from tests.e2e.desk import QUEUE, QUEUE_FILE, SCHEDULING_FILE, Desk, policy, row
from tests.gitsource.origin import Origin


@pytest.fixture
def desk(
    plane: ControlPlane, origin: Origin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Desk:
    return Desk(plane, origin, monkeypatch, capsys)


@pytest.mark.thorough
def test_a_limit_is_lowered_and_taken_back(desk: Desk, tmp_path: Path) -> None:
    """First before its time is over, so that nothing has happened; then after it, so that the job comes back."""
    mark, release, saved = tmp_path / "processes", tmp_path / "release", tmp_path / "plan.json"
    desk.origin.commit(policy(8))
    desk.start()
    desk.runs("train", 4, mark, release)
    before = desk.compiled()

    desk.propose("less", {QUEUE_FILE: QUEUE % 2})
    planned = desk.plan("less", "--out", str(saved))
    print(planned)
    desk.quorate("apply", str(saved), "--reason=agreed with the team")
    merged = desk.merge("less")
    assert desk.truth() == (merged, "Applied")
    assert desk.kinds(merged) == ["policy-applied"]
    until("the limit is seen to be broken", desk.limits)
    (limit,) = desk.limits()
    shown = desk.quorate("status")
    print(shown)
    deadline = Instant.read(limit["deadline"])
    assert row(shown, "team ") == ["team", "H100", "4", "2", local(deadline), "train"]

    desk.plane.signal(signal.SIGKILL)
    desk.start()
    until("the loop has looked again", desk.limits)
    assert desk.limits() == [limit]
    desk.revert()
    assert desk.compiled() == before
    until("the limit is kept", lambda: not desk.limits())
    assert desk.kinds("team") == ["limit-broken", "limit-kept"]
    assert desk.attempt("train") == ("running", 1)
    os.kill(int(mark.read_text()), 0)

    desk.propose("at-once", policy(2, within="2s"))
    desk.merge("at-once")
    desk.reaches("train", "queued")
    for n in ("train", "team"):
        for e in desk.plane.events(n): print(e)
    desk.revert()
    desk.reaches("train", "running")
    release.touch()
    desk.reaches("train", "succeeded")
    assert desk.attempt("train") == ("succeeded", 2)
    assert len(mark.read_text().splitlines()) == 2
    for n in ("train", "team"):
        for e in desk.plane.events(n): print(e)


@pytest.mark.thorough
def test_what_does_more_than_was_accepted_is_held(desk: Desk, tmp_path: Path) -> None:
    """By a guardrail until somebody overrides it, and by a plan that the cluster has left behind."""
    mark, release, saved = tmp_path / "processes", tmp_path / "release", tmp_path / "plan.json"
    desk.origin.commit(policy(8, guardrails="{maxEvictedJobs: 0}"))
    desk.start()
    desk.runs("first", 3, mark, release)

    desk.propose("none", {QUEUE_FILE: QUEUE % 2})
    print(desk.plan("none", exits=5))
    desk.merge("none", exits=1)
    print(desk.quorate("status"))
    print(desk.truth())
    good = desk.revert()
    assert desk.truth() == (good, "Applied")

    desk.origin.commit({SCHEDULING_FILE: policy(8)[SCHEDULING_FILE]})
    good = desk.followed()
    desk.propose("less", {QUEUE_FILE: QUEUE % 2})
    exact = tmp_path / "exact.json"
    desk.plan("less", "--out", str(saved))
    desk.plan("less", "--exact", "--out", str(exact))
    print(desk.quorate("apply", str(saved), "--reason=the first may go"))
    desk.runs("second", 3, mark, release)
    print(desk.quorate("apply", str(exact), "--reason=the first may go", exits=4))
    merged = desk.merge("less", exits=1)
    assert desk.truth() == (good, "PlanDrift")
    print(desk.quorate("status"))
    print(desk.quorate("plan", "--held"))
    print(desk.quorate("apply", merged[:12], "--reason=both may go"))
    desk.followed()
    assert desk.truth() == (merged, "Applied")
    until("the limit is seen to be broken", desk.limits)
    print(desk.quorate("status"))
    print(desk.kinds(merged))
    assert 0
