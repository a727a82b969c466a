"""Secrets go with orders to the nodes whose tasks begin, lie in memory until they have, and are covered in what is shown."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.backends.baremetal.wire import MESSAGE_BYTES_MAX, SECRETS_BYTES_MAX, Do, Refused, SentSecret
from reconciler.node.agent import order_handler
from reconciler.node.agent.secrets import ReceivedSecrets
from reconciler.node.local.secrets import SecretFolder
from reconciler.protocols.backend import Epoch, StartGang
from reconciler.server.agent_secrets import AgentSecrets
from reconciler.supervisor import delivery
from solver.model.cluster import NodeName
from solver.model.document import encode
from solver.model.quantities import Duration
from solver.model.workload import JobName, JobSpec, QueueName, SecretUse
from tests.contracts.backend_world import Watcher, grow, start, stop
from tests.contracts.baremetal_worlds import BareMetalWorld
from tests.contracts.local_worlds import eventually
from tests.files import files_with
from tests.reconciler.backends.baremetal.trust import Trust

JOB, N2 = JobName("job"), NodeName("n2")
CANARY = b"can4ry-of-a-secret"
USES = SecretUse("wandb", env="KEY"), SecretUse("tls", "tls.pem", file="cert")


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    (folder / "q/tls").mkdir(parents=True, mode=0o700)
    (folder / "q/wandb").write_bytes(CANARY + b"\n")
    (folder / "q/tls/tls.pem").write_bytes(CANARY)
    return folder


@pytest.fixture
def world(tmp_path: Path, trust: Trust, vault: Path) -> Iterator[BareMetalWorld]:
    made = BareMetalWorld(tmp_path, trust)
    made.sends = AgentSecrets(SecretFolder(vault, lambda queue: (queue,))).sent
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits a minute."""
    monkeypatch.setattr(order_handler, "SECRETS_FOR", Duration(0))


def secretive(world: BareMetalWorld, order: StartGang) -> StartGang:
    world.specs[order.job] = msgspec.structs.replace(order.spec, queue=QueueName("q"), secrets=USES)
    return msgspec.structs.replace(order, spec=world.specs[order.job])


def received(world: BareMetalWorld, node: str) -> list[str]:
    """What lies in the memory of a node for tasks that are about to begin. Its agent may remove it while it is listed."""
    link = world.state / node / "secrets"
    return sorted(str((Path(folder) / name).relative_to(link)) for folder, _, names in os.walk(link) for name in names)


def test_a_task_has_its_secrets_its_node_alone_and_no_disk(world: BareMetalWorld) -> None:
    script = 'printf %s "$KEY" | sha256sum; sha256sum < "$QUORATE_SECRETS/cert"; echo "told $KEY"; sleep 600'
    watcher = Watcher(world)
    watcher.send(secretive(world, start(world, "job", world.shell(script), (1, (0,)))))
    read = (JOB, 1, "worker", 0, 0, 1_000)
    eventually(lambda: b"told" in world.inner.read_log(*read))
    one, two, told = world.inner.read_log(*read).decode().splitlines()
    assert one.split()[0] == two.split()[0] == hashlib.sha256(CANARY).hexdigest()
    assert told == "told " + "*" * len(CANARY)
    assert received(world, "n2") == ["job.1/tls,tls.pem", "job.1/wandb,"]
    assert received(world, "n1") == []
    assert not (world.state / "n1" / "secrets").is_symlink()
    where = (world.state / "n2" / "secrets").resolve()
    assert (str(where.parent), where.stat().st_mode & 0o777) == (delivery.IN_MEMORY, 0o700)
    assert files_with(world.state, CANARY) == [world.state / "n2/tasks/live/job.1/worker.0/log"]


@pytest.mark.usefixtures("at_once")
def test_they_are_gone_once_the_tasks_have_begun(world: BareMetalWorld) -> None:
    watcher = Watcher(world)
    watcher.send(secretive(world, start(world, "job", world.shell('sleep 600 < "$QUORATE_SECRETS/cert"'), (1, (0,)))))
    watcher.until(lambda: watcher.states("job") == ["running"])
    eventually(lambda: received(world, "n2") == [])


