"""Hands a task its secrets, as files of its own and in its environment, and takes the files away once it has ended.

They are read when the command is about to begin, in the process that becomes it: no value is ever in an order, in `task.json`,
in an argument, or in the memory of what lives on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from reconciler.supervisor.account import owner_of
from reconciler.supervisor.taskfiles import SECRETS, sync_folder

FOLDER_VARIABLE = "QUORATE_SECRETS"

BYTES_MAX = 1_048_576
"""Of one secret, as of all that a Secret of Kubernetes has together."""

IN_MEMORY = "/dev/shm"  # noqa: S108  (a folder of our own is made in it, under a name that can't be guessed)
"""Where there is no such folder, the files lie in the task's own, on its disk."""


class UndeliverableError(Exception):
    """The task can't have what it needs. The message is for the task's log, and never has a value."""


def deliver(task: Mapping[str, Any]) -> dict[str, str]:
    """Write the files of a task, as its account's if it has one; returns what to add to its environment.

    Each of its `secrets` has `name`, `places` (files, the nearest first) and either `env` or `file`. Raises UndeliverableError,
    also for a task that is `refused`; OSError where the files can't be written.
    """
    if task["refused"]:
        raise UndeliverableError(task["refused"])
    values, owner = [(use, _read(use)) for use in task["secrets"]], owner_of(task["account"])
    variables = {use["env"]: _as_variable(use, value) for use, value in values if use["env"]}
    files = {use["file"]: value for use, value in values if use["file"]}
    if files:
        folder = variables[FOLDER_VARIABLE] = make_folder(owner)
        for name, value in files.items():
            write_private(os.path.join(folder, name), value, owner)
    return variables


def take_away(task_folder: str) -> None:
    """Remove what was written for a task; harmless to repeat. Raises OSError where it can't be removed: then do it again."""
    import shutil  # It takes a supervisor's start a third longer, which tasks without secrets need not bear.

    link = os.path.join(task_folder, SECRETS)
    try:
        folder = os.readlink(link)
    except FileNotFoundError:
        return
    with suppress(FileNotFoundError):
        if os.path.isdir(folder) and not os.path.islink(folder):
            shutil.rmtree(folder)
        else:  # What the task has put in its place.
            os.unlink(folder)
    os.unlink(link)


def _read(use: Mapping[str, Any]) -> bytes:
    for place in use["places"]:
        try:
            with open(place, "rb") as file:
                value = file.read(BYTES_MAX + 1)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except IsADirectoryError:
            raise UndeliverableError(
                f"the secret {use['name']} is a folder of keys. Say which one with key: in the job"
            ) from None
        except OSError as error:
            raise UndeliverableError(f"the secret {use['name']} can't be read: {error.strerror}") from None
        if len(value) > BYTES_MAX:
            raise UndeliverableError(f"the secret {use['name']} has more than {BYTES_MAX} bytes")
        return value
    raise UndeliverableError(
        f"there is no secret {use['name']} for this job's queue. The server's operator adds it; then submit the job again"
    )


def _as_variable(use: Mapping[str, Any], value: bytes) -> str:
    """As `$(cat FILE)` gives it: without the newlines at its end, which editors and `echo` leave there."""
    if b"\0" in value:
        raise UndeliverableError(f"the secret {use['name']} has a zero byte, so it can be a file, but no variable")
    return os.fsdecode(value.rstrip(b"\n"))


def make_folder(owner: tuple[int, int] | None) -> str:
    """A new one that no other account can enter. On record before it is there, so that a clean-up finds it."""
    in_memory = os.access(IN_MEMORY, os.W_OK | os.X_OK)
    folder = os.path.join(IN_MEMORY if in_memory else os.getcwd(), f"quorate-{os.urandom(16).hex()}")
    os.symlink(folder, SECRETS)
    sync_folder(".")
    os.mkdir(folder, 0o700)
    if owner:
        os.chown(folder, *owner)
    return folder


def write_private(path: str, value: bytes, owner: tuple[int, int] | None) -> None:
    """A new file that its owner alone can read; None: this process's account. Raises OSError."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        if owner:
            os.fchown(file.fileno(), *owner)
        file.write(value)
