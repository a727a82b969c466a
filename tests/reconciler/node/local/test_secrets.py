"""What tasks get to know of secrets, and nobody else does: real processes, a real folder."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.lifecycle.jobs.retries import classify
from reconciler.model.masking import read_masked
from reconciler.node.local.secrets import SecretFolder, UnsafeSecretsError, check_secret_folder
from reconciler.node.local.terms import Terms
from reconciler.protocols.backend import Cursor, Epoch, TaskStatus
from reconciler.supervisor import delivery
from reconciler.supervisor.taskfiles import SECRETS, STARTED
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, SecretUse, TaskGroup
from tests.contracts.backend_world import start
from tests.contracts.local_worlds import LocalWorld, eventually, local_world
from tests.files import files_with

JOB, QUEUE, ONE = JobName("job"), QueueName("q"), Epoch(1)
CANARY = "can4ry-\N{LATIN SMALL LETTER E WITH ACUTE}-value"
LINEAGE = (QUEUE, QueueName("above"))


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def world(tmp_path: Path, vault: Path) -> Iterator[LocalWorld]:
    with local_world(tmp_path, Terms(SecretFolder(vault, lambda _: LINEAGE))) as made:
        yield made


def test_a_task_has_its_secrets_and_the_state_folder_does_not(world: LocalWorld, vault: Path) -> None:
    put(vault, "q/wandb", f"{CANARY}\n\n")
    put(vault, "above/tls/tls.pem", f"{CANARY}\n")
    uses = SecretUse("wandb", env="KEY"), SecretUse("tls", "tls.pem", file="cert")
    script = """
        printf %s "$KEY" | sha256sum; sha256sum < "$QUORATE_SECRETS/cert"
        stat -c %a "$QUORATE_SECRETS" "$QUORATE_SECRETS/cert"; echo "$QUORATE_SECRETS"; sleep 600"""
    run(world, script, *uses)
    eventually(lambda: log(world).count(b"\n") == 5)
    one, two, of_folder, of_file, where = log(world).decode().splitlines()
    assert one.split()[0] == sha256(CANARY)
    assert two.split()[0] == sha256(f"{CANARY}\n")
    assert (of_folder, of_file) == ("700", "600")
    assert Path(where).is_dir()
    assert files_with(world.state, CANARY.encode()) == []
    assert (folder(world) / STARTED).is_file(), "there was something to look through"
    world.close()
    eventually(lambda: task(world).state == "stopped")
    assert not Path(where).exists()
    assert not (folder(world) / SECRETS).is_symlink()


def test_a_queue_s_own_secret_comes_before_that_of_the_queue_above(world: LocalWorld, vault: Path) -> None:
    put(vault, "above/token", "theirs")
    put(vault, "q/token", "ours")
    run(world, 'test "$TOKEN" = ours', SecretUse("token", env="TOKEN"))
    eventually(lambda: task(world).state == "succeeded")


def test_nothing_is_left_after_a_supervisor_was_killed(world: LocalWorld, vault: Path) -> None:
    put(vault, "q/token", CANARY)
    run(world, 'echo "$QUORATE_SECRETS"; sleep 600', SecretUse("token", file="token"))
    eventually(lambda: b"\n" in log(world))
    where = Path(log(world).decode().strip())
    assert where.is_dir()
    leader = msgspec.json.decode((folder(world) / STARTED).read_bytes())["pid"]
    os.kill(int(Path(f"/proc/{leader}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    eventually(lambda: task(world).state == "lost")
    assert not where.exists()


@pytest.mark.parametrize(
    ("place", "use", "said"),
    [
        ("other/token", SecretUse("token", env="X"), "there is no secret token for this job's queue"),
        ("q/token", SecretUse("token", "key", env="X"), "there is no secret token/key for"),
        ("q/token/key", SecretUse("token", env="X"), "is a folder of keys"),
        ("q/token\0", SecretUse("token", env="X"), "has a zero byte"),
    ],
)
def test_a_task_without_its_secret_does_not_begin(
    world: LocalWorld, vault: Path, place: str, use: SecretUse, said: str
) -> None:
    put(vault, place.rstrip("\0"), CANARY + place[len(place.rstrip("\0")) :])
    run(world, "echo began", use)
    eventually(lambda: task(world).state == "failed")
    assert said in log(world).decode()
    assert b"began" not in log(world)
    assert CANARY.encode() not in log(world)
    assert classify(task(world)) == "launch"


def test_a_secret_of_a_server_that_has_none_is_not_there(tmp_path: Path) -> None:
    with local_world(tmp_path) as world:
        run(world, "echo began", SecretUse("token", env="X"))
        eventually(lambda: task(world).state == "failed")
        assert b"there is no secret token" in log(world)


def test_without_a_folder_in_memory_files_lie_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(delivery, "IN_MEMORY", "/nowhere")
    put(tmp_path, "source", CANARY)
    use = {"name": "token", "places": [str(tmp_path / "source")], "env": "", "file": "token"}
    where = delivery.deliver({"secrets": [use], "account": None, "refused": ""})["QUORATE_SECRETS"]
    assert (Path(where, "token").read_text(), Path(where).parent) == (CANARY, tmp_path)
    for _ in range(2):
        delivery.take_away(".")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_what_a_task_put_in_place_of_its_folder_is_taken_away_and_nothing_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "precious/file", "x")
    (tmp_path / "instead").symlink_to("precious")
    (tmp_path / SECRETS).symlink_to("instead")
    delivery.take_away(".")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "precious"]


def test_what_a_task_prints_of_its_secrets_is_covered(world: LocalWorld, vault: Path) -> None:
    put(vault, "q/token", f"{CANARY}\n")
    run(world, 'echo "a $TOKEN b"; echo "$TOKEN"', SecretUse("token", env="TOKEN"))
    eventually(lambda: task(world).state == "succeeded")
    stars = "*" * len(CANARY.encode())
    whole = f"a {stars} b\n{stars}\n".encode()
    assert log(world) == whole
    in_pieces = [world.backend.read_log(JOB, 1, "worker", 0, at, 3) for at in range(0, len(whole), 3)]
    assert b"".join(in_pieces) == whole
    world.backend.forget(JOB, 1, ONE)
    assert log(world) == whole


@pytest.mark.parametrize(
    ("text", "values", "seen"),
    [
        (b"my secret!", [b"secret"], b"my ******!"),
        (b"my short word", [b"short"], b"my short word"),
        (b"secretsecret secre", [b"secret"], b"************ secre"),
        (b"begins: longer-val", [b"longer-value"], b"begins: **********"),
        (b"abababab", [b"ababab"], b"********"),
        (b"one-value two-value", [b"one-value", b"two-value", b"value two"], b"******************" + b"*"),
        (b"nothing", [], b"nothing"),
    ],
)
def test_values_are_covered_wherever_a_piece_begins_and_ends(text: bytes, values: list[bytes], seen: bytes) -> None:
    def read(offset: int, limit: int) -> bytes:
        return text[offset : offset + limit]

    for offset in range(len(text) + 1):
        for limit in range(1, len(text) + 2 - offset):
            assert read_masked(read, offset, limit, values) == seen[offset : offset + limit]


def test_a_folder_that_others_may_read_is_refused(vault: Path) -> None:
    check_secret_folder(vault)
    vault.chmod(0o750)
    with pytest.raises(UnsafeSecretsError, match="chmod 700"):
        check_secret_folder(vault)
    with pytest.raises(UnsafeSecretsError, match="Make it"):
        check_secret_folder(vault / "none")


def test_what_is_missing_is_known_before_the_job_is_accepted(vault: Path) -> None:
    put(vault, "above/tls/key", "x")
    terms = Terms(SecretFolder(vault, lambda _: LINEAGE))
    job, spec = JobSpec(QUEUE, (TaskGroup("worker", 1, Shape()),), command=("true",)), msgspec.structs.replace
    assert terms.unstartable(spec(job, secrets=(SecretUse("tls", "key", env="X"),)), "ada") is None
    found = terms.unstartable(spec(job, secrets=(SecretUse("tls", "cert", env="X"), SecretUse("tls", env="Y"))), "ada")
    assert found is not None
    assert (found.code, "no secret tls/cert, tls" in found.message) == ("unknown-secret", True)
    none = Terms().unstartable(spec(job, secrets=(SecretUse("tls", "key", env="X"),)), "ada")
    assert none is not None
    assert none.code == "no-secrets"
    assert Terms().unstartable(job, "ada") is None


def put(root: Path, place: str, value: str) -> None:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value, encoding="utf-8")


def run(world: LocalWorld, script: str, *uses: SecretUse) -> None:
    order = start(world, "job", ("sh", "-c", script), (0, (0,)))
    world.backend.submit(msgspec.structs.replace(order, spec=msgspec.structs.replace(order.spec, secrets=uses)), ONE)


def task(world: LocalWorld) -> TaskStatus:
    (found,) = world.backend.changes(Cursor(0)).tasks
    return found


def folder(world: LocalWorld) -> Path:
    return world.state / "live/job.1/worker.0"


def log(world: LocalWorld) -> bytes:
    return world.backend.read_log(JOB, 1, "worker", 0, 0, 100_000)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
