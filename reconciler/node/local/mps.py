"""MPS daemons of GPUs that tasks share: there before the first of them, gone after the last, and never two trust domains' at once.

What NVIDIA's daemon is told, all of it (NVIDIA, "Multi-Process Service", Environment Variables, and nvidia-cuda-mps-control(1)):
`nvidia-cuda-mps-control -d` with CUDA_VISIBLE_DEVICES, CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY begins one, which lives
on by itself. The same program, with the same pipe folder and a line on its standard input, passes a command on: `get_server_list`
(numbers of servers, a line each), `set_default_active_thread_percentage PERCENT`, `set_default_device_pinned_mem_limit DEVICE SIZE`
(both for servers to come), `set_active_thread_percentage SERVER PERCENT`, `set_device_pinned_mem_limit SERVER DEVICE SIZE` (for
clients to come), `quit -t SECONDS`. It exits with other than 0 where no daemon answers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from reconciler.node.local.attempts import TaskLife, read_document
from reconciler.node.local.gpus import REAL_GPUS
from reconciler.supervisor.taskfiles import ABORT, TASK, write_durably
from solver.model.cluster import DeviceId
from solver.model.document import Document, encode
from solver.model.quantities import MILLI_PER_GPU, Instant, Memory, MilliGpu

PROGRAM: Final = "nvidia-cuda-mps-control"
PIPE, LOG_FOLDER = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
PIPES: Final = "QUORATE_MPS_PIPES"
"""Of a task with parts of several GPUs: the pipe folder of the daemon of each, in their order, with commas between."""
MPS_LOOK_MS: Final = 5_000
"""How often it is asked whether a daemon still answers."""

_QUIT_WITHIN_S: Final = 5
_ANSWER_LIMIT_S: Final = 30.0
_PIPE_BYTES_MAX: Final = 80
"""Sockets lie in it, with names of at most 107 bytes (unix(7))."""

_MIB: Final = 2**20
OWN_GPU: Final = "0"
"""A daemon sees one GPU, and so do its clients."""


class MpsError(Exception):
    """A GPU can't be shared by MPS now. The message says why, and what to do."""


