"""Judges S2 for tasks that are limited to some nodes: none is placed, promised or kept room for outside of them.

Part of the checker, and as slow and obvious. Who runs outside already, since what may be changed, is let be.
"""

from __future__ import annotations

from collections.abc import Iterator

from solver.plan.plan import Bind, Grow, Nominate, Plan, Reserve
from solver.plan.violation import Violation
from solver.world.snapshot import Snapshot


def set_violations(snapshot: Snapshot, plan: Plan) -> Iterator[Violation]:
    """Every task that a step puts on a node which is not in the set that its group names."""
    nodes = {known.name: frozenset(known.nodes) for known in snapshot.node_sets}
    sets = {(job.name, group.name): group.nodes for job in snapshot.jobs for group in job.spec.task_groups}
    placing = (step for step in plan.steps if isinstance(step, Bind | Nominate | Grow | Reserve))
    for step in placing:
        for task in step.tasks:
            named = sets.get((step.job, task.group), "")
            if named and task.node not in nodes[named]:
                problem = f"task {task.group}/{task.index} is on {task.node}, which is not one of its nodes ({named})"
                yield Violation("S2", step.job, problem)
