"""Which tasks are much slower than their peers, and so accuse the nodes that they run on. Pure.

Peers are the tasks of one group of one attempt: they do the same work on the same type of GPU. A gang that is slow as a whole
has a slow median, and no straggler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Final, NamedTuple

from reconciler.model.health_policy import StragglerRule
from reconciler.protocols.backend import TaskStatus
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName

NEWS_LEAST: Final = Duration(60_000)
"""Tasks say how fast they are now and then: what one said so long ago counts as what it does now, however short the rule's time."""


class Accusation(NamedTuple):
    """A task of a gang on this node does `rate` steps a second, where half of its peers do `median` or more."""

    node: NodeName
    job: JobName
    task: str
    rate: float
    median: float


def accusations(tasks: Iterable[TaskStatus], rule: StragglerRule, now: Instant) -> Iterator[Accusation]:
    """Every task that is slow now, by what tasks said within the time that matters. A task that says no rate is not judged."""
    groups: defaultdict[tuple[JobName, int, str], list[tuple[float, TaskStatus]]] = defaultdict(list)
    for task in tasks:
        said = task.progress
        if (
            task.state == "running"
            and said is not None
            and said.rate > 0
            and now - said.at <= max(rule.held, NEWS_LEAST)
        ):
            groups[task.job, task.attempt, task.group].append((said.rate, task))
    for peers in groups.values():
        if len(peers) < rule.min_tasks:
            continue
        middle = median(rate for rate, _ in peers)
        for rate, task in peers:
            if rate < rule.below_median * middle:
                yield Accusation(task.node, task.job, f"{task.group}/{task.index}", rate, middle)
