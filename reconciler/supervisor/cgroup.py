"""The control group of a task (cgroups(7), version 2): its limits, and an end that nothing of it escapes.

It is named in `task.json` with what is to be written into its files; None where the machine has none to give, and nothing happens.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from reconciler.supervisor.delivery import UndeliverableError

_EMPTY_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.01

Cgroup = Mapping[str, Any] | None
"""`folder`: where it lies; `settings`: what its files are to say, such as `memory.max`."""


def enter_new(cgroup: Cgroup) -> None:
    """Make it with its limits, and put this process into it, and with it all that descends from it. Raises UndeliverableError."""
    if cgroup is None:
        return
    try:
        os.makedirs(cgroup["folder"], exist_ok=True)
        for name, value in {**cgroup["settings"], "cgroup.procs": "0"}.items():
            _write(cgroup["folder"], name, value)
    except OSError as error:
        raise UndeliverableError(f"its control group {cgroup['folder']} can't be made: {error}") from None


def kill(cgroup: Cgroup) -> bool:
    """Kill all that is in it at once, whatever they do meanwhile; True when it is empty or gone."""
    if cgroup is None:
        return True
    try:
        _write(cgroup["folder"], "cgroup.kill", "1")
        return not _is_populated(cgroup["folder"])
    except FileNotFoundError:
        return True


def ran_out_of_memory(cgroup: Cgroup) -> bool:
    """The kernel has ended something in it at its `memory.max`."""
    if cgroup is None or "memory.max" not in cgroup["settings"]:
        return False
    return int(_events(cgroup["folder"], "memory.events").get("oom_kill", "0")) > 0


def remove(cgroup: Cgroup) -> None:
    """Kill what is in it, wait until it is empty, and remove it; harmless to repeat. Raises OSError where something stays."""
    deadline_s = time.monotonic() + _EMPTY_WITHIN_S
    while not kill(cgroup) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)
    if cgroup is not None:
        with suppress(FileNotFoundError):
            os.rmdir(cgroup["folder"])


def _is_populated(folder: str) -> bool:
    return _events(folder, "cgroup.events")["populated"] == "1"


def _events(folder: str, name: str) -> dict[str, str]:
    """A flat keyed file (Linux, "Control Group v2", Format)."""
    with open(os.path.join(folder, name), encoding="ascii") as file:
        return dict(line.split() for line in file.read().splitlines())


def _write(folder: str, name: str, value: str) -> None:
    """Never make the file: where the kernel has none of this name, the limit would be a mere wish."""
    handle = os.open(os.path.join(folder, name), os.O_WRONLY)
    try:
        os.write(handle, value.encode())
    finally:
        os.close(handle)
