"""Containers for tasks, by podman: which options it is given (podman-run(1), version 4.3 and later)."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from reconciler.node.local.cgroups import CPU_MAX_LEAST, PROCESSES_MAX
from reconciler.node.local.environment import TASK_FOLDER
from reconciler.node.local.gpus import REAL_GPUS
from reconciler.node.local.mps import LOG_FOLDER, PIPE, PIPES
from reconciler.node.local.runtimes import Beginning, NoContainersError
from reconciler.supervisor.taskfiles import SAID, WORK
from solver.model.shape import Shape

_INFO_LIMIT_S: Final = 60.0
_INIT_PROGRAMS: Final = ("/usr/libexec/podman/catatonit", "/usr/lib/podman/catatonit", "/usr/bin/catatonit")
_SYSTEMD: Final = Path("/run/systemd/system")
"""There where systemd runs: sd_booted(3)."""

_OWN_VARIABLES: Final = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""What podman itself needs to see; never the job's, which could make it do anything."""

_NO_HOOK: Final = {"NVIDIA_VISIBLE_DEVICES": "void"}
"""Where NVIDIA's hook is installed too, it would show every GPU to an image that asks for them (Container Toolkit, "Environment
variables")."""

_SHARES_OF_CORE: Final = 1_024
_SHARES_MIN: Final = 2
"""As weights of control groups were written in version 1; podman translates them where that is gone."""

_FILES_MAX: Final = 1_048_576
"""Some programs close every file that they might have open."""


@dataclass(frozen=True, slots=True)
class Podman:
    """Implements Runtime. `program`: with its global options. `init`: what reaps and passes signals in containers, if there is one.

    `limits`: whether it can limit CPU and memory. `gives_devices`: GPUs of this machine are real, and named by CDI.
    """

    program: tuple[str, ...]
    version: str
    rootless: bool
    limits: bool
    init: str = ""
    gives_devices: bool = False

    def prepared(self, content: dict[str, Any], beginning: Beginning) -> dict[str, Any]:
        """The content of `task.json` for a task with its command in a container. Raises ValueError for a job that names none."""
        container, work = beginning.spec.container, str(beginning.task / WORK)
        if container is None:
            raise ValueError("the job names no image")
        environment = {"HOME": work, **content["environment"], **_NO_HOOK}
        visible = environment["CUDA_VISIBLE_DEVICES"]
        devices = [f"nvidia.com/gpu={name}" for name in visible.split(",") if name] if self.gives_devices else []
        if devices:  # Inside, only these are there, and they may have other numbers.
            del environment["CUDA_VISIBLE_DEVICES"]
        own = {name: os.environ[name] for name in _OWN_VARIABLES if name in os.environ}
        return {
            **content,
            "environment": environment,
            "cgroup": None,  # podman makes one.
            "container": {
                "podman": self.program,
                "environment": {**own, TASK_FOLDER: str(beginning.task)},
                "name": f"quorate-{hashlib.sha256(os.fsencode(beginning.task)).hexdigest()[:32]}",
                "image": container.image,
                "options": [
                    *_FIXED,
                    f"--network={container.network}",
                    *(["--read-only"] if container.read_only else []),
                    *(["--init", f"--init-path={self.init}"] if self.init else []),
                    *_identity(content["account"]),
                    *self._limited(beginning.shape),
                    *_folders(beginning),
                    *_mps(environment, int(beginning.shape.memory)),
                    f"--workdir={beginning.spec.working_directory or work}",
                    *(f"--device={name}" for name in devices),
                ],
            },
        }

    def _limited(self, shape: Shape) -> Iterator[str]:
        yield from _own_limits()
        if self.limits:
            yield f"--pids-limit={PROCESSES_MAX}"
        if self.limits and shape.memory:
            yield from (f"--memory={int(shape.memory)}b", f"--memory-swap={int(shape.memory)}b")
        if self.limits and shape.cpu:
            yield f"--cpus={max(CPU_MAX_LEAST, int(shape.cpu)) / 1_000:g}"
            yield f"--cpu-shares={max(_SHARES_MIN, int(shape.cpu) * _SHARES_OF_CORE // 1_000)}"


_FIXED: Final = (
    "--pull=missing",
    "--quiet",
    "--entrypoint=",
    "--log-driver=none",  # The supervisor has the task's output already.
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
)


@cache
def find_podman() -> Podman:
    """The podman of this machine. Asked once it is there, since it takes half a second. Raises NoContainersError."""
    program = shutil.which("podman")
    if program is None:
        raise NoContainersError("podman is not installed")
    options = [program, *_global_options()]
    try:
        told = subprocess.run(
            [*options, "info", "--format=json"], capture_output=True, timeout=_INFO_LIMIT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        raise NoContainersError(
            f"podman does not work here: {error.stderr.decode(errors='replace').strip()}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoContainersError(f"podman does not work here: {error}") from error
    init = next((path for path in _INIT_PROGRAMS if os.access(path, os.X_OK)), "")
    return podman_of(tuple(options), json.loads(told.stdout), init, REAL_GPUS.exists())


def podman_of(program: tuple[str, ...], told: dict[str, Any], init: str, gives_devices: bool) -> Podman:
    """What `podman info --format=json` comes to. Without root, version 1 of cgroups can't be written, so nothing is limited."""
    rootless = bool(told["host"]["security"]["rootless"])
    limits = not rootless or told["host"]["cgroupVersion"] == "v2"
    return Podman(program, told["version"]["Version"], rootless, limits, init, gives_devices)


def _global_options() -> Iterator[str]:
    """crun refuses machines with both versions of cgroups, so runc is taken where it is there; and systemd's are for systemd."""
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists() and shutil.which("runc"):
        yield "--runtime=runc"
    if not _SYSTEMD.exists():
        yield "--cgroup-manager=cgroupfs"
    yield "--events-backend=none"


def _mps(environment: dict[str, str], memory: int) -> Iterator[str]:
    """Shared memory counts as the task's, so it is as large; workers that load data pass batches by it.

    A client of MPS needs that of its daemon instead, and the daemon's pipes.
    """
    if PIPE not in environment:
        yield f"--shm-size={memory}"
        return
    yield "--ipc=host"
    pipes = environment[PIPES].split(",") if PIPES in environment else [environment[PIPE]]
    yield from (f"--volume={folder}:{folder}:rw" for folder in (*pipes, environment[LOG_FOLDER]))


def _own_limits() -> Iterator[str]:
    """As high as may be: podman's own defaults are higher than some hosts allow, and then nothing starts."""
    most = {"nofile": _FILES_MAX, "nproc": int(Path("/proc/sys/kernel/pid_max").read_text())}
    for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        allowed = resource.getrlimit(kind)[1]
        limit = most[name] if allowed == resource.RLIM_INFINITY else min(allowed, most[name])
        yield f"--ulimit={name}={limit}:{limit}"


def _identity(account: dict[str, Any] | None) -> Iterator[str]:
    """Without an account podman runs as no root, and the container's root is the account podman runs as."""
    if account is not None:
        yield f"--user={account['uid']}:{account['gid']}"
        yield from (f"--group-add={group}" for group in account["groups"] if group != account["gid"])


def _folders(beginning: Beginning) -> Iterator[str]:
    """At the places where a process would have them, so that every variable that names one is true."""
    yield f"--volume={beginning.attempt}:{beginning.attempt}:ro"
    for own in (WORK, SAID):
        yield f"--volume={beginning.task / own}:{beginning.task / own}:rw"
