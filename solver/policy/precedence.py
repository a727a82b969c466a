"""The order of jobs, running or waiting, in queues that go by what running a job on would cost (`ordering.turns`, `gittins`).

The costs are worked out in queueing/costs; a job that has waited for `maxWait` costs less than 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.model.quantities import Instant
from solver.model.workload import Job, JobName, QueueName
from solver.policy.ordering import Ordering
from solver.policy.tree import QueueTree
from solver.policy.user_shares import UserShares


class QueuePlace(NamedTuple):
    """Where a live job stands in a queue that goes by cost: SLO class, value (higher ones first), cost."""

    slo: int
    below: int
    cost: float


@dataclass(frozen=True, slots=True)
class Precedence:
    """Which job comes before which where queues go by cost, and which has its turn where they take turns (queueing/rotation), or
    the right to its user's fair share (queueing/user_reclaim).
    """

    places: Mapping[JobName, QueuePlace] = field(default_factory=dict)
    in_turn: frozenset[JobName] = frozenset()

    def yields(self, running: JobName, preemptor: JobName) -> bool:
        """Whether a running job gives way to one that has its turn: alike in SLO class and value, it costs more to run on."""
        if preemptor not in self.in_turn or running not in self.places:
            return False
        mine, theirs = self.places[running], self.places[preemptor]
        return mine[:2] == theirs[:2] and theirs.cost < mine.cost


def ordering_of(tree: QueueTree, name: QueueName) -> Ordering:
    """The ordering that the queue states, else the nearest above it that does, else the default."""
    known = tree.orderings.get(name)
    if known is None:
        stated = (tree.by_name[step].ordering for step in tree.path(name))
        known = tree.orderings[name] = next((ordering for ordering in stated if ordering is not None), Ordering())
    return known


def user_shares_of(tree: QueueTree, name: QueueName) -> UserShares | None:
    """How users share a queue, as it or the nearest above it says; None: they do not, and where jobs take turns neither."""
    stated = (tree.by_name[step].users for step in tree.path(name))
    known = next((users for users in stated if users is not None), None)
    return known if known is not None and known.fair_share and ordering_of(tree, name).turns is None else None


def shared_by_users(tree: QueueTree) -> dict[QueueName, UserShares]:
    """The queues that jobs are submitted to whose users share them fairly."""
    if not any(queue.users for queue in tree.by_name.values()):
        return {}
    known = {name: user_shares_of(tree, name) for name in tree.by_name if tree.is_leaf(name)}
    return {name: shares for name, shares in known.items() if shares is not None}


def waiting_since(job: Job) -> Instant:
    """Since when a waiting job has had nothing: its submission, or its last eviction."""
    return max(job.submitted_at, job.evicted_at[-1]) if job.evicted_at else job.submitted_at
