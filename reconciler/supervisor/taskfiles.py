"""The files of a task's folder, by which its supervisor, its backend and the task itself speak, and how one is written.

A supervisor works in its task's folder, so the names are relative to it. What writes which:

- the backend: `task.json` before the supervisor starts, `leave`, `abort`, and for the whole attempt `../stop` and `../tells.json`;
- the supervisor: `lock`, `started`, `activity`, `told`, `memory`, `exit`, `secrets`, which leads to where the files of its secrets
  lie, `request`, which is for the task, the socket `terminal` of a task that has one, and `log`, with what comes from its streams;
- the task: `said/progress`, and whatever it likes in `work`, which is where it starts unless its job
  names another folder.
"""

from __future__ import annotations

import os

TASK, LOCK, STARTED, EXIT, LOG, WORK = "task.json", "lock", "started", "exit", "log", "work"
ACTIVITY, TOLD, MEMORY, REQUEST, SECRETS = "activity", "told", "memory", "request", "secrets"
TERMINAL = "terminal"
SAID = "said"
PROGRESS = f"{SAID}/progress"
"""In a folder of its own, where the task may write, since it replaces the file whole."""
STOP, LEAVE, TELLS, ABORT = "../stop", "leave", "../tells.json", "abort"
"""The orders to stop and what to tell lie beside the task's folder, for the whole attempt; in it, the order to this task alone
to leave, and why its work is lost and it is to end at once."""


def write_durably(path: str, text: str, mode: int = 0o600) -> None:
    """Write a small file so that a reader, and a machine that loses power, sees all of it or nothing."""
    scratch = f"{path}.{os.getpid()}"
    try:
        with open(scratch, "w", encoding="utf-8", opener=_private) as file:
            os.fchmod(file.fileno(), mode)  # Whatever the umask.
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError:
        if os.path.exists(scratch):
            os.unlink(scratch)
        raise
    sync_folder(os.path.dirname(path) or ".")


def sync_folder(folder: str) -> None:
    """Make renames and new names in a folder survive a power loss."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