@pytest.mark.usefixtures("at_once")
def test_an_order_that_is_refused_leaves_none_behind(world: BareMetalWorld) -> None:
    watcher = Watcher(world)
    watcher.send(start(world, "other", world.succeeds(), (1, (1,))), epoch=7)
    watcher.until(lambda: watcher.states("other") == ["succeeded"])
    order = secretive(world, start(world, "job", world.succeeds(), (1, (0,))))
    answer = world.door.ask(N2, lambda number: Do(number, Epoch(3), order, world.sends(order.spec))).result(60)
    assert isinstance(answer, Refused)
    assert (world.state / "n2" / "secrets").is_symlink(), "they had come"
    eventually(lambda: received(world, "n2") == [])


def test_those_who_join_get_them_as_they_are_then_and_no_others_do(world: BareMetalWorld, vault: Path) -> None:
    script = 'printf %s "$KEY" | sha256sum; sleep 600'
    watcher, order = Watcher(world), secretive(world, start(world, "job", world.shell(script), (0, (0,))))
    watcher.send(order)
    watcher.until(lambda: watcher.states("job") == ["running"])
    (vault / "q/wandb").write_bytes(b"another one")
    watcher.send(grow(world, order, 1, (1, (1, (0,)))))
    eventually(lambda: len(world.inner.read_log(JOB, 1, "worker", 1, 0, 1_000)) > 64)
    told = world.inner.read_log(JOB, 1, "worker", 1, 0, 1_000).decode().split()[0]
    assert told == hashlib.sha256(b"another one").hexdigest()
    kept = [(world.state / node / "secrets/job.1/wandb,").read_bytes() for node in ("n1", "n2")]
    assert kept == [CANARY + b"\n", b"another one"], "whose tasks run already was sent nothing"


def test_nobody_else_can_put_a_folder_where_the_one_in_memory_was(tmp_path: Path) -> None:
    link, secret = tmp_path / "secrets", SentSecret("wandb", "", CANARY)
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    link.symlink_to(theirs)
    secrets = ReceivedSecrets(link)
    order = StartGang(JOB, 1, (), JobSpec(QueueName("q"), ()))
    assert (secrets.held(), secrets.places(order, USES[0])) == ([], ())
    secrets.keep(JOB, 1, [secret])
    (place,) = secrets.places(order, USES[0])
    assert place.read_bytes() == CANARY
    assert link.resolve() != theirs
    assert list(theirs.iterdir()) == []
    assert ReceivedSecrets(link).held() == [(JOB, 1)], "they are found again"
    secrets.drop(JOB, 1)
    assert (secrets.held(), list(link.iterdir())) == ([], [])
    link.resolve().rmdir()


def test_a_message_shows_no_value() -> None:
    assert CANARY.decode() not in repr(Do(1, Epoch(1), stop("job"), (SentSecret("wandb", "", CANARY),)))


def test_more_than_agents_are_sent_is_refused_and_not_sent(vault: Path) -> None:
    uses = tuple(SecretUse(f"large-{number}", env=f"LARGE_{number}") for number in range(5))
    for use in uses:
        (vault / "q" / use.name).write_bytes(bytes(SECRETS_BYTES_MAX // 5))
    secrets, spec = AgentSecrets(SecretFolder(vault, lambda queue: (queue,))), JobSpec(QueueName("q"), (), secrets=uses)
    assert secrets.unstartable(spec, "ada") is None
    assert len(encode(Do(1, Epoch(1), stop("job"), secrets.sent(spec)))) < MESSAGE_BYTES_MAX
    (vault / "q" / uses[0].name).write_bytes(bytes(SECRETS_BYTES_MAX // 5 + 10))
    refused = secrets.unstartable(spec, "ada")
    assert refused is not None and "agents are sent no more" in refused.message  # noqa: PT018
    assert secrets.sent(spec) == ()


def test_a_control_plane_without_secrets_has_none_to_send() -> None:
    spec = JobSpec(QueueName("q"), (), secrets=USES)
    refused = AgentSecrets(None).unstartable(spec, "ada")
    assert refused is not None and refused.code == "no-secrets"  # noqa: PT018
    assert AgentSecrets(None).sent(spec) == ()
