"""What a round may know and change of MIG on nodes whose GPUs a device plugin offers: a node is changed as a whole. Pure."""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from reconciler.kubernetes.binder.journal import GangBinding
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.mig.change import REST, MigChange, change_on, config_of, fate_of, made_lately
from reconciler.kubernetes.mig.choice import GeometryRequest
from reconciler.kubernetes.mig.geometry import Geometry
from reconciler.kubernetes.mig.slots import WHOLE, Slots, counts_of, layouts_of
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.wire import KubeNode
from solver.capacity.partitioning import MIG_CHANGES
from solver.model.cluster import DeviceId, Gpu, Node, NodeName
from solver.model.inflight import Counter, Repartitioning
from solver.model.mig_layout import model_of_type
from solver.model.quantities import Instant, Memory
from solver.plan.plan import Bind, Grow, Plan, Repartition
from solver.policy.division import MigChanges, MigGeometry
from solver.policy.policy import Policy

WORKING = ("pending", "rebooting")
"""States in which the MIG manager is at work."""


def enforceable(policy: Policy, cluster: KubernetesCluster, nodes: Iterable[KubeNode]) -> Policy:
    """The policy as it can be kept where a device plugin offers the GPUs.

    No job leaves for a geometry there, since a node is changed as a whole; and what pools have of which the policy says nothing is
    used as it is.
    """
    divided = cluster.index.divided.values()
    if not (divided or any(known.drains for known in policy.mig)):
        return policy
    offering = {node.metadata.name for node in nodes if _is_offering(node)}
    pools = {node.pool for node in cluster.nodes if node.name in offering}
    named = {known.pool for known in policy.mig}.union(*(known.pools for known in policy.sharing))
    as_it_is = {
        node.pool: model_of_type(node.gpu_type) for node in divided if node.name in offering and node.pool not in named
    }
    mig = (
        *(_staying(one) if one.drains and one.pool in pools else one for one in policy.mig),
        *(MigGeometry(pool, pool, "fixed", model) for pool, model in sorted(as_it_is.items())),
    )
    return policy if mig == policy.mig else msgspec.structs.replace(policy, mig=mig)


def _staying(known: MigGeometry) -> MigGeometry:
    changes = msgspec.structs.replace(known.changes or MigChanges(), drain="never")
    return msgspec.structs.replace(known, changes=changes)


def _is_offering(node: KubeNode) -> bool:
    offers = any(key == names.GPU or key.startswith(names.MIG_PREFIX) for key in node.status.allocatable)
    return offers or names.MIG in node.metadata.annotations


def geometry_of(policy: Policy, sight: Sight, nodes: Iterable[KubeNode], now: Instant, barred: str = "") -> Geometry:
    """What is so now. `barred`: why no node can be changed at all."""
    pools = {known.pool: known for known in policy.mig if known.mode != "fixed"}
    wires = {NodeName(node.metadata.name): node for node in nodes if names.MIG in node.metadata.annotations or pools}
    if not wires:
        return Geometry()
    there = sight.cluster.index.nodes
    rules = {name: pools[there[name].pool] for name in sorted(wires) if name in there and there[name].pool in pools}
    rules = {name: rule for name, rule in rules.items() if _is_offering(wires[name])}
    changes = {name: change for name in sorted(wires) if name in there and (change := change_on(wires[name]))}
    changing = {name: one for name, one in changes.items() if fate_of(wires[name], one, now) is None}
    used = used_nodes(sight, rules)
    unwell = {name for name in rules if not all(gpu.healthy for gpu in there[name].gpus)}
    kept = {name: barred or _why_kept(wires[name], changes.get(name), now) for name in rules}
    kept |= dict.fromkeys(unwell, "some of its GPUs are not healthy")
    kept |= {name: "some of its GPUs are in use, or promised" for name in rules if name in used}
    busy = frozenset(name for name in rules if wires[name].metadata.labels.get(names.MIG_STATE) in WORKING)
    return Geometry(rules, wires, changing, {name: why for name, why in kept.items() if why}, busy)


def _why_kept(node: KubeNode, change: MigChange | None, now: Instant) -> str:
    labels = node.metadata.labels
    if not config_of(node):
        return f"it has no label {names.MIG_CONFIG}: no MIG manager looks after it"
    if labels.get(names.MIG_STATE) in WORKING:
        return f"its MIG manager says: {labels[names.MIG_STATE]}"
    if names.GPU_SHARED in node.status.allocatable or labels.get(names.REPLICAS, "1") not in ("", "0", "1"):
        return "its GPUs are shared"
    if change is None:
        return ""
    fate = fate_of(node, change, now)
    if fate is None:
        return "its GPUs are being partitioned"
    if fate == "taken-over":
        return f"another program has written {names.MIG_CONFIG}; take the annotation {names.MIG} away to let Quorate do it again"
    if fate != "made" and now < (change.ended_at or now).after(REST):
        return f"its change to {change.config} has come to nothing ({fate}) a short while ago"
    return ""


