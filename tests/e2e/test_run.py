"""`quorate run` as a process: killed, stopped, started again, and with everything around it going wrong."""

from __future__ import annotations

import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from reconciler.client import ApiError, ServerUnreachableError
from reconciler.model.git_record import REVISION_APPLIED, REVISION_REFUSED
from reconciler.model.job_record import TERMINAL
from solver.model.quantities import Duration
from tests.e2e.control_plane import POLICY, ControlPlane, sh, submit, until
from tests.reconciler.gitops.source.origin import INVALID, Origin


def test_killed_in_the_middle_it_finishes_everything_and_starts_nothing_twice(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """2 nodes of 4 GPUs: of 12 gangs with 4 GPUs two run at a time, so every kill meets some that run and some that wait."""
    started = tmp_path / "started"
    names = [f"job-{number}" for number in range(12)]
    script = f'echo "$QUORATE_JOB.$QUORATE_ATTEMPT $QUORATE_INDEX" >> {started}; sleep 0.2'
    plane.start().until_ready()
    with plane.client() as client:
        submit(client, names[:8], sh(script, tasks=2, gpus=2))
    for kills in (1, 2):
        until("some have started", partial(_has_lines, started, 4 * kills))
        assert plane.signal(signal.SIGKILL) == -signal.SIGKILL
        plane.start()
    plane.until_ready()
    with plane.client() as client:
        submit(client, names, sh(script, tasks=2, gpus=2))  # the first eight again, as after an answer that was lost
        until("all have ended", lambda: all(view.state in TERMINAL for view in client.jobs().items))
        views = client.jobs().items
    assert {(view.name, view.state) for view in views} == {(name, "succeeded") for name in names}
    assert Counter(_lines(started)) == Counter(f"{name}.1 {index}" for name in names for index in range(2))
    assert plane.signal(signal.SIGTERM) == 0


@pytest.mark.long
def test_at_its_time_limit_a_real_job_is_stopped_and_says_so(plane: ControlPlane) -> None:
    """It traps SIGTERM and ends well: that is what a limit is for, and not success."""
    plane.start().until_ready()
    limited = msgspec.structs.replace(sh("trap 'exit 0' TERM; while :; do sleep 0.05; done"), time_limit=Duration(300))
    with plane.client() as client:
        submit(client, ["job"], limited)
        until("it has ended", lambda: client.job("job").outcome)
        outcome = client.job("job").outcome
    assert outcome is not None
    assert (outcome.state, outcome.message) == ("failed", "it ran longer than its time limit of 300ms")


@pytest.mark.long
def test_a_real_job_that_does_nothing_is_ended_and_one_that_works_is_not(plane: ControlPlane) -> None:
    """The control plane is killed and starts again meanwhile; what the supervisors saw is kept."""
    plane.start().until_ready()
    limits = {"type": "interactive", "idle_limit": Duration(3_000)}
    with plane.client() as client:
        submit(client, ["works"], msgspec.structs.replace(sh("while :; do :; done"), **limits))
        submit(client, ["forgotten"], msgspec.structs.replace(sh("echo ready; exec sleep 600"), **limits))
        until("both run", lambda: {view.state for view in client.jobs().items} == {"running"})
        until("its idleness is shown", lambda: "it has been idle since" in client.why("forgotten").words[-1])
    assert plane.signal(signal.SIGKILL) == -signal.SIGKILL
    plane.start().until_ready()
    with plane.client() as client:
        until("the idle one has ended", lambda: client.job("forgotten").outcome)
        outcome = client.job("forgotten").outcome
        works = client.job("works")
    assert outcome is not None
    assert (outcome.state, outcome.message) == ("cancelled", "it was idle for longer than its idle limit of 3s")
    assert works.state == "running"


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, marks=pytest.mark.thorough), pytest.param(signal.SIGINT, marks=pytest.mark.long)],
)
def test_stopped_in_order_its_tasks_go_on_and_are_found_again(
    plane: ControlPlane, tmp_path: Path, number: signal.Signals
) -> None:
    release = tmp_path / "release"
    plane.start().until_ready()
    with plane.client() as client:
        submit(client, ["job"], sh(f"echo began; until test -e {release}; do sleep 0.02; done; echo ended"))
        until("it runs", lambda: client.job("job").state == "running")
    assert plane.signal(number) == 0
    (stopping,) = plane.logged("stopping")
    assert "they go on" in stopping["tasks"]
    plane.start().until_ready()
    with plane.client() as client:
        assert client.job("job").state == "running"
        release.touch()
        until("it has ended", lambda: client.job("job").state == "succeeded")
        assert client.log("job") == b"began\nended\n"
        assert client.job("job").attempt == 1


@pytest.mark.thorough
def test_logs_are_deleted_in_their_time(plane: ControlPlane) -> None:
    plane.start().until_ready()
    with plane.client() as client:
        submit(client, ["job"], sh("echo began"))
        until("its end is on record", lambda: client.job("job").state == "succeeded")
        until("it is forgotten", lambda: list((plane.folder.tasks / "forgotten").iterdir()))
        assert client.log("job") == b"began\n"
    plane.signal(signal.SIGTERM)
    plane.start("--keep-logs", "1ms").until_ready()
    until("it says so", lambda: plane.logged("logs-deleted"))
    (deleted,) = plane.logged("logs-deleted")
    assert (deleted["attempts"], deleted["older_than"]) == (1, "1ms")
    with (
        plane.client() as client,
        pytest.raises(ApiError, match="attempt 1 has no task worker/0 that wrote any"),
    ):
        client.log("job")


