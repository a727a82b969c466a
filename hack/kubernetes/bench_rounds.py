"""What a cluster sees of the whole control plane: `python -m hack.bench_kubernetes`; here the cases in which pods are scheduled.

A real process of who schedules, a real API server (with the fence in force, for Quorate), nodes that this process keeps as
kubelets do.
Pods are made before the scheduler is started where a case asks how fast it binds, else while it runs, as users make them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import structlog

from hack.kubernetes.bench_contenders import ADMINS, SPACE, Contender, Made, Process
from hack.kubernetes.bench_loads import CASES, sent_nodes, smaller
from hack.kubernetes.cluster import Cluster
from hack.kubernetes.fence import QUORATE, install, install_pod_label
from hack.kubernetes.large import at_once
from hack.memory import peak_mb
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import Change, Informer
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError
from reconciler.kubernetes.objects.resource import NODES, PODS, Resource
from reconciler.kubernetes.objects.wire import Pod
from reconciler.model.clock import SystemClock

PATIENCE_S = 600.0
CLOCK = SystemClock()


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
    scheduler_rss_mb: int


async def measured(name: str, contender: Contender, cluster: Cluster, folder: Path, small: int = 1) -> Figures:
    """One case on a cluster of its own; `small` divides its size."""
    case = smaller(CASES[name], small)
    async with (
        _session(cluster, QUORATE) as quorate,
        _session(cluster, "bench-admin") as api,
        _session(cluster, "kubelet") as kube,
    ):
        if contender.fenced:
            await install(api, quorate)
            await install_pod_label(api)
        await api.create(Resource("v1", "namespaces").path(), {"metadata": {"name": SPACE}})
        await at_once(sent_nodes(case.nodes), lambda node: api.create(NODES.path(), node))
        seen = Seen()
        async with watched(api, kube if case.held else None, seen):
            if case.held:
                async with contender.scheduling(cluster, folder / "held") as process:
                    await _make(api, contender.asked("held", case.held))
                    await _all_are(seen.bound, "held", case.held.pods, process)
            started = time.monotonic()
            if case.before:
                await _make(api, contender.asked("asked", case.asked))
            made = time.monotonic()
            async with contender.scheduling(cluster, folder / "asked") as process:
                if not case.before:
                    started = time.monotonic()
                    await _make(api, contender.asked("asked", case.asked))
                    made = time.monotonic()
                at = seen.told if case.until == "told" else seen.bound
                await _all_are(at, "asked", case.asked.pods, process)
                used = usage(process.pid)
        times = sorted(when for one, when in at.items() if one.startswith("asked"))
        spread = times[-1] - times[0]
        return Figures(
            name, case.nodes, case.asked.pods, round(made - started, 3), round(times[0] - started, 3),
            round(times[-1] - started, 3), round(spread, 3), round(len(times) / spread, 1) if spread else 0.0,
            seen.gone["held"], *used,
        )  # fmt: skip


async def _make(api: Api, objects: Iterator[Made]) -> None:
    await at_once(objects, lambda made: api.create(*made))


@asynccontextmanager
async def _session(cluster: Cluster, user: str) -> AsyncIterator[Api]:
    credentials = from_kubeconfig(cluster.kubeconfig(user, ADMINS), CLOCK)
    async with Api(credentials, RateLimiter(1_000_000, 1_000_000, CLOCK), Random(1)) as api:
        yield api


@asynccontextmanager
async def watched(api: Api, kubelet: Api | None, seen: Seen) -> AsyncIterator[None]:
    """What happens to pods is noted; with `kubelet`, what one does about it is done: they run, and end at once when told to."""
    listed = asyncio.Event()

    async def work() -> None:
        pods = Informer(api, PODS, Pod, Random(2), structlog.get_logger())
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


async def _all_are(at: Collection[str], prefix: str, pods: int, process: Process) -> None:
    """Return once it has happened to so many pods. Raises RuntimeError where who schedules has ended, TimeoutError."""

    def there() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the scheduler has ended with {process.returncode}")
        return sum(pod.startswith(prefix) for pod in at) == pods

    await until(there)


async def until(true: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(patience_s):
        while not true():
            await asyncio.sleep(0.005)


def usage(pid: int) -> tuple[float, int]:
    """CPU seconds of the process so far, and the most memory that it had, in MB."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return round(ticks / os.sysconf("SC_CLK_TCK"), 2), peak_mb(pid)
