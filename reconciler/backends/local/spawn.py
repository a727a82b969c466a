"""Starts the supervisors of an attempt's tasks, and reaps them when they have ended."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from reconciler.backend import StartGang
from reconciler.backends.local import shim
from reconciler.backends.local.environment import TASK_FOLDER, command_of, task_environments
from reconciler.backends.local.folders import task_folder_name
from reconciler.backends.local.tasks import was_started
from solver.world.cluster import DeviceId
from solver.world.quantities import Memory

# -I and -S: no site-packages, no user's settings; a supervisor starts in some 30 ms and needs 10 MB.
_SUPERVISOR: Final = (sys.executable, "-I", "-S", shim.__file__)


class Supervisors:
    """The supervisors this process has started. Each lives on when this process ends."""

    def __init__(self) -> None:
        self._pids: set[int] = set()

    def start_gang(
        self,
        attempt: Path,
        order: StartGang,
        device_index: Mapping[DeviceId, int],
        master_port: int,
        device_memory: Mapping[DeviceId, Memory],
    ) -> None:
        """Start each task not started before; where a supervisor already has the task, a second one does nothing."""
        for task, environment in task_environments(order, device_index, master_port, device_memory):
            folder = attempt / task_folder_name(task.group, task.index)
            if was_started(folder):
                continue
            (folder / shim.WORK).mkdir(mode=0o700, parents=True, exist_ok=True)
            content = {"command": command_of(order, task), "environment": {**environment, TASK_FOLDER: str(folder)}}
            shim.write_durably(str(folder / shim.TASK), msgspec.json.encode(content).decode())
            self._pids.add(_spawn(folder))

    def reap(self) -> None:
        """Collect supervisors that have ended, so that they don't stay behind as zombies."""
        for pid in tuple(self._pids):
            ended = pid
            with suppress(ChildProcessError):  # Somebody else's wait got it: gone all the same.
                ended, _ = os.waitpid(pid, os.WNOHANG)
            if ended == pid:
                self._pids.remove(pid)


def free_port(taken: set[int]) -> int:
    """A TCP port nobody listens on now and no other gang was given."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port


def _spawn(folder: Path) -> int:
    """A supervisor in a session of its own; what it has to say goes to the task's log."""
    log = str(folder / shim.LOG)
    return os.posix_spawn(
        sys.executable,
        [*_SUPERVISOR, str(folder)],
        {"PATH": os.defpath},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        ],
        setsid=True,
        setsigmask=(),
    )
