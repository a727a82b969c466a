"""What events say of a step, in words."""

from __future__ import annotations

from collections.abc import Iterable

from solver.model.cluster import MigInstance
from solver.model.workload import TaskPlacement
from solver.plan.plan import Evict, Shrink
from solver.plan.reason import count


def nodes_of(tasks: Iterable[TaskPlacement]) -> str:
    """The nodes that tasks are on."""
    return ", ".join(sorted({task.node for task in tasks}))


def names_of(tasks: Iterable[TaskPlacement]) -> str:
    """Which tasks of their job they are."""
    return ", ".join(f"{task.group}/{task.index}" for task in tasks)


def why_evicted(step: Evict | Shrink) -> str:
    """What a job gives up, for which job, and what that loses."""
    if step.means == "overdue":
        return f"{count(len(step.tasks), 'task')} that joined it did not become ready in time"
    lost = f"{step.lost_gpu_s / 3600:.1f} GPU-hours are lost"
    if step.means == "move":
        return f"it moves with {count(step.gpus.number, 'GPU')}, so that {step.beneficiary} fits; {lost}"
    whom = f" for {step.beneficiary}" if step.beneficiary else ""
    past = f"; {step.past} has held it for as long as policy lets it" if step.past else ""
    return f"it gives up {count(step.gpus.number, 'GPU')}{whom} ({step.means}); {lost}{past}"


def geometry_of(instances: Iterable[MigInstance] | None) -> str:
    """What a GPU is partitioned into: `whole`, or each instance with where it begins."""
    if instances is None:
        return "whole"
    return " + ".join(f"{one.profile}@{one.start}" for one in instances) or "without instances"
