"""Tasks that run as an account of their own: what they are, what they may reach, and what they can't forge."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.lifecycle.jobs.retries import classify
from reconciler.node.local.accounts import NoAccountError, Submitters
from reconciler.node.local.secrets import SecretFolder
from reconciler.node.local.terms import Terms
from reconciler.protocols.backend import Cursor, Epoch, StartGang, TaskStatus
from reconciler.server.folder import StateFolder
from reconciler.server.terms import IdentityError, open_to_accounts
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, SecretUse, TaskGroup
from tests.contracts.backend_world import grow, start, stop_workers, tell
from tests.contracts.local_worlds import LocalWorld, eventually, local_world

JOB, ONE = JobName("job"), Epoch(1)
ACCOUNT = "nobody"
"""An account that every machine has, and that UID_MIN does not take for one of the system's own."""

SPEC = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape()),), command=("true",))

ROOTS_OWN_GROUP = 4
"""One that the server has and no account of a job inherits."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@pytest.fixture
def ground() -> Iterator[Path]:
    """A folder that every account can pass through: pytest's own are closed."""
    made = Path(tempfile.mkdtemp(prefix="quorate-run-as-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def world(ground: Path) -> Iterator[LocalWorld]:
    vault = ground / "vault"
    (vault / "q").mkdir(parents=True, mode=0o700)
    (vault / "q/token").write_text("s3cret-t0ken")
    before, groups = os.umask(0o022), os.getgroups()
    os.setgroups([*groups, ROOTS_OWN_GROUP])
    try:
        (ground / "state").mkdir()
        open_to_accounts(ground / "state", ground / "state")
        terms = Terms(SecretFolder(vault, lambda queue: (queue,)), Submitters({"ada": ACCOUNT}))
        with local_world(ground, terms) as made:
            yield made
    finally:
        os.umask(before)
        os.setgroups(groups)


@needs_root
def test_a_task_is_its_account_and_nothing_more(world: LocalWorld) -> None:
    entry = pwd.getpwnam(ACCOUNT)
    run(
        world,
        'id -u; id -g; id -G; umask; echo "$USER $LOGNAME $HOME"; pwd; stat -c %u .; touch here; grep CapEff /proc/self/status',
    )
    eventually(lambda: task(world).state == "succeeded")
    uid, gid, groups, umask, names, where, owner, capabilities = log(world).splitlines()
    assert (uid, gid, groups.split()[0]) == (str(entry.pw_uid), str(entry.pw_gid), str(entry.pw_gid))
    assert {"0", str(ROOTS_OWN_GROUP)}.isdisjoint(groups.split())
    assert umask == "0077"
    assert names == f"{ACCOUNT} {ACCOUNT} {entry.pw_dir}"
    assert (where, owner) == (str(folder(world) / "work"), str(entry.pw_uid))
    assert int(capabilities.split()[1], 16) == 0


@needs_root
def test_a_task_begins_in_a_folder_only_where_its_account_may(world: LocalWorld, ground: Path) -> None:
    own, closed = ground / "own", ground / "closed"
    own.mkdir(mode=0o700)
    os.chown(own, pwd.getpwnam(ACCOUNT).pw_uid, -1)
    closed.mkdir(mode=0o700)
    run(world, "pwd; touch here", begins_in=own)
    eventually(lambda: task(world).state == "succeeded")
    assert (log(world), (own / "here").exists()) == (f"{own}\n", True)
    run(world, "echo began", job="shut-out", begins_in=closed)
    eventually(lambda: task(world, "shut-out").state == "failed")
    said = log(world, job="shut-out")
    assert f"can't begin in {closed} on node n1 as user {pwd.getpwnam(ACCOUNT).pw_uid}: Permission denied" in said
    assert "began" not in said


@needs_root
def test_a_task_reaches_what_is_its_own_and_nothing_of_its_supervisor(world: LocalWorld) -> None:
    script = """
        cat "$QUORATE_SECRETS/token" > proof && printf '{"step": 7}' > new && mv new "$QUORATE_PROGRESS_FILE"
        grep -q world "$QUORATE_GANG_FILE" && echo sees its gang
        cd "$QUORATE_TASK_FOLDER"
        for file in exit lock started task.json log request secrets ../order.json ../stop ../tells.json; do
            (echo forged > "$file") 2>/dev/null && echo "wrote $file"
            test "$file" = request || (cat "$file" > /dev/null) 2>/dev/null && test -f "$file" && echo "read $file"
        done
        ls . .. ../.. ../../.. 2>/dev/null
        kill -0 $PPID 2>/dev/null && echo may signal its supervisor
        rm -rf "$QUORATE_TASK_FOLDER" 2>/dev/null; echo done; sleep 600"""
    run(world, script, SecretUse("token", file="token"))
    eventually(lambda: "done" in log(world))
    assert log(world).split("\n", 1) == ["sees its gang", "done\n"]
    eventually(lambda: task(world).progress is not None)
    world.backend.submit(tell("job", 1, signal=""), ONE)
    eventually(lambda: task(world).told == 1)
    assert (folder(world) / "request").stat().st_mode & 0o777 == 0o644
    assert task(world).state == "running"


@needs_root
def test_a_task_is_told_and_stopped_though_it_is_somebody_else(world: LocalWorld) -> None:
    run(world, 'while ! cat "$QUORATE_REQUEST_FILE" 2>/dev/null; do sleep 0.02; done; sleep 600')
    eventually(lambda: task(world).state == "running")
    world.backend.submit(tell("job", 1, signal=""), ONE)
    eventually(lambda: log(world).endswith("}"))
    assert json.loads(log(world))["number"] == 1
    world.close()
    assert task(world).state == "stopped"


@needs_root
def test_who_joins_later_is_the_same_account_and_lives_once_more(world: LocalWorld) -> None:
    script = 'cat "$QUORATE_SECRETS/token" > proof; id -un; cat "$QUORATE_GANG_FILE" > seen && exec sleep 600'
    order = run(world, script, SecretUse("token", file="token"))
    for growth in (1, 2):
        joining = grow(world, order, growth, (1, (1, (0,))))
        world.backend.submit(msgspec.structs.replace(joining, spec=order.spec, user="ada"), ONE)
        eventually(lambda: log(world, 1) == f"{ACCOUNT}\n" * growth)  # noqa: B023  (called at once)
        life = folder(world).parent / f"worker.1.{growth}"
        eventually((life / "work/seen").exists)
        world.backend.submit(stop_workers("job", 1, growth=growth), ONE)
        eventually((life / "exit").exists)
        assert not (life / "secrets").is_symlink()
        assert (life / "work/proof").read_text() == "s3cret-t0ken"


@needs_root
def test_a_user_without_an_account_runs_nothing(world: LocalWorld) -> None:
    run(world, "echo began", user="eve-has-none")
    eventually(lambda: task(world).state == "failed")
    assert "there is no account 'eve-has-none'" in log(world)
    assert "began" not in log(world)
    assert classify(task(world)) == "launch"


def test_what_is_no_account_of_a_person_is_refused() -> None:
    accounts = Submitters({"ada": ACCOUNT, "mallory": "root", "trent": "daemon"})
    assert accounts.account_of("ada").uid == pwd.getpwnam(ACCOUNT).pw_uid
    for user, said in (
        ("mallory", "system's own"),
        ("trent", "system's own"),
        ("root", "system's own"),
        ("no one", "no account"),
    ):
        with pytest.raises(NoAccountError, match=said):
            accounts.account_of(user)
        refused = Terms(submitters=accounts).unstartable(SPEC, user)
        assert refused is not None
        assert refused.code == "no-account"
    assert Terms(submitters=accounts).unstartable(SPEC, "ada") is None


def test_the_control_plane_s_own_account_is_refused(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam(ACCOUNT).pw_uid)
    with pytest.raises(NoAccountError, match="system's own"):
        Submitters({}).account_of(ACCOUNT)
    with pytest.raises(IdentityError, match="needs root"):
        open_to_accounts(ground, ground / "tasks")


@needs_root
def test_the_state_folder_is_closed_before_it_is_opened_to_accounts(ground: Path) -> None:
    state = StateFolder(ground / "state")
    state.path.mkdir(mode=0o700)
    state.database.write_text("jobs")
    state.database.chmod(0o644)
    before = os.umask(0o022)
    try:
        open_to_accounts(state.path, state.tasks)
        state.token.write_text("token")
        ground.chmod(0o700)
        with pytest.raises(IdentityError, match="Choose another --state"):
            open_to_accounts(state.path, state.tasks)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (state.path, state.database, state.tasks, state.token)}
    assert modes == {"state": 0o711, "quorate.db": 0o600, "tasks": 0o711, "token": 0o600}


def run(
    world: LocalWorld, script: str, *uses: SecretUse, user: str = "ada", job: str = JOB, begins_in: Path | None = None
) -> StartGang:
    order = start(world, job, ("sh", "-c", script), (0, (0,)))
    spec = msgspec.structs.replace(order.spec, secrets=uses, working_directory=str(begins_in or ""))
    order = msgspec.structs.replace(order, spec=spec, user=user)
    world.backend.submit(order, ONE)
    return order


def task(world: LocalWorld, job: str = JOB) -> TaskStatus:
    (found,) = (each for each in world.backend.changes(Cursor(0)).tasks if each.job == job)
    return found


def log(world: LocalWorld, index: int = 0, job: str = JOB) -> str:
    return world.backend.read_log(JobName(job), 1, "worker", index, 0, 100_000).decode()


def folder(world: LocalWorld) -> Path:
    return world.state / "live/job.1/worker.0"
