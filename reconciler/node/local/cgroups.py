"""Which control groups this machine can give to tasks (cgroups(7); Linux, "Control Group v2").

Only version 2 is used: there a group can be killed whole. Where both versions are mounted (hybrid), version 2 has the controllers
that version 1 has left over, often none: then a task has a group that nothing of it escapes, and no limits from the kernel.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from solver.model.quantities import Cpu
from solver.model.shape import Shape

Layout = Literal["v2", "hybrid", "v1", "none"]

TASKS: Final = "quorate-tasks"
_WANTED: Final = ("cpu", "memory", "pids")
_PERIOD_US: Final = 100_000
PROCESSES_MAX: Final = 65_536
"""Processes and threads of one task: far more than any needs, and so few that one which only makes more ends by itself."""

CPU_MAX_LEAST: Final = Cpu(1_000)
"""A task with less than a core may use one, while others leave it: else what asks for next to nothing would hardly begin."""

_WEIGHTS: Final = 1, 10_000
_WEIGHT_OF_CORE: Final = 100
"""What a group has where it is not said."""

_DELEGATED: Final = ("user.delegate", "trusted.delegate")
"""systemd marks so what it leaves to a service ("Control Group APIs and Delegation")."""


class NoCgroupsError(Exception):
    """This machine has no control groups that tasks could be given. The message says why."""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """`folder`: in which each task gets a group of its own; `controllers`: those that are wanted and work in it."""

    folder: Path
    controllers: frozenset[str]
    limits_swap: bool = False

    def of_task(self, task: Path, shape: Shape) -> dict[str, Any]:
        """What its supervisor makes for a task. The name follows from the task's folder, so a later process finds it."""
        return {
            "folder": str(self.folder / hashlib.sha256(os.fsencode(task)).hexdigest()[:32]),
            "settings": self._settings(shape),
        }

    def _settings(self, shape: Shape) -> dict[str, str]:
        """A shape that says nothing of CPU or memory has no limit there."""
        settings: dict[str, str] = {"pids.max": str(PROCESSES_MAX)} if "pids" in self.controllers else {}
        if "cpu" in self.controllers and shape.cpu:
            quota_us = max(CPU_MAX_LEAST, int(shape.cpu)) * _PERIOD_US // 1_000
            lightest, heaviest = _WEIGHTS
            weight = max(lightest, min(heaviest, int(shape.cpu) * _WEIGHT_OF_CORE // 1_000))
            settings |= {"cpu.max": f"{quota_us} {_PERIOD_US}", "cpu.weight": str(weight)}
        if "memory" in self.controllers and shape.memory:
            settings |= {"memory.max": str(int(shape.memory)), "memory.oom.group": "1"}
            settings |= {"memory.swap.max": "0"} if self.limits_swap else {}
        return settings


def layout_of(mountinfo: str) -> tuple[Layout, Path | None]:
    """What is mounted, and where version 2 is, from proc_pid_mountinfo(5)."""
    before_and_after = [line.partition(" - ") for line in mountinfo.splitlines()]
    mounted = [(after.split()[0], before.split()[4]) for before, _, after in before_and_after if after]
    v2 = next((Path(where) for kind, where in mounted if kind == "cgroup2"), None)
    has_v1 = any(kind == "cgroup" for kind, _ in mounted)
    if v2 is not None:
        return ("hybrid" if has_v1 else "v2"), v2
    return ("v1" if has_v1 else "none"), None


def find_cgroups() -> Cgroups:
    """Make the folder for tasks, with the controllers that can be had. Raises NoCgroupsError.

    It lies beside this process's own group where systemd has delegated what is around that (Delegate= with DelegateSubgroup=),
    else at the top, where root may make one: tasks live on where this service ends.
    """
    layout, mount = layout_of(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    if mount is None:
        raise NoCgroupsError(f"cgroup v2 is not mounted ({layout})")
    own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    around = (mount / own.lstrip("/")).parent
    above = around if own != "/" and _is_delegated(around) else mount
    try:
        return made_in(above)
    except OSError as error:
        raise NoCgroupsError(f"{above}: {error.strerror} ({layout})") from error


def made_in(above: Path) -> Cgroups:
    """The folder for tasks in a group. Raises NoCgroupsError, OSError."""
    folder = above / TASKS
    folder.mkdir(exist_ok=True)
    if not (folder / "cgroup.kill").exists():
        raise NoCgroupsError("this kernel can't kill a group; Linux 5.14 can")
    # A process of root may have left it, or the hierarchy is mounted to be read alone.
    if not os.access(folder, os.W_OK):
        raise NoCgroupsError(f"{folder} may not be written by this user")
    for controller in _WANTED:
        # One that version 1 has, or that is not delegated, is refused: what works in the end is read below.
        with suppress(OSError):
            for group in (above, folder):
                (group / "cgroup.subtree_control").write_text(f"+{controller}")
    works = (folder / "cgroup.subtree_control").read_text().split()
    return Cgroups(folder, frozenset(works) & frozenset(_WANTED), (folder / "memory.swap.max").exists())


def _is_delegated(folder: Path) -> bool:
    for name in _DELEGATED:
        with suppress(OSError):
            return os.getxattr(folder, name) == b"1"
    return False