class Daemon(Document, frozen=True):
    """One that was begun, or was about to be: on record before it is there. `folder`: a name that can't be guessed, since a
    process that knows it may be its client."""

    device: DeviceId
    folder: str
    visible: str

    @property
    def environment(self) -> dict[str, str]:
        """What its clients see."""
        return {PIPE: f"{self.folder}/pipe", LOG_FOLDER: f"{self.folder}/log"}


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that any client of a GPU may have: `share` of its threads, and of its `memory`; 0: it is not known."""

    share: MilliGpu
    memory: Memory

    @property
    def percent(self) -> str:
        """As MPS writes it."""
        return f"{self.share / 10:g}"

    @property
    def pinned(self) -> str:
        """As MPS writes it; "": no limit."""
        limit = self.memory * self.share // MILLI_PER_GPU
        return f"{limit // _MIB}M" if limit else ""

    def commands(self, servers: Iterable[str]) -> list[str]:
        """For servers to come, and for clients to come of those that are there."""
        said = [f"set_default_active_thread_percentage {self.percent}"]
        said += [f"set_default_device_pinned_mem_limit {OWN_GPU} {self.pinned}"] if self.pinned else []
        for server in servers:
            said.append(f"set_active_thread_percentage {server} {self.percent}")
            said += [f"set_device_pinned_mem_limit {server} {OWN_GPU} {self.pinned}"] if self.pinned else []
        return said


@dataclass(frozen=True, slots=True)
class Mps:
    """The daemons of one machine, on record in `folder`. It remembers nothing, so the next process goes on with it."""

    program: str
    folder: Path

    def begin(self, device: DeviceId, visible: str, limits: Limits, has_clients: bool) -> Daemon:
        """The daemon for a client that is about to begin, with what no client may exceed. Raises MpsError, OSError.

        Without other clients it is a new one: those that ended may have been of another trust domain.
        """
        known = self._known(device)
        if known is not None and (not has_clients or not self._answers(known)):
            self._end(known)
            known = None
        daemon = known or self._new(device, visible)
        self._ask(daemon, *limits.commands(self._ask(daemon, "get_server_list").split()))
        return daemon

    def keep(self, clients: Collection[DeviceId]) -> list[DeviceId]:
        """End the daemons of GPUs that have no client any more; returns the GPUs whose daemon has died beneath its clients, whose
        work is lost. Raises OSError."""
        died: list[DeviceId] = []
        for path in sorted(self.folder.glob("*.json")):
            daemon = read_document(path, Daemon)
            if daemon is None or (daemon.device in clients and self._answers(daemon)):
                continue
            if daemon.device in clients:
                died.append(daemon.device)
            with suppress(MpsError):  # It stays on record, so the next look tries again.
                self._end(daemon)
        return died

    def _new(self, device: DeviceId, visible: str) -> Daemon:
        made = self.folder / os.urandom(8).hex()
        if len(os.fsencode(made / "pipe")) > _PIPE_BYTES_MAX:
            raise MpsError(f"{made}: MPS can't have its sockets so deep. Start the server with a shorter --state")
        daemon = Daemon(device, str(made), visible)
        self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        write_durably(str(self._path(device)), encode(daemon).decode())
        for own in (made, *map(Path, daemon.environment.values())):
            own.mkdir()
            own.chmod(0o755)  # Clients may have accounts of their own. The folder above can't be listed.
        self._run([self.program, "-d"], {**daemon.environment, "CUDA_VISIBLE_DEVICES": visible})
        return daemon

    def _end(self, daemon: Daemon) -> None:
        """Have it quit, if it still answers, and forget it."""
        try:
            self._ask(daemon, f"quit -t {_QUIT_WITHIN_S}")
        except MpsError as error:
            if self._answers(daemon):
                raise MpsError(f"the MPS daemon of GPU {daemon.device} does not end: {error}") from error
        shutil.rmtree(daemon.folder, ignore_errors=True)
        self._path(daemon.device).unlink(missing_ok=True)

    def _answers(self, daemon: Daemon) -> bool:
        try:
            self._ask(daemon, "get_server_list")
        except MpsError:
            return False
        return True

    def _ask(self, daemon: Daemon, *commands: str) -> str:
        return self._run([self.program], daemon.environment, "".join(f"{command}\n" for command in commands))

    def _run(self, words: list[str], environment: Mapping[str, str], typed: str = "") -> str:
        """Its output goes through files: a daemon that begins keeps its parent's open. Raises MpsError."""
        log = Path(environment[LOG_FOLDER]) / "control.answer"
        try:
            with log.open("w+", encoding="utf-8") as answer:
                subprocess.run(
                    words,
                    input=typed.encode(),
                    stdout=answer,
                    stderr=subprocess.STDOUT,
                    env={"PATH": os.defpath, **environment},
                    timeout=_ANSWER_LIMIT_S,
                    check=True,
                )
                answer.seek(0)
                return answer.read()
        except (OSError, subprocess.SubprocessError) as error:
            raise MpsError(f"{PROGRAM} does not do {typed.strip() or ' '.join(words[1:])!r}: {error}") from error

    def _known(self, device: DeviceId) -> Daemon | None:
        return read_document(self._path(device), Daemon)

    def _path(self, device: DeviceId) -> Path:
        return self.folder / f"{quote(device, safe='').replace('.', '%2E')}.json"


class MpsWatch:
    """Looks at daemons now and again, since each look is a process; at once where GPUs have got clients, or lost their last."""

    def __init__(self, mps: Mps | None) -> None:
        self.mps = mps
        self._seen: tuple[int, frozenset[DeviceId]] = 0, frozenset()

    def look(self, clients: Mapping[DeviceId, Collection[TaskLife]], now: Instant) -> None:
        """End daemons that are not needed, and the clients of those that have died. Raises OSError."""
        seen_at, seen = self._seen
        if self.mps is None or (seen == clients.keys() and 0 <= now - seen_at < MPS_LOOK_MS):
            return
        self._seen = now, frozenset(clients)
        for device in self.mps.keep(clients.keys()):
            reason = f"the MPS daemon of GPU {device} has died, and its work on the GPU with it"
            for life in clients[device]:
                # On record, so that it counts as lost, and not as failed or stopped.
                write_durably(str(life.folder / ABORT), json.dumps({"graceS": 0, "reason": reason}))


def clients_of(lives: Iterable[TaskLife]) -> dict[DeviceId, list[TaskLife]]:
    """Of tasks that live, those that are about to begin, or have, and share GPUs by MPS, by each of these GPUs."""
    found: dict[DeviceId, list[TaskLife]] = {}
    for life in lives:
        if life.task.sharing == "mps" and (life.folder / TASK).exists():
            for device in life.task.devices:
                found.setdefault(device, []).append(life)
    return found


def shares_of(clients: Mapping[DeviceId, Collection[TaskLife]]) -> dict[DeviceId, MilliGpu]:
    """The largest share of each GPU that a client of it has."""
    return {device: max(life.task.share or MilliGpu(0) for life in lives) for device, lives in clients.items()}


def find_mps(folder: Path) -> Mps | None:
    """The driver's program, where its GPUs are; None: there is nothing to share GPUs by."""
    program = shutil.which(PROGRAM)
    return Mps(program, folder) if program and REAL_GPUS.exists() else None
