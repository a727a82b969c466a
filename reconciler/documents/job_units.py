"""What no schema can say of units: tasks of several groups of a job that come and go together."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem
from solver.model.workload import JobSpec, TaskGroup, Together


def unit_problems(job: Declaration[JobSpec], at: Path, known: Together) -> Iterator[Problem]:
    """Everything that is wrong with the units of one entry of `together`, which is at a place."""
    least = known.units if known.min_units is None else known.min_units
    if least > known.units:
        message = f"the job starts with at least {least} units of {' and '.join(known.groups)}, and has {known.units}"
        yield job.problem((*at, "minUnits"), "min-above-units", message, "Lower minUnits, or raise units.")
    if known.units == 1:
        return
    if job.value.type == "service":
        message = "the replicas of a service are each of their own, and come one by one"
        yield job.problem((*at, "units"), "one-by-one", message, "Delete units, or submit a gang.")
        return
    for index, group in enumerate(job.value.task_groups):
        if group.name in known.groups:
            yield from _group_problems(job, ("spec", "taskGroups", index), group, known, least)


def _group_problems(
    job: Declaration[JobSpec], at: Path, group: TaskGroup, known: Together, least: int
) -> Iterator[Problem]:
    size, rest = divmod(group.replicas, known.units)
    if rest:
        message = f"the {group.replicas} tasks of group {group.name} can't be cut into {known.units} equal units"
        fix = f"Make replicas a multiple of {known.units}."
        yield job.problem((*at, "replicas"), "units-do-not-fit", message, fix)
        return
    if (group.least, group.replica_step) != (size * min(least, known.units), size):
        message = (
            f"{least} of {known.units} units have {size * least} tasks of group {group.name}, by {size} at once, and "
            f"it says {group.least} by {group.replica_step}"
        )
        fix = "Delete minReplicas and replicaStep: units and minUnits say it."
        yield job.problem((*at, "minReplicas"), "units-say-otherwise", message, fix)
    if least < known.units and (group.topology.spread or job.value.topology.spread):
        message = f"units of group {group.name} may join later, where the spread can't be kept with the others"
        fix = "Delete spread, or minUnits."
        yield job.problem((*at, "name"), "units-and-spread", message, fix)
    for bundle in job.value.bundles_of(group):
        if bundle.within and bundle.tasks < group.replicas and size % bundle.tasks:
            message = f"a unit has {size} tasks of group {group.name}, which are no whole bundles of {bundle.tasks}"
            fix = f"Make {size} a multiple of {bundle.tasks}."
            yield job.problem((*at, "topology", "group"), "bundles-tear-units", message, fix)
