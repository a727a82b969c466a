"""Jobs that are alike are one class with a count: the program decides how many of a class start, not which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from solver.rules.demand import Candidate, Option, SubLayer
from solver.world.workload import Bundle, QueueName, Shape, TopologyRequest

Group = tuple[Shape, int]
"""Tasks of one shape, and how many of them."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """Candidates that are exchangeable up to their place in the queue; `members` in that order.

    `extra`: by how many tasks each group may grow beyond what it has in `groups`. `bundles`: how its tasks keep together.
    """

    queue: QueueName
    sub_layer: SubLayer
    band: int
    groups: tuple[Group, ...]
    extra: tuple[int, ...]
    bundles: tuple[Bundle | None, ...]
    topology: TopologyRequest
    options: tuple[Option, ...]
    members: tuple[Candidate, ...]

    @property
    def inside_only(self) -> bool:
        """Whether it starts only inside its guarantee."""
        return self.members[0].inside_only

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
    groups = tuple((group.shape, group.least) for group in spec.task_groups)
    extra = tuple(group.replicas - group.least for group in spec.task_groups)
    bundles = tuple(spec.bundle_of(group) for group in spec.task_groups)
    topology = spec.effective_topology
    return JobClass(spec.queue, first.sub_layer, first.band, groups, extra, bundles, topology, first.options, members)
