"""What a guard runs ends with whoever started it, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hack.kubernetes import guard
from tests.house.tracked import ROOT

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""
OBEDIENT = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
OWNER = """
import time
from pathlib import Path
from hack.kubernetes import guard
guard.start({{"one": {command!r}}}, Path({logs!r}))
time.sleep(600)
"""
SOON_S = 60.0


def test_at_kill_9_of_the_owner_nothing_stays(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(command=[sys.executable, "-c", OBEDIENT], logs=str(tmp_path))], cwd=ROOT
    )
    pid = _pid(tmp_path / "one.log")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    _until_gone(pid)


def test_when_one_ends_by_itself_the_others_follow(tmp_path: Path) -> None:
    guarded = guard.start({"brief": ["true"], "long": [sys.executable, "-c", OBEDIENT]}, tmp_path)
    assert guarded.wait(SOON_S) == 0
    guard.stop(guarded)


def test_who_does_not_listen_ends_as_well(tmp_path: Path) -> None:
    guarded = guard.start({"one": [sys.executable, "-c", STUBBORN]}, tmp_path)
    pid = _pid(tmp_path / "one.log")
    guard.stop(guarded)
    _until_gone(pid)


def _pid(log: Path) -> int:
    until_s = time.monotonic() + SOON_S
    while time.monotonic() < until_s:
        if log.exists() and (text := log.read_text()).endswith("\n"):
            return int(text)
        time.sleep(0.01)
    raise AssertionError(f"{log}: nothing in it")


def _until_gone(pid: int) -> None:
    until_s = time.monotonic() + SOON_S
    while time.monotonic() < until_s:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still runs")
