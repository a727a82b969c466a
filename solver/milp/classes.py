"""Jobs that are alike are one class with a count: the program decides how many of a class start, not which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from solver.capacity.reserved_view import Against
from solver.model.shape import Shape
from solver.model.workload import Bundled, KeptGroups, QueueName, TopologyRequest
from solver.queueing.demand import StartCandidate, SubLayer
from solver.quota.options import Option

Group = tuple[Shape, int]
"""Tasks of one shape, and how many of them."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """Candidates that are exchangeable up to their place in the queue; `members` in that order.

    `extra`: by how many tasks each group may grow beyond what it has in `groups`. `bundles`: how the tasks of each group have to
    keep together, the largest bundles first. `kept_groups`: groups that have to keep to one domain of a level, by their numbers.
    """

    queue: QueueName
    sub_layer: SubLayer
    band: int
    groups: tuple[Group, ...]
    extra: tuple[int, ...]
    bundles: tuple[Bundled, ...]
    kept_groups: tuple[KeptGroups, ...]
    topology: TopologyRequest
    options: tuple[Option, ...]
    members: tuple[StartCandidate, ...]

    def is_inside_only(self, option: Option) -> bool:
        """Whether it starts this way only inside its guarantee."""
        return self.members[0].is_inside_only(option)

    @property
    def against(self) -> Against:
        """The holders of reservations that hold it back."""
        return self.members[0].against

    @property
    def strict(self) -> bool:
        """Its queue is strict: the members stand together there, with no other job between them."""
        return self.members[0].strict

    @property
    def weight(self) -> float:
        """What one GPU of it counts for."""
        return self.members[0].weight


def classes_of(candidates: Iterable[StartCandidate]) -> tuple[JobClass, ...]:
    """Group candidates that differ in nothing the program sees, in the order of their first member."""
    alike: dict[tuple[int, SubLayer, int, int], list[StartCandidate]] = defaultdict(list)
    stretches: dict[QueueName, tuple[int, int]] = {}
    for candidate in candidates:
        stretch = _stretch(candidate, stretches) if candidate.strict else 0
        alike[candidate.likeness, candidate.sub_layer, candidate.band, stretch].append(candidate)
    return tuple(_class(tuple(members)) for members in alike.values())


def _stretch(candidate: StartCandidate, stretches: dict[QueueName, tuple[int, int]]) -> int:
    """Counts how often a queue's order goes over from one likeness to another: in a strict one, what is between matters."""
    number, likeness = stretches.get(candidate.job.spec.queue, (0, candidate.likeness))
    number += likeness != candidate.likeness
    stretches[candidate.job.spec.queue] = (number, candidate.likeness)
    return number


def _class(members: tuple[StartCandidate, ...]) -> JobClass:
    first, spec = members[0], members[0].job.spec
    groups = tuple((group.shape, group.least) for group in spec.task_groups)
    extra = tuple(group.replicas - group.least for group in spec.task_groups)
    bundles = tuple(spec.kept_in_bundles(group) for group in spec.task_groups)
    topology = spec.effective_topology
    of_class = spec.queue, first.sub_layer, first.band
    return JobClass(*of_class, groups, extra, bundles, spec.kept_groups, topology, first.options, members)
