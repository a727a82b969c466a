"""A secret on its way from a folder to a task, under a real control plane: looked for everywhere that it must not be."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from reconciler.access.token_file import read_token
from reconciler.api.rules import RULES
from reconciler.client import ApiError, Client
from solver.model.document import encode
from solver.model.workload import JobName, JobSpec, SecretUse
from tests.e2e.control_plane import PATIENCE_S, ControlPlane, sh, until
from tests.files import contents
from tests.reconciler.gitops.source.origin import Origin

pytestmark = pytest.mark.thorough

CANARY = "c4nary/of+a/secret=="
USES = SecretUse("wandb", env="WANDB_API_KEY"), SecretUse("tls", "tls.pem", file="tls.pem")
PROOF = """
    printf %s "$WANDB_API_KEY" | sha256sum; sha256sum < "$QUORATE_SECRETS/tls.pem"
    printf '{"step": 1}' > new && mv new "$QUORATE_PROGRESS_FILE"
    while [ ! -e go ]; do sleep 0.05; done"""


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    folder.mkdir(mode=0o700)
    (folder / "team/tls").mkdir(parents=True)
    (folder / "team/wandb").write_text(CANARY + "\n")
    (folder / "team/tls/tls.pem").write_text(CANARY)
    return folder


def test_a_secret_is_in_the_tasks_and_nowhere_else(plane: ControlPlane, vault: Path) -> None:
    plane.start("--secrets", str(vault)).until_ready()
    with plane.client() as client:
        client.submit(JobName("knows"), secretive(PROOF))
        digest = sha256(CANARY.encode()).hexdigest()
        until("it has them", lambda: plane.logged("bound") and log_of(client, "knows").count(digest) == 2)
        assert found_in(plane, client, ["knows"]) == []
        (plane.folder.tasks / "live/knows.1/worker.0/work/go").touch()
        assert client.wait("knows", PATIENCE_S).state == "succeeded"
        client.submit_group(array_that_prints())
        view = client.wait("prints-0", PATIENCE_S)
        assert (view.state, view.outcome and "told *" in view.outcome.message) == ("failed", True)
        assert client.log("prints-0") == b"told " + b"*" * len(CANARY) + b"\n"
        own_log = plane.folder.tasks / "forgotten/prints-0.1/worker.0/log"
        until("the attempt is put away", own_log.exists)
        assert found_in(plane, client, ["knows", "prints-0", "prints"]) == [str(own_log)]
    assert plane.signal(signal.SIGTERM) == 0
    assert found_in(plane, None, []) == [str(own_log)]


@pytest.mark.long
def test_a_secret_that_is_not_there_is_said_when_it_is_asked_for(plane: ControlPlane, vault: Path) -> None:
    plane.start("--secrets", str(vault)).until_ready()
    unknown = msgspec.structs.replace(sh("true"), secrets=(SecretUse("wandbb", env="X"),))
    with plane.client() as client:
        with pytest.raises(ApiError, match="have no secret wandbb") as refused:
            client.submit(JobName("job"), unknown)
        assert (refused.value.status, refused.value.problem.code) == (422, "unknown-secret")
        with pytest.raises(ApiError, match="have no secret wandbb"):
            client.test(document("job", unknown))


@pytest.mark.long
def test_secrets_that_others_can_read_keep_it_from_starting(plane: ControlPlane, vault: Path) -> None:
    vault.chmod(0o755)
    plane.spawn("--secrets", str(vault))
    assert plane.exit_code() == 1
    assert f"chmod 700 {vault}" in plane.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_jobs_run_as_who_submitted_them(origin: Origin, vault: Path) -> None:
    ground = Path(tempfile.mkdtemp(prefix="quorate-run-as-"))
    ground.chmod(0o711)
    plane = ControlPlane(origin.folder, ground / "state")
    try:
        plane.start("--run-as-submitter", "--account", "root=nobody", "--secrets", str(vault)).until_ready()
        with plane.client() as client:
            client.submit(JobName("job"), secretive('id -un; test -r "$QUORATE_SECRETS/tls.pem" && echo has it'))
            assert client.wait("job", PATIENCE_S).state == "succeeded"
            until("the log is there", lambda: client.log("job") == b"nobody\nhas it\n")
        assert plane.signal(signal.SIGTERM) == 0
        # The one who holds the state folder's token is root here, as whom no job runs.
        plane.start("--run-as-submitter").until_ready()
        with plane.client() as client, pytest.raises(ApiError, match="no job runs as it") as refused:
            client.submit(JobName("other"), sh("true"))
        assert (refused.value.status, refused.value.problem.code) == (422, "no-account")
    finally:
        plane.end()
        shutil.rmtree(ground)


def log_of(client: Client, name: str) -> str:
    """What there is of it so far; nothing before the first attempt."""
    try:
        return client.log(name).decode()
    except ApiError as error:
        assert error.status == 404, error  # noqa: PT017  (anything else is a failure)
        return ""


def secretive(script: str) -> JobSpec:
    return msgspec.structs.replace(sh(script), secrets=USES)


def document(name: str, spec: JobSpec) -> bytes:
    written = {"apiVersion": "quorate.dev/v1", "kind": "Job", "metadata": {"name": name}}
    return json.dumps({**written, "spec": json.loads(encode(spec))}).encode()


def array_that_prints() -> bytes:
    job = json.loads(document("prints", secretive('echo "told $WANDB_API_KEY"; exit 3')))
    job["spec"]["array"] = {"indices": "0"}
    return json.dumps(job).encode()


def found_in(plane: ControlPlane, client: Client | None, names: list[str]) -> list[str]:
    """Where the value is, as it is or as JSON has it: files, the log, and every answer of the API."""
    seen = [(str(path), content) for path, content in contents(plane.folder.path)] + [("log", plane.log().encode())]
    assert any(name.endswith("quorate.db") for name, _ in seen)
    if client is not None:
        seen += [(path, body) for path in paths(client, names) for body in [answer(plane, path)]]
    return [name for name, text in seen if CANARY.encode() in text]


def paths(client: Client, names: list[str]) -> Iterator[str]:
    rounds = [str(each.number) for each in client.all_rounds()]
    for rule in RULES:
        method, path = rule.split()
        if method == "GET":
            filled = [path.replace("{name}", name).replace("{group}", name) for name in names]
            yield from {each.replace("{number}", number) for each in filled for number in rounds}


def answer(plane: ControlPlane, path: str) -> bytes:
    """The body; of a stream, what it has to say at once."""
    if path != "/v1/watch":
        return body_of(plane, path, 60)
    found = (body_of(plane, f"{path}?after=0", patience_s) for patience_s in (1, 4, 10))
    return next(body for body in found if b"event" in body)


def body_of(plane: ControlPlane, path: str, patience_s: float) -> bytes:
    """A stream's ends when nothing came for so long, which has to be less than KEEP_ALIVE_S; a busy server's may be empty."""
    url = plane.logged("listening")[-1]["url"] + path
    headers = {"Authorization": f"Bearer {read_token(plane.folder.token)}"}
    body = b""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=patience_s) as response:
            assert response.status == 200
            while piece := response.read1():
                body += piece
    except urllib.error.HTTPError as error:
        # A group's name where a job's is asked for, or the reverse; agents of a control plane that has none.
        assert error.code in (404, 422) or path == "/v1/agents", f"{path}: {error}"  # noqa: PT017  (anything else is a failure)
        body = error.read()
    except TimeoutError:
        assert path.startswith("/v1/watch?")
    return body