def used_nodes(sight: Sight, among: Collection[NodeName]) -> frozenset[NodeName]:
    """Nodes on which a pod of any owner has a GPU, or on which a gang is to have one."""
    if not among:
        return frozenset()
    used = sight.pods.gpu_nodes.intersection(among)
    tasks = [task for intent in sight.intents for task in intent.tasks]
    tasks += [task for held in sight.reservations for task in held.tasks]
    return frozenset(used | {task.node for task in tasks if task.node in among and (task.devices or task.mig)})


def with_geometry(sight: Sight, known: Geometry, now: Instant) -> Sight:
    """The look as a round is to have it: nodes that are being changed have what they are to have, and none else can be changed."""
    if not (known.rules or known.changing):
        return sight
    used = used_nodes(sight, known.changing)
    coming = {name: change for name, change in known.changing.items() if name not in used}
    there = sight.cluster.index.nodes
    asked = [one for name, change in coming.items() for one in _asked(there[name], change)]
    touched = (there[name] for name in sorted({*coming, *known.busy, *known.kept} & there.keys()))
    cluster = sight.cluster.with_nodes(_as_known(node, known, coming.get(node.name)) for node in touched)
    counters = tuple(_counters(there, known, now))
    return replace(sight, cluster=cluster, repartitions=tuple(asked), counters=counters, geometry=known)


def _as_known(node: Node, known: Geometry, coming: MigChange | None) -> Node:
    if coming is not None:
        memory = node.gpus[0].memory if node.gpus else Memory(0)
        gpus = tuple(
            Gpu(_slot(node.name, index), index, memory=memory, instances=slot)
            for index, slot in enumerate(coming.slots)
        )
        node = msgspec.structs.replace(node, gpus=gpus, gpu_type=coming.gpu_type)
    elif node.name in known.busy:
        node = msgspec.structs.replace(node, cordoned=True)  # it is not known what it will have
    return msgspec.structs.replace(node, keeps_geometry=True) if node.name in known.kept else node


def _slot(node: NodeName, index: int) -> DeviceId:
    return DeviceId(f"{node}/{index}")


def _asked(node: Node, change: MigChange) -> Iterator[Repartitioning]:
    """Of the slots that are not yet as they are to be."""
    now = {gpu.index: gpu.instances for gpu in node.gpus}
    for index, slot in enumerate(change.slots):
        if index not in now or now[index] != slot:
            device = _slot(node.name, index)
            yield Repartitioning(node.name, device, change.attempt, change.asked_at, change.deadline, slot)


def _counters(nodes: Mapping[NodeName, Node], known: Geometry, now: Instant) -> Iterator[Counter]:
    made: Tally[tuple[str, Instant]] = Tally()
    for name in known.rules:
        for one in made_lately(change_on(known.nodes[name]), now):
            made[nodes[name].pool, one.at] += one.gpus
    return (Counter(MIG_CHANGES, pool, at, gpus) for (pool, at), gpus in sorted(made.items()))


def wishes_of(plan: Plan, sight: Sight) -> Iterator[tuple[NodeName, GeometryRequest]]:
    """What a plan wants of each node that it partitions anew, sorted; of all of a pool together as many changes as are left."""
    by_node: dict[NodeName, dict[DeviceId, Repartition]] = defaultdict(dict)
    for step in plan.steps:
        if isinstance(step, Repartition) and step.node in sight.geometry.rules:
            by_node[step.node][step.device] = step
    there = sight.cluster.index.nodes
    for name, steps in sorted(by_node.items()):
        node, geometry, wire = there[name], sight.geometry.rules[name], sight.geometry.nodes[name]
        now: Slots = tuple(gpu.instances for gpu in node.gpus)
        target: Slots = tuple(steps[gpu.id].instances if gpu.id in steps else gpu.instances for gpu in node.gpus)
        spent = sum(known.count for known in sight.counters if known.subject == node.pool)
        needs = _needs(plan, name) or counts_of(layouts_of(target))
        gpus = max(len(now), _counted(wire))
        yield name, GeometryRequest(geometry, gpus, now, target, needs, config_of(wire), geometry.changes_max - spent)


def _counted(node: KubeNode) -> int:
    """GPUs of a node: several slots with few instances are seen as one."""
    said, change = node.metadata.labels.get(names.GPU_COUNT, ""), change_on(node)
    return max(int(said) if said.isdecimal() else 0, change.gpus if change else 0)


def _needs(plan: Plan, node: NodeName) -> Tally[str]:
    """What is bound there by the plan."""
    tasks = [task for step in plan.steps if isinstance(step, Bind | Grow) for task in step.tasks if task.node == node]
    needs = Tally(slot.instance.profile for task in tasks for slot in task.slots)
    whole = {device for task in tasks if not task.mig for device in task.devices}
    return needs + Tally({WHOLE: len(whole)})


def bindable(wanted: Sequence[GangBinding], unready: Collection[NodeName]) -> tuple[GangBinding, ...]:
    """The gangs no GPU of which is on these nodes. The others are decided about anew in each round, until theirs is there."""
    return tuple(gang for gang in wanted if not any(pod.devices and pod.node in unready for pod in gang.pods))
