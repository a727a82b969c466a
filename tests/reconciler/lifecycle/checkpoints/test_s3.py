"""The same against a server that speaks S3."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.lifecycle.checkpoints.manifest import StepFolder
from reconciler.lifecycle.checkpoints.publication import manifest_of
from reconciler.lifecycle.checkpoints.storage import Storage
from reconciler.lifecycle.checkpoints.verification import verify
from reconciler.model.checkpoint_findings import MissingShard, WrongHash
from solver.model.quantities import Instant
from tests.reconciler.lifecycle.checkpoints.storages import JOB, hand_in, publish

WHY = "needs the dependency group s3: moto[server] and s3fs"
pytest.importorskip("s3fs", reason=WHY)
moto_server = pytest.importorskip("moto.server", reason=WHY)

STEP = StepFolder(1, 100)
pytestmark = pytest.mark.filterwarnings("ignore")
"""The server and its client warn of each other's age."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def url(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"quorate-{uuid.uuid4().hex}"
    s3fs.S3FileSystem(use_listings_cache=False).mkdir(bucket)
    return f"s3://{bucket}/checkpoints/{JOB}"


def test_from_parts_to_a_verified_checkpoint_and_to_none(url: str, tmp_path: Path) -> None:
    storage = Storage(url)
    assert storage.names("") == ()
    hand_in(url, tmp_path, 100, {"weights": b"w" * 9_000_000, "empty": b""}, 0, 2)
    assert manifest_of(storage, JOB, STEP, 1) is None
    hand_in(url, tmp_path, 100, {"weights": b"v"}, 1, 2)
    digest = publish(url, 100).digest
    assert storage.names("") == (str(STEP),)
    assert verify(storage, JOB, STEP, digest) == ()
    assert (storage.changed_at(str(STEP)) or Instant(0)) > 0
    storage.publish(f"{STEP}/worker.1/weights", b"x")
    storage.delete(f"{STEP}/worker.0/empty")
    assert verify(storage, JOB, STEP, digest) == (MissingShard("worker.0", "empty"), WrongHash("worker.1", "weights"))
    storage.delete(str(STEP))
    assert storage.names("") == ()
    storage.delete(str(STEP))
