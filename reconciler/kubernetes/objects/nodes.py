"""A node as the solver knows it: what it offers to Quorate's pods, which is what pods of others leave."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

import msgspec

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.amounts import amount, down
from reconciler.kubernetes.objects.domains import Position
from reconciler.kubernetes.objects.instances import UnknownProfileError, laid_out
from reconciler.kubernetes.objects.pods import profile_of
from reconciler.kubernetes.objects.remarks import Remark
from reconciler.kubernetes.objects.requests import PLACE, Requests, most_of, plus, requests_of
from reconciler.kubernetes.objects.selectors import CONDITION_TAINTS
from reconciler.kubernetes.objects.wire import Amounts, KubeNode, Meta, Pod
from reconciler.model.gpu_products import is_of_instances, type_of_product
from solver.model.amounts import PLACES, VOLUME_PREFIX, amounts_of, is_port, unsaid
from solver.model.amounts import Amounts as SolverAmounts
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.mig import mig_model
from solver.model.mig_layout import model_of_type
from solver.model.quantities import Cpu, Memory

POOL_LABELS = (
    names.POOL,
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
)
"""What says the pool, the first that is there; where none is, nodes with one GPU type are a pool, named after it."""

_MIB = 2**20


class NodeReserve(NamedTuple):
    """CPU (cores) and memory (bytes) of a node that are left to others, such as DaemonSets, whether they use them yet or not."""

    cpu: Fraction
    memory: Fraction


class PublishedGpus(NamedTuple):
    """GPUs of a node that a driver publishes for ResourceClaims, not as a resource. `gpu_type` "": of several types.

    `taken`: how many more there are, which claims of others have.
    """

    gpu_type: GpuType
    gpus: tuple[Gpu, ...]
    taken: int = 0


class SeenNode(NamedTuple):
    """A node as it offers itself, before any pods.

    `offered`: allocatable of each resource. `replicas`: how often the device plugin counts each GPU; more than 1: it is shared.
    `unwell`: how many of the GPUs are not healthy; which ones is not known. `headroom`: what is kept for others. `for_claims`: the
    GPUs are had by ResourceClaims, and not as a resource.
    """

    wire: KubeNode
    gpu_type: GpuType
    gpus: tuple[Gpu, ...]
    replicas: int
    unwell: int
    offered: Requests
    remarks: tuple[Remark, ...]
    headroom: NodeReserve
    for_claims: bool = False

    @property
    def name(self) -> NodeName:
        """Its name."""
        return NodeName(self.wire.metadata.name)

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.wire.metadata.labels

    @property
    def pool(self) -> str:
        """The pool that it belongs to."""
        said = next((self.labels[key] for key in POOL_LABELS if self.labels.get(key)), "")
        return said or (self.gpu_type.lower() if self.gpus else "cpu")


def seen_node(wire: KubeNode, declared_type: GpuType | None = None, published: PublishedGpus | None = None) -> SeenNode:
    """What a node offers. A quantity that can't be read counts as nothing offered, and is remarked.

    `declared_type`: the type of its GPUs where it is stated before its labels. `published`: its GPUs for claims.
    """
    labels, remarks = wire.metadata.labels, []
    offered, capacity = _read(wire.status.allocatable), _read(wire.status.capacity)
    labelled = labels.get(names.GPU_TYPE) or type_of_product(labels.get(names.PRODUCT, ""))
    gpu_type = declared_type or GpuType(labelled) or (published.gpu_type if published else GpuType(""))
    replicas = max(1, _number(labels.get(names.REPLICAS)))
    gpus: tuple[Gpu, ...] = ()
    unwell = 0
    # What a device plugin offers is had from it alone, which chip a pod gets it says to no one: the same chips are there once.
    for_claims = published is not None and bool(published.gpus) and not _has_plugin(offered)
    if for_claims:
        pass
    elif is_of_instances(labels.get(names.PRODUCT, "")):
        remarks.append(Remark("mig-single", f"counts MIG instances as {names.GPU}: use the strategy mixed"))
    elif not gpu_type and any(name.startswith("nvidia.com/") and number > 0 for name, number in capacity.items()):
        remarks.append(Remark("gpu-type-unknown", f"has GPUs and no label {names.PRODUCT} or {names.GPU_TYPE}"))
    else:
        resource = names.GPU_SHARED if names.GPU_SHARED in offered else names.GPU
        whole = down(capacity.get(resource, Fraction(0)) / replicas)
        unwell = max(0, whole - down(offered.get(resource, Fraction(0)) / replicas))
        gpus, more = _gpus(wire, gpu_type, offered, max(0, whole - (published.taken if published else 0)))
        remarks += more
    if published and for_claims and gpu_type:
        numbered = enumerate(published.gpus)
        gpus = tuple(msgspec.structs.replace(gpu, index=index) for index, gpu in numbered)
    elif for_claims:
        remarks.append(Remark("gpu-types-mixed", "has GPUs of several types for claims: they are left out"))
    elif published and published.gpus:
        message = f"its GPUs are offered as {names.GPU} and published for claims: claims get none of them"
        remarks.append(Remark("gpus-twice", message))
    if len(offered) < len(wire.status.allocatable):
        remarks.append(Remark("unreadable-quantity", "offers something that is no quantity"))
    headroom = _headroom(wire.metadata, remarks)
    gpu_type = gpu_type if gpus else GpuType("")
    return SeenNode(wire, gpu_type, gpus, replicas, unwell, offered, tuple(remarks), headroom, for_claims)


def shape_of(node: SeenNode) -> tuple[object, ...]:
    """What of a node says which pods may be on it, and what it offers them: what does not change while it works."""
    taints = tuple(taint for taint in node.wire.spec.taints if taint.key not in CONDITION_TAINTS)
    return node.labels, taints, node.gpu_type, node.gpus, node.replicas, node.offered


def solver_node(
    node: SeenNode,
    position: Position,
    others: Iterable[Pod],
    held: Iterable[DeviceId],
    counted: Iterable[str],
    mountable: Mapping[str, int],
) -> Node:
    """The node without what `others` use of it, or what is kept for them, whichever is more.

    `held`: devices of Quorate's pods; `counted`: which resources some of these ask for: what else the node has says nothing.
    `mountable`: how many volumes it can have, by resource; of others any number.
    GPUs that others use are not in it: which ones they have is not known, so the last that are not held are left out.
    """
    used: Requests = {}
    for pod in others:
        used = plus(used, used_by(pod))
    conditions = {condition.type: condition.status for condition in node.wire.status.conditions}
    closed = any(taint.key in CONDITION_TAINTS for taint in node.wire.spec.taints)
    return Node(
        name=node.name,
        pool=node.pool,
        cpu=Cpu(down(_spare(node, used, "cpu", node.headroom.cpu), 1000)),
        memory=Memory(down(_spare(node, used, "memory", node.headroom.memory))),
        gpu_type=node.gpu_type,
        gpus=_left(node, used, frozenset(held)),
        island=position.island,
        rack=position.rack,
        block=position.block,
        ready=conditions.get("Ready") == "True",
        cordoned=node.wire.spec.unschedulable or closed,
        resources=_resources(node, used, counted, mountable),
    )


def _resources(node: SeenNode, used: Requests, counted: Iterable[str], mountable: Mapping[str, int]) -> SolverAmounts:
    """Of those that count, what a node has. Of a port it has all, unless pods of others listen on it."""
    left: dict[str, int] = {}
    for name in counted:
        if is_port(name):
            there = Fraction(unsaid(name) if name in used else 0)
        elif name.startswith(VOLUME_PREFIX):
            there = Fraction(mountable.get(name, most_of(name)))
            left[name] = 0  # also where it can mount none
        else:
            # One that does not say how many pods it takes is no kubelet's: to it all may go.
            there = node.offered.get(name, Fraction(most_of(name) if name == PLACES else 0))
        if there:
            left[name] = max(0, down(there - used.get(name, Fraction(0))))
    return amounts_of(left)


def offers_any(node: SeenNode, resources: Collection[str]) -> bool:
    """Whether a node by itself says anything of any of these."""
    return not node.offered.keys().isdisjoint(resources)


def _has_plugin(offered: Requests) -> bool:
    """Whether a device plugin offers GPUs or instances. Of one that is gone nothing is allocatable."""
    return any(
        number > 0 and (name in (names.GPU, names.GPU_SHARED) or name.startswith(names.MIG_PREFIX))
        for name, number in offered.items()
    )


def _spare(node: SeenNode, used: Requests, resource: str, kept: Fraction) -> Fraction:
    nothing = Fraction(0)
    return max(nothing, node.offered.get(resource, nothing) - max(used.get(resource, nothing), kept))


def used_by(pod: Pod) -> Requests:
    """What a pod uses of its node; of one that can't be read, nothing but its place."""
    try:
        return requests_of(pod.spec)
    except ValueError:
        return PLACE


