"""Where a control plane's tasks run, as far as the rest of its process must know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.registry import Collector

from reconciler.backends.baremetal.desk import AgentDesk
from reconciler.model.task_log import Logs
from reconciler.protocols.backend import Backend, Unstartable
from reconciler.protocols.terminals import Terminals
from reconciler.server.parts import ServerThread
from solver.model.workload import JobSpec


class TaskRunner(Backend, Logs, Terminals, Protocol):
    """Runs tasks, and shows what they write."""


@dataclass(frozen=True, slots=True)
class ExecutionPlatform:
    """`unstartable`: what is known against starting a job. `agents`: None where there are none.

    `begin`: called once everything that it calls is there. `ending`: what the log says of tasks in the end.
    `figures`: for Prometheus.
    """

    backend: TaskRunner
    unstartable: Callable[[JobSpec, str], Unstartable | None]
    agents: AgentDesk | None = None
    begin: Callable[[], None] = lambda: None
    members: tuple[ServerThread, ...] = ()
    ending: str = "they go on; the next start on this state folder finds them"
    figures: tuple[Collector, ...] = ()
