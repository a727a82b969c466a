"""What a policy calls the accounts, partitions, QOS and GPU types of Slurm: the names are the same, or they are made alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from reconciler.importers.slugs import slug
from solver.model.cluster import GpuType
from solver.policy.policy import Policy


@dataclass(frozen=True)
class PolicyNaming:
    """Implements SlurmNaming by looking for documents of the name. `otherwise`: the queue of jobs for which there is none."""

    policy: Policy
    types: Mapping[str, GpuType]
    otherwise: str = ""

    def queue_of(self, account: str, partition: str) -> str:
        """The account's queue, else that of the partition: accounts say who pays, and partitions which nodes there are."""
        wanted = [slug(name) for name in (account, partition) if name]
        # An account with accounts below it has a queue of its own for its users.
        found = (name for each in wanted for name in (each, f"{each}-users") if name in self.leaves)
        return next(found, self.otherwise or (wanted[0] if wanted else ""))

    def class_of(self, partition: str, qos: str) -> str:
        """As an import names them: both together, else one of them; "": the policy's default."""
        wanted = (
            slug(f"{partition}-{qos}") if partition and qos else "",
            *(slug(name) for name in (partition, qos) if name),
        )
        return next((name for name in wanted if name in self._classes), "")

    def type_of(self, kind: str) -> GpuType:
        """As the nodes say it that have GPUs called so."""
        return self.types.get(kind, GpuType(kind))

    @cached_property
    def leaves(self) -> Collection[str]:
        """Queues that may have jobs."""
        parents = {queue.parent for queue in self.policy.queues}
        return frozenset(queue.name for queue in self.policy.queues if queue.name not in parents)

    @cached_property
    def _classes(self) -> Collection[str]:
        return frozenset(known.name for known in self.policy.priority_classes)
