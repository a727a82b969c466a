"""Declared inventory: the nodes that NodePool and Topology documents describe together, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from reconciler.documents.declarations import Declaration
from reconciler.documents.topology import Position, TopologySpec, data_near, positions, topology_problems
from reconciler.model.problem import Problem, did_you_mean
from solver.model.amounts import NONE, Amounts
from solver.model.cluster import DeviceId, Gpu, GpuType, Links, MigInstance, Node, NodeName
from solver.model.document import Document
from solver.model.mig_layout import model_of_type
from solver.model.mig_table import MigModelName
from solver.model.quantities import Cpu, Memory, MilliGpu

_UNKNOWN: Final = Memory(0)

NODES_MAX = 200_000
"""In all pools together. A slip of the finger in a count must not fill the memory; large clusters have 10,000 nodes."""


class PoolNodes(Document, frozen=True):
    """Which nodes a pool has: numbered from 1 after a prefix, or by name."""

    prefix: str | None = None
    count: int | None = None
    names: tuple[NodeName, ...] | None = None


class NodePoolSpec(Document, frozen=True):
    """The `spec` of a NodePool document."""

    cpu: Cpu
    memory: Memory
    nodes: PoolNodes
    gpu_type: GpuType = GpuType("")
    gpus_per_node: int = 0
    gpu_memory: Memory | None = None
    mig_model: MigModelName | None = None
    data: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    resources: Amounts = NONE
    cordoned: tuple[NodeName, ...] = ()

    @property
    def effective_mig_model(self) -> str:
        """The model in the table of MIG profiles; "" where neither the pool nor its GPU type's name says it."""
        return self.mig_model or model_of_type(self.gpu_type)

    def node_names(self) -> list[NodeName]:
        """The names of the pool's nodes, sorted."""
        if self.nodes.names is not None:
            return sorted(self.nodes.names)
        width = len(str(self.size()))
        return [NodeName(f"{self.nodes.prefix}{number:0{width}}") for number in range(1, self.size() + 1)]

    def size(self) -> int:
        """How many nodes the pool has."""
        return len(self.nodes.names) if self.nodes.names is not None else self.nodes.count or 0


Pools = Sequence[Declaration[NodePoolSpec]]
Topologies = Sequence[Declaration[TopologySpec]]
FixedLayouts = Mapping[str, Sequence[tuple[MigInstance, ...]]]
"""For each pool with GPUs that are partitioned for good, the instances of GPU 0, 1 and so on of every node."""


def declared_nodes(pools: Pools, topologies: Topologies, layouts: FixedLayouts) -> tuple[Node, ...]:
    """Every declared node, sorted by name. The documents are free of problems."""
    topology_of = {topology.value.pool: topology.value for topology in topologies}
    nodes: list[Node] = []
    for pool in pools:
        names = pool.value.node_names()
        topology = topology_of.get(pool.name)
        placed = positions(topology, names) if topology else {}
        near = data_near(topology, names) if topology else {}
        fixed = layouts.get(pool.name, ())
        links = topology.bandwidth if topology else Links()
        for name in names:
            data = tuple(sorted({*pool.value.data, *near.get(name, ())}))
            nodes.append(_node(pool, name, placed.get(name, {}), links, data, fixed))
    return tuple(sorted(nodes, key=lambda node: node.name))


def inventory_problems(pools: Pools, topologies: Topologies, pools_known: set[str] | None) -> Iterator[Problem]:
    """What is wrong with the inventory. `pools_known`: names of all pools, None where some are unreadable."""
    yield from _pool_problems(pools)
    too_many = _too_many_nodes(pools)
    if too_many:
        yield too_many
        return
    names = {pool.name: pool.value.node_names() for pool in pools}
    yield from _repeated_nodes(pools, names)
    yield from _cordoned_problems(pools, names)
    described: dict[str, Declaration[TopologySpec]] = {}
    for topology in topologies:
        pool = topology.value.pool
        first = described.setdefault(pool, topology)
        if first is not topology:
            message = f"the pool {pool} has a topology already, at {first.origin}"
            yield topology.problem(("spec", "pool"), "duplicate-topology", message, "Keep one of them.")
        if pool in names:
            yield from topology_problems(topology, names[pool])
        elif pools_known is not None and pool not in pools_known:
            yield topology.problem(
                ("spec", "pool"), "unknown-pool", f"there is no NodePool {pool}", did_you_mean(pool, pools_known)
            )


