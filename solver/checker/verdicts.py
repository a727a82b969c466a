"""Judges whether a plan says of every live job what it does with it, and of a gang that starts how far apart it lies.

Part of the checker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from solver.checker.case import JudgedPlan
from solver.checker.closeness import bundles, units
from solver.model.cluster import Level, Node, NodeName
from solver.model.workload import Job, TaskPlacement
from solver.plan.extent import Extent, PartApart
from solver.plan.plan import Bind, Departs, Grow, Moves, Runs, Starts, Yields
from solver.plan.violation import Violation

OfRunning = Runs | Yields | Moves | Departs


def verdict_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every live job has one verdict, and it says what the steps do."""
    jobs, plan = case.jobs, case.plan
    named = Counter([verdict.job for verdict in plan.verdicts])
    wrong = jobs.keys() ^ named.keys() | {name for name, count in named.items() if count != 1}
    for name in sorted(wrong):
        yield Violation("verdicts", name, f"has {named[name]} verdicts; every live job has one")
    starting = {verdict.job for verdict in case.verdicts(Starts)}
    for name in sorted(case.bound ^ starting):
        yield Violation("verdicts", name, "is bound without the verdict `starts`, or the other way round")
    grown = {step.job for step in case.steps(Grow)}
    growing = {verdict.job for verdict in case.verdicts(Runs) if verdict.grows}
    for name in sorted(growing - grown):
        yield Violation("verdicts", name, "is said to grow, and does not")
    for verdict in plan.verdicts:
        job = jobs.get(verdict.job)
        if job and isinstance(verdict, OfRunning) != (job.phase != "pending"):
            yield Violation("verdicts", verdict.job, f"verdict does not suit a job that is {job.phase}")
    yield from _extents(case)


def _extents(case: JudgedPlan) -> Iterable[Violation]:
    """How far apart those lie who start is as the domains of their nodes say."""
    nodes = case.ground.by_name
    said = {verdict.job: verdict.extent for verdict in case.verdicts(Starts)}
    for step in case.steps(Bind):
        if step.job in said:
            job, hosts = case.jobs[step.job], [nodes[task.node] for task in step.tasks]
            found = _counted(job, hosts)
            if found is not None:
                found = msgspec.structs.replace(found, parts=tuple(_parts_apart(job, step.tasks, nodes)))
            if said[step.job] != found:
                yield Violation("verdicts", step.job, f"is said to lie {said[step.job]}; it lies {found}")


def _parts_apart(job: Job, tasks: Sequence[TaskPlacement], nodes: Mapping[NodeName, Node]) -> Iterable[PartApart]:
    """Groups, groups together and bundles that are not in one domain of a level that they prefer."""
    for known in job.spec.topology.together:
        for level, torn in _missed(known.preferred, units(job, known, tasks), nodes).items():
            yield PartApart(known.groups, level, units=torn if known.units > 1 else 0)
    for group in job.spec.task_groups:
        mine = [task for task in tasks if task.group == group.name]
        yield from (PartApart((group.name,), level) for level in _missed(group.topology.preferred, [mine], nodes))
        for bundle in sorted(bundles(job, group), key=lambda known: -known.tasks):
            numbers = {task.index // bundle.tasks for task in mine}
            cut = [[task for task in mine if task.index // bundle.tasks == number] for number in numbers]
            for level, torn in _missed(bundle.preferred, cut, nodes).items():
                whole = bundle.tasks >= group.replicas
                yield PartApart((group.name,), level, 0 if whole else bundle.tasks, 0 if whole else torn)


def _missed(
    preferred: Level | tuple[Level, ...] | None,
    sets: Sequence[Sequence[TaskPlacement]],
    nodes: Mapping[NodeName, Node],
) -> dict[Level, int]:
    """How many of these sets of tasks miss which of these levels, the closest first."""
    wishes = {preferred} if isinstance(preferred, str) else set(preferred or ())
    levels: tuple[Level, ...] = ("island", "rack", "block", "pool")
    torn = {
        level: sum(len({nodes[task.node].domain(level) for task in tasks}) > 1 for tasks in sets)
        for level in levels
        if level in wishes
    }
    return {level: count for level, count in torn.items() if count}


def _counted(job: Job, hosts: Sequence[Node]) -> Extent | None:
    if len(hosts) <= 1:
        return None
    levels: tuple[Level, ...] = ("island", "rack", "block", "pool")
    domains = {level: {host.domain(level) for host in hosts} for level in levels}
    apart = [level for level in levels if len(domains[level]) > 1]
    preferred = job.spec.topology.preferred
    wishes = {preferred} if isinstance(preferred, str) else set(preferred or ())
    wanted = [level for level in levels if level in wishes]
    level = wanted[0] if wanted else apart[-1] if apart else "island"
    within = levels[len(apart)] if len(apart) < len(levels) else None
    domain = hosts[0].domain(within) if within else ""
    missed = tuple(level for level in wanted if level in apart)
    return Extent(level, len(domains[level]), within, domain, missed)
