"""What a policy calls the accounts, partitions, QOS and GPU types of Slurm."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from reconciler.documents.slurm.names import KnownNames, SlurmNames
from reconciler.importers.slugs import slug
from solver.model.cluster import GpuType
from solver.policy.policy import Policy


@dataclass(frozen=True)
class PolicyNaming:
    """Implements SlurmNaming by the rule of `quorate submit`. `otherwise`: the queue of jobs for which there is none."""

    policy: Policy
    types: Mapping[str, GpuType]
    otherwise: str = ""

    def queue_of(self, account: str, partition: str) -> str:
        """The queue of the name, else `otherwise`, else what no policy has."""
        asked = _names(account, partition)
        return self._known.queue_of(asked) or self.otherwise or asked.account or asked.partition

    def class_of(self, partition: str, qos: str) -> str:
        """The class of the name; "": the policy's default."""
        return self._known.class_of(_names("", partition, qos))

    def type_of(self, kind: str) -> GpuType:
        """As the nodes say it that have GPUs called so."""
        return self.types.get(kind, GpuType(kind))

    @property
    def leaves(self) -> Collection[str]:
        """Queues that may have jobs."""
        return self._known.queues

    @cached_property
    def _known(self) -> KnownNames:
        return KnownNames.of(self.policy)


def _names(*said: str) -> SlurmNames:
    return SlurmNames(*(slug(name) if name else "" for name in said))
