"""`quorate doctor`: what a machine lacks is told with what does not work without it, and by the exit code where it is wanted."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest

from reconciler.cli.doctor import look
from reconciler.cli.params import Address
from reconciler.gitops.source import hardened_git
from reconciler.node.local import podman
from tests.reconciler.cli.conftest import Quorate

ANY_PORT = Address("127.0.0.1", 0)
Disk = namedtuple("Disk", "total used free")


@pytest.fixture(autouse=True)
def no_podman_is_known() -> None:
    podman.find_podman.cache_clear()


def found(state: Path, name: str, listen: Address = ANY_PORT) -> tuple[str, str]:
    (check,) = [check for check in look(state, listen) if check.name == name]
    assert (check.finding == "ok") == (check.lacks == "") == (check.fix == "")
    return check.finding, check.found


def test_a_machine_that_has_what_a_control_plane_needs(quorate: Quorate, tmp_path: Path) -> None:
    ran = quorate("doctor", "--state", str(tmp_path / "a" / "state"), "--listen", "127.0.0.1:0")
    assert (ran.exit_code, ran.err) == (0, "")
    assert ran.out.splitlines()[0].split() == ["CHECK", "FOR", "FINDING", "FOUND"]
    assert f"{tmp_path}/a/state, to be made" in ran.out
    assert not (tmp_path / "a").exists()


def test_a_taken_port_is_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert found(tmp_path, "port", Address("127.0.0.1", port)) == ("limited", f"{port} is taken")
    assert found(tmp_path, "port") == ("ok", "0 is free")


def test_a_folder_that_may_not_be_written(quorate: Quorate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    ran = quorate("doctor", "--state", str(tmp_path / "state"))
    assert ran.exit_code == 1
    assert "state folder: nothing can be kept\n  Give it to the user that runs Quorate" in ran.out


def test_old_git(quorate: Quorate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hardened_git, "_GIT_MIN", (99, 0))
    ran = quorate("doctor", "--state", str(tmp_path))
    assert ran.exit_code == 1
    assert "git: no policy can be followed\n  Install git 99.0 or newer." in ran.out


def test_little_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(1 << 40, 1 << 40, 1 << 28))
    assert found(tmp_path, "disk") == ("limited", "0.2 GiB free")


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1_024, ("limited", "at most 1024 open")),
        (4_096, ("ok", "at most 4096 open")),
        (resource.RLIM_INFINITY, ("ok", "no limit")),
    ],
)
def test_open_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: int, expected: tuple[str, str]) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert found(tmp_path, "open files") == expected


def test_without_podman_there_are_no_containers(
    quorate: Quorate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert found(tmp_path, "podman") == ("missing", "podman is not installed")
    options = ("doctor", "--state", str(tmp_path), "--listen", "127.0.0.1:0")
    assert quorate(*options).exit_code == 0
    assert quorate(*options, "--for", "run", "--for", "containers").exit_code == 1


@pytest.mark.parametrize(
    ("lacking", "name", "said", "limits"),
    [
        (["gpg"], "signatures", "there is no gpg", "commits signed with GPG keys are refused"),
        (
            ["gpg", "ssh-keygen"],
            "signatures",
            "there is no ssh-keygen and no gpg",
            "commits signed with SSH or GPG keys",
        ),
        (["ssh"], "ssh", "there is no ssh", "no policy can be followed over ssh"),
    ],
)
def test_programs_that_git_asks_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lacking: list[str], name: str, said: str, limits: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None if program in lacking else f"/usr/bin/{program}")
    assert found(tmp_path, name) == ("limited", said)
    (check,) = [check for check in look(tmp_path, ANY_PORT) if check.name == name]
    assert check.lacks.startswith(limits)


@pytest.mark.parametrize(
    ("module", "name"),
    [("fastapi", "quorate[server]"), ("kubernetes", "quorate[kubernetes]"), ("psycopg", "quorate[postgresql]")],
)
def test_an_extra_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, name: str
) -> None:
    assert found(tmp_path, name) == ("ok", "installed")
    real = importlib.util.find_spec
    monkeypatch.setattr("reconciler.cli.doctor.find_spec", lambda asked: None if asked == module else real(asked))
    assert found(tmp_path, name) == ("missing", "not installed")


class Kernel:
    """Tells of its clock what a test wants."""

    def __init__(self, status: int, result: int = 0) -> None:
        self.status, self.result = status, result

    def adjtimex(self, told: object) -> int:
        timex = told._obj  # type: ignore[attr-defined]  # what ctypes.byref refers to
        timex.status, timex.maxerror_us = self.status, 16_000
        return self.result


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Kernel(0), ("ok", "kept in step, to 0.016 s")),
        (Kernel(0x40), ("limited", "not kept in step")),
        (Kernel(0x41, 5), ("limited", "not kept in step")),
        (Kernel(0, -1), ("limited", "not known: Success")),
    ],
)
def test_the_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernel: Kernel, expected: tuple[str, str]) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: kernel)
    monkeypatch.setattr(ctypes, "get_errno", lambda: 0)
    assert found(tmp_path, "clock") == expected


def test_checks_are_data_for_programs(quorate: Quorate, tmp_path: Path) -> None:
    told = json.loads(quorate("doctor", "--state", str(tmp_path), "-o", "json").out)
    assert told["apiVersion"] == "quorate.dev/v1"
    assert {item["feature"] for item in told["items"]} == {
        "run",
        "processes",
        "containers",
        "gpus",
        "kubernetes",
        "postgresql",
    }
