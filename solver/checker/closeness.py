"""Judges whether the tasks of a bound gang keep together and apart as its groups ask, by plain counts over their nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from solver.model.cluster import Level, Node, NodeName, SpreadLevel
from solver.model.workload import Job, Spread, TaskGroup, TaskPlacement
from solver.plan.violation import Violation


def topology_violations(
    job: Job, placed: Sequence[TaskPlacement], nodes: Mapping[NodeName, Node]
) -> Iterable[Violation]:
    """S5: tasks outside the one domain that the gang requires, bundles torn apart, domains with more tasks than a spread allows."""
    level = job.spec.topology.required
    domains = {nodes[task.node].domain(level) for task in placed} if level else set()
    if len(domains) > 1 and len(placed) > 1:
        yield Violation("S5", job.name, f"is spread over {len(domains)} {level}s: {', '.join(sorted(domains))}")
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
    job: Job, group: TaskGroup, tasks: Iterable[TaskPlacement], nodes: Mapping[NodeName, Node]
) -> Iterable[Violation]:
    asked = group.topology.group or job.spec.topology.group
    level: Level | None = group.topology.required or (asked.within if asked else None)
    if level is None:
        return
    size = asked.tasks if asked and not group.topology.required else group.replicas
    bundles: dict[int, set[str]] = defaultdict(set)
    for task in tasks:
        bundles[task.index // size].add(nodes[task.node].domain(level))
    for number, domains in sorted(bundles.items()):
        if len(domains) > 1:
            said = f"bundle {number} of group {group.name} is spread over {', '.join(sorted(domains))}"
            yield Violation("S5", job.name, said)


def _domain(node: Node, level: SpreadLevel) -> str:
    return node.name if level == "node" else node.domain(level)
