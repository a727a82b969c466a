"""Ends what is left of a task without its supervisor, and nothing else, though pids are reused."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

from reconciler.node.local.environment import TASK_FOLDER
from reconciler.supervisor.processes import start_ticks


def kill_strays(task_folder: str, leader: int, leader_start_ticks: int) -> bool:
    """Kill every process of a task; True when none is left.

    A process is the task's if it is the recorded leader (same pid, same start time), is in the leader's process group
    while the leader lives, or carries the task's mark in its environment.
    """
    leader_lives = start_ticks(leader) == leader_start_ticks
    found = False
    for pid in _pids():
        # The descriptor names one process for good: whatever we learn of it below is true of what we then kill.
        with suppress(ProcessLookupError, FileNotFoundError, PermissionError):
            process = os.pidfd_open(pid)
            try:
                in_group = leader_lives and os.getpgid(pid) == leader
                if (in_group or _carries_mark(pid, task_folder)) and not _is_zombie(pid):
                    found = True
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)
    return not found


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal())


def _carries_mark(pid: int, task_folder: str) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return f"{TASK_FOLDER}={task_folder}".encode() in file.read().split(b"\0")


def _is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"
