"""How fast gangs are bound, beside a loop that only sends bindings: `python -m hack.kubernetes.bench_binds -o json`.

Both against the same API server with the fence in force, the same bodies, 128 connections, in turn, so that what else the
machine does meets both. The server's limit is not ours to judge; the ratio is. On a machine that others use, the CPU time of
client and server together says more than the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import aiohttp
import msgspec

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place
from hack.kubernetes.fence import NAMESPACES, QUORATE, install, lead
from reconciler.control.garbage_collection import seldom
from reconciler.kubernetes.binder.binding import Binder, GangBinding, PodBinding, binding_of
from reconciler.kubernetes.binder.journal import hold_annotations
from reconciler.kubernetes.client.api import AT_ONCE_MAX, Api
from reconciler.kubernetes.client.credentials import Credentials
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.client.transport import KubeTransport
from reconciler.kubernetes.objects.resource import PODS
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from solver.model.cluster import DeviceId, NodeName
from solver.model.workload import JobName

LEADER = Leadership("bench", Epoch(1), float("inf"))
CLOCK = SystemClock()
GPUS_PER_POD = 4
WARM_PODS = 400
"""Bound by each before anything is measured: connections, and the server's own caches."""


class Run(NamedTuple):
    """One run: `size` of its gangs, from the first request to the last answer."""

    kind: str
    pods: int
    size: int
    wall_s: float
    client_cpu_s: float
    server_cpu_s: float

    @property
    def per_s(self) -> float:
        """Pods bound in a second."""
        return self.pods / self.wall_s

    @property
    def cpu_ms(self) -> float:
        """CPU time of client, API server and etcd for each pod."""
        return 1000 * (self.client_cpu_s + self.server_cpu_s) / self.pods


class Client(NamedTuple):
    """As Quorate's user, with no limit of pace: each kind with a session of its own, whose connections are kept between runs."""

    api: Api
    bare: aiohttp.ClientSession
    server: str


Bind = Callable[[Client, Sequence[GangBinding]], Awaitable[int]]


async def by_a_bare_loop(client: Client, gangs: Sequence[GangBinding]) -> int:
    """As many workers as connections, each of which sends the next Binding; how many were bound."""
    left = [(pod, gang) for gang in reversed(gangs) for pod in reversed(gang.pods)]
    bound = 0

    async def work() -> None:
        nonlocal bound
        while left:
            pod, gang = left.pop()
            body = msgspec.json.encode(binding_of(pod, {**hold_annotations(pod, gang), **LEADER.stamp}))
            url = client.server + PODS.path(pod.namespace, pod.name, "binding")
            async with client.bare.post(url, data=body) as response:
                await response.read()
                bound += response.status == 201

    await asyncio.gather(*(work() for _ in range(AT_ONCE_MAX)))
    return bound


async def by_the_binder(client: Client, gangs: Sequence[GangBinding]) -> int:
    """As a pass does; how many were bound."""
    outcomes = await Binder(client.api, lambda: LEADER, CLOCK).bind(gangs)
    return sum(pod.answer == "bound" for outcome in outcomes for pod in outcome.pods)


KINDS: dict[str, Bind] = {"bare": by_a_bare_loop, "binder": by_the_binder}


async def pending(admin: Api, space: str, pods: int, size: int) -> list[GangBinding]:
    """Gangs of pods that wait, and where they are to go."""
    await admin.create(NAMESPACES.path(), {"metadata": {"name": space}})
    container = {"name": "main", "image": "none"}
    resources = {"limits": {"nvidia.com/gpu": str(GPUS_PER_POD)}, "requests": {"nvidia.com/gpu": str(GPUS_PER_POD)}}
    spec = {"schedulerName": "quorate", "containers": [{**container, "resources": resources}]}

    async def one(number: int) -> PodBinding:
        made = await admin.create(PODS.path(space), {"metadata": {"name": f"p{number}"}, "spec": spec})
        meta = made["metadata"]
        node = f"n{number // 2}"
        first = number % 2 * GPUS_PER_POD
        devices = tuple(DeviceId(f"{node}/{gpu}") for gpu in range(first, first + GPUS_PER_POD))
        return PodBinding(space, meta["name"], meta["uid"], meta["resourceVersion"], NodeName(node), devices)

    made = await asyncio.gather(*(one(number) for number in range(pods)))
    return [
        GangBinding(JobName(f"{space}.gang.g{first}"), 1, tuple(made[first : first + size]))
        for first in range(0, pods, size)
    ]


