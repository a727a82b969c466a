"""What krew installs as `kubectl quorate`: its manifest says what krew wants said, and the archive is what it says."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hack import krew

URI = f"https://example.com/releases/{krew.ARCHIVE}"
SEMVER = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
SHORT_MAX = 50
"""Characters of a description that `kubectl krew search` shows; krew's own rule for its index."""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    made = tmp_path / "quorate-0.0.0-py3-none-any.whl"
    made.write_bytes(b"a wheel")
    return made


def unpacked(archive: bytes, folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(folder, filter="data")
    return folder


def test_the_manifest_says_what_krew_wants(wheel: Path, tmp_path: Path) -> None:
    archive = krew.packed(wheel)
    (plugin,) = yaml.safe_load_all(krew.manifest(URI, archive))
    assert (plugin["apiVersion"], plugin["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert plugin["metadata"] == {"name": "quorate"}
    spec: dict[str, Any] = plugin["spec"]
    assert SEMVER.fullmatch(spec["version"])
    assert len(spec["shortDescription"]) <= SHORT_MAX
    assert not spec["shortDescription"].endswith(".")
    there = unpacked(archive, tmp_path / "there")
    for platform in spec["platforms"]:
        assert platform["uri"] == URI
        assert platform["sha256"] == hashlib.sha256(archive).hexdigest()
        assert os.access(there / platform["bin"], os.X_OK)
        assert platform["bin"] == "kubectl-quorate"
    selected = [platform["selector"]["matchLabels"] for platform in spec["platforms"]]
    assert len({tuple(sorted(labels.items())) for labels in selected}) == len(selected)
    assert {path.name for path in there.iterdir()} == {"LICENSE", "kubectl-quorate", wheel.name}


def test_the_same_files_give_the_same_archive(wheel: Path) -> None:
    before = krew.packed(wheel)
    os.utime(wheel, (0, 0))
    assert krew.packed(wheel) == before
    wheel.write_bytes(b"another")
    assert krew.packed(wheel) != before


def a_call(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """By a link, as krew has it called."""
    (folder / "bin").mkdir(exist_ok=True)
    link = folder / "bin" / "kubectl-quorate"
    if not link.is_symlink():
        link.symlink_to(folder / "store" / "kubectl-quorate")
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **environment}
    return subprocess.run([link, *arguments], env=env, capture_output=True, text=True, check=False, timeout=600)


def test_a_python_that_will_not_do_is_named(wheel: Path, tmp_path: Path) -> None:
    unpacked(krew.packed(wheel), tmp_path / "store")
    said = a_call(tmp_path, "--version", QUORATE_PYTHON="/nowhere/python3")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == (
        "error: /nowhere/python3 is not Python 3.11 or newer with venv. Install it, or name another in QUORATE_PYTHON\n"
    )
    assert not (tmp_path / "cache").exists()


@pytest.mark.thorough
def test_what_could_not_be_installed_leaves_nothing_behind(wheel: Path, tmp_path: Path) -> None:
    unpacked(krew.packed(wheel), tmp_path / "store")
    said = a_call(tmp_path, "--version", QUORATE_PYTHON=sys.executable)
    assert said.returncode != 0
    assert "once\n" in said.stderr
    assert list((tmp_path / "cache" / "quorate").iterdir()) == []


@pytest.mark.long
def test_it_is_installed_by_the_first_call_and_runs(tmp_path: Path) -> None:
    ran = CliRunner().invoke(krew.main, ["--url", "https://example.com/releases/", "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    (plugin,) = yaml.safe_load_all((tmp_path / "quorate.yaml").read_text())
    assert {platform["uri"] for platform in plugin["spec"]["platforms"]} == {URI}
    unpacked((tmp_path / krew.ARCHIVE).read_bytes(), tmp_path / "store")
    for expected in (1, 0):
        said = a_call(tmp_path, "--version", QUORATE_PYTHON=sys.executable)
        assert said.stdout == f"kubectl quorate {krew.VERSION}\n", said.stderr
        assert said.stderr.count("Installing kubectl quorate into") == expected
    unknown = a_call(tmp_path, "queus", QUORATE_PYTHON=sys.executable)
    assert unknown.returncode == 64
