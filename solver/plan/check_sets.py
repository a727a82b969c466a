"""Judges S2 for tasks that are limited to some nodes: none is placed, promised or kept room for outside of them.

Part of the checker, and as slow and obvious. Who runs outside already, since what may be changed, is let be.
"""

from __future__ import annotations

from collections.abc import Iterator

from solver.plan.check_case import Case
from solver.plan.plan import Bind, Grow, Nominate, Reserve
from solver.plan.violation import Violation


def set_violations(case: Case) -> Iterator[Violation]:
    """Every task that a step puts on a node which is not in the set that its group names."""
    nodes = {known.name: frozenset(known.nodes) for known in case.snapshot.node_sets}
    placing = (step for step in case.plan.steps if isinstance(step, Bind | Nominate | Grow | Reserve))
    for step in placing:
        job = case.jobs.get(step.job)
        sets = {group.name: group.nodes for group in job.spec.task_groups if group.nodes} if job else {}
        for task in step.tasks if sets else ():
            named = sets.get(task.group, "")
            if named and task.node not in nodes.get(named, ()):
                problem = f"task {task.group}/{task.index} is on {task.node}, which is not one of its nodes ({named})"
                yield Violation("S2", step.job, problem)
