"""What a queue may take back from others, as the tree says it: the nearest queue that says something, else the cluster."""

from __future__ import annotations

from solver.model.quantities import Duration
from solver.model.workload import QueueName
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree


def may_reclaim_fair_share(policy: Policy, tree: QueueTree, queue: QueueName) -> bool:
    """Whether borrowed work may be taken back for demand above the guarantee, inside the fair share."""
    said = (tree.by_name[name].reclaim for name in tree.path(queue))
    return next((mode for mode in said if mode), policy.scheduling.reclaim) == "fair-share"


def reclaim_within(policy: Policy, tree: QueueTree, queue: QueueName) -> Duration:
    """How long protections of running jobs may delay work inside the queue's guarantee."""
    said = (tree.by_name[name].reclaim_within for name in tree.path(queue))
    return next((limit for limit in said if limit is not None), policy.scheduling.reclaim_within)


def budgets_hold_for(policy: Policy, tree: QueueTree, queue: QueueName) -> Duration:
    """How long PodDisruptionBudgets may delay work inside the queue's guarantee."""
    said = policy.scheduling.evictions.disruption_budgets_hold_for
    return reclaim_within(policy, tree, queue) if said is None else said