@pytest.mark.thorough
def test_a_second_one_on_the_same_state_is_refused(plane: ControlPlane, origin: Origin) -> None:
    plane.start()
    second = ControlPlane(origin.folder, plane.folder.path)
    second._log = plane.folder.path.with_suffix(".second.log")
    second.spawn()
    assert second.exit_code() == 1
    assert f"another control plane (process {plane.pid}) uses this state folder" in second.log()
    with plane.client() as client:
        assert client.status().holder == "control-plane"


@pytest.mark.long
def test_before_there_is_a_policy_it_serves_and_says_so(plane: ControlPlane, tmp_path: Path) -> None:
    empty = Origin(tmp_path / "empty")
    waiting = ControlPlane(empty.folder, tmp_path / "waiting")
    try:
        waiting.start()
        with waiting.client() as client:
            until("the loop waits", lambda: any(c.reason == "no-policy" for c in client.status().conditions))
            assert not client.ready()
            with pytest.raises(ApiError, match="has no branch main") as refused:
                submit(client, ["job"], sh("true"))
            assert (refused.value.status, refused.value.problem.code) == (503, "no-policy")
            empty.commit(POLICY)
            waiting.until_ready()
            until("it is ready", client.ready)
            with pytest.raises(ApiError, match="could never run") as never:
                submit(client, ["never"], sh("true", gpus=5))
            assert never.value.status == 422
            submit(client, ["job"], sh("true"))
            until("it has ended", lambda: client.job("job").state == "succeeded")
    finally:
        waiting.end()


@pytest.mark.thorough
def test_revisions_are_recorded_and_a_bad_one_changes_nothing(plane: ControlPlane, origin: Origin) -> None:
    good = origin.git("rev-parse", "HEAD")
    plane.start().until_ready()
    bad = origin.commit({"policies/queue.yaml": INVALID})
    with plane.client() as client:
        until("it was attempted", lambda: client.status().last_attempted_revision == bad)
        assert client.status().last_applied_revision == good
        submit(client, ["job"], sh("true"))
        until("it has ended", lambda: client.job("job").state == "succeeded")
        origin.git("revert", "--no-edit", "HEAD")
        reverted = origin.git("rev-parse", "HEAD")
        until("the revert is in force", lambda: client.status().last_applied_revision == reverted)
        until("a refused one is on record", lambda: plane.events(bad))
        until("an applied one is on record", lambda: plane.events(reverted))
    assert plane.signal(signal.SIGTERM) == 0
    plane.start().until_ready()  # records nothing twice
    assert plane.signal(signal.SIGTERM) == 0
    assert [event.kind for event in plane.events(good)] == [REVISION_APPLIED]
    assert [event.kind for event in plane.events(reverted)] == [REVISION_APPLIED]
    (refused,) = plane.events(bad)
    assert refused.kind == REVISION_REFUSED
    assert "policies/queue.yaml:4:8" in refused.cause


@pytest.mark.long
def test_the_log_tells_rounds_and_events_but_no_secrets(plane: ControlPlane) -> None:
    plane.start().until_ready()
    with plane.client() as client:
        submit(client, ["job"], sh("echo canary-in-output; exit 3"))
        until("it has ended", lambda: client.job("job").state == "failed")
        outcome = client.job("job").outcome
    assert outcome is not None
    assert "canary-in-output" in outcome.message
    assert plane.signal(signal.SIGTERM) == 0
    assert plane.logged("round")[0]["starts"] == 1
    assert plane.logged("failed")[0]["cause"].startswith("task worker/0 on n1 failed with exit code 3")
    assert "canary" not in plane.log()
    assert plane.folder.token.read_text().strip() not in plane.log()


@pytest.mark.thorough
def test_a_damaged_database_refuses_to_start_and_is_left_alone(plane: ControlPlane) -> None:
    plane.start().until_ready()
    assert plane.signal(signal.SIGTERM) == 0
    damaged = b"not a database" * 1000
    plane.folder.database.write_bytes(damaged)
    plane.spawn()
    assert plane.exit_code() == 1
    assert f"error: {plane.folder.database}: the file is not a database" in plane.log()
    assert plane.folder.database.read_bytes() == damaged


@pytest.mark.thorough
def test_a_database_damaged_while_it_runs_ends_it_with_the_reason(plane: ControlPlane) -> None:
    plane.start().until_ready()
    for file in (plane.folder.database, plane.folder.database.with_name("quorate.db-wal")):
        with file.open("r+b") as damaged:
            size = damaged.seek(0, os.SEEK_END)
            damaged.seek(0)
            damaged.write(b"\xa5" * size)
    # What a connection has read stays in its memory; requests at the same time need more connections.
    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(_ask_until_it_ends, plane)
    assert plane.exit_code() == 1
    assert f"error: {plane.folder.database}: " in plane.log()
    assert "from a backup" in plane.log()


def _has_lines(path: Path, number: int) -> bool:
    return path.exists() and len(_lines(path)) >= number


def _ask_until_it_ends(plane: ControlPlane) -> None:
    with plane.client() as client, suppress(ServerUnreachableError):
        while True:
            with suppress(ApiError):
                client.jobs()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
