"""Whether the wheel runs where nothing else is: installed into a new environment, and the first steps of the quickstart taken."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from hack.ports import HOST, free_ports
from hack.release.bill import LOCK
from hack.release.source import Source
from hack.supply_chain.problem import ProblemError

READY_WITHIN_S: Final = 120
SAYS: Final = "hello from a release"


def tried(source: Source, wheel: Path, folder: Path, lock: bool = True) -> str:
    """What the job printed. `lock`: install what the image does, by hash. Raises ProblemError with the step that fails."""
    programs = _installed(source, wheel, folder / "venv", lock)
    home = folder / "home"
    home.mkdir()
    environment = {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
    policy = str(folder / "policy")
    said = _ran(["quorate", "--version"], environment)
    if said != f"quorate {source.version}\n":
        raise ProblemError(wheel.name, f"`quorate --version` says {said!r}", "See [project.scripts] of pyproject.toml.")
    _ran(["quorate", "init", policy, "--ci", "none"], environment)
    _ran(["quorate", "validate", policy], environment)
    _ran(["quorate", "test", policy], environment)
    return _a_first_job(policy, folder / "state", environment)


def _installed(source: Source, wheel: Path, venv: Path, lock: bool) -> Path:
    """The folder of its programs."""
    _ran([sys.executable, "-m", "venv", str(venv)], dict(os.environ))
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if lock:
        by_hash = ["--only-binary=:all:", "--require-hashes", "--requirement", str(source.root / LOCK)]
        _ran([*pip, *by_hash], dict(os.environ))
    _ran([*pip, *(["--no-deps"] if lock else []), str(wheel)], dict(os.environ))
    return venv / "bin"


def _a_first_job(policy: str, state: Path, environment: dict[str, str]) -> str:
    address = f"{HOST}:{free_ports(1)[0]}"
    told = {**environment, "QUORATE_SERVER": f"http://{address}", "QUORATE_STATE": str(state)}
    log = state.parent / "run.log"
    with log.open("wb") as opened:
        command = ["quorate", "run", "--policies-repo", policy, "--listen", address]
        plane = subprocess.Popen(command, env=told, stdout=opened, stderr=opened)
    try:
        _until_ready(plane, f"http://{address}/readyz", log)
        _ran(["quorate", "submit", "--queue", "team-a", "--name", "first", "--wait", "--", "echo", SAYS], told)
        said = _ran(["quorate", "logs", "first"], told)
    finally:
        plane.terminate()
        plane.wait(timeout=60)
    if SAYS not in said:
        raise ProblemError("quorate logs first", f"{said!r} is not what the job printed", "Mend it.")
    return said


def _until_ready(plane: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline_s = time.monotonic() + READY_WITHIN_S
    while plane.poll() is None and time.monotonic() < deadline_s:
        with suppress(OSError), urlopen(url, timeout=5):
            return
        time.sleep(0.1)
    raise ProblemError("quorate run", f"it is not ready: {log.read_text()[-800:]}", "Mend it; nothing is released.")


def _ran(command: Sequence[str], environment: dict[str, str]) -> str:
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if ran.returncode:
        said = (ran.stderr.strip() or ran.stdout.strip())[-800:]
        raise ProblemError(
            " ".join(command[:3]), f"exit code {ran.returncode}: {said}", "Mend it; nothing is released."
        )
    return ran.stdout
