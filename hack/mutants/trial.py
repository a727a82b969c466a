"""Runs tests in a copy of this checkout, with a mutant in it or without."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

from hack.mutants.catalogue import ROOT, Mutant, mutated

Result = Literal["caught", "survived", "hung", "broken"]
"""hung: the tests had no end, which CI ends. broken: they could not be run, so they say nothing."""

LIMIT_S: Final = 240
"""For how long the tests of one mutant may run; the longest take half of that on a busy machine."""

BASELINE_LIMIT_S: Final = 1_800
"""For how long all tests that are named may run together, without a mutant."""

_SUITES: Final = "not long and not postgresql and not console"
"""Of CI's suites: `make test`, `make test-thorough` and, for files of its own, `make test-kubernetes`."""

_PASSED, _FAILED = 0, 1


@contextmanager
def scratch_copy() -> Iterator[Path]:
    """A folder with all files of this checkout, as they are now, but those that git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    with TemporaryDirectory(prefix="quorate-mutants-") as folder:
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = ROOT / name, Path(folder) / name
            if source.is_symlink() or source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        yield Path(folder)


def tried(mutant: Mutant, scratch: Path) -> tuple[Result, str]:
    """What the tests say of a mutant, and what they printed. The copy is afterwards as it was."""
    file = scratch / mutant.file
    sound = file.read_text()
    _write(file, mutated(mutant, sound))
    try:
        status, printed = run_tests(scratch, mutant.tests)
    finally:
        _write(file, sound)
    return _meaning(status, printed), printed


def _meaning(status: int | None, printed: str) -> Result:
    if status is None:
        return "hung"
    if status == _FAILED:
        return "caught"
    # Where all are skipped, as those that need an API server that is not there, nothing was tried.
    return "survived" if status == _PASSED and " passed" in printed else "broken"


def _write(file: Path, text: str) -> None:
    """Without the bytecode of what it was: Python takes it for current where the size and the second are the same."""
    file.write_text(text)
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def run_tests(scratch: Path, tests: Iterable[str], limit_s: int = LIMIT_S) -> tuple[int | None, str]:
    """pytest's exit status, None where it was ended after the limit, and what it printed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", _SUITES, *tests]
    # What the environment has installed leads to the checkout: the copy comes first, also for processes that tests start.
    environment = os.environ | {"PYTHONPATH": str(scratch)}
    # Without bytecode that is kept each process would compile all modules, which takes most of the time.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        command,
        cwd=scratch,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        printed, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]
    return process.returncode, printed