async def measured(cluster: Cluster, pods: int, sizes: Sequence[int], rounds: int) -> list[Run]:
    """Every kind and size in turn, `rounds` times, each time in the other order."""
    runs: list[Run] = []
    credentials = from_kubeconfig(cluster.kubeconfig(QUORATE, ("system:masters",)), CLOCK)
    admins = from_kubeconfig(cluster.kubeconfig("bench-admin", ("system:masters",)), CLOCK)
    async with _api(admins) as admin, _api(credentials) as api, _bare(await credentials.transport()) as bare:
        await install(admin, api)
        await lead(admin, api, LEADER)
        client = Client(api, bare, (await credentials.transport()).server)
        for kind, bind in KINDS.items():
            await bind(client, await pending(admin, f"warm-{kind}", WARM_PODS, 1))
        for turn in range(rounds):
            for size in sizes:
                for kind in sorted(KINDS, reverse=bool(turn % 2)):
                    gangs = await pending(admin, f"run-{len(runs)}", pods, size)
                    began = _clocks(cluster)
                    bound = await KINDS[kind](client, gangs)
                    run = Run(
                        kind, pods, size, *(now - then for now, then in zip(_clocks(cluster), began, strict=True))
                    )
                    if bound != pods:
                        raise RuntimeError(f"{kind}: bound {bound} of {pods} pods, so that its time says nothing")
                    runs.append(run)
    return runs


def _clocks(cluster: Cluster) -> tuple[float, float, float]:
    """Seconds: the clock, and the CPU time of this process and of those that have the cluster's folder in their arguments."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if str(cluster.folder).encode() in (process / "cmdline").read_bytes():
                ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:13]))
    return time.monotonic(), time.process_time(), ticks / os.sysconf("SC_CLK_TCK")


def _api(credentials: Credentials) -> Api:
    return Api(credentials, RateLimiter(1_000_000, 1_000_000, CLOCK), Random(1))


def _bare(transport: KubeTransport) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=transport.ssl_context, limit=AT_ONCE_MAX)
    return aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"})


def report(runs: Sequence[Run]) -> dict[str, object]:
    """Medians of each kind and size, and of the ratios of runs that were made one after the other: above 1, ours is the better."""
    sizes = sorted({run.size for run in runs})
    by = {
        (kind, size): [run for run in runs if (run.kind, run.size) == (kind, size)] for kind in KINDS for size in sizes
    }
    ours_and_bare = {size: list(zip(by["binder", size], by["bare", size], strict=True)) for size in sizes}
    rates = {size: [one.per_s / other.per_s for one, other in pairs] for size, pairs in ours_and_bare.items()}
    work = {size: [other.cpu_ms / one.cpu_ms for one, other in pairs] for size, pairs in ours_and_bare.items()}
    return {
        "case": "bind-loop",
        "fence": True,
        "connections": AT_ONCE_MAX,
        "pods": runs[0].pods,
        "rounds": len(runs) // len(by),
        "podsPerSecond": _medians(by, lambda run: run.per_s),
        "clientCpuMsPerPod": _medians(by, lambda run: 1000 * run.client_cpu_s / run.pods),
        "serverCpuMsPerPod": _medians(by, lambda run: 1000 * run.server_cpu_s / run.pods),
        "ratio": {str(size): round(statistics.median(ratios), 3) for size, ratios in rates.items()},
        "ratios": {str(size): [round(one, 3) for one in ratios] for size, ratios in rates.items()},
        "ratioOfWork": {str(size): round(statistics.median(ratios), 3) for size, ratios in work.items()},
    }


def _medians(by: Mapping[tuple[str, int], Sequence[Run]], figure: Callable[[Run], float]) -> dict[str, float]:
    return {f"{kind} {size}": round(statistics.median(map(figure, runs)), 3) for (kind, size), runs in by.items()}


def main(arguments: Sequence[str]) -> int:
    """Exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m hack.kubernetes.bench_binds", description=__doc__)
    parser.add_argument("--pods", type=int, default=2_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 8], help="pods of each gang")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", choices=["json", "text"], default="text")
    wished = parser.parse_args(arguments)
    seldom()  # as `quorate run` does; for both
    with tempfile.TemporaryDirectory() as folder, running(found(place()), Path(folder), audited=False) as cluster:
        told = report(asyncio.run(measured(cluster, wished.pods, wished.sizes, wished.rounds)))
    if wished.output == "json":
        print(json.dumps(told, indent=2))
    else:
        for name, value in told.items():
            print(f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
