"""Pods with MIG claims on nodes that publish every placement: pods a second, on a real API server.

`python -m hack.kubernetes.bench_claims [--nodes 100] [--pods 1000] [--profiles 1g.10gb] [-o json]`. Nodes, slices, claims and pods
are made first. Measured is from reading them until the last pod is bound: for each pod devices are searched, its claim is written
(finalizer, then devices) and the pod bound. Before that, as many pods more are given devices and bound by a bare loop, which sends
the same three requests for each and does nothing else. In the end a checker that knows only what is written judges all claims.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from hack.kubernetes import devices
from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place
from reconciler.backend import Epoch
from reconciler.backends.kubernetes.api import AT_ONCE_MAX, Api
from reconciler.backends.kubernetes.binding import Binder, GangBinding, PodBinding
from reconciler.backends.kubernetes.dra.allocator import NoRoom
from reconciler.backends.kubernetes.dra.check import violations
from reconciler.backends.kubernetes.dra.claims import Claims
from reconciler.backends.kubernetes.dra.standing import Allotment
from reconciler.backends.kubernetes.dra.stock import Needs, Stock
from reconciler.backends.kubernetes.dra.wire import (
    CLAIMS,
    CLASSES,
    FINALIZER,
    SLICES,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from reconciler.backends.kubernetes.kubeconfig import from_kubeconfig
from reconciler.backends.kubernetes.leader import Leadership
from reconciler.backends.kubernetes.objects.wire import Node, Pod
from reconciler.backends.kubernetes.pace import Pace
from reconciler.backends.kubernetes.resource import NODES, PODS, Resource
from reconciler.clock import SystemClock
from solver.world.cluster import NodeName
from solver.world.workload import JobName

T = TypeVar("T")
NAMESPACE = "default"
PAGE = "1000"


class Figures(NamedTuple):
    """Seconds from the start of reading. `cpu_s`: of this process. `searches`: those that no memory of a node's class saved.

    `ready_s`: until all is read and put together. `bare_per_s`: pods that a bare loop binds in a second.
    """

    nodes: int
    devices: int
    pods: int
    profiles: str
    ready_s: float
    bound_s: float
    cpu_s: float
    searches: int
    violations: int
    pods_per_s: float
    bare_per_s: float


class _PageMeta(msgspec.Struct):
    following: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    metadata: _PageMeta
    items: list[T]


class Decision(NamedTuple):
    """What is to be written for a pod, and its node."""

    pod: Pod
    node: NodeName
    allotments: tuple[Allotment, ...]


async def measured(cluster: Cluster, nodes: int, pods: int, profiles: Sequence[str]) -> Figures:
    """The run itself."""
    clock = SystemClock()
    credentials = from_kubeconfig(cluster.kubeconfig("bench", ("system:masters",)), clock)
    async with Api(credentials, Pace(100_000, 100_000, clock), Random(1)) as api:
        await _made(api, nodes, 0, pods, profiles)
        stock, waiting = await _read(api)
        before = list(_decided(stock, waiting))
        start_s = time.perf_counter()
        await _at_once(before, lambda decision: _bare(api, decision))
        bare_s = time.perf_counter() - start_s
        await _made(api, 0, pods, 2 * pods, profiles)
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        stock, waiting = await _read(api)
        ready_s = time.perf_counter() - start_s
        await _written(api, _decided(stock, waiting))
        bound_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
        claims, slices = await _listed(api, CLAIMS, ResourceClaim), await _listed(api, SLICES, ResourceSlice)
        unbound = sum(not pod.spec.node_name for pod in await _listed(api, PODS, Pod))
    if unbound:
        raise SystemExit(f"{unbound} of {2 * pods} pods have no place: ask for fewer pods, or for more nodes")
    return Figures(
        nodes=nodes,
        devices=sum(len(part.spec.devices) for part in slices),
        pods=pods,
        profiles="+".join(profiles),
        ready_s=round(ready_s, 3),
        bound_s=round(bound_s, 3),
        cpu_s=round(cpu_s, 3),
        searches=stock.searches,
        violations=len(violations(claims, slices)),
        pods_per_s=round(pods / bound_s, 1),
        bare_per_s=round(pods / bare_s, 1),
    )


async def _bare(api: Api, decision: Decision) -> None:
    (wanted,), meta = decision.allotments, decision.pod.metadata
    claim = wanted.claim
    status = {"allocation": wanted.allocation, "reservedFor": [msgspec.to_builtins(wanted.pod)]}
    await api.patch(CLAIMS.path(*claim.key), {"metadata": {"finalizers": [FINALIZER]}})
    await api.patch(CLAIMS.path(*claim.key, "status"), {"status": status})
    target = {"kind": "Node", "name": decision.node}
    await api.create(
        PODS.path(meta.namespace, meta.name, "binding"), {"metadata": {"name": meta.name}, "target": target}
    )


async def _made(api: Api, nodes: int, first: int, last: int, profiles: Sequence[str]) -> None:
    """Nodes with their devices, and the pods from `first` on with their claims."""
    if nodes:
        await _at_once(devices.classes(), lambda known: api.create(CLASSES.path(), known))
    names = [f"node-{number:05}" for number in range(nodes)]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await _at_once(names, lambda name: api.create(NODES.path(), {"metadata": {"name": name}, "status": ready}))
    slices = [part for name in names for part in devices.mig_slices(name)]
    await _at_once(slices, lambda part: api.create(SLICES.path(), part))
    wanted = [(f"p{number:06}", profiles[number % len(profiles)]) for number in range(first, last)]
    await _at_once(wanted, lambda one: api.create(CLAIMS.path(NAMESPACE), devices.an_instance(*one)))
    await _at_once(wanted, lambda one: api.create(PODS.path(NAMESPACE), _pod(one[0])))


def _pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "mig"}]}}
    claims = [{"name": "mig", "resourceClaimName": name}]
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": "quorate", "containers": [container], "resourceClaims": claims},
    }


async def _read(api: Api) -> tuple[Stock, list[Pod]]:
    """All devices and claims, and the pods that have no node."""
    stock = Stock()
    for node in await _listed(api, NODES, Node):
        stock.published.node(None, node)
    for part in await _listed(api, SLICES, ResourceSlice):
        stock.published.slice(None, part)
    for known in await _listed(api, CLASSES, DeviceClass):
        stock.device_class(None, known)
    for claim in await _listed(api, CLAIMS, ResourceClaim):
        stock.claim(None, claim)
    return stock, [pod for pod in await _listed(api, PODS, Pod) if not pod.spec.node_name]


async def _listed(api: Api, resource: Resource, kind: type[T]) -> list[T]:
    listed: list[T] = []
    parameters = {"limit": PAGE}
    while True:
        page = await api.get(resource.path(), _Page[kind], parameters)  # type: ignore[valid-type]
        listed += page.items
        if not page.metadata.following:
            return listed
        parameters["continue"] = page.metadata.following


def _decided(stock: Stock, pods: Iterable[Pod]) -> Iterator[Decision]:
    """Each pod on the first node that has what it needs."""
    nodes = [NodeName(node.metadata.name) for node in stock.published.nodes]
    # Devices only get fewer here: a node without room for a wish has none later either.
    first: dict[bytes, int] = {}
    for pod in pods:
        needs = stock.needs(pod)
        if not isinstance(needs, Needs):
            raise SystemExit(f"pod {pod.metadata.name}: {needs}")
        wish = needs.wanted[0].signature
        for number in range(first.get(wish, 0), len(nodes)):
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            allotments = stock.allot(pod, needs, nodes[number], now)
            if not isinstance(allotments, NoRoom):
                first[wish] = number
                yield Decision(pod, nodes[number], allotments)
                break


async def _written(api: Api, decisions: Iterable[Decision]) -> None:
    lead = Leadership("bench", Epoch(1), float("inf"))
    claims = Claims(api, lambda: lead)
    binder = Binder(api, lambda: lead, SystemClock())

    async def done(decision: Decision) -> None:
        for outcome in await claims.allot_all(decision.allotments):
            if outcome.answer != "done":
                raise SystemExit(f"claim {outcome.key}: {outcome.answer}: {outcome.why}")
        meta = decision.pod.metadata
        pod = PodBinding(meta.namespace, meta.name, meta.uid, meta.resource_version, decision.node)
        (gang,) = await binder.bind([GangBinding(JobName(meta.name), 1, (pod,))])
        if not gang.is_whole:
            raise SystemExit(f"pod {meta.name}: {gang.pods[0].why}")

    await _at_once(decisions, done)


async def _at_once(items: Iterable[T], deed: Callable[[T], Awaitable[object]]) -> None:
    """For all of them, some at a time."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await deed(item)

    async with asyncio.TaskGroup() as workers:
        for _ in range(AT_ONCE_MAX):
            workers.create_task(work())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--profiles", default="1g.10gb", help="joined by commas: pods ask for them in turn")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running(found(place()), Path(folder), audited=False) as cluster:
        figures = asyncio.run(measured(cluster, chosen.nodes, chosen.pods, chosen.profiles.split(",")))
    said = figures._asdict()
    sys.stdout.write(
        json.dumps(said) + "\n"
        if chosen.output == "json"
        else "".join(f"{name:>11}  {value}\n" for name, value in said.items())
    )


if __name__ == "__main__":
    main()
