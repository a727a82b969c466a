"""What the nodes of a snapshot are, as arrays: worked out once, and shared by all the rooms of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from solver.model.amounts import CPU, MEMORY, unsaid
from solver.model.arrays import Ints, Mask
from solver.model.cluster import DeviceId, GpuType, Node, NodeName
from solver.model.quantities import Memory
from solver.model.topology import Topology, topology_of


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """Nodes in the order of the snapshot. Never changed.

    `beside`: CPU, memory, and what else any node has, by name. `whole`: the GPUs of each node that are not in MIG mode; of
    `healthy`, those alone that are. `near`: by the name of data, the nodes at which they are.
    """

    nodes: tuple[Node, ...]
    index: dict[NodeName, int]
    topology: Topology
    gpu_types: tuple[GpuType, ...]
    type_of_node: Ints
    is_open: Mask
    beside: dict[str, Ints]
    whole: tuple[list[DeviceId], ...]
    healthy: tuple[list[DeviceId], ...]
    near: dict[str, Mask]


class TypeInventory(NamedTuple):
    """By GPU type the pools that have nodes of it, sorted, and the memory of its smallest GPU."""

    pools: Mapping[GpuType, tuple[str, ...]]
    memory: Mapping[GpuType, Memory]


class _Same:
    """Nodes that are equal to themselves alone: to compare twelve thousand of them takes as long as to work them out."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes

    def __hash__(self) -> int:
        return id(self.nodes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.nodes is self.nodes


def inventory_of(nodes: tuple[Node, ...]) -> NodeInventory:
    """Index some nodes; raises NotATreeError."""
    return _inventory(_Same(nodes))


@lru_cache(maxsize=2)
def _inventory(same: _Same) -> NodeInventory:
    # The rooms of a round are of its nodes as they are, and as they are built: no more than the last of both are kept.
    nodes = same.nodes
    gpu_types = tuple(sorted({node.gpu_type for node in nodes}))
    number = {gpu_type: number for number, gpu_type in enumerate(gpu_types)}
    whole = tuple([gpu.id for gpu in node.gpus if gpu.instances is None] for node in nodes)
    broken = {gpu.id for node in nodes for gpu in node.gpus if not gpu.healthy}
    near = {name: np.zeros(len(nodes), dtype=bool) for node in nodes for name in node.data}
    for place, node in enumerate(nodes):
        for name in node.data:
            near[name][place] = True
    return NodeInventory(
        nodes,
        {node.name: number for number, node in enumerate(nodes)},
        topology_of(nodes),
        gpu_types,
        np.array([number[node.gpu_type] for node in nodes], dtype=np.int64),
        np.array([node.schedulable for node in nodes], dtype=bool),
        _beside(nodes),
        whole,
        tuple([device for device in devices if device not in broken] for devices in whole) if broken else whole,
        near,
    )


def _beside(nodes: tuple[Node, ...]) -> dict[str, Ints]:
    found = {
        CPU: np.array([node.cpu for node in nodes], dtype=np.int64),
        MEMORY: np.array([node.memory for node in nodes], dtype=np.int64),
    }
    for place, node in enumerate(nodes):
        for name, amount in node.resources.items():
            if name not in found:
                found[name] = np.full(len(nodes), unsaid(name), dtype=np.int64)
            found[name][place] = amount
    return found


def renewed(known: NodeInventory, nodes: tuple[Node, ...]) -> tuple[NodeInventory, Sequence[int]] | None:
    """The inventory of nodes that differ from known ones at most in their GPUs, and which do; None: they differ in more."""
    if nodes is known.nodes:
        return known, ()
    if len(nodes) != len(known.nodes):
        return None
    pairs = enumerate(zip(known.nodes, nodes, strict=True))
    changed = [number for number, (before, node) in pairs if before is not node and before != node]
    if not all(_differ_in_gpus(known.nodes[number], nodes[number]) for number in changed):
        return None
    whole, healthy = list(known.whole), list(known.healthy)
    for number in changed:
        gpus = [gpu for gpu in nodes[number].gpus if gpu.instances is None]
        whole[number], healthy[number] = [gpu.id for gpu in gpus], [gpu.id for gpu in gpus if gpu.healthy]
    return replace(known, nodes=nodes, whole=tuple(whole), healthy=tuple(healthy)), changed


def _differ_in_gpus(before: Node, node: Node) -> bool:
    """Whether nothing else of a node is other than before, but whether its GPUs may be partitioned."""
    return msgspec.structs.replace(before, gpus=node.gpus, keeps_geometry=node.keeps_geometry) == node


def types_of(nodes: tuple[Node, ...]) -> TypeInventory:
    """The GPU types of some nodes."""
    return _types(_Same(nodes))


@lru_cache(maxsize=2)
def _types(same: _Same) -> TypeInventory:
    pools: dict[GpuType, dict[str, None]] = {}
    memory: dict[GpuType, Memory] = {}
    for node in same.nodes:
        if node.gpus:
            pools.setdefault(node.gpu_type, {})[node.pool] = None
            least = min([gpu.memory for gpu in node.gpus])
            memory[node.gpu_type] = min(memory.get(node.gpu_type, least), least)
    return TypeInventory({gpu_type: tuple(sorted(names)) for gpu_type, names in pools.items()}, memory)
