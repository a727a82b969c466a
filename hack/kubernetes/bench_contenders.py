"""Who schedules in a benchmark, and how gangs are said to it: `quorate run`, or kube-scheduler itself."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp

from hack.hostile.origin import Origin
from hack.kubernetes.bench_loads import GPU_TYPE, RACK, Load, sent_pods
from hack.kubernetes.certificates import LOOPBACK
from hack.kubernetes.cluster import Cluster
from hack.kubernetes.components import found, place
from hack.kubernetes.fence import QUORATE
from hack.kubernetes.large import Sent
from hack.ports import free_ports
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS, Resource

SPACE = "bench"
ADMINS = ("system:masters",)
NO_LIMIT = 100_000
"""Requests a second: more than an API server answers."""
USUAL_QPS, USUAL_BURST = 50, 100
"""What kube-scheduler has where nobody configures it."""
KUBE_SCHEDULER = "kube-scheduler"
USUAL_NAME = "default-scheduler"
"""Whose pods it takes."""
GATES = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling")
"""Its own gangs, alpha in Kubernetes 1.36."""
GROUPS = Resource("scheduling.k8s.io/v1alpha2", "podgroups")
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

Process = subprocess.Popen[bytes]


class Made(NamedTuple):
    """An object, and the path that it is created at."""

    path: str
    sent: Sent


class Contender(NamedTuple):
    """`scheduling`: its process, ready, with logs in a folder. `asked`: a load in its words. `fenced`: under Quorate's fence."""

    scheduling: Callable[[Cluster, Path], AbstractAsyncContextManager[Process]]
    asked: Callable[[str, Load], Iterator[Made]]
    fenced: bool


def quorate() -> Contender:
    """`quorate run --kubernetes`, with no limit of requests."""
    return Contender(_quorate_runs, _as_plain_pods, fenced=True)


def kube_scheduler(qps: int, burst: int) -> Contender:
    """kube-scheduler with so many requests a second. Its clusters need GATES."""

    def scheduling(cluster: Cluster, folder: Path) -> AbstractAsyncContextManager[Process]:
        return kube_scheduler_runs(cluster, folder, qps, burst)

    return Contender(scheduling, _as_its_own_gangs, fenced=False)


def _as_plain_pods(prefix: str, load: Load) -> Iterator[Made]:
    return (Made(PODS.path(SPACE), pod) for pod in sent_pods(prefix, load))


def _as_its_own_gangs(prefix: str, load: Load) -> Iterator[Made]:
    if load.size > 1:
        topology = {"schedulingConstraints": {"topology": [{"key": RACK}]}} if load.rack else {}
        spec = {"schedulingPolicy": {"gang": {"minCount": load.size}}, **topology}
        for gang in range(load.gangs):
            yield Made(GROUPS.path(SPACE), {"metadata": {"name": f"{prefix}-{gang}"}, "spec": spec})
    for pod in sent_pods(prefix, load):
        group = pod["metadata"]["annotations"].get(names.GANG)
        joined = {"schedulingGroup": {"podGroupName": group}} if group else {}
        yield Made(
            PODS.path(SPACE),
            {
                "metadata": {"name": pod["metadata"]["name"]},
                "spec": {**pod["spec"], "schedulerName": USUAL_NAME, **joined},
            },
        )


@asynccontextmanager
async def _quorate_runs(cluster: Cluster, folder: Path) -> AsyncIterator[Process]:
    """Until the end of the block; it leads."""
    folder.mkdir(parents=True)
    origin = Origin(folder / "policy")
    origin.commit(POLICY)
    log = folder / "quorate.log"
    command = [
        *(sys.executable, "-m", "reconciler.cli.main", "run", "--policies-repo", str(origin.folder)),
        *("--state", str(folder / "state"), "--listen", f"{LOOPBACK}:0", "--kubernetes"),
        *("--qps", str(NO_LIMIT), "--burst", str(NO_LIMIT)),
        *("--kubeconfig", str(cluster.kubeconfig(QUORATE, ADMINS))),
    ]
    with _running(command, log) as process:
        while '"leading"' not in log.read_text():
            if process.poll() is not None or "is invalid" in log.read_text():
                raise RuntimeError(f"quorate run has ended:\n{log.read_text()[-2_000:]}")
            await asyncio.sleep(0.05)  # what happens to pods is noted meanwhile
        yield process


@asynccontextmanager
async def kube_scheduler_runs(
    cluster: Cluster, folder: Path, qps: int = NO_LIMIT, burst: int = NO_LIMIT
) -> AsyncIterator[Process]:
    """Until the end of the block; its caches are filled."""
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    kubeconfig = cluster.kubeconfig("system:kube-scheduler", ADMINS)
    configuration = folder / "configuration.json"
    configuration.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(kubeconfig), "qps": qps, "burst": burst},
                "leaderElection": {"leaderElect": False},
            }
        )
    )
    command = [
        *(str(found(place(), (KUBE_SCHEDULER,)).path(KUBE_SCHEDULER)), f"--config={configuration}"),
        *(f"--bind-address={LOOPBACK}", f"--secure-port={port}", f"--cert-dir={folder}"),
        f"--feature-gates={','.join(f'{gate}=true' for gate in GATES)}",
    ]
    log = folder / "kube-scheduler.log"
    with _running(command, log) as process:
        while not await _is_ready(f"https://{LOOPBACK}:{port}/readyz"):
            if process.poll() is not None:
                raise RuntimeError(f"kube-scheduler has ended:\n{log.read_text()[-2_000:]}")
            await asyncio.sleep(0.05)
        yield process


@contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[Process]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


async def _is_ready(url: str) -> bool:
    """Of a server whose certificate is its own; nothing is told to it."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(url, ssl=False) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False
