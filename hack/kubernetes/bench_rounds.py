"""What a cluster sees of the whole control plane: `python -m hack.bench_kubernetes`; here the cases in which pods are scheduled.

A real `quorate run --kubernetes` process, a real API server with the fence in force, nodes that this process keeps as kubelets do.
Pods are made before the scheduler is started where a case asks how fast it binds, else while it runs, as users make them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import structlog

from hack.hostile.origin import Origin
from hack.kubernetes.bench_loads import CASES, GPU_TYPE, Load, sent_nodes, sent_pods, smaller
from hack.kubernetes.cluster import Cluster
from hack.kubernetes.fence import QUORATE, install
from hack.kubernetes.large import at_once
from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.kubeconfig import from_kubeconfig
from reconciler.backends.kubernetes.objects.wire import Pod
from reconciler.backends.kubernetes.pace import Pace
from reconciler.backends.kubernetes.refusals import ConflictError, NotFoundError
from reconciler.backends.kubernetes.resource import NODES, PODS, Resource
from reconciler.backends.kubernetes.watching import Change, Watched
from reconciler.clock import SystemClock

SPACE = "bench"
PATIENCE_S = 600.0
ADMINS = ("system:masters",)
CLOCK = SystemClock()
POLICY = {
    "policies/borrower.yaml": "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: borrower}\nspec: {}\n",
    "policies/owner.yaml": (
        "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: owner}\n"
        f"spec: {{quota: [{{gpuType: {GPU_TYPE}, guaranteed: 4000}}]}}\n"
    ),
    "policies/classes.yaml": (
        "apiVersion: quorate.dev/v1\nkind: PriorityClass\nmetadata: {name: batch}\n"
        "spec: {value: 10, sloClass: preemptible, protection: {minRuntime: 0s}}\n"
    ),
    "policies/scheduling.yaml": (
        "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: default}\n"
        "spec: {defaultPriorityClass: batch, startDeadline: 1h}\n"
    ),
}


@dataclass
class Seen:
    """When what happened to pods, by the monotonic clock."""

    bound: dict[str, float] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    gone: Counter[str] = field(default_factory=Counter)

    def hear(self, change: Change[Pod]) -> None:
        """One change of a pod."""
        now = time.monotonic()
        name, pod = change.key.name, change.after
        if pod is None:
            self.gone[name.partition("-")[0]] += 1
        elif pod.spec.node_name:
            self.bound.setdefault(name, now)
        elif any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions):
            self.told.setdefault(name, now)


class Figures(NamedTuple):
    """`to_first_s`, `to_all_s`: from the first pod's making; `spread_s`: from the first to the last that was bound, or told."""

    case: str
    nodes: int
    pods: int
    made_s: float
    to_first_s: float
    to_all_s: float
    spread_s: float
    pods_per_s: float
    evicted: int
    scheduler_cpu_s: float
    scheduler_rss_mb: float


async def measured(name: str, cluster: Cluster, folder: Path, small: int = 1) -> Figures:
    """One case on a cluster of its own; `small` divides its size."""
    case = smaller(CASES[name], small)
    async with (
        _session(cluster, QUORATE) as quorate,
        _session(cluster, "bench-admin") as api,
        _session(cluster, "kubelet") as kube,
    ):
        await install(api, quorate)
        await api.create(Resource("v1", "namespaces").path(), {"metadata": {"name": SPACE}})
        await at_once(sent_nodes(case.nodes), lambda node: api.create(NODES.path(), node))
        seen = Seen()
        async with _watched(api, kube if case.held else None, seen):
            if case.held:
                async with _scheduler(cluster, folder / "held"):
                    await _make(api, "held", case.held)
                    await _until(
                        lambda: (
                            sum(one.startswith("held") for one in seen.bound) == (case.held.pods if case.held else 0)
                        )
                    )
            started = time.monotonic()
            if case.before:
                await _make(api, "asked", case.asked)
            made = time.monotonic()
            async with _scheduler(cluster, folder / "asked") as process:
                if not case.before:
                    started = time.monotonic()
                    await _make(api, "asked", case.asked)
                    made = time.monotonic()
                at = seen.told if case.until == "told" else seen.bound
                await _until(lambda: sum(one.startswith("asked") for one in at) == case.asked.pods)
                usage = _usage(process.pid)
        times = sorted(when for one, when in at.items() if one.startswith("asked"))
        spread = times[-1] - times[0]
        return Figures(
            name, case.nodes, case.asked.pods, round(made - started, 3), round(times[0] - started, 3),
            round(times[-1] - started, 3), round(spread, 3), round(len(times) / spread, 1) if spread else 0.0,
            seen.gone["held"], *usage,
        )  # fmt: skip


async def _make(api: Api, prefix: str, load: Load) -> None:
    await at_once(sent_pods(prefix, load), lambda pod: api.create(PODS.path(SPACE), pod))


@asynccontextmanager
async def _session(cluster: Cluster, user: str) -> AsyncIterator[Api]:
    credentials = from_kubeconfig(cluster.kubeconfig(user, ADMINS), CLOCK)
    async with Api(credentials, Pace(1_000_000, 1_000_000, CLOCK), Random(1)) as api:
        yield api


@asynccontextmanager
async def _watched(api: Api, kubelet: Api | None, seen: Seen) -> AsyncIterator[None]:
    """What happens to pods is noted; with `kubelet`, what one does about it is done: they run, and end at once when told to."""
    listed = asyncio.Event()

    async def work() -> None:
        pods = Watched(api, PODS, Pod, Random(2), structlog.get_logger())
        async with asyncio.TaskGroup() as doing, aclosing(pods.changes()) as batches:
            async for changes in batches:
                listed.set()
                for change in changes:
                    seen.hear(change)
                    if kubelet and change.after and change.after.spec.node_name:
                        doing.create_task(_kept(kubelet, change.after))

    working = asyncio.create_task(work())
    await listed.wait()
    try:
        yield
    finally:
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


async def _kept(api: Api, pod: Pod) -> None:
    with suppress(ConflictError, NotFoundError):  # it is gone, or not as it was: its next change comes
        if pod.metadata.deletion_timestamp:
            await api.delete(PODS.path(*pod.key), {"gracePeriodSeconds": 0})
        elif pod.status.phase == "Pending":
            started = {"phase": "Running", "startTime": str(CLOCK.now())}
            await api.patch(PODS.path(*pod.key, "status"), {"status": started})


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def _scheduler(cluster: Cluster, folder: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """`quorate run --kubernetes`, leading."""
    folder.mkdir(parents=True)
    origin = Origin(folder / "policy")
    origin.commit(POLICY)
    log = folder / "quorate.log"
    command = [
        *(sys.executable, "-m", "reconciler.cli.main", "run", "--policies-repo", str(origin.folder)),
        *(
            "--state",
            str(folder / "state"),
            "--listen",
            "127.0.0.1:0",
            "--kubernetes",
            "--qps",
            "100000",
            "--burst",
            "100000",
        ),
        *("--kubeconfig", str(cluster.kubeconfig(QUORATE, ADMINS))),
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        while '"leading"' not in log.read_text():
            if process.poll() is not None or "is invalid" in log.read_text():
                raise RuntimeError(f"quorate run has ended:\n{log.read_text()[-2_000:]}")
            await asyncio.sleep(0.05)  # what happens to pods is noted meanwhile
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _usage(pid: int) -> tuple[float, float]:
    """CPU seconds of the process so far, and the most memory that it had, in MB."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return round(ticks / os.sysconf("SC_CLK_TCK"), 2), round(int(peak.split()[1]) / 1000, 1)
