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
from collections.abc import Awaitable, Callable, Iterable, Sequence
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
from reconciler.backends.kubernetes.dra.allocation import allocation_of
from reconciler.backends.kubernetes.dra.allocator import Allocator, Grant
from reconciler.backends.kubernetes.dra.check import violations
from reconciler.backends.kubernetes.dra.claims import Allotment, Claims
from reconciler.backends.kubernetes.dra.expressions import Expressions
from reconciler.backends.kubernetes.dra.pools import Pool, pools_of
from reconciler.backends.kubernetes.dra.prospects import NodeDevices, node_devices
from reconciler.backends.kubernetes.dra.standing import claims_of
from reconciler.backends.kubernetes.dra.usage import Usage, usage_of
from reconciler.backends.kubernetes.dra.wanted import Wanted, wanted_of
from reconciler.backends.kubernetes.dra.wire import (
    CLAIMS,
    CLASSES,
    FINALIZER,
    SLICES,
    Consumer,
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
from solver.world.quantities import Instant
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
    read_s: float
    ready_s: float
    bound_s: float
    cpu_s: float
    searches: int
    violations: int
    pods_per_s: float
    bare_per_s: float


class World(NamedTuple):
    """What was read."""

    nodes: tuple[Node, ...]
    slices: tuple[ResourceSlice, ...]
    classes: dict[str, DeviceClass]
    claims: dict[tuple[str, str], ResourceClaim]
    pods: tuple[Pod, ...]


class _PageMeta(msgspec.Struct):
    following: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    metadata: _PageMeta
    items: list[T]


class Decision(NamedTuple):
    """Devices and a node for a pod with one claim."""

    pod: Pod
    node: str
    allotment: Allotment


async def measured(cluster: Cluster, nodes: int, pods: int, profiles: Sequence[str]) -> Figures:
    """The run itself."""
    clock = SystemClock()
    credentials = from_kubeconfig(cluster.kubeconfig("bench", ("system:masters",)), clock)
    async with Api(credentials, Pace(100_000, 100_000, clock), Random(1)) as api:
        await _made(api, nodes, 0, pods, profiles)
        world = await _read(api)
        pools = pools_of(world.slices)
        before = list(_decided(world, pools, _by_node(world.nodes, pools), Allocator()))
        start_s = time.perf_counter()
        await _at_once(before, lambda decision: _bare(api, decision))
        bare_s = time.perf_counter() - start_s
        await _made(api, 0, pods, 2 * pods, profiles)
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        world = await _read(api)
        read_s = time.perf_counter() - start_s
        allocator = Allocator()
        pools = pools_of(world.slices)
        there = _by_node(world.nodes, pools)
        ready_s = time.perf_counter() - start_s
        await _written(api, _decided(world, pools, there, allocator))
        bound_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
        after = await _read(api)
    unbound = sum(not pod.spec.node_name for pod in after.pods)
    if unbound:
        raise SystemExit(f"{unbound} of {2 * pods} pods have no place: ask for fewer pods, or for more nodes")
    return Figures(
        nodes=nodes,
        devices=sum(len(part.spec.devices) for part in world.slices),
        pods=pods,
        profiles="+".join(profiles),
        read_s=round(read_s, 3),
        ready_s=round(ready_s, 3),
        bound_s=round(bound_s, 3),
        cpu_s=round(cpu_s, 3),
        searches=allocator.searches,
        violations=len(violations(after.claims.values(), after.slices)),
        pods_per_s=round(pods / bound_s, 1),
        bare_per_s=round(pods / bare_s, 1),
    )


async def _bare(api: Api, decision: Decision) -> None:
    claim, meta = decision.allotment.claim, decision.pod.metadata
    status = {"allocation": decision.allotment.allocation, "reservedFor": [msgspec.to_builtins(decision.allotment.pod)]}
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


async def _read(api: Api) -> World:
    classes = await _listed(api, CLASSES, DeviceClass)
    claims = await _listed(api, CLAIMS, ResourceClaim)
    return World(
        tuple(await _listed(api, NODES, Node)),
        tuple(await _listed(api, SLICES, ResourceSlice)),
        {known.metadata.name: known for known in classes},
        {claim.key: claim for claim in claims},
        tuple(await _listed(api, PODS, Pod)),
    )


async def _listed(api: Api, resource: Resource, kind: type[T]) -> list[T]:
    listed: list[T] = []
    parameters = {"limit": PAGE}
    while True:
        page = await api.get(resource.path(), _Page[kind], parameters)  # type: ignore[valid-type]
        listed += page.items
        if not page.metadata.following:
            return listed
        parameters["continue"] = page.metadata.following


def _decided(
    world: World, pools: Sequence[Pool], there: Sequence[NodeDevices], allocator: Allocator
) -> Iterable[Decision]:
    usage = usage_of(pools, world.claims.values())
    expressions = Expressions()
    # Devices only get fewer here: a node without room for a wish has none later either.
    first: dict[bytes, int] = {}
    for pod in world.pods:
        claims = claims_of(pod, world.claims)
        if pod.spec.node_name or not isinstance(claims, tuple):
            continue
        (claim,) = claims
        wanted = wanted_of(claim, world.classes, expressions)
        place = _placed(there, wanted, usage, allocator, first)
        if place is None:
            return
        node, grant = place
        usage.take(pick.device.id for pick in grant.picks)
        allocation = allocation_of(claim, grant.picks, world.classes, node, str(Instant(int(SystemClock().now()))))
        yield Decision(pod, node, Allotment(claim, Consumer("pods", pod.metadata.name, pod.metadata.uid), allocation))


def _by_node(nodes: Sequence[Node], pools: Sequence[Pool]) -> list[NodeDevices]:
    own: dict[str, list[Pool]] = {}
    for pool in pools:
        for where in pool.places:
            own.setdefault(where.name, []).append(pool)
    return [node_devices(node, own.get(node.metadata.name, ())) for node in nodes]


def _placed(
    there: Sequence[NodeDevices], wanted: Wanted, usage: Usage, allocator: Allocator, first: dict[bytes, int]
) -> tuple[str, Grant] | None:
    for number in range(first.get(wanted.signature, 0), len(there)):
        grant = allocator.grant(there[number], [wanted], usage)
        if isinstance(grant, Grant):
            first[wanted.signature] = number
            return there[number].node.metadata.name, grant
    return None


async def _written(api: Api, decisions: Iterable[Decision]) -> None:
    lead = Leadership("bench", Epoch(1), float("inf"))
    claims = Claims(api, lambda: lead)
    binder = Binder(api, lambda: lead, SystemClock())

    async def done(decision: Decision) -> None:
        outcome = await claims.allot(decision.allotment)
        if outcome.answer != "done":
            raise SystemExit(f"claim {outcome.key}: {outcome.answer}: {outcome.why}")
        meta = decision.pod.metadata
        pod = PodBinding(meta.namespace, meta.name, meta.uid, meta.resource_version, NodeName(decision.node))
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
    with tempfile.TemporaryDirectory() as folder, running(found(place()), Path(folder)) as cluster:
        figures = asyncio.run(measured(cluster, chosen.nodes, chosen.pods, chosen.profiles.split(",")))
    said = figures._asdict()
    sys.stdout.write(
        json.dumps(said) + "\n"
        if chosen.output == "json"
        else "".join(f"{name:>11}  {value}\n" for name, value in said.items())
    )


if __name__ == "__main__":
    main()
