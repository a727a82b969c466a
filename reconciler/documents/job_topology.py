"""What no schema can say of where the tasks of a job are to be: bundles that nest, groups that there are, wishes for something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from reconciler.documents.declarations import Declaration
from reconciler.documents.job_units import unit_problems
from reconciler.model.problem import Path, Problem, did_you_mean
from solver.model.cluster import LEVELS, Level, is_wider
from solver.model.workload import Bundle, GroupTopology, JobSpec, TaskGroup, Together, TopologyRequest, Wish, levels_of


def topology_wish_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    """Everything that is wrong with the topology of a job and of its task groups."""
    asked, at = job.value.topology, ("spec", "topology")
    if (asked.communication, asked.placement) == ("bound", "spread"):
        message = "a job that is bound by communication can't be spread"
        yield job.problem((*at, "placement"), "bound-and-spread", message, "Keep only one of them.")
    yield from _bundle_problems(job, at, asked)
    yield from _together_problems(job)
    for index, group in enumerate(job.value.task_groups):
        yield from _group_problems(job, ("spec", "taskGroups", index, "topology"), group)


def _group_problems(job: Declaration[JobSpec], at: Path, group: TaskGroup) -> Iterator[Problem]:
    own = group.topology
    if own.required:
        yield from _wish_problems(job, at, own.preferred, own.required)
        for place, bundle in _written(at, own):
            if bundle.within and not is_wider(own.required, bundle.within):
                message = (
                    f"all tasks of {group.name} are in one {own.required}, and bundles of them in one {bundle.within}"
                )
                fix = _closer_or_delete("the bundle", own.required)
                yield job.problem(place, "bundles-of-one", message, fix)
    yield from _bundle_problems(job, at, own)


def _written(at: Path, asked: TopologyRequest | GroupTopology) -> Iterator[tuple[Path, Bundle]]:
    """The bundles as they are written, each with its place."""
    if isinstance(asked.group, Bundle):
        yield (*at, "group"), asked.group
    elif asked.group:
        yield from (((*at, "group", index), bundle) for index, bundle in enumerate(asked.group))


def _bundle_problems(job: Declaration[JobSpec], at: Path, asked: TopologyRequest | GroupTopology) -> Iterator[Problem]:
    """Of several sizes the larger are made of whole smaller ones, and are no closer."""
    written = list(_written(at, asked))
    for place, bundle in written:
        if not (bundle.within or bundle.wishes):
            message = f"bundles of {bundle.tasks} tasks are to keep together, and no level says in what"
            yield job.problem(place, "bundle-of-no-level", message, "Add within, or preferred.")
        yield from _wish_problems(job, place, bundle.preferred, bundle.within)
    for (_, small), (place, large) in pairwise(sorted(written, key=lambda known: known[1].tasks)):
        if large.tasks == small.tasks:
            message = f"there are two bundles of {large.tasks} tasks"
            yield job.problem((*place, "tasks"), "bundles-alike", message, "Keep one of them, with the closer level.")
        elif large.tasks % small.tasks:
            message = f"bundles of {large.tasks} tasks can't be made of whole bundles of {small.tasks}"
            fix = f"Make {large.tasks} a multiple of {small.tasks}."
            yield job.problem((*place, "tasks"), "bundles-do-not-nest", message, fix)
        elif small.within and large.within and is_wider(small.within, large.within):
            message = (
                f"bundles of {large.tasks} tasks are in one {large.within}, and bundles of {small.tasks} in them "
                f"in one {small.within}, which is wider"
            )
            fix = f"Delete the bundles of {small.tasks}, or let those of {large.tasks} be in one {small.within}."
            yield job.problem((*place, "within"), "bundles-do-not-nest", message, fix)


def _wish_problems(job: Declaration[JobSpec], at: Path, wish: Wish | None, kept: Level | None) -> Iterator[Problem]:
    for level in levels_of(wish):
        if kept and not is_wider(kept, level):
            message = f"one {level} is preferred, where one {kept} is had in any case"
            fix = _closer_or_delete("preferred", kept)
            yield job.problem((*at, "preferred"), "wish-is-met", message, fix)


def _together_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    names, seen = [group.name for group in job.value.task_groups], dict[str, int]()
    required = job.value.topology.required
    for index, known in enumerate(job.value.topology.together):
        at: Path = ("spec", "topology", "together", index)
        if not (known.within or known.wishes or known.units > 1):
            message = f"the groups {_names(known)} are to keep together, and no level says in what"
            yield job.problem(at, "together-in-no-level", message, "Add within, or preferred, or units.")
        if len(known.groups) == 1:
            message = f"{known.groups[0]} is the only group that is to keep together here"
            fix = "Name the others, or write topology.required or replicaStep of the group."
            yield job.problem((*at, "groups"), "together-alone", message, fix)
        yield from unit_problems(job, at, known)
        yield from _wish_problems(job, at, known.preferred, known.within)
        if required and known.within and not is_wider(required, known.within):
            message = (
                f"the groups {_names(known)} are kept in one {known.within}, where the whole job is in one {required}"
            )
            fix = _closer_or_delete("the entry", required)
            yield job.problem((*at, "within"), "together-anyway", message, fix)
        yield from _name_problems(job, (*at, "groups"), known.groups, names, seen)
        seen |= {name: index for name in known.groups if name not in seen}


def _name_problems(
    job: Declaration[JobSpec], at: Path, groups: Sequence[str], names: Sequence[str], seen: dict[str, int]
) -> Iterator[Problem]:
    for place, name in enumerate(groups):
        if name not in names:
            fix = did_you_mean(name, names) or "Name a task group of this job."
            yield job.problem((*at, place), "unknown-task-group", f"there is no task group {name}", fix)
        elif name in seen:
            message = f"the task group {name} is in entry {seen[name] + 1} of together, too"
            yield job.problem(
                (*at, place), "together-twice", message, "Name each group once, or make one entry of both."
            )


def _names(known: Together) -> str:
    return " and ".join(known.groups)


def _closer_or_delete(what: str, level: Level) -> str:
    """What to do where something asks for no more than what is so anyway. Nothing is closer than an island."""
    closer = LEVELS[: LEVELS.index(level)]
    return f"Delete {what}, or write {' or '.join(closer)}." if closer else f"Delete {what}."
