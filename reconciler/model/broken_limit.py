"""A limit of a queue that is below what it holds, as it is told."""

from __future__ import annotations

from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.policy.harm import Evictable
from solver.policy.host_share import Resource


class BrokenLimit(Document, frozen=True, omit_defaults=False):
    """A `max` of a queue, below what it holds; with a `resource` the numbers are cores, or GiB, and there is no type.

    `deadline`: when `evict` of its convergence begins to count; null: it evicts none.
    `jobs`: evicted in the first round from then on, if all that run now still do.
    """

    queue: QueueName
    gpu_type: GpuType
    held: MilliGpu
    max: MilliGpu
    evict: Evictable
    deadline: Instant | None = None
    jobs: tuple[JobName, ...] = ()
    resource: Resource | None = None

    @property
    def what(self) -> str:
        """What there is too much of."""
        return self.gpu_type if self.resource is None else {"cpu": "cores", "memory": "GiB"}[self.resource]
