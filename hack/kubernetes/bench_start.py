"""From the start to the first plan on a large cluster, and what a few changes take after: `python -m hack.kubernetes.bench_start`.

Nodes and pods are made on a real API server with its etcd, which share the machine with what is measured. The plan is the greedy
answer of one round, in the same process, and not checked; times are of the wall, where nothing else is said.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import perf_counter, process_time

import click
import msgspec
import structlog

from hack.kubernetes.cluster import running
from hack.kubernetes.components import found, place
from hack.kubernetes.large import Large, make, node_name
from hack.memory import peak_mb
from reconciler.control.garbage_collection import filling
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import Key
from reconciler.kubernetes.client.kind_watch import WatchContext
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.model.clock import SystemClock
from solver.model.cluster import GpuType
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import QueueName
from solver.policy.policy import Policy, Queue, Quota, policy_of
from solver.round.solve import solve

QPS = 1_000_000
"""As good as no limit."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """`list_s` to all objects read, `map_s` to what they mean, `first_plan_s` to the plan, all three one after the other;
    `cpu_s`: the processor time of all three.

    `change_ms` to a snapshot after `bound` bindings came by the watch, `nothing_ms` after nothing did, `join_ms` after a node
    joined. `rss_mb`: the most that the process had, the plan included; `mirrored_mb`: before the plan.
    """

    nodes: int
    pods: int
    gangs: int
    list_s: float
    map_s: float
    first_plan_s: float
    cpu_s: float
    starts: int
    mirrored_mb: int
    rss_mb: int
    bound: int
    change_ms: float
    nothing_ms: float
    join_ms: float


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--nodes", type=click.IntRange(min=16), default=12_500, show_default=True)
@click.option("--pods", type=click.IntRange(min=200), default=100_000, show_default=True)
@click.option("--bound", type=click.IntRange(min=1), default=100, show_default=True, help="Pods bound after the start.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--of", "kubeconfig", type=click.Path(exists=True, path_type=Path), help="Of a cluster that is full already."
)
def main(nodes: int, pods: int, bound: int, output: str, kubeconfig: Path | None) -> None:
    """Measure a start on a large cluster."""
    if kubeconfig:
        click.echo(msgspec.json.encode(asyncio.run(_measured(kubeconfig, bound))).decode())
        return
    with tempfile.TemporaryDirectory() as folder, running(found(place()), Path(folder)) as cluster:
        there = cluster.kubeconfig("admin", ("system:masters",))
        asyncio.run(_filled(there, Large(nodes, pods)))
        # In a process of its own, whose memory is nobody else's.
        command = [sys.executable, "-m", "hack.kubernetes.bench_start", "--of", str(there), "--bound", str(bound)]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    figures = json.loads(said)
    if output == "json":
        click.echo(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        click.echo(f"{name:14} {value}")


async def _filled(kubeconfig: Path, large: Large) -> None:
    async with _session(kubeconfig) as api:
        await make(api, large)


def _session(kubeconfig: Path) -> Api:
    clock = SystemClock()
    return Api(from_kubeconfig(kubeconfig, clock), RateLimiter(QPS, QPS, clock), Random(1))


async def _measured(kubeconfig: Path, bound: int) -> Measured:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    async with _session(kubeconfig) as api:
        began_s, began_cpu_s = perf_counter(), process_time()
        mirror = ClusterCache(WatchContext(api, SystemClock(), Random(1), structlog.get_logger()))
        following = asyncio.create_task(mirror.run())
        with filling():
            await mirror.ready()
            listed_s = perf_counter()
            cluster = mirror.cluster()
        mapped_s, mirrored_mb = perf_counter(), peak_mb(os.getpid())
        plan = solve(_snapshot(mirror), _policy(), None)
        planned_s, cpu_s = perf_counter(), process_time() - began_cpu_s
        await _bound(api, mirror, bound)
        change_s, nothing_s = _looked_s(mirror), _looked_s(mirror)
        join_s = await _joined_s(api, mirror)
        following.cancel()
    return Measured(
        nodes=len(cluster.nodes),
        pods=len(mirror.pod_view()),
        gangs=len(cluster.gangs),
        list_s=round(listed_s - began_s, 2),
        map_s=round(mapped_s - listed_s, 2),
        first_plan_s=round(planned_s - mapped_s, 2),
        cpu_s=round(cpu_s, 2),
        starts=len(plan.steps),
        mirrored_mb=mirrored_mb,
        rss_mb=peak_mb(os.getpid()),
        bound=bound,
        change_ms=round(1000 * change_s, 1),
        nothing_ms=round(1000 * nothing_s, 1),
        join_ms=round(1000 * join_s, 1),
    )


async def _bound(api: Api, mirror: ClusterCache, many: int) -> None:
    """Bind so many pods that wait to the first node, and return once the mirror knows it."""
    waiting = [key for key, pod in mirror.pods.items() if not pod.spec.node_name][:many]
    for key in waiting:
        target = {"apiVersion": "v1", "kind": "Node", "name": node_name(0)}
        await api.create(PODS.path(*key, "binding"), {"metadata": {"name": key.name}, "target": target})
    await _until(mirror, lambda: all(_is_bound(mirror, key) for key in waiting))


async def _joined_s(api: Api, mirror: ClusterCache) -> float:
    """How long a snapshot takes after a node has joined."""
    (sent,) = Large(1, 0).sent_nodes()
    sent["metadata"]["name"] = "joins"
    await api.create(NODES.path(), sent)
    await _until(mirror, lambda: mirror.nodes.get(Key("", "joins")) is not None)
    return _looked_s(mirror)


async def _until(mirror: ClusterCache, true: Callable[[], bool]) -> None:
    while not true():
        mirror.changed.clear()
        await mirror.changed.wait()


def _is_bound(mirror: ClusterCache, key: Key) -> bool:
    pod = mirror.pods.get(key)
    return pod is not None and bool(pod.spec.node_name)


def _looked_s(mirror: ClusterCache) -> float:
    began_s = perf_counter()
    _snapshot(mirror)
    return perf_counter() - began_s


def _snapshot(mirror: ClusterCache) -> Snapshot:
    cluster = mirror.cluster()
    return snapshot_of(Instant(0), cluster.nodes, cluster.jobs, node_sets=cluster.node_sets)


def _policy() -> Policy:
    """Everybody may have everything."""
    quota = Quota(GpuType("H100-SXM5-80GB"), MilliGpu.gpus(1_000_000))
    return policy_of((Queue(QueueName("everybody"), quota=(quota,)),))


if __name__ == "__main__":
    main()
