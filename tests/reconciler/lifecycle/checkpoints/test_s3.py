"""The same against a server that speaks S3."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.lifecycle.checkpoints.manifest import StepFolder
from reconciler.lifecycle.checkpoints.publication import manifest_of
from reconciler.lifecycle.checkpoints.storage import Storage, StorageUnusableError
from reconciler.lifecycle.checkpoints.verification import verify
from reconciler.model.checkpoint_findings import MissingShard, WrongHash
from solver.model.quantities import Instant
from tests.reconciler.api.web import WEB
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


@dataclass
class AccessKey:
    """Of a user of the server who may do everything."""

    endpoint: str
    user: str
    number: str
    secret: str

    @property
    def profile(self) -> str:
        return f"[default]\naws_access_key_id = {self.number}\naws_secret_access_key = {self.secret}\n"

    def take_back(self) -> None:
        people(self.endpoint, self.number, self.secret).delete_access_key(UserName=self.user, AccessKeyId=self.number)


def people(endpoint: str, number: str = "test", secret: str = "test") -> Any:
    import boto3

    named = {"aws_access_key_id": number, "aws_secret_access_key": secret}
    return boto3.client("iam", endpoint_url=endpoint, region_name="us-east-1", **named)


def new_key(endpoint: str, user: str) -> AccessKey:
    iam, everything = people(endpoint), {"Effect": "Allow", "Action": "*", "Resource": "*"}
    iam.create_user(UserName=user)
    policy = json.dumps({"Version": "2012-10-17", "Statement": [everything]})
    iam.put_user_policy(UserName=user, PolicyName="all", PolicyDocument=policy)
    made = iam.create_access_key(UserName=user)["AccessKey"]
    return AccessKey(endpoint, user, made["AccessKeyId"], made["SecretAccessKey"])


@contextmanager
def asking_for_credentials(endpoint: str) -> Iterator[None]:
    """For once the server checks who asks."""

    def without(actions: str) -> None:
        WEB.post(f"{endpoint}/moto-api/reset-auth", content=actions).raise_for_status()

    without("0")
    try:
        yield
    finally:
        without("inf")


def test_credentials_are_replaced_beneath_a_process_that_goes_on(
    url: str, endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file of credentials is read again once the storage has refused those of before."""
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    path, first, second = tmp_path / "credentials", new_key(endpoint, "first"), new_key(endpoint, "second")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    path.write_text(first.profile)
    s3fs.S3FileSystem.clear_instance_cache()
    with asking_for_credentials(endpoint):
        Storage(url).publish("one", b"1")
        path.write_text(second.profile)
        Storage(url).publish("one", b"both count, and the first is used on")
        first.take_back()
        with pytest.raises(StorageUnusableError):
            Storage(url).publish("two", b"2")
        Storage(url).publish("two", b"2")
        assert Storage(url).read("two") == b"2"