def _gpus(wire: KubeNode, gpu_type: GpuType, offered: Requests, whole: int) -> tuple[tuple[Gpu, ...], list[Remark]]:
    """Whole GPUs first, then those with MIG instances."""
    memory = Memory(_number(wire.metadata.labels.get(names.GPU_MEMORY)) * _MIB)
    name, remarks = wire.metadata.name, []
    gpus = [Gpu(DeviceId(f"{name}/{index}"), index, memory=memory) for index in range(whole)]
    counts = {profile_of(key): down(count) for key, count in offered.items() if key.startswith(names.MIG_PREFIX)}
    model = model_of_type(gpu_type)
    if any(counts.values()) and not model:
        remarks.append(Remark("mig-model-unknown", f"has MIG instances, and GPU type {gpu_type} is no known MIG model"))
    elif any(counts.values()):
        try:
            for instances in laid_out(mig_model(model), counts):
                index = len(gpus)
                gpus.append(Gpu(DeviceId(f"{name}/{index}"), index, memory=memory, instances=instances))
        except UnknownProfileError as unknown:
            remarks.append(Remark("mig-profile-unknown", str(unknown)))
    return tuple(gpus), remarks


def _left(node: SeenNode, used: Requests, held: frozenset[DeviceId]) -> tuple[Gpu, ...]:
    gone = -(-(used.get(names.GPU, Fraction(0)) + used.get(names.GPU_SHARED, Fraction(0))) // node.replicas)
    instances = {profile_of(name): int(count) for name, count in used.items() if name.startswith(names.MIG_PREFIX)}
    unwell, left = node.unwell, list[Gpu]()
    for gpu in reversed(node.gpus):
        is_held = any(device == gpu.id or device.startswith(f"{gpu.id}/") for device in held)
        here = [one.profile for one in gpu.instances or () if instances.get(one.profile, 0) > 0]
        if is_held:
            left.append(gpu)
        elif gpu.instances is None and gone > 0:
            gone -= 1
        elif gpu.instances is None and unwell > 0:
            unwell -= 1
            left.append(msgspec.structs.replace(gpu, healthy=False))
        elif here:
            # An instance of others keeps the whole GPU from being partitioned anew.
            instances |= {profile: instances[profile] - here.count(profile) for profile in here}
        else:
            left.append(gpu)
    return tuple(reversed(left))


def _headroom(meta: Meta, remarks: list[Remark]) -> NodeReserve:
    said = {key: names.label_or_annotation(meta, key) for key in (names.HEADROOM_CPU, names.HEADROOM_MEMORY)}
    written: Amounts = {key: value for key, value in said.items() if value}
    found = _read(written)
    if len(found) < len(written):
        remarks.append(Remark("unreadable-headroom", f"{names.HEADROOM_CPU} or {names.HEADROOM_MEMORY} is no quantity"))
    return NodeReserve(*(found.get(key, Fraction(0)) for key in said))


def _read(written: Amounts) -> Requests:
    found: Requests = {}
    for name, value in written.items():
        try:
            found[name] = min(amount(value), Fraction(most_of(name)))
        except ValueError:
            continue
    return found


def _number(written: str | None) -> int:
    return int(written) if written and written.isdecimal() and len(written) <= 9 else 0
