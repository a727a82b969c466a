"""What no schema can say of a job with a launcher."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem
from solver.model.workload import JobSpec


def launcher_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    """One task starts the work of others, whose number is fixed once it has begun."""
    launcher = job.value.launcher
    if launcher is None:
        return
    groups = job.value.task_groups
    for index, group in enumerate(groups):
        at: Path = ("spec", "taskGroups", index)
        if group.launcher and group is not launcher:
            message = f"both {launcher.name} and {group.name} are launchers"
            yield job.problem((*at, "launcher"), "one-launcher", message, "Keep one of them.")
        if group.least != group.replicas:
            message = f"the task group {group.name} may be smaller than {group.replicas}, which a launcher never learns"
            yield job.problem((*at, "minReplicas"), "launcher-is-rigid", message, "Delete minReplicas.")
        if group.rejoin:
            message = f"the launcher is not told when a task of {group.name} begins again"
            yield job.problem((*at, "rejoin"), "launcher-is-rigid", message, "Delete rejoin.")
    at = ("spec", "taskGroups", groups.index(launcher))
    if job.value.type == "service":
        message = "a service has no launcher: its replicas are each of their own"
        yield job.problem((*at, "launcher"), "service-never-fails", message, "Delete launcher.")
    if launcher.replicas != 1:
        message = f"the launcher {launcher.name} has {launcher.replicas} tasks"
        yield job.problem((*at, "replicas"), "one-launcher", message, "Set replicas: 1.")
    if len(groups) == 1:
        message = f"there are no other tasks for the launcher {launcher.name} to start anything on"
        yield job.problem(
            (*at, "launcher"), "launcher-alone", message, "Add a task group for them, or delete launcher."
        )
