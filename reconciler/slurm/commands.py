"""Asks Slurm by its own commands. Only three are ever called, and each of them only reads."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final

from reconciler.importers.source import SourceFile
from reconciler.protocols.backend import BackendUnreachableError

JOBS: Final = ("squeue", "--json", "--all", "--states=all")
NODES: Final = (("scontrol", "show", "nodes", "--json"), ("sinfo", "--json", "--all"))
"""Versions before 23.02 have no JSON of `scontrol`, and print a record for each node with `sinfo`."""

TIMEOUT_S: Final = 60.0
_SAID_MAX: Final = 300
_FILTERS: Final = ("SQUEUE_", "SINFO_")
"""Variables that begin so would have the commands leave jobs or nodes out."""


class SlurmCommands:
    """Runs them one at a time. `stop`, from any thread, ends one that is under way, and lets none begin any more."""

    def __init__(self, environment: Mapping[str, str] = os.environ, timeout_s: float = TIMEOUT_S) -> None:
        kept = {name: value for name, value in environment.items() if not name.startswith(_FILTERS)}
        self._environment = {**kept, "LC_ALL": "C"}
        self._timeout_s = timeout_s
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = Lock()
        self._stopped = False

    def read(self, command: Sequence[str]) -> SourceFile:
        """What a command prints. Raises BackendUnreachableError with what went wrong, and what to do about it."""
        called = " ".join(command)
        with self._begun(command, called) as process:
            try:
                printed, said = process.communicate(timeout=self._timeout_s)
            except subprocess.TimeoutExpired:
                _end(process)
                raise BackendUnreachableError(
                    f"{called}: no answer within {self._timeout_s:g} s. It was ended, and is asked again"
                ) from None
        if process.returncode:
            raise BackendUnreachableError(f"{called}: exit code {process.returncode}: {_first_line(said)}")
        return SourceFile(called, printed)

    def stop(self) -> None:
        """Let what is under way end, and nothing more begin."""
        with self._lock:
            self._stopped = True
            if self._running is not None and self._running.poll() is None:
                _kill(self._running)

    def _begun(self, command: Sequence[str], called: str) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise BackendUnreachableError(f"{called}: not asked, since this process ends")
            try:
                # A group of its own: what it started goes with it.
                self._running = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=self._environment,
                    start_new_session=True,
                )
            except OSError as error:
                fix = "Install Slurm's client commands on this machine, or put their folder on PATH"
                raise BackendUnreachableError(f"{called}: can't be run ({error.strerror}). {fix}") from error
            return self._running


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Also where something it started has left its group, and holds its output open."""
    _kill(process)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.wait()


def _first_line(said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    return lines[0][:_SAID_MAX] if lines else "it says nothing"
