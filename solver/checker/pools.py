"""Judges S2 for pools: no task is placed, promised or kept room for in a pool that policy does not open to its job.

Part of the checker. Jobs that run elsewhere already are let be.
"""

from __future__ import annotations

from collections.abc import Iterator

from solver.checker.case import JudgedPlan
from solver.model.cluster import Node
from solver.model.workload import Job
from solver.plan.plan import Bind, Grow, Nominate, Reserve
from solver.plan.violation import Violation

Placing = Bind | Nominate | Grow | Reserve


def pool_violations(case: JudgedPlan) -> Iterator[Violation]:
    """Every step that puts a task where its queue, a queue above it, its class or the whole policy does not let it be."""
    for step in case.plan.steps:
        job = case.jobs.get(step.job) if isinstance(step, Placing) else None
        if job is None or not isinstance(step, Placing):
            continue
        for task in step.tasks:
            node = case.ground.by_name.get(task.node)
            problem = _problem(case, job, node) or _unlike(job, task.group, node) if node is not None else ""
            if problem:
                yield Violation("S2", step.job, f"task {task.group}/{task.index} is on {task.node}, {problem}")


def _unlike(job: Job, group: str, node: Node) -> str:
    """How a node is not as the shape asks."""
    shape = next((known.shape for known in job.spec.task_groups if known.name == group), None)
    lacking = [label for label in (shape.node_labels if shape else ()) if label not in node.labels]
    if lacking:
        return f"which lacks the label {lacking[0]}"
    least = shape.min_gpu_memory if shape else None
    if least is not None and not (node.gpus and all(gpu.memory >= least for gpu in node.gpus)):
        return f"whose GPUs do not have {least} each"
    return ""


def _problem(case: JudgedPlan, job: Job, node: Node) -> str:
    known = case.lookup.class_of(job)
    for queue in case.lookup.path(job.spec.queue):
        if queue.pools is not None and node.pool not in queue.pools:
            return f"and queue {queue.name} may not use pool {node.pool}"
    if known is not None and known.pools is not None and node.pool not in known.pools:
        return f"and class {known.name} may not use pool {node.pool}"
    asks = any(group.shape.gpus or group.shape.is_shared or group.shape.mig for group in job.spec.task_groups)
    if case.policy.scheduling.gpu_nodes_for == "gpu-jobs" and node.gpus and not asks:
        return "which has GPUs, and the job asks for none"
    return ""
