"""What CI runs, with steps that do nothing: in which order, what is said of them, and that nothing that fails is passed over."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.tracked import ROOT

ONE_BY_ONE = ["check", "test", "test-thorough", "install-console"]
AT_ONCE = ["test-console", "test-postgresql", "test-kubernetes", "supply-chain"]
STEPS = [*ONE_BY_ONE, *AT_ONCE]
MAKEFILE = """
check supply-chain test test-thorough install-console test-console test-postgresql test-kubernetes:
\t@echo doing $@
\t@test $@ != "$$BROKEN" || exit 1
"""


def ran(folder: Path, makefile: str = MAKEFILE, **environment: str) -> subprocess.CompletedProcess[str]:
    """Of a copy of `.ci/run`, in a folder where every step only says its name; `BROKEN` fails."""
    (folder / ".venv/bin").mkdir(parents=True)
    for program in ("chromium", "initdb", "ip", "podman", "promtool"):  # as if they were installed
        (folder / ".venv/bin" / program).touch(mode=0o755)
    (folder / "Makefile").write_text(makefile)
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


@pytest.mark.parametrize("broken", ONE_BY_ONE)
def test_a_step_that_fails_is_the_last(tmp_path: Path, broken: str) -> None:
    run = ran(tmp_path, BROKEN=broken)
    assert run.returncode != 0
    assert done(run) == STEPS[: STEPS.index(broken) + 1]


@pytest.mark.parametrize("broken", AT_ONCE)
def test_of_steps_that_are_done_at_once_one_that_fails_lets_the_others_end(tmp_path: Path, broken: str) -> None:
    run = ran(tmp_path, BROKEN=broken)
    assert run.returncode != 0
    assert done(run) == STEPS
    assert f"{broken}] Error 1" in run.stdout
    assert "all of it took" not in run.stdout


def test_they_are_done_at_once(tmp_path: Path) -> None:
    """Each waits until all of them have begun, and fails where they do not."""
    here = " && ".join(f"test -e begun-{step}" for step in AT_ONCE)
    wait = f"touch begun-$@; for each in $$(seq 1200); do {here} && break; sleep 0.05; done; {here}"
    run = ran(tmp_path, makefile=f"{MAKEFILE}\t@case ' {' '.join(AT_ONCE)} ' in *' $@ '*) {wait};; esac\n")
    assert (run.returncode, done(run)) == (0, STEPS)


@pytest.mark.parametrize("late", ["test-console", "test-kubernetes", "supply-chain"])
def test_what_a_slow_machine_leaves_out_is_said(tmp_path: Path, late: str) -> None:
    name = late.removeprefix("test-").replace("-", "_").upper()
    run = ran(tmp_path, **{f"QUORATE_CI_{name}_BEFORE_S": "0"})
    assert (run.returncode, done(run)) == (0, [step for step in STEPS if step != late])
    assert f"SKIPPED: make {late}, because" in run.stdout
