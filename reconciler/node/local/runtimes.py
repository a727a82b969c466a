"""What starts the commands of tasks: as processes of this machine, or in containers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from reconciler.node.local.cgroups import Cgroups
from reconciler.protocols.backend import Unstartable
from solver.model.shape import Shape
from solver.model.workload import JobSpec

_FIX: Final = "Install podman there, or submit the job without container."


@dataclass(frozen=True, slots=True)
class Beginning:
    """A task that is about to begin: the folders of its attempt and its own, what its job says, what it asks for."""

    attempt: Path
    task: Path
    spec: JobSpec
    shape: Shape


class NoContainersError(Exception):
    """This machine can't run containers. The message says why; its operator must act."""


class Runtime(Protocol):
    """How the command of a task comes to run. All of them run under the same supervisor, which is told by `task.json`."""

    def prepared(self, content: dict[str, Any], beginning: Beginning) -> dict[str, Any]:
        """The content of `task.json`, with `container` and `cgroup` as this runtime has them."""


@dataclass(frozen=True, slots=True)
class Processes:
    """Implements Runtime: the command is a process like any other, in a control group where there are any."""

    cgroups: Cgroups | None = None

    def prepared(self, content: dict[str, Any], beginning: Beginning) -> dict[str, Any]:
        """As Runtime says."""
        cgroup = self.cgroups.of_task(beginning.task, beginning.shape) if self.cgroups else None
        return {**content, "container": None, "cgroup": cgroup}


def no_containers() -> Runtime:
    """Of a machine that is to run none. Raises NoContainersError."""
    raise NoContainersError("containers are switched off")


@dataclass(frozen=True, slots=True)
class Runtimes:
    """Those of one machine. `containers` finds what runs them, when one is first asked for; raises NoContainersError."""

    processes: Processes = Processes()
    containers: Callable[[], Runtime] = no_containers

    def unstartable(self, spec: JobSpec) -> Unstartable | None:
        """Why no task of this job could begin here; None: nothing is known against it."""
        try:
            if spec.container is not None:
                self.containers()
        except NoContainersError as error:
            return Unstartable("no-podman", _why(error), _FIX)
        return None

    def prepared(self, content: dict[str, Any], beginning: Beginning) -> dict[str, Any]:
        """The content of `task.json` by the runtime that the job asks for; a command that has none does not run, and says why."""
        if beginning.spec.container is None:
            return self.processes.prepared(content, beginning)
        try:
            return self.containers().prepared(content, beginning)
        except NoContainersError as error:
            refused = content["refused"] or f"{_why(error)}. {_FIX}"
            return {**content, "refused": refused, "container": None, "cgroup": None}


def _why(error: NoContainersError) -> str:
    return f"it asks for a container, and this machine can't run any: {error}"
