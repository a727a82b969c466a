"""Pods with claims as rounds see them: as if they asked for GPUs or a MIG instance by resources, of nodes that have these.

Pure: it is told what changes, and tells it a world of objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from reconciler.kubernetes.dra.charges import ClaimCharge, asked_of_given, charge_of
from reconciler.kubernetes.dra.claim_demand import ClaimDemand
from reconciler.kubernetes.dra.claim_status import Key
from reconciler.kubernetes.dra.inventory import GpuDevice, Use, gpu_device, gpus_of
from reconciler.kubernetes.dra.pools import DeviceId
from reconciler.kubernetes.dra.prospects import NodeDevices
from reconciler.kubernetes.dra.stock import Stock, may_use
from reconciler.kubernetes.dra.usage import devices_of
from reconciler.kubernetes.dra.wire import DeviceClass, ResourceClaim, ResourceSlice
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.remarks import Missing, Refusal
from reconciler.kubernetes.objects.selectors import limited_to
from reconciler.kubernetes.objects.wire import (
    KubeContainer,
    KubeNode,
    NodeLimit,
    NodeSelectorTerm,
    Pod,
    Resources,
    SelectorRequirement,
)
from reconciler.kubernetes.objects.world import ClusterModel
from solver.model.cluster import DeviceId as GpuId
from solver.model.cluster import NodeName

STANDS_FOR_CLAIMS = "resource-claims"
"""The container that asks for what the claims come to."""


GPU_RESOURCES = (names.GPU, names.MIG_PREFIX)


_MIXED = Refusal("mixed-gpus", f"asks for GPUs by claims and as {names.GPU}", "Keep one of them.")


class _Met(NamedTuple):
    """What wishes come to, and the nodes that could ever meet them. `leaves_out`: not all nodes that could be taken for one."""

    asked: ClaimCharge | Refusal
    nodes: tuple[KubeNode, ...]
    leaves_out: bool


class PodClaims:
    """Told of objects that came (`before` None), changed, and went (`after` None); `tell` says to the world what that means."""

    def __init__(self, world: ClusterModel) -> None:
        self.stock = Stock()
        self._world = world
        self._pods: dict[Key, Pod] = {}
        self._told: dict[Key, Pod] = {}
        self._is_stale = False
        self._published: dict[NodeName, tuple[NodeDevices, dict[DeviceId, Use]]] = {}
        self._met: dict[tuple[bytes, ...], _Met] = {}
        self._version = (-1, -1)

    def node(self, before: KubeNode | None, after: KubeNode | None) -> bool:
        """A node; whether it makes a difference."""
        self.stock.published.node(before, after)
        if (before and before.metadata.labels) != (after and after.metadata.labels):
            self._is_stale = True
            self._met.clear()
        return self._world.node(before, after)

    def pod(self, before: Pod | None, after: Pod | None) -> bool:
        """A pod; whether it makes a difference."""
        known = before or after
        if known is None or not known.spec.resource_claims or known.spec.scheduler_name != names.SCHEDULER:
            return self._world.pod(before, after)
        if before:
            self._pods.pop(before.key, None)
        if after:
            self._pods[after.key] = after
        self._is_stale = True
        return True

    def claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> bool:
        """A claim; it always makes a difference."""
        self.stock.claim(before, after)
        self._is_stale = True
        return True

    def slice(self, before: ResourceSlice | None, after: ResourceSlice | None) -> bool:
        """A slice; it always makes a difference."""
        self.stock.published.slice(before, after)
        self._is_stale = True
        return True

    def device_class(self, before: DeviceClass | None, after: DeviceClass | None) -> bool:
        """A class of devices; it always makes a difference."""
        self.stock.device_class(before, after)
        self._is_stale = True
        return True

    def tell(self) -> None:
        """The world knows what there is now."""
        if not self._is_stale:
            return
        self._is_stale = False
        if self._version != self.stock.version:
            self._version = self.stock.version
            self._met.clear()
        self._tell_nodes()
        for key in sorted(self._told.keys() - self._pods.keys()):
            self._world.pod(self._told.pop(key), None)
        for key in sorted(self._pods):
            before, after = self._told.get(key), self._translated(self._pods[key])
            if before != after:
                self._told[key] = after
                if before and before.metadata.uid != after.metadata.uid:
                    self._world.pod(before, None)
                    before = None
                self._world.pod(before, after)

    def claims_of(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """The claims that a pod needs, with what was decided for them; () while it waits for one."""
        found = self.stock.claims_of(pod)
        return () if isinstance(found, Missing | Refusal) else found

    def gpus_of(self, pod: Pod) -> tuple[GpuId, ...]:
        """The GPUs and instances that a pod's claims have, as rounds call them."""
        return tuple(found.id for found in self._given(self.claims_of(pod)))

    def _tell_nodes(self) -> None:
        uses = self.stock.users()
        nodes = {NodeName(node.metadata.name) for node in self.stock.published.nodes}
        for name in sorted(nodes | self._published.keys()):
            there = self.stock.published.on(name)
            devices = there.devices if there else ()
            used: dict[DeviceId, Use] = {device.id: uses[device.id] for device in devices if device.id in uses}
            if self._published.get(name) == (there, used):
                continue
            gpus = gpus_of(devices, lambda device, used=used: used.get(device.id, ""))  # type: ignore[misc]
            self._world.publish(name, gpus if gpus.gpus or gpus.taken else None)
            if there:
                self._published[name] = there, used
            else:
                self._published.pop(name, None)

    def _translated(self, pod: Pod) -> Pod:
        wishes = self.stock.wishes(pod)
        if isinstance(wishes, Missing):
            return _with(pod, awaited=(*pod.spec.awaited, str(wishes)), resource_claims=())
        if isinstance(wishes, Refusal):
            return _with(pod, unmet_claims=tuple(wishes))
        met = self._meaning(wishes)
        claims = self.claims_of(pod)
        had = [claim for claim in claims if claim.status.allocation]
        given = self._given(had)
        asked = (asked_of_given(given) if len(had) == len(claims) else None) or met.asked
        if isinstance(asked, Refusal):
            return _with(pod, unmet_claims=tuple(asked))
        stands = KubeContainer(STANDS_FOR_CLAIMS, Resources(requests=_requests(asked)))
        by_claims = bool(asked.gpus or asked.mig)
        if by_claims and _asks_for_gpus(pod):
            return _with(pod, unmet_claims=tuple(_MIXED))
        containers = (*pod.spec.containers, stands)
        seen = _with(pod, containers=containers, resource_claims=(), gpus_by_claims=by_claims)
        if not pod.spec.node_name and (had or met.leaves_out):
            where = tuple(node.metadata.name for node in met.nodes if may_use(had, node))
            only = SelectorRequirement("metadata.name", "In", where)
            term = NodeSelectorTerm(match_fields=(only,))
            seen = limited_to(seen, NodeLimit("that have devices for its ResourceClaims", (term,)))
        if given and len(had) == len(claims):
            # What it has stands in its claims: whatever its binding says.
            annotations = {**pod.metadata.annotations, names.DEVICES: ",".join(found.id for found in given)}
            metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
            return msgspec.structs.replace(seen, metadata=metadata)
        return seen

    def _meaning(self, wishes: Sequence[ClaimDemand]) -> _Met:
        """What the wishes come to, and where; those that are alike are looked at once."""
        key = tuple(wish.signature for wish in wishes)
        if key not in self._met:
            devices = [device for pool in self.stock.published.pools for device in pool.devices]
            ever = self.stock.nodes_ever(wishes)
            others = [node for node in self.stock.published.nodes if node.metadata.name not in ever]
            nodes = tuple(node for node in self.stock.published.nodes if node.metadata.name in ever)
            asked = charge_of(wishes, devices)
            # A node without any GPU needs not be left out for pods that ask for some: of thousands of nodes few are named then.
            needs_gpus = isinstance(asked, ClaimCharge) and bool(asked.gpus or asked.mig)
            leaves_out = any(self._has_gpus(node) for node in others) if needs_gpus else bool(others)
            self._met[key] = _Met(asked, nodes, leaves_out)
        return self._met[key]

    def _has_gpus(self, node: KubeNode) -> bool:
        there = self.stock.published.on(node.metadata.name)
        return bool(there and there.devices) or any(name.startswith(GPU_RESOURCES) for name in node.status.allocatable)

    def _given(self, claims: Iterable[ResourceClaim]) -> list[GpuDevice]:
        known = (self.stock.published.device(device) for claim in claims for device in devices_of(claim))
        return [found for device in known if device and (found := gpu_device(device))]


def _asks_for_gpus(pod: Pod) -> bool:
    asking = (one.resources for one in (*pod.spec.containers, *pod.spec.init_containers))
    return any(name.startswith(GPU_RESOURCES) for each in asking for name in (*each.requests, *each.limits))


def _with(pod: Pod, **changes: object) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **changes))


def _requests(asked: ClaimCharge) -> dict[str, str | int | float]:
    if asked.mig:
        suffix = asked.mig.removesuffix("+me") + (".me" if asked.mig.endswith("+me") else "")
        return {f"{names.MIG_PREFIX}{suffix}": asked.instances}
    return {names.GPU: asked.gpus} if asked.gpus else {}