def gpus_by_type(pools: Pools) -> dict[GpuType, MilliGpu]:
    """How many GPUs of each type are declared."""
    total: Counter[GpuType] = Counter()
    for pool in pools:
        if pool.value.gpus_per_node:
            total[pool.value.gpu_type] += pool.value.size() * pool.value.gpus_per_node
    return {gpu_type: MilliGpu.gpus(count) for gpu_type, count in total.items()}


def _node(
    pool: Declaration[NodePoolSpec],
    name: NodeName,
    position: Position,
    links: Links,
    data: tuple[str, ...],
    layouts: Sequence[tuple[MigInstance, ...]],
) -> Node:
    spec = pool.value
    memory = spec.gpu_memory or _UNKNOWN
    return Node(
        name=name,
        pool=pool.name,
        cpu=spec.cpu,
        memory=spec.memory,
        gpu_type=spec.gpu_type,
        gpus=tuple(
            Gpu(
                DeviceId(f"{name}/{index}"),
                index,
                memory=memory,
                instances=layouts[index] if index < len(layouts) else None,
            )
            for index in range(spec.gpus_per_node)
        ),
        island=position.get("island", ""),
        rack=position.get("rack", ""),
        block=position.get("block", ""),
        links=links,
        data=data,
        labels=tuple(sorted(spec.labels)),
        resources=spec.resources,
        cordoned=name in spec.cordoned,
    )


def _pool_problems(pools: Pools) -> Iterator[Problem]:
    for pool in pools:
        if pool.value.gpus_per_node and not pool.value.gpu_type:
            yield pool.problem(
                ("spec", "gpusPerNode"), "missing-field", f"the GPUs of pool {pool.name} have no type", "Add gpuType."
            )
        if pool.value.gpu_type and not pool.value.gpus_per_node:
            message = f"pool {pool.name} has a gpuType and no GPUs"
            yield pool.problem(("spec", "gpuType"), "missing-field", message, "Add gpusPerNode, or delete gpuType.")
        if pool.value.gpu_memory is not None and not pool.value.gpus_per_node:
            message = f"pool {pool.name} has gpuMemory and no GPUs"
            yield pool.problem(("spec", "gpuMemory"), "missing-field", message, "Add gpusPerNode, or delete gpuMemory.")
        if pool.value.mig_model is not None and not pool.value.gpus_per_node:
            message = f"pool {pool.name} has a migModel and no GPUs"
            yield pool.problem(("spec", "migModel"), "missing-field", message, "Add gpusPerNode, or delete migModel.")
        yield from _label_problems(pool)


def _label_problems(pool: Declaration[NodePoolSpec]) -> Iterator[Problem]:
    """A label has one value."""
    first = dict[str, str]()
    for index, label in enumerate(pool.value.labels):
        key, _, value = label.partition("=")
        if first.setdefault(key, value) != value:
            message = f"the label {key} is {first[key]} already"
            yield pool.problem(("spec", "labels", index), "duplicate-label", message, "Keep one of them.")


def _cordoned_problems(pools: Pools, names: dict[str, list[NodeName]]) -> Iterator[Problem]:
    for pool in pools:
        own = set(names[pool.name])
        for index, name in enumerate(pool.value.cordoned):
            if name not in own:
                message = f"pool {pool.name} has no node {name}"
                yield pool.problem(("spec", "cordoned", index), "unknown-node", message, did_you_mean(name, own))


def _too_many_nodes(pools: Pools) -> Problem | None:
    total = 0
    for pool in pools:
        total += pool.value.size()
        if total > NODES_MAX:
            message = f"with pool {pool.name} the cluster has {total} nodes, at most {NODES_MAX} are possible"
            return pool.problem(("spec", "nodes"), "too-many-nodes", message, "Correct the count.")
    return None


def _repeated_nodes(pools: Pools, names: dict[str, list[NodeName]]) -> Iterator[Problem]:
    owner: dict[NodeName, str] = {}
    for pool in pools:
        repeated = (name for name in names[pool.name] if owner.setdefault(name, pool.name) != pool.name)
        for name in islice(repeated, 3):
            message = f"the node {name} is also in pool {owner[name]}"
            yield pool.problem(
                ("spec", "nodes"),
                "duplicate-node",
                message,
                "A node belongs to one pool: rename it or delete it from one.",
            )
        yield from _repeated_within(pool)


def _repeated_within(pool: Declaration[NodePoolSpec]) -> Iterator[Problem]:
    seen: set[NodeName] = set()
    for index, name in enumerate(pool.value.nodes.names or ()):
        if name in seen:
            yield pool.problem(
                ("spec", "nodes", "names", index), "duplicate-node", f"the node {name} is listed twice", "Delete one."
            )
        seen.add(name)
