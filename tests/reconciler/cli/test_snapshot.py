"""`quorate snapshot export`: from a server or a file, under other names or not, and what of it is refused."""

from __future__ import annotations

import gzip
import json
import stat
from pathlib import Path

import msgspec
import pytest

from reconciler.api.aliases import aliased
from reconciler.api.server import ApiServer
from reconciler.documents.snapshot import read_snapshot
from solver.model.document import encode
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from tests.reconciler.api.conftest import NOW, Site, spec
from tests.reconciler.cli.conftest import Quorate, submitted
from tests.solver.worlds import job, node


@pytest.fixture
def snapshot_file(tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.json"
    jobs = [msgspec.structs.replace(job(name, "team", 1, 1), user="ada") for name in ("llama", "mistral")]
    path.write_bytes(encode(snapshot_of(Instant(5), [node("n1", 4)], jobs)))
    return path


def test_a_server_hides_users_and_jobs(quorate: Quorate, at_server: ApiServer, site: Site, tmp_path: Path) -> None:
    submitted(site, "llama")
    out = tmp_path / "snapshot.json.gz"
    ran = quorate("snapshot", "export", "--out", str(out))
    nodes = len(site.snapshot().nodes)
    assert ran == (0, f"wrote {out}: {nodes} nodes and 1 job, as of {NOW}\n", "")
    raw = gzip.decompress(out.read_bytes())
    assert b"llama" not in raw
    assert b"ada" not in raw
    assert read_snapshot(raw, "snapshot") == aliased(site.snapshot(), "k" * 43)

    named = json.loads(quorate("snapshot", "export", "--no-alias").out)
    assert [(one["name"], one["user"], one["spec"].get("command")) for one in named["jobs"]] == [
        ("llama", "user-1", None)
    ]
    assert spec().command, "there was one to be left out"


def test_a_file_is_hidden_with_a_key_that_stays(quorate: Quorate, snapshot_file: Path, tmp_path: Path) -> None:
    key, out = tmp_path / "key", tmp_path / "aliased.json"
    arguments = ("snapshot", "export", "--snapshot", str(snapshot_file), "--key", str(key))
    assert quorate(*arguments, "--out", str(out)).exit_code == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert out.read_text() == quorate(*arguments).out, "the key is found again"
    assert [one["name"][:6] for one in json.loads(out.read_text())["jobs"]] == ["job-1-", "job-2-"]
    key.chmod(0o644)
    ran = quorate(*arguments)
    assert (ran.exit_code, "others can read or own this key" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "--key"),
        (("--key", "k", "--no-alias"), "--key is for aliases"),
        (("--server", "http://127.0.0.1:1"), "exclude each other"),
    ],
)
def test_what_does_not_go_together_is_refused(
    quorate: Quorate, snapshot_file: Path, more: tuple[str, ...], said: str
) -> None:
    ran = quorate("snapshot", "export", "--snapshot", str(snapshot_file), *more)
    assert (ran.exit_code, said in ran.err) == (64, True)
