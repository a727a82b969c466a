"""What this machine runs tasks with, and what it lacks for that."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from reconciler.node.local.cgroups import Cgroups, NoCgroupsError, find_cgroups
from reconciler.node.local.cleanup import GpuUse
from reconciler.node.local.mps import PROGRAM, Mps, find_mps
from reconciler.node.local.podman import find_podman
from reconciler.node.local.runtimes import Processes, Runtimes

_WITHOUT: Final = {
    "cpu": "tasks may use more CPU than they ask for",
    "pids": "tasks may have as many processes as the machine takes",
    "memory": "supervisors look at the memory of tasks instead, and end those that have more than they ask for",
}


class Equipment(NamedTuple):
    """`gpu_use`: says whether GPUs are clean; None: they are declared. `mps`: what lets tasks share them side by side; None:
    they take turns. `told`: what people should know of it, for a log:
    where containers and groups come from, and what nothing limits."""

    runtimes: Runtimes = Runtimes()
    gpu_use: GpuUse | None = None
    mps: Mps | None = None
    told: Mapping[str, str] = MappingProxyType({})


def equipment_of_this_machine(state: Path, gpu_use: GpuUse | None = None) -> Equipment:
    """`state`: where tasks are kept, and what MPS daemons have. `gpu_use`: as Equipment has it.

    Processes in control groups where there are any, and containers where podman is, which is asked when one is to run.
    """
    found, unlimited = limits_of_this_machine()
    cgroups = None if isinstance(found, str) else found
    told = {
        "containers": "podman" if shutil.which("podman") else "none: podman is not installed",
        "cgroup": f"none: {found}" if isinstance(found, str) else str(found.folder),
        "mps": shutil.which(PROGRAM) or f"none: there is no {PROGRAM}",
        "unlimited": unlimited,
    }
    mps = find_mps(state / "mps")
    return Equipment(Runtimes(Processes(cgroups), find_podman), gpu_use, mps, told)


def limits_of_this_machine() -> tuple[Cgroups | str, str]:
    """The control groups for tasks, or why there are none, and what nothing limits ("": nothing)."""
    cgroups: Cgroups | str
    try:
        cgroups = find_cgroups()
    except NoCgroupsError as error:
        cgroups = str(error)
    missing = sorted(_WITHOUT.keys() - (frozenset() if isinstance(cgroups, str) else cgroups.controllers))
    return cgroups, "; ".join(_WITHOUT[controller] for controller in missing)
