"""What CI runs, with steps that do nothing: in which order, what is said of them, and that nothing that fails is passed over."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.tracked import ROOT

STEPS = ["check", "test", "test-thorough", "test-console", "test-postgresql", "test-kubernetes", "supply-chain"]
MAKEFILE = """
check supply-chain test test-thorough test-console test-postgresql test-kubernetes:
\t@echo doing $@
\t@test $@ != "$$BROKEN" || exit 1
"""


def ran(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Of a copy of `.ci/run`, in a folder where every step only says its name; `BROKEN` fails."""
    (folder / ".venv/bin").mkdir(parents=True)
    for program in ("chromium", "initdb", "ip", "podman", "promtool"):  # as if they were installed
        (folder / ".venv/bin" / program).touch(mode=0o755)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    own = {key: value for key, value in os.environ.items() if key != "MAKEFLAGS" and not key.startswith("QUORATE_CI")}
    own["PATH"] = f"{folder / '.venv/bin'}:{own['PATH']}"
    return subprocess.run([folder / ".ci/run"], env={**own, **environment}, capture_output=True, text=True, check=False)


def done(run: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"^doing (.*)$", run.stdout, re.MULTILINE)


def test_each_step_is_done_and_how_long_it_took_is_said(tmp_path: Path) -> None:
    run = ran(tmp_path)
    assert (run.returncode, done(run)) == (0, STEPS)
    assert re.findall(r"^== make (\S+) took \d+ s$", run.stdout, re.MULTILINE) == STEPS


@pytest.mark.parametrize("broken", STEPS)
def test_a_step_that_fails_is_the_last(tmp_path: Path, broken: str) -> None:
    run = ran(tmp_path, BROKEN=broken)
    assert run.returncode != 0
    assert done(run) == STEPS[: STEPS.index(broken) + 1]


@pytest.mark.parametrize("late", ["test-console", "test-kubernetes", "supply-chain"])
def test_what_a_slow_machine_leaves_out_is_said(tmp_path: Path, late: str) -> None:
    name = late.removeprefix("test-").replace("-", "_").upper()
    run = ran(tmp_path, **{f"QUORATE_CI_{name}_BEFORE_S": "0"})
    assert (run.returncode, done(run)) == (0, [step for step in STEPS if step != late])
    assert f"SKIPPED: make {late}, because" in run.stdout
