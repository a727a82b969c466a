"""The first steps of a page, as somebody follows them: the lines of its console blocks, word for word, in one shell each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.ports import HOST, free_ports
from tests.e2e.control_plane import PATIENCE_S, killed, until

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def console_blocks(text: str) -> list[str]:
    """What stands in the console blocks of a page, or part of one."""
    return [block[1] for block in BLOCK.finditer(text)]


class Terminals:
    """Shells with one environment and folder, and a control plane of their own that listens where nothing else does.

    The folder has the project's Makefile and virtual environment beside what is made in it, as a checkout has.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        (port,) = free_ports(1)
        self._environment = {
            **os.environ,
            "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder / "state"),
            "HOME": str(folder),
            "QUORATE_LISTEN": f"{HOST}:{port}",
            "QUORATE_SERVER": f"http://{HOST}:{port}",
            **environment,
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, script: str) -> str:
        """Run it to its end; what it printed. It must succeed."""
        ran = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        assert ran.returncode == 0, f"{script}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def begin(self, script: str) -> Path:
        """Run what goes on running; the file that its log goes to."""
        log = self.folder / f"terminal-{len(self._running)}.log"
        with log.open("wb") as file:
            started = subprocess.Popen(
                ["bash", "-e", "-c", f"exec {script}"],
                cwd=self.folder, env=self._environment, stdout=file, stderr=file, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._running.append(started)
        until("it leads", lambda: started.poll() is not None or '"leading"' in log.read_text())
        assert started.poll() is None, log.read_text()
        return log

    def close(self) -> None:
        """End what runs, with the tasks that it started."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        until("nothing of it runs", lambda: not killed(str(self.folder / "state")))


@contextmanager
def terminals(folder: Path, **environment: str) -> Iterator[Terminals]:
    """In a folder that looks like a checkout."""
    for name in ("Makefile", "pyproject.toml", ".venv"):
        (folder / name).symlink_to(ROOT / name)
    opened = Terminals(folder, environment)
    try:
        yield opened
    finally:
        opened.close()
