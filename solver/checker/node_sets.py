"""Judges S2 for tasks that are limited to some nodes: none is placed, promised or kept room for outside of them.

Part of the checker. Who runs outside already, since what may be changed, is let be.
"""

from __future__ import annotations

from collections.abc import Iterator

from solver.checker.case import JudgedPlan
from solver.plan.plan import Bind, Grow, Nominate, Reserve
from solver.plan.violation import Violation

Placing = Bind | Nominate | Grow | Reserve


def set_violations(case: JudgedPlan) -> Iterator[Violation]:
    """Every task that a step puts on a node which is not in the set that its group names."""
    nodes = {known.name: frozenset(known.nodes) for known in case.snapshot.node_sets}
    for step in case.plan.steps:
        job = case.jobs.get(step.job) if isinstance(step, Placing) else None
        sets = {group.name: group.nodes for group in job.spec.task_groups if group.nodes} if job else {}
        if not sets or not isinstance(step, Placing):
            continue
        for task in step.tasks:
            named = sets.get(task.group, "")
            if named and task.node not in nodes.get(named, ()):
                problem = f"task {task.group}/{task.index} is on {task.node}, which is not one of its nodes ({named})"
                yield Violation("S2", step.job, problem)
