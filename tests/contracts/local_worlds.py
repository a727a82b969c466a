"""The local backend under the conformance suite: real processes that sign a witness folder when they start."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.model.clock import SystemClock
from reconciler.node.local import LocalBackend
from reconciler.node.local.cleanup import GpuUse
from reconciler.node.local.gpus import DeclaredGpus, NodeGpus
from reconciler.node.local.machine import Equipment
from reconciler.node.local.mps import Mps
from reconciler.node.local.runtimes import Runtimes
from reconciler.node.local.terms import Terms
from reconciler.protocols.backend import Cursor, Epoch, StopGang
from solver.model.quantities import Duration
from solver.model.workload import JobName
from tests.contracts.backend_world import Command
from tests.contracts.simulated_worlds import NODES

# $0 is the witness folder. The environment appears whole, and before the line that counts the start.
_SIGN = 'me="$0/$QUORATE_JOB.$QUORATE_ATTEMPT.$QUORATE_GROUP.$QUORATE_INDEX"; env -0 > "$me.env"; echo >> "$me"; '
_DEADLINE_S = 60.0
NO_TERMS, NO_RUNTIMES = Terms(), Runtimes()
_NEWEST_EPOCH = Epoch(1_000_000)


class LocalWorld:
    """Implements BackendWorld."""

    nodes = NODES
    idle_limit = Duration(2_000)
    attempts = "*"
    """Where they lie below the state folder."""

    def __init__(self, folder: Path, terms: Terms = NO_TERMS, runtimes: Runtimes = NO_RUNTIMES) -> None:
        self._terms, self._runtimes = terms, runtimes
        self.gpu_use: GpuUse | None = None
        self.mps: Mps | None = None
        self.state = folder / "state"
        self.witness = folder / "witness"
        self.witness.mkdir()
        self.restart()

    def settle(self) -> None:
        time.sleep(0.02)

    def restart(self) -> None:
        self.backend = LocalBackend(
            self.state,
            lambda: NODES,
            SystemClock(),
            gpus=self.gpus,
            terms=self._terms,
            equipment=Equipment(self._runtimes, self.gpu_use, self.mps),
        )

    def gpus(self, kept: Path) -> NodeGpus:
        """Declared ones, whatever this machine has."""
        return DeclaredGpus(kept, self.witness / "none")

    def shell(self, script: str) -> Command:
        """A shell script as a task, which signs before it does anything else."""
        return ("sh", "-c", _SIGN + script, str(self.witness))

    def succeeds(self) -> Command:
        return self.shell("exit 0")

    def fails(self, exit_code: int) -> Command:
        return self.shell(f"exit {exit_code}")

    def runs(self) -> Command:
        return self.shell("exec sleep 600")

    def works(self) -> Command:
        return self.shell("while :; do :; done")

    def listens(self) -> Command:
        # It listens before it signs. One line for each signal: the request that is in force then.
        script = """trap 'cat "$QUORATE_REQUEST_FILE" >> "$me.told"; echo >> "$me.told"' USR1; """
        return ("sh", "-c", script + _SIGN + "while :; do sleep 0.02; done", str(self.witness))

    def trains(self) -> Command:
        say = """printf '{"step": %d, "rate": 20}' $n > "$QUORATE_PROGRESS_FILE.new" """
        put = 'mv "$QUORATE_PROGRESS_FILE.new" "$QUORATE_PROGRESS_FILE"'
        return self.shell(f"n=0; while :; do n=$((n+1)); {say}; {put}; sleep 0.05; done")

    def hogs(self) -> Command:
        script = "memory = bytearray(100 * 2**20); import time; time.sleep(600)"
        return self.shell(f"exec {sys.executable} -c '{script}'")

    def told(self, job: JobName, attempt: int, index: int) -> list[int]:
        noted = self.witness / f"{job}.{attempt}.worker.{index}.told"
        return [json.loads(line)["number"] for line in noted.read_text().splitlines()] if noted.exists() else []

    def starts(self, job: JobName, attempt: int, group: str, index: int) -> int:
        signature = self.witness / f"{job}.{attempt}.{group}.{index}"
        let_go = [*self.state.glob(f"{self.attempts}/{job}.{attempt}/{group}.{index}/started")]
        let_go += self.state.glob(f"{self.attempts}/{job}.{attempt}/{group}.{index}.*/started")
        if let_go:  # The command was let go, but may not have come to signing.
            eventually(lambda: signature.exists() and signature.read_text() != "")
        return signature.read_text().count("\n") if signature.exists() else 0

    def environment(self, job: JobName, attempt: int, group: str, index: int) -> dict[str, str]:
        assert self.starts(job, attempt, group, index)
        content = (self.witness / f"{job}.{attempt}.{group}.{index}.env").read_text()
        return dict(line.split("=", 1) for line in content.split("\0") if line)

    def close(self) -> None:
        """Stop everything, and fail if anything is left."""
        for job, attempt in {(task.job, task.attempt) for task in self.backend.changes(Cursor(0)).tasks}:
            self.backend.submit(StopGang(job, attempt, Duration(0)), _NEWEST_EPOCH)
        eventually(lambda: not self.processes())

    def processes(self) -> list[int]:
        """Every process, supervisors included, that works in the state folder or knows it by name."""
        return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if self._belongs(pid)]

    def supervisors(self) -> list[int]:
        """Those of its tasks, and not what they are about to become."""
        return [pid for pid in self.processes() if b"shim.py" in command_line(pid)]

    def _belongs(self, pid: int) -> bool:
        if pid == os.getpid():
            return False
        try:
            texts = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline")]
            texts.append(os.fsencode(os.readlink(f"/proc/{pid}/cwd")))
        except OSError:  # It ended, or is not ours to look at.
            return False
        return any(f"{self.state}/".encode() in text for text in texts)


def command_line(pid: int) -> bytes:
    """As proc(5) has it; b"" where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def eventually(reached: Callable[[], bool]) -> None:
    """Poll until something is so; fails after a minute."""
    deadline = time.monotonic() + _DEADLINE_S
    while not reached():
        assert time.monotonic() < deadline, "never came about"
        time.sleep(0.02)


@contextmanager
def local_world(folder: Path, terms: Terms = NO_TERMS, runtimes: Runtimes = NO_RUNTIMES) -> Iterator[LocalWorld]:
    """Real processes; nothing is left running at the end."""
    world = LocalWorld(folder, terms, runtimes)
    try:
        yield world
    finally:
        world.close()
