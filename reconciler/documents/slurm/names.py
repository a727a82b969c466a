"""Which queue and class a job of Slurm's has here: accounts, partitions and QOS are looked for among the names of the policy."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from solver.policy.policy import Policy


class SlurmNames(NamedTuple):
    """What a job says, as names that documents may have; "": it says nothing."""

    account: str = ""
    partition: str = ""
    qos: str = ""


class KnownNames(NamedTuple):
    """The names of a policy: of queues that may have jobs, and of classes."""

    queues: Collection[str]
    classes: Collection[str]

    @classmethod
    def of(cls, policy: Policy) -> KnownNames:
        """Those of a policy."""
        parents = {queue.parent for queue in policy.queues}
        leaves = frozenset(queue.name for queue in policy.queues if queue.name not in parents)
        return cls(leaves, frozenset(known.name for known in policy.priority_classes))

    def queue_of(self, asked: SlurmNames) -> str:
        """That of the account, which says who pays; else that of the partition; "": there is neither.

        An account with accounts below it has a queue of its own for its users.
        """
        found = (name for each in asked[:2] if each for name in (each, f"{each}-users"))
        return next((name for name in found if name in self.queues), "")

    def class_of(self, asked: SlurmNames) -> str:
        """As an import names them: partition and QOS together, else one of them; "": there is none, and the default counts."""
        both = f"{asked.partition}-{asked.qos}" if asked.partition and asked.qos else ""
        return next((name for name in (both, asked.qos, asked.partition) if name and name in self.classes), "")
