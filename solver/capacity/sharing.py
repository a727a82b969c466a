"""Which tasks may share a GPU, where and how; what a task that asks for a part of one takes on each type, MIG or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from solver.capacity.inventory import types_of
from solver.model.cluster import GpuType, Node
from solver.model.mig import cost_milli_gpu, mig_model
from solver.model.mig_layout import find_profile
from solver.model.quantities import MILLI_PER_GPU, Memory
from solver.model.shape import Circle, MigShape, Shape, SharedShape, TrustDomain
from solver.model.workload import QueueName
from solver.policy.division import SharingPolicy
from solver.policy.policy import Policy, SloClass
from solver.policy.tree import QueueTree


@dataclass(frozen=True, slots=True)
class Sharing:
    """The sharing policies over one inventory. `memory`: of the smallest GPU of each type; 0 where one is not declared.

    `mig_models`: which model of the MIG table a type is, where a pool of it may be partitioned.
    """

    tree: QueueTree
    of_pool: Mapping[str, SharingPolicy]
    pools: Mapping[GpuType, tuple[str, ...]]
    memory: Mapping[GpuType, Memory]
    mig_models: Mapping[GpuType, str] = field(default_factory=dict)
    _groups: dict[tuple[str, QueueName], TrustDomain] = field(default_factory=dict)

    def domain(self, pool: str, queue: QueueName) -> TrustDomain:
        """The trust domain of a queue in a pool: that of the nearest queue on its path that is in a group, else its root's."""
        if (pool, queue) not in self._groups:
            self._groups[pool, queue] = self._find_domain(pool, queue)
        return self._groups[pool, queue]

    def served(self, shape: Shape, gpu_type: GpuType | None, queue: QueueName, slo_class: SloClass) -> Shape:
        """What a task of a queue takes on a type.

        A SharedShape without circles or above a whole GPU can't be served, nor can a MigShape of 0 milli-GPU.
        """
        if gpu_type is not None and shape.mig is not None:
            return self._instance(shape, gpu_type)
        if gpu_type is None or not shape.is_shared:
            return shape
        circles = tuple(
            Circle(pool, self.domain(pool, queue), policy.mode)
            for pool in self.pools.get(gpu_type, ())
            if (policy := self.of_pool.get(pool)) and _may_share(policy, slo_class)
        )
        return SharedShape(
            gpu_types=shape.gpu_types,
            cpu=shape.cpu,
            memory=shape.memory,
            gpu_fraction=shape.gpu_fraction,
            gpu_memory=shape.gpu_memory,
            resources=shape.resources,
            devices=shape.devices,
            milli=self._milli(shape, gpu_type, circles),
            circles=circles,
        )

    def _instance(self, shape: Shape, gpu_type: GpuType) -> MigShape:
        name = self.mig_models.get(gpu_type, "")
        profile = find_profile(mig_model(name), shape.mig or "") if name else None
        milli = cost_milli_gpu(mig_model(name), profile) if profile else 0
        return MigShape(
            0,
            shape.gpu_types,
            shape.cpu,
            shape.memory,
            mig=shape.mig,
            resources=shape.resources,
            devices=shape.devices,
            model=name,
            milli=milli,
        )

    def _milli(self, shape: Shape, gpu_type: GpuType, circles: Sequence[Circle]) -> int:
        """Rounded up; 0 where the type's memory is not known. Of an oversubscribed GPU a fraction has as much less.

        Where the pools of a type are oversubscribed differently, the least counts. Memory is never oversubscribed.
        """
        if shape.gpu_memory is None:
            times = min((self.of_pool[circle.pool].oversubscription for circle in circles), default=1.0)
            return -(-int(shape.gpu_fraction or 0) * MILLI_PER_GPU // round(times * MILLI_PER_GPU))
        has = self.memory.get(gpu_type, Memory(0))
        return -(-MILLI_PER_GPU * shape.gpu_memory // has) if has else 0

    def _find_domain(self, pool: str, queue: QueueName) -> TrustDomain:
        path = self.tree.path(queue)
        policy = self.of_pool.get(pool)
        group_of = {name: group.name for group in (policy.trust_domains if policy else ()) for name in group.queues}
        named = next((group_of[step] for step in path if step in group_of), None)
        # A slash is in no document's name: a root's own domain is never mistaken for a group of the same name.
        return TrustDomain(named if named is not None else f"/{path[-1] if path else queue}")


def sharing_of(policy: Policy, tree: QueueTree, nodes: tuple[Node, ...]) -> Sharing:
    """Index the sharing policies over an inventory."""
    pools, memory = types_of(nodes)
    partitioned = {known.pool: known.model for known in policy.mig}
    # A GPU is divided by MPS or by MIG: a pool that may be partitioned shares none of its GPUs.
    of_pool = {pool: known for known in policy.sharing for pool in known.pools if pool not in partitioned}
    models = {gpu_type: partitioned[pool] for gpu_type, names in pools.items() for pool in names if pool in partitioned}
    return Sharing(tree, of_pool, pools, memory, models)


def _may_share(policy: SharingPolicy, slo_class: SloClass) -> bool:
    """Time-slicing has no bound on how long a task waits for its turn, so nothing latency-critical may be part of it."""
    return policy.mode == "mps" or slo_class != "latency-critical"
