"""What a queue may take back from others, and when, as the tree says: the nearest queue that says something, else the cluster."""

from __future__ import annotations

from solver.model.quantities import Duration, Instant
from solver.model.workload import Job, QueueName
from solver.policy.policy import Policy, PreemptWithin, PriorityClass, Queue, Reclaim
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


def preempts_within(tree: QueueTree, queue: QueueName) -> PreemptWithin:
    """Which running jobs of a queue leave for one that waits there."""
    said = (tree.by_name[name].preempt_within for name in tree.path(queue))
    return next((mode for mode in said if mode), "lower-priority")


def reclaimed_for(tree: QueueTree, queue: QueueName) -> Reclaim:
    """For what others may take back what a queue holds above its guarantee."""
    said = (tree.by_name[name].reclaimed_for for name in tree.path(queue))
    return next((mode for mode in said if mode), "fair-share")


def reclaims_below(tree: QueueTree, queue: QueueName, known: PriorityClass | None) -> int | None:
    """Below which value work that others borrowed leaves for a job of a queue and class, beyond fair shares; None: none does.

    Values of scope `cluster` alone compare across queues.
    """
    said = (tree.by_name[name].reclaim_below for name in tree.path(queue))
    below = next((value for value in said if value is not None), None)
    return min(below, known.value) if below is not None and known is not None and known.scope == "cluster" else None


def has_it_wait(policy: Policy, tree: QueueTree, job: Job) -> PriorityClass | Queue | None:
    """What says how long a job waits before others leave for it: its class, else the nearest queue; None: it need not wait."""
    if not policy.delays_preemption:
        return None
    known = policy.priority_class(job)
    if known is not None and known.preempt_after is not None:
        return known if known.preempt_after else None
    queues = (tree.by_name[name] for name in tree.path(job.spec.queue))
    said = next((queue for queue in queues if queue.preempt_after is not None), None)
    return said if said is not None and said.preempt_after else None


def preempts_from(policy: Policy, tree: QueueTree, job: Job) -> Instant | None:
    """From when on others leave for a waiting job, counted from when it began to wait; None: from the first."""
    said = has_it_wait(policy, tree, job)
    return job.waits_since.after(said.preempt_after) if said is not None and said.preempt_after is not None else None
