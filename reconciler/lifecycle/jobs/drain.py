"""What follows for gangs on nodes and GPUs that are drained: they go on without those tasks, or leave whole and go on elsewhere."""

from __future__ import annotations

from reconciler.lifecycle.jobs.claim_context import ClaimContext
from reconciler.lifecycle.jobs.device_readiness import gpus_of
from reconciler.lifecycle.jobs.failures import goes_on_without
from reconciler.lifecycle.jobs.settlements import AskToLeave, AskToStop
from solver.model.workload import TaskPlacement


def settle_drained(holding: ClaimContext) -> AskToLeave | AskToStop | None:
    """What is asked of a gang that is not asked to stop; None: nothing, or some of it leaves already."""
    reasons = {task: why for task in holding.staying for why in _why(holding, task)}
    if not reasons or holding.leaving:
        return None
    job, attempt, tasks = holding.claim.job, holding.claim.attempt, tuple(reasons)
    cause = "; ".join(sorted(set(reasons.values())))
    if holding.claim.running_since is not None and goes_on_without(holding, tasks):
        return AskToLeave(job, attempt, tasks, cause)
    return AskToStop(job, attempt, cause, "requeue")


def _why(holding: ClaimContext, task: TaskPlacement) -> list[str]:
    """Of the node rather than of each of its GPUs."""
    drained = holding.ground.drained
    places = (task.node, *sorted(gpus_of((task,))))
    return [drained[place] for place in places if place in drained][:1]
