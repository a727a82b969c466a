"""Runs the command of a task in a container of podman, and makes sure that the container is gone in the end.

podman run is the first process of the task: it stays until the container ends, passes signals and the terminal on, and exits with
its exit code (podman-run(1)). conmon and what runs in the container descend from it, and so from the supervisor, which adopts them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from reconciler.supervisor.account import owner_of
from reconciler.supervisor.delivery import FOLDER_VARIABLE, UndeliverableError, make_folder, write_private

VARIABLE_BYTES_MAX = 60_000
"""podman reads the file of variables line by line, and refuses lines of 64 KiB (Go's bufio.Scanner)."""

CLEANING_S = 10.0
"""conmon has podman unmount the container once it has ended, which is not to be killed at once."""

_SECRETS_INSIDE = "/run/quorate/secrets"
_VARIABLES = ".variables"
_PODMAN_LIMIT_S = 60.0


def unsayable(name: str, value: str) -> bool:
    """A variable that can't be one line of a file."""
    return len(os.fsencode(f"{name}={value}")) > VARIABLE_BYTES_MAX or not {"\n", "\r", "\0"}.isdisjoint(value)


def command_in_container(task: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    """The command line of podman; `given` is what `deliver` has returned: its files are shown inside.

    Variables are in a file that podman reads, since every user can read command lines. Raises UndeliverableError, OSError.
    """
    container = task["container"]
    folder = given.get(FOLDER_VARIABLE)
    variables = {**task["environment"], **given, **({FOLDER_VARIABLE: _SECRETS_INSIDE} if folder else {})}
    lacking = sorted(name for name, value in variables.items() if unsayable(name, value))
    if lacking:
        raise UndeliverableError(
            f"a container can't be given {', '.join(lacking)}: more than one line, or more than {VARIABLE_BYTES_MAX} bytes. "
            "Have it as a file"
        )
    place = folder or make_folder(owner_of(task["account"]))
    lines = "".join(f"{name}={value}\n" for name, value in variables.items())
    # The user that podman runs as owns it, and reads it before the task begins.
    write_private(os.path.join(place, _VARIABLES), os.fsencode(lines), None)
    return [
        *container["podman"],
        "run",
        *("--name", container["name"]),
        *("--env-file", os.path.join(place, _VARIABLES)),
        *(("--volume", f"{folder}:{_SECRETS_INSIDE}:ro") if folder else ()),
        *(("--interactive", "--tty") if task["terminal"] else ()),
        *container["options"],
        container["image"],
        *task["command"],
    ]


def remove_container(container: Mapping[str, Any]) -> str:
    """Kill what runs in it, and remove it; "" once there is none of this name, else why it may be there still."""
    code, _, complaint = _podman(container, "rm", "--force", "--ignore", "--time", "0", container["name"])
    return "" if code == 0 else complaint or f"podman exits with {code}"


def ran_out_of_memory(container: Mapping[str, Any]) -> bool:
    """The kernel has ended something in it at the limit of its memory."""
    return _podman(container, "inspect", "--format", "{{.State.OOMKilled}}", container["name"])[1] == "true"


def _podman(container: Mapping[str, Any], *words: str) -> tuple[int, str, str]:
    """Its exit code, output and complaints; code 127 where it can't be run, or does not come to an end."""
    import subprocess  # It takes a supervisor's start a third longer, which tasks without containers need not bear.

    try:
        done = subprocess.run(
            [*container["podman"], *words],
            env=container["environment"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PODMAN_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout.decode().strip(), done.stderr.decode(errors="replace").strip()
