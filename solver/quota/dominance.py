"""Dominant shares: how much of the cluster a queue holds of what it holds most of, beyond its guarantees.

Dominant resource fairness (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011), over GPU types, CPU and memory. Here it only
orders queues that are served above their guarantees; it never makes a start lawful or unlawful. CPU and memory are
guaranteed to nobody by name: a queue that is guaranteed a quarter of the GPUs, added up by the weights of their types
(policy/type_weights), counts as guaranteed a quarter of both.
Where past use counts, the dominant share of what a queue has held of GPUs on average (quota/usage) is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.model.cluster import GpuType
from solver.model.workload import JobSpec, QueueName
from solver.policy.tree import QuotaLine
from solver.policy.type_weights import TypeWeights, weighed


class HostUse(NamedTuple):
    """What tasks take beside GPUs: CPU in milli-cores, memory in bytes."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: HostUse, times: int = 1) -> HostUse:
        """Both together."""
        return HostUse(self.cpu + times * other.cpu, self.memory + times * other.memory)


@dataclass(frozen=True, slots=True)
class ClusterTotals:
    """All that the cluster has, broken or not; what each leaf queue holds of it beside GPUs, and has held of GPUs on average.

    `weights`: by which GPUs of several types are added up.
    """

    gpus: Mapping[GpuType, int] = field(default_factory=dict)
    beside: HostUse = field(default_factory=HostUse)
    held_beside: Mapping[QueueName, HostUse] = field(default_factory=dict)
    held_before: Mapping[tuple[QueueName, GpuType], float] = field(default_factory=dict)
    weights: TypeWeights = field(default_factory=dict)


def beside_wanted(spec: JobSpec) -> HostUse:
    """What the whole gang takes."""
    cpu = sum(group.replicas * group.shape.cpu for group in spec.task_groups)
    return HostUse(cpu, sum(group.replicas * group.shape.memory for group in spec.task_groups))


@dataclass(frozen=True, slots=True)
class Owed:
    """What a queue is guaranteed of each GPU type, as a part of all GPUs by weight, and what it has held beyond that on average."""

    gpus: Mapping[GpuType, int]
    part: float
    before: float
    cluster: ClusterTotals

    @classmethod
    def to(cls, queue: QueueName, guaranteed: Mapping[QuotaLine, int], cluster: ClusterTotals) -> Owed:
        """What this queue is owed."""
        owed = {gpu_type: guaranteed.get(QuotaLine(queue, gpu_type), 0) for gpu_type in cluster.gpus}
        every = weighed(cluster.gpus, cluster.weights)
        before = [
            (cluster.held_before.get((queue, gpu_type), 0.0) - owed[gpu_type]) / gpus
            for gpu_type, gpus in cluster.gpus.items()
            if gpus
        ]
        part = weighed(owed, cluster.weights) / every if every else 0.0
        return cls(owed, part, max(0.0, *before, 0.0), cluster)

    def dominant_share(self, held: Mapping[GpuType, int], beside: HostUse) -> float:
        """The largest of its shares of the cluster above its guarantees, between 0 and 1 (2 with the past), if it held this."""
        gpus, whole = self.cluster.gpus, self.cluster.beside
        shares = [(held.get(gpu_type, 0) - self.gpus[gpu_type]) / all_of for gpu_type, all_of in gpus.items() if all_of]
        shares += [mine / all_of - self.part for mine, all_of in zip(beside, whole, strict=True) if all_of]
        return max(0.0, *shares) + self.before if shares else 0.0
