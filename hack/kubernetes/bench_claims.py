"""Pods with MIG claims on nodes that publish every placement: `python -m hack.bench_kubernetes --case mig-claims`.

Nodes, slices, claims and pods are made first, with the fence in force. Measured is from reading them until the last pod is bound:
for each pod devices are searched, its claim is written (finalizer, then devices) and the pod bound. Before that, as many pods more
are given devices and bound by a bare loop, which sends the same three requests for each and does nothing else. In the end a checker
that knows only what is written judges all claims.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import click
import msgspec

from hack.kubernetes import devices
from hack.kubernetes.cluster import Cluster
from hack.kubernetes.fence import QUORATE, install, lead
from reconciler.kubernetes.binder.binding import Binder, GangBinding, PodBinding, binding_of
from reconciler.kubernetes.client.api import AT_ONCE_MAX, Api
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.dra.allocator import NoDevices
from reconciler.kubernetes.dra.check import violations
from reconciler.kubernetes.dra.claim_status import Allotment
from reconciler.kubernetes.dra.claims import Claims
from reconciler.kubernetes.dra.stock import Needs, Stock
from reconciler.kubernetes.dra.wire import (
    CLAIMS,
    CLASSES,
    FINALIZER,
    SLICES,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES, PODS, Resource
from reconciler.kubernetes.objects.wire import KubeNode, Pod
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from solver.model.cluster import NodeName
from solver.model.workload import JobName

T = TypeVar("T")
NAMESPACE = "default"
PAGE = "1000"
ADMINS = ("system:masters",)
CLOCK = SystemClock()
LEADER = Leadership("bench", Epoch(1), float("inf"))


class NotMeasuredError(click.ClickException):
    """Not all that was asked for was bound, so that its time would say nothing."""


class Case(NamedTuple):
    """How many nodes of 8 GPUs, and pods that ask for one of these MIG profiles in turn."""

    nodes: int = 100
    pods: int = 1_000
    profiles: tuple[str, ...] = ("1g.10gb",)

    def smaller(self, by: int) -> Case:
        """So much less of both."""
        return self._replace(nodes=-(-self.nodes // by), pods=self.pods // by)


class Figures(NamedTuple):
    """Seconds from the start of reading. `cpu_s`: of this process. `searches`: those that no memory of a node's class saved.

    `ready_s`: until all is read and put together. `bare_per_s`: pods that a bare loop binds in a second.
    """

    case: str
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


async def measured(cluster: Cluster, case: Case) -> Figures:
    """The run itself. Raises NotMeasuredError."""
    async with session(cluster, QUORATE) as api, session(cluster, "bench-admin") as admin:
        await install(admin, api)
        await lead(admin, api, LEADER)
        await make(admin, case.nodes, range(case.pods), case.profiles)
        stock, waiting = await _read(api)
        before = list(_decided(stock, waiting))
        start_s = time.perf_counter()
        await _at_once(before, lambda decision: _bare(api, decision))
        bare_s = time.perf_counter() - start_s
        await make(admin, 0, range(case.pods, 2 * case.pods), case.profiles)
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        stock, waiting = await _read(api)
        ready_s = time.perf_counter() - start_s
        await _written(api, _decided(stock, waiting))
        bound_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
        claims, slices = await _listed(api, CLAIMS, ResourceClaim), await _listed(api, SLICES, ResourceSlice)
        unbound = sum(not pod.spec.node_name for pod in await _listed(api, PODS, Pod))
    if unbound:
        raise NotMeasuredError(
            f"{unbound} of {2 * case.pods} pods have no place: ask for fewer pods, or for more nodes"
        )
    return Figures(
        case="mig-claims",
        nodes=case.nodes,
        devices=sum(len(part.spec.devices) for part in slices),
        pods=case.pods,
        profiles="+".join(case.profiles),
        ready_s=round(ready_s, 3),
        bound_s=round(bound_s, 3),
        cpu_s=round(cpu_s, 3),
        searches=stock.searches,
        violations=len(violations(claims, slices)),
        pods_per_s=round(case.pods / bound_s, 1),
        bare_per_s=round(case.pods / bare_s, 1),
    )


def session(cluster: Cluster, user: str) -> Api:
    """As this user, who may do anything, as fast as can be."""
    return Api(
        from_kubeconfig(cluster.kubeconfig(user, ADMINS), CLOCK), RateLimiter(100_000, 100_000, CLOCK), Random(1)
    )


async def _bare(api: Api, decision: Decision) -> None:
    (wanted,), pod = decision.allotments, _binding(decision)
    path, manager = CLAIMS.path(*wanted.claim.key), quote(LEADER.field_manager, safe="")
    status = {"allocation": wanted.allocation, "reservedFor": [msgspec.to_builtins(wanted.pod)]}
    await api.patch(path, {"metadata": {"finalizers": [FINALIZER], "annotations": LEADER.stamp}})
    await api.patch(f"{CLAIMS.path(*wanted.claim.key, 'status')}?fieldManager={manager}", {"status": status})
    await api.create(PODS.path(pod.namespace, pod.name, "binding"), binding_of(pod, LEADER.stamp))


def _binding(decision: Decision) -> PodBinding:
    meta = decision.pod.metadata
    return PodBinding(meta.namespace, meta.name, meta.uid, meta.resource_version, decision.node)


async def make(
    api: Api, nodes: int, pods: Iterable[int], profiles: Sequence[str], scheduler: str = names.SCHEDULER
) -> None:
    """So many nodes with their devices, and pods of these numbers with their claims."""
    if nodes:
        await _at_once(devices.classes(), lambda known: api.create(CLASSES.path(), known))
    nodes_named = [f"node-{number:05}" for number in range(nodes)]
    offers = {"cpu": "96", "memory": "1Ti", "pods": "110"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": offers, "capacity": offers}
    await _at_once(nodes_named, lambda name: api.create(NODES.path(), {"metadata": {"name": name}, "status": ready}))
    slices = [part for name in nodes_named for part in devices.mig_slices(name)]
    await _at_once(slices, lambda part: api.create(SLICES.path(), part))
    wanted = [(f"p{number:06}", profiles[number % len(profiles)]) for number in pods]
    await _at_once(wanted, lambda one: api.create(CLAIMS.path(NAMESPACE), devices.an_instance(*one)))
    await _at_once(wanted, lambda one: api.create(PODS.path(NAMESPACE), _pod(one[0], scheduler)))


def _pod(name: str, scheduler: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "mig"}]}}
    claims = [{"name": "mig", "resourceClaimName": name}]
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "containers": [container], "resourceClaims": claims},
    }


async def _read(api: Api) -> tuple[Stock, list[Pod]]:
    """All devices and claims, and the pods that have no node."""
    stock = Stock()
    for node in await _listed(api, NODES, KubeNode):
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
            raise NotMeasuredError(f"pod {pod.metadata.name}: {needs}")
        wish = needs.wanted[0].signature
        for number in range(first.get(wish, 0), len(nodes)):
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            allotments = stock.allot(pod, needs, nodes[number], now)
            if not isinstance(allotments, NoDevices):
                first[wish] = number
                yield Decision(pod, nodes[number], allotments)
                break


async def _written(api: Api, decisions: Iterable[Decision]) -> None:
    claims = Claims(api, lambda: LEADER)
    binder = Binder(api, lambda: LEADER, CLOCK)

    async def done(decision: Decision) -> None:
        for outcome in await claims.allot_all(decision.allotments):
            if outcome.answer != "done":
                raise NotMeasuredError(f"claim {outcome.key}: {outcome.answer}: {outcome.why}")
        pod = _binding(decision)
        (gang,) = await binder.bind([GangBinding(JobName(pod.name), 1, (pod,))])
        if not gang.is_whole:
            raise NotMeasuredError(f"pod {pod.name}: {gang.pods[0].why}")

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
