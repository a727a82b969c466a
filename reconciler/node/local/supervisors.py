"""Starts the supervisors of an attempt's tasks, and reaps them when they have ended."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from reconciler.node.local.attempts import Accepted, life_folder, make_life_folder
from reconciler.node.local.environment import command_of, file_variables, group_of, others_of, task_environments
from reconciler.node.local.mps import OWN_GPU, PIPE, PIPES, Daemon, Limits, Mps, MpsError
from reconciler.node.local.runtimes import Beginning, Runtimes
from reconciler.node.local.tasks import record_lost, was_started
from reconciler.node.local.terms import Terms
from reconciler.protocols.backend import look_every
from reconciler.supervisor import shim, taskfiles
from solver.model.cluster import DeviceId
from solver.model.quantities import Memory, MilliGpu
from solver.model.workload import TaskPlacement

# -I and -S: no site-packages, no user's settings; a supervisor starts in some 30 ms and needs 10 MB.
_SUPERVISOR: Final = (sys.executable, "-I", "-S", shim.__file__)


class Supervisors:
    """The supervisors this process has started. Each lives on when this process ends."""

    def __init__(self, terms: Terms, runtimes: Runtimes, mps: Mps | None) -> None:
        self._terms = terms
        self._runtimes = runtimes
        self._mps = mps
        self._pids: set[int] = set()

    def start_tasks(
        self, attempt: Path, accepted: Accepted, tasks: Collection[TaskPlacement], clients: Mapping[DeviceId, MilliGpu]
    ) -> None:
        """Start these tasks of an order, if not started before; where one has a supervisor, a second one does nothing.

        `clients`: the largest share that a task has which runs already, of each GPU that is shared by MPS.
        """
        shares = dict(clients)
        environments = task_environments(
            accepted.order, accepted.device_index, accepted.master_port, accepted.device_memory
        )
        for task, environment in environments:
            if task not in tasks or was_started(life_folder(attempt, task, accepted.growth)):
                continue
            folder = make_life_folder(attempt, task, accepted.growth)
            for own in (taskfiles.WORK, taskfiles.SAID):
                (folder / own).mkdir(mode=0o700, exist_ok=True)
            try:
                shared = self._by_mps(task, environment, accepted, shares)
            except MpsError as error:
                record_lost(folder, str(error), accepted.at)
                continue
            self._terms.hand_over(attempt, folder, accepted.order)
            told = self._told(attempt, folder, accepted, task, {**environment, **shared})
            taskfiles.write_durably(str(folder / taskfiles.TASK), msgspec.json.encode(told).decode())
            self._pids.add(_spawn(folder))

    def _told(
        self, attempt: Path, folder: Path, accepted: Accepted, task: TaskPlacement, environment: dict[str, str]
    ) -> dict[str, Any]:
        """What its supervisor is told: `task.json`."""
        order, shape = accepted.order, group_of(accepted.order, task).shape
        content = {
            "command": command_of(order, task),
            "workingDirectory": order.spec.working_directory,
            **self._terms.of_task(order, {**environment, **file_variables(folder, order.spec)}),
            "after": others_of(order, task),
            "terminal": order.spec.terminal,
            "lookEveryS": look_every(order.watch).seconds if order.watch else None,
            "memoryLimit": int(shape.memory),
            "growth": accepted.growth,
            "logBytesMax": int(order.log_max),
        }
        return self._runtimes.prepared(content, Beginning(attempt, folder, order.spec, shape))

    def _by_mps(
        self, task: TaskPlacement, environment: Mapping[str, str], accepted: Accepted, shares: dict[DeviceId, MilliGpu]
    ) -> dict[str, str]:
        """What a client of daemons sees beside the rest, once there is one for each of its GPUs. Raises MpsError.

        A process is the client of one daemon, here of the first: one that is to use another GPU names another.
        """
        if self._mps is None or task.sharing != "mps" or task.share is None:
            return {}
        visible, daemons = environment["CUDA_VISIBLE_DEVICES"].split(","), list[Daemon]()
        for device, called in zip(task.devices, visible, strict=True):
            has_clients = device in shares
            shares[device] = max(task.share, shares.get(device, task.share))
            limits = Limits(shares[device], accepted.device_memory.get(device, Memory(0)))
            daemons.append(self._mps.begin(device, called, limits, has_clients))
        several = {PIPES: ",".join(known.environment[PIPE] for known in daemons)} if len(daemons) > 1 else {}
        # Numbers count among what the daemon sees; names stay what they are.
        own = {"CUDA_VISIBLE_DEVICES": OWN_GPU} if visible[0].isdecimal() else {}
        return {**daemons[0].environment, **several, **own}

    def reap(self) -> None:
        """Collect supervisors that have ended, so that they don't stay behind as zombies."""
        for pid in tuple(self._pids):
            ended = pid
            with suppress(ChildProcessError):  # Another wait got it: gone all the same.
                ended, _ = os.waitpid(pid, os.WNOHANG)
            if ended == pid:
                self._pids.remove(pid)


def free_port(taken: set[int]) -> int:
    """A free TCP port that no other gang was given."""
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
