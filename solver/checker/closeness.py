"""Judges whether the tasks of a bound gang keep together and apart as its groups ask, by plain counts over their nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from solver.model.cluster import Node, NodeName, SpreadLevel
from solver.model.workload import Bundle, Job, Spread, TaskGroup, TaskPlacement, Together
from solver.plan.violation import Violation


def topology_violations(
    job: Job, placed: Sequence[TaskPlacement], nodes: Mapping[NodeName, Node]
) -> Iterable[Violation]:
    """S5: tasks outside the one domain that the gang, or some of its groups, require, bundles torn apart, crowded domains."""
    level = job.spec.topology.required
    domains = {nodes[task.node].domain(level) for task in placed} if level else set()
    if len(domains) > 1 and len(placed) > 1:
        yield Violation("S5", job.name, f"is spread over {len(domains)} {level}s: {', '.join(sorted(domains))}")
    yield from _separated(job, placed, nodes)
    yield from _crowded(job, job.spec.topology.spread, placed, nodes)
    for group in job.spec.task_groups:
        tasks = [task for task in placed if task.group == group.name]
        yield from _crowded(job, group.topology.spread, tasks, nodes)
        yield from _torn(job, group, tasks, nodes)


def _crowded(
    job: Job, spread: Spread | None, tasks: Sequence[TaskPlacement], nodes: Mapping[NodeName, Node]
) -> Iterable[Violation]:
    if spread is None:
        return
    for domain, count in sorted(Counter(_domain(nodes[task.node], spread.level) for task in tasks).items()):
        if count > spread.max_per_domain:
            yield Violation(
                "S5", job.name, f"has {count} tasks in {domain}, at most {spread.max_per_domain} are allowed"
            )


def _torn(
    job: Job, group: TaskGroup, tasks: Sequence[TaskPlacement], nodes: Mapping[NodeName, Node]
) -> Iterable[Violation]:
    if group.topology.required:
        domains = {nodes[task.node].domain(group.topology.required) for task in tasks}
        if len(domains) > 1:
            yield Violation("S5", job.name, f"group {group.name} is spread over {', '.join(sorted(domains))}")
    for bundle in bundles(job, group):
        by_number: dict[int, set[str]] = defaultdict(set)
        for task in tasks if bundle.within else ():
            by_number[task.index // bundle.tasks].add(nodes[task.node].domain(bundle.within or "pool"))
        for number, domains in sorted(by_number.items()):
            if len(domains) > 1:
                said = f"bundle {number} of group {group.name} is spread over {', '.join(sorted(domains))}"
                yield Violation("S5", job.name, said)


def bundles(job: Job, group: TaskGroup) -> tuple[Bundle, ...]:
    """The bundles that are written for a group: its own, else those of the job, unless the group says what all its tasks do."""
    said = group.topology.group
    if said is None and group.topology.required is None:
        said = job.spec.topology.group
    return (said,) if isinstance(said, Bundle) else said or ()


def _separated(job: Job, placed: Sequence[TaskPlacement], nodes: Mapping[NodeName, Node]) -> Iterable[Violation]:
    for known in job.spec.topology.together:
        for number, unit in enumerate(units(job, known, placed)) if known.within else ():
            domains = {nodes[task.node].domain(known.within or "pool") for task in unit}
            if len(domains) > 1:
                which = f"unit {number} of " if known.units > 1 else ""
                told = f"{which}the groups {' and '.join(known.groups)} are spread over {', '.join(sorted(domains))}"
                yield Violation("S5", job.name, told)


def units(job: Job, known: Together, tasks: Sequence[TaskPlacement]) -> list[list[TaskPlacement]]:
    """Tasks of groups that keep together, in the order of the units that they are in; all of them, where they are one."""
    found = defaultdict[int, list[TaskPlacement]](list)
    size = {group.name: group.replica_step for group in job.spec.task_groups}
    for task in tasks:
        if task.group in known.groups:
            found[0 if known.units == 1 else task.index // size[task.group]].append(task)
    return [found[number] for number in sorted(found)]


def _domain(node: Node, level: SpreadLevel) -> str:
    return node.name if level == "node" else node.domain(level)
