"""A person at a terminal: a real pseudo-terminal, with `quorate` as a process of its own on the other end."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import Any, Self

from tests.e2e.control_plane import PATIENCE_S, ControlPlane

BEFORE_WIDTH, BEFORE_HEIGHT = 93, 31


class Person:
    """Sees what the command shows, and types. The terminal outlives the command, as a shell's does."""

    def __init__(self, plane: ControlPlane) -> None:
        with plane.client() as client:
            server = client.server
        self._own, self.terminal = os.openpty()
        self.resize(BEFORE_HEIGHT, BEFORE_WIDTH)
        self.before = self.settings()
        self._environment = {
            **os.environ,
            "QUORATE_SERVER": server,
            "QUORATE_TOKEN": plane.folder.token.read_text().strip(),
            "TERM": "vt220",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = b""

    def runs(self, *arguments: str) -> Person:
        """Run `quorate` at the terminal, which is that of its session."""
        self._seen = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "reconciler.cli.main", *arguments],
            stdin=self.terminal,
            stdout=self.terminal,
            stderr=self.terminal,
            env=self._environment,
            start_new_session=True,
            # Without it Ctrl-C would interrupt nobody. No thread of a test holds what it needs.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        return self

    def types(self, text: str) -> None:
        os.write(self._own, text.encode())

    def sees(self, text: str) -> str:
        """Wait until it is shown; what came before it is looked at no more."""
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self._seen:
            assert time.monotonic() < deadline, f"never saw {text!r} in {self._seen!r}"
            self._look(0.1)
        before, _, self._seen = self._seen.partition(text.encode())
        return before.decode(errors="replace")

    def looks(self) -> bool:
        """Read what is shown, so that nobody waits for it to be."""
        self._look(0.05)
        return True

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self.terminal)

    def exit_code(self) -> int:
        """Wait for the command to end, reading on, so that it is never kept waiting."""
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it never ended: {self._seen!r}"
            self._look(0.05)
        self._look(0)
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._own)
        os.close(self.terminal)

    def _look(self, patience_s: float) -> None:
        ready, _, _ = select.select([self._own], [], [], patience_s)
        if ready:
            self._seen += os.read(self._own, 65_536)
