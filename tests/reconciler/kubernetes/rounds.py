"""Rounds over what objects mean."""

from __future__ import annotations

from reconciler.kubernetes.objects.cluster import KubernetesCluster
from solver.checker.check import violations
from solver.milp.optimiser import Optimiser
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from solver.model.workload import QueueName
from solver.plan.plan import Bind, Grow
from solver.policy.policy import Queue, policy_of
from solver.round.solve import solve
from tests.solver.worlds import quota_of


def placed(seen: KubernetesCluster) -> dict[str, list[str]]:
    """What starts, or grows, where in a round."""
    return {step.job: sorted(task.node for task in step.tasks) for step in starts(seen)}


def starts(seen: KubernetesCluster, optimiser: Optimiser | None = None) -> list[Bind | Grow]:
    """What starts, or grows. The plan is judged by the checker."""
    snapshot = snapshot_of(Instant(0), seen.nodes, seen.jobs, node_sets=seen.node_sets)
    policy = policy_of((Queue(QueueName("q"), quota=(quota_of("H100-SXM5-80GB", 32),)),))
    plan = solve(snapshot, policy, optimiser)
    assert violations(snapshot, policy, plan) == ()
    return [step for step in plan.steps if isinstance(step, Bind | Grow)]
