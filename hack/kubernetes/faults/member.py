"""A control plane as a process that can be killed, held up and started again: all of `quorate run` but Git and the API."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import SystemRandom
from typing import Any, NamedTuple

import structlog

from hack.kubernetes.faults.bugs import seeded
from reconciler.control.control import LEASE as STORE_LEASE
from reconciler.control.control import PolicyInForce
from reconciler.control.recording import solver_with
from reconciler.control.runner import LoopStatus, Pace
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.leader import LEASE, NAMESPACE, Timing
from reconciler.kubernetes.control.connection import ClusterConnection, acting_plane
from reconciler.kubernetes.control.plane import Handed, PodPlane
from reconciler.kubernetes.control.pod_recorder import PodRecorder
from reconciler.kubernetes.control.runner import PodRunner
from reconciler.kubernetes.control.state import KubernetesState
from reconciler.kubernetes.objects.pod_ownership import OURS
from reconciler.model.clock import SystemClock
from reconciler.store.store import open_store
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, MilliGpu
from solver.model.workload import QueueName
from solver.policy.division import SharingPolicy
from solver.policy.harm import Evictions, Protection
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, SchedulingPolicy, policy_of

QUEUE, URGENT = QueueName("research"), QueueName("urgent")
POOL = "pool"
# Nothing protects what runs, and nothing rests after it was evicted, so that evictions are among what is interrupted.
UNPROTECTED = Protection(min_runtime=Duration(0))
USUAL = PriorityClass("usual", protection=UNPROTECTED)
FIRST = PriorityClass("first", value=100, scope="cluster", protection=UNPROTECTED)
ENTITLED = Quota(GpuType("H100-SXM5-80GB"), guaranteed=MilliGpu.gpus(8))
"""Of the urgent queue: for that, others have to leave."""
START_DEADLINE = Duration(10_000)
"""So long a gang that has lost pods, and whose plan with them, may take until it is whole again."""
EVICTIONS = Evictions(restart_cost=Duration(0), grace=Duration(1_000), back_off=Duration(0))
POLICY = policy_of(
    (Queue(QUEUE), Queue(URGENT, quota=(ENTITLED,))),
    (USUAL, FIRST),
    SchedulingPolicy(
        default_priority_class=USUAL.name,
        reclaim_within=Duration(0),
        evictions=EVICTIONS,
        start_deadline=START_DEADLINE,
    ),
    sharing=(SharingPolicy("shared", (POOL,), "mps"),),
)
TIMING = Timing(lease_s=3, renew_every_s=0.4, margin_s=1.0, settle_s=0.3)
"""Short, so that leaders can be lost many times while faults last."""
ROLL_FORWARD_S = 6.0
PACE = Pace(debounce_s=0.03, apart_s=0.05, poll_s=0.3)
STOPS_WITHIN_S = 20.0
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])  # what takes seconds is imported once, and each process begins at once


class Given(NamedTuple):
    """What a process is told. `bug`: the name of one of `bugs.BUGS`, "" for none."""

    name: str
    kubeconfig: str
    folder: str
    bug: str


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """Implements PolicySource: nothing in Git changes meanwhile."""

    policy: Policy = POLICY

    def current(self) -> PolicyInForce:
        """Always the same."""
        return PolicyInForce("revision", self.policy, ())


class Member:
    """One that is started again and again: its state folder, and so its history, outlives each of its processes."""

    def __init__(self, name: str, kubeconfig: Path, folder: Path, bug: str = "") -> None:
        self.name = name
        self._given = Given(name, str(kubeconfig), str(folder), bug)
        self._said = folder / f"{name}.jsonl"
        self._process: BaseProcess | None = None

    @property
    def is_alive(self) -> bool:
        """Whether there is a process of it."""
        return self._process is not None and self._process.is_alive()

    def start(self) -> None:
        """A fresh process; it is not waited for."""
        self._process = _FORKS.Process(target=live, args=(self._given,), daemon=True)
        self._process.start()

    def kill(self) -> None:
        """As by kill -9; it may be held up."""
        if self._process:
            self._process.kill()
            self._process.join()

    def stop(self) -> None:
        """As by SIGTERM: it gives leadership up. Killed where it takes too long."""
        if self._process and self._process.pid and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGTERM)
            self._process.join(STOPS_WITHIN_S)
        self.kill()

    def hold_up(self, *, still: bool) -> None:
        """It stands still, or goes on as if nothing had been."""
        if self._process and self._process.pid and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGSTOP if still else signal.SIGCONT)

    def said(self) -> list[dict[str, Any]]:
        """What came of each of its passes: condition, and verdict by job where it led."""
        lines = self._said.read_text().splitlines(keepends=True) if self._said.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


def live(given: Given) -> None:
    """What the process does: until SIGTERM, or until a person would have to act."""
    folder, clock = Path(given.folder), SystemClock()
    with (
        (folder / f"{given.name}.log").open("a", buffering=1) as log_file,
        (folder / f"{given.name}.jsonl").open("a", buffering=1) as said,
        seeded(given.bug),
    ):
        os.dup2(log_file.fileno(), 2)
        log = structlog.wrap_logger(structlog.PrintLogger(log_file))
        store = open_store(folder / f"{given.name}.db")
        memory = KubernetesState(store.ledger, store.history, store.gone_pods, clock, given.name, STORE_LEASE)
        holder = f"{given.name}-{os.getpid()}"
        credentials = from_kubeconfig(Path(given.kubeconfig), clock)
        cluster = ClusterConnection(credentials, 500.0, 1_000, NAMESPACE, LEASE, holder, TIMING, ROLL_FORWARD_S)

        def connect() -> AbstractAsyncContextManager[PodPlane]:
            parts = (
                memory,
                store.interventions,
                store.health,
                FixedPolicy(),
                solver_with(None),
                clock,
                SystemRandom(),
                str,
                log,
                PodRecorder(store.pod_placements, store.capacities, OURS),
            )
            return acting_plane(cluster, Handed(*parts))

        runner = PodRunner(connect, clock, _telling(said.write), PACE)
        signal.signal(signal.SIGTERM, lambda *_: runner.stop())
        runner.run()


def _telling(write: Callable[[str], object]) -> Callable[[LoopStatus], None]:
    def tell(status: LoopStatus) -> None:
        line: dict[str, Any] = {"condition": status.condition, "message": status.message}
        if status.condition == "leading" and status.last:
            line["verdicts"] = {one.job: type(one).__name__.lower() for one in status.last.plan.verdicts}
        write(json.dumps(line) + "\n")

    return tell
