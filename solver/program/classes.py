"""Jobs that are alike are one class with a count: the program decides how many of a class start, not which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from solver.rules.demand import Candidate, Option, SubLayer
from solver.world.workload import QueueName, Shape, TopologyRequest

Group = tuple[Shape, int]
"""Tasks of one shape, and how many of them."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """Candidates that are exchangeable up to their place in the queue; `members` in that order."""

    queue: QueueName
    sub_layer: SubLayer
    band: int
    groups: tuple[Group, ...]
    topology: TopologyRequest
    options: tuple[Option, ...]
    members: tuple[Candidate, ...]

    @property
    def weight(self) -> float:
        """What one GPU of it counts for."""
        return self.members[0].weight


def classes_of(candidates: Iterable[Candidate]) -> tuple[JobClass, ...]:
    """Group candidates that differ in nothing the program sees, in the order of their first member."""
    alike: dict[tuple[int, SubLayer, int], list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        alike[candidate.likeness, candidate.sub_layer, candidate.band].append(candidate)
    return tuple(_class(tuple(members)) for members in alike.values())


def _class(members: tuple[Candidate, ...]) -> JobClass:
    first, spec = members[0], members[0].job.spec
    groups = tuple((group.shape, group.replicas) for group in spec.task_groups)
    return JobClass(spec.queue, first.sub_layer, first.band, groups, spec.effective_topology, first.options, members)
