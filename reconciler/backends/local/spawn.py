"""Starts the supervisors of an attempt's tasks, and reaps them when they have ended."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from reconciler.backends.local.attempts import Accepted, life_folder, make_life_folder
from reconciler.backends.local.environment import command_of, file_variables, group_of, others_of, task_environments
from reconciler.backends.local.tasks import was_started
from reconciler.backends.local.terms import Terms
from reconciler.backends.looks import look_every
from reconciler.supervisor import shim, taskfiles
from solver.world.workload import TaskPlacement

# -I and -S: no site-packages, no user's settings; a supervisor starts in some 30 ms and needs 10 MB.
_SUPERVISOR: Final = (sys.executable, "-I", "-S", shim.__file__)


class Supervisors:
    """The supervisors this process has started. Each lives on when this process ends."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._pids: set[int] = set()

    def start_tasks(self, attempt: Path, accepted: Accepted, tasks: Collection[TaskPlacement]) -> None:
        """Start these tasks of an order, if not started before; where one has a supervisor, a second one does nothing."""
        environments = task_environments(
            accepted.order, accepted.device_index, accepted.master_port, accepted.device_memory
        )
        for task, environment in environments:
            if task not in tasks or was_started(life_folder(attempt, task, accepted.growth)):
                continue
            folder = make_life_folder(attempt, task, accepted.growth)
            for own in (taskfiles.WORK, taskfiles.SAID):
                (folder / own).mkdir(mode=0o700, exist_ok=True)
            self._terms.hand_over(attempt, folder, accepted.order.user)
            watch = accepted.order.watch
            content = {
                "command": command_of(accepted.order, task),
                **self._terms.of_task(accepted.order, {**environment, **file_variables(folder, accepted.order.spec)}),
                "after": others_of(accepted.order, task),
                "terminal": accepted.order.spec.terminal,
                "lookEveryS": look_every(watch).seconds if watch else None,
                "memoryLimit": int(group_of(accepted.order, task).shape.memory),
                "growth": accepted.growth,
            }
            taskfiles.write_durably(str(folder / taskfiles.TASK), msgspec.json.encode(content).decode())
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
    log = str(folder / taskfiles.LOG)
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
