"""What CI runs, with steps that do nothing: in which order, what is said of them, and that nothing that fails is passed over."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.tracked import ROOT

STEPS = ["check", "test", "test-thorough", "test-postgresql", "test-kubernetes"]
MAKEFILE = """
.venv/bin/python:
check test test-thorough test-postgresql test-kubernetes:
\t@echo doing $@
\t@test $@ != "$$BROKEN" || exit 1
"""
BUILD = """#!/bin/sh
echo of the build
echo $$ > build.pid
test "$BROKEN" != build || exit 1
test -z "$SLOW" || exec sleep 60
"""


def ran(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Of a copy of `.ci/run`, in a folder where every step only says its name; `BROKEN` fails."""
    (folder / ".venv/bin").mkdir(parents=True)
    for name in ("python", "initdb"):  # as if PostgreSQL were installed
        (folder / ".venv/bin" / name).write_text(BUILD)
        (folder / ".venv/bin" / name).chmod(0o755)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    own = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "QUORATE_CI_LEAVE_OUT")}
    own["PATH"] = f"{folder / '.venv/bin'}:{own['PATH']}"
    return subprocess.run([folder / ".ci/run"], env={**own, **environment}, capture_output=True, text=True, check=False)


def done(run: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"^doing (.*)$", run.stdout, re.MULTILINE)


def test_each_step_is_done_and_how_long_it_took_is_said(tmp_path: Path) -> None:
    run = ran(tmp_path)
    assert (run.returncode, done(run)) == (0, STEPS)
    assert re.findall(r"^== make (\S+) took \d+ s$", run.stdout, re.MULTILINE)[1:] == STEPS
    assert "of the build\n== waited for etcd and kube-apiserver for " in run.stdout


@pytest.mark.parametrize("broken", STEPS)
def test_a_step_that_fails_is_the_last(tmp_path: Path, broken: str) -> None:
    run = ran(tmp_path, BROKEN=broken)
    assert run.returncode != 0
    assert done(run) == STEPS[: STEPS.index(broken) + 1]


def test_without_an_api_server_it_fails_and_says_why(tmp_path: Path) -> None:
    run = ran(tmp_path, BROKEN="build")
    assert (run.returncode, done(run)) == (1, STEPS[:-1])
    assert "of the build" in run.stdout


def test_only_who_says_so_goes_without_kubernetes(tmp_path: Path) -> None:
    run = ran(tmp_path, BROKEN="build", QUORATE_CI_LEAVE_OUT="kubernetes")
    assert (run.returncode, done(run)) == (0, STEPS[:-1])
    assert "== left out, as QUORATE_CI_LEAVE_OUT says: make test-kubernetes" in run.stdout
    (tmp_path / "typo").mkdir()
    assert ran(tmp_path / "typo", QUORATE_CI_LEAVE_OUT="kubernets").returncode == 64


def test_a_build_does_not_outlive_a_step_that_fails(tmp_path: Path) -> None:
    run = ran(tmp_path, BROKEN="test-thorough", SLOW="yes")
    assert run.returncode != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "build.pid").read_text()), 0)
