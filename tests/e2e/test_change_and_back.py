"""A change of policy on a running control plane, from the plan to its effects, and the way back with `git revert`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from reconciler.cli.times import local
from reconciler.model.envelope import SavedPlan
from solver.model.document import decode
from tests.e2e.control_plane import ControlPlane, until
from tests.e2e.desk import QUEUE, QUEUE_FILE, SCHEDULING_FILE, Desk, policy, row
from tests.reconciler.gitops.source.origin import Origin


@pytest.fixture
def desk(
    plane: ControlPlane, origin: Origin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Desk:
    return Desk(plane, origin, monkeypatch, capsys)


@pytest.mark.thorough
def test_a_limit_is_lowered_and_taken_back(desk: Desk, tmp_path: Path) -> None:
    """First before its time is over, so that nothing has happened; then after it, so that the job comes back."""
    processes, release, saved = tmp_path / "processes", tmp_path / "release", tmp_path / "plan.json"
    desk.origin.commit(policy(8))
    desk.start()
    desk.runs("train", 4, processes, release)
    before = desk.compiled()

    desk.propose("less", {QUEUE_FILE: QUEUE % 2})
    planned = desk.plan("less", "--out", str(saved))
    (foreseen,) = decode(saved.read_bytes(), SavedPlan).review.converging
    assert foreseen.deadline is not None
    by = local(foreseen.deadline)
    assert f"queue team holds 4 of max 2 H100: jobs may end by themselves until {by}, then preemptible" in planned
    job, queue, gpus, lost_gpu_h, asked_at, *_ = row(planned, "train ")
    assert (job, queue, gpus, asked_at) == ("train", "team", "4", by)
    assert float(lost_gpu_h) >= 4.3, "four GPUs for an hour, five minutes to start again, and what it has run until now"
    assert "at most 1 job evicted" in desk.quorate("apply", str(saved), "--reason=agreed with the team")
    merged = desk.merge("less")
    assert (desk.truth(), desk.kinds(merged)) == ((merged, "Applied"), ["policy-applied"])
    until("the limit is seen to be broken", desk.limits)
    (limit,) = desk.limits()
    assert limit.deadline is not None
    shown = ["team", "H100", "4", "2", local(limit.deadline), "train"]
    assert row(desk.quorate("status"), "team ") == shown

    desk.plane.signal(signal.SIGKILL)
    desk.start()
    until("the loop has looked again", desk.limits)
    assert desk.limits() == (limit,)
    desk.revert()
    assert desk.compiled() == before
    until("the limit is kept", lambda: not desk.limits())
    assert desk.kinds("team") == ["limit-broken", "limit-kept"]
    assert desk.attempt("train") == ("running", 1)
    os.kill(int(processes.read_text()), 0)

    desk.propose("at-once", policy(2, within="2s"))
    desk.merge("at-once")
    desk.reaches("train", "queued")
    asked, broken = desk.event("train", "asked-to-stop"), desk.event("team", "limit-broken")
    assert broken.cause.split()[-1] <= str(asked.time)
    assert "(converge)" in asked.cause
    desk.revert()
    desk.reaches("train", "running")
    release.touch()
    desk.reaches("train", "succeeded")
    assert (desk.attempt("train"), len(processes.read_text().splitlines())) == (("succeeded", 2), 2)


@pytest.mark.long
def test_what_does_more_than_may_be_is_held(desk: Desk, tmp_path: Path) -> None:
    """By a guardrail until it is taken back, and beyond an accepted plan until a person accepts what it does now."""
    processes, release = tmp_path / "processes", tmp_path / "release"
    saved, exact = tmp_path / "plan.json", tmp_path / "exact.json"
    guarded = desk.origin.commit(policy(8, guardrails="{maxEvictedJobs: 0}"))
    desk.start()
    desk.runs("first", 3, processes, release)

    desk.propose("too-much", {QUEUE_FILE: QUEUE % 2})
    broken = f"1 job would be evicted, at most 0 (maxEvictedJobs, {SCHEDULING_FILE}:3)"
    assert f"maxEvictedJobs: 1 job would be evicted, at most 0 ({SCHEDULING_FILE}:3)" in desk.plan("too-much", exits=5)
    refused = desk.merge("too-much", exits=1)
    assert desk.truth() == (guarded, "GuardrailRefused")
    assert broken in desk.quorate("status")
    assert desk.event(refused, "policy-refused").cause.startswith(f"GuardrailRefused: {refused[:12]}: {broken}")

    desk.origin.commit(policy(8))
    good = desk.followed()
    assert desk.truth() == (good, "Applied")
    desk.propose("less", {QUEUE_FILE: QUEUE % 2})
    desk.plan("less", "--out", str(saved))
    desk.plan("less", "--exact", "--out", str(exact))
    desk.quorate("apply", str(saved), "--reason=the first may go")
    desk.runs("second", 3, processes, release)
    desk.quorate("apply", str(exact), "--reason=the first may go", exits=4)
    merged = desk.merge("less", exits=1)
    assert desk.truth() == (good, "PlanDrift")
    assert row(desk.quorate("status"), "jobs evicted ") == ["jobs evicted", "1", "2", "beyond"]
    held = desk.quorate("plan", "--held")
    assert [row(held, job)[:3] for job in ("first ", "second ")] == [["first", "team", "3"], ["second", "team", "3"]]
    assert not desk.limits()

    desk.quorate("apply", merged[:12], "--reason=both may go")
    assert desk.followed() == merged
    assert desk.truth() == (merged, "Applied")
    assert desk.kinds(merged) == ["policy-refused", "policy-approved", "policy-applied"]
    assert (desk.attempt("first"), desk.attempt("second")) == (("running", 1), ("running", 1))
