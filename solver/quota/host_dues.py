"""What jobs without GPUs are due of CPU and memory: what queues are guaranteed, then by weight what is idle beside that.

What is divided, and how: quota/host_division.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import QueueName
from solver.policy.host_share import Resource
from solver.policy.tree import QueueTree
from solver.quota.dominance import HostUse
from solver.quota.host_guarantees import RESOURCES, HeldAlone, HostGuarantees
from solver.quota.users import HostLine

HostTier = Literal["guarantee", "fair share", "any"]
"""What work without GPUs has to lie inside of to be served."""

UNIT = MILLI_PER_GPU
"""What is divided is given out in multiples of this: whole cores, and parts of 1,000 bytes."""

Level = tuple[QueueName | None, Resource]
"""The queues right below one, None: the roots; and what is divided among them."""


@dataclass(frozen=True, slots=True)
class HostDues:
    """`used`: by line what jobs without GPUs hold, CPU in milli-cores, memory in bytes; `fair`: the fair share of it.

    `wanted`: what those that wait ask for at their full size. `short`: where siblings want more than there is for them. `kept`: of
    guarantees what is not lent; `there`: what jobs with GPUs leave. Nothing is divided where `fair` is empty.
    """

    guarantees: HostGuarantees = field(default_factory=lambda: HostGuarantees(QueueTree({}, {}), {}))
    used: Mapping[HostLine, int] = field(default_factory=dict)
    fair: Mapping[HostLine, int] = field(default_factory=dict)
    wanted: Mapping[HostLine, int] = field(default_factory=dict)
    short: frozenset[Level] = frozenset()
    kept: Mapping[HostLine, int] = field(default_factory=dict)
    there: Mapping[Resource, int] = field(default_factory=dict)

    @property
    def tree(self) -> QueueTree:
        """Whose queues these are."""
        return self.guarantees.tree

    def serves(self, tier: HostTier, held: HeldAlone) -> bool:
        """Whether this much more, of a job without GPUs, is served where what lies inside a tier is."""
        if tier == "any" or not self.fair:
            return True
        return self.guarantees.lies_inside(held) or (tier == "fair share" and self.lies_inside_fair(held))

    def lies_inside_fair(self, held: HeldAlone) -> bool:
        """Whether it would lie inside the fair shares of its queue and of all above it, but for less than is given out at once."""
        path = self.tree.path(held.queue)
        return all(
            amount < UNIT + self.fair.get(HostLine(queue, resource), 0) - self._inside_fair(HostLine(queue, resource))
            for resource, amount in zip(RESOURCES, held.beside, strict=True)
            if amount
            for queue in path
        )

    def _inside_fair(self, line: HostLine) -> int:
        """Of what is used there the part inside fair shares from the holders' queues up: the rest stands in no job's way."""
        below = [HostLine(child.name, line.resource) for child in self.tree.children.get(line.queue, ())]
        inside = sum(map(self._inside_fair, below)) if below else self.used.get(line, 0)
        return min(self.fair.get(line, 0), inside)

    def after(self, more: Iterable[HeldAlone], gone: Iterable[HeldAlone] = ()) -> HostDues:
        """The same once some is held as well, and what was borrowed is not any more."""
        more = tuple(more)
        if not self.fair:
            return self
        used = Counter(self.used)
        for held, sign in (*((one, 1) for one in more), *((one, -1) for one in gone)):
            for line, amount in _lines(self.tree, held):
                used[line] += sign * amount
        return replace(self, used=used, guarantees=self.guarantees.beside_more(self._inside(more)))

    def _inside(self, more: Iterable[HeldAlone]) -> Iterator[HeldAlone]:
        """Of jobs that come those that lie inside guarantees, each beside those before it."""
        guarantees = self.guarantees
        for one in more:
            if guarantees.lies_inside(one):
                guarantees = guarantees.beside_more([one])
                yield one

    def not_lent(self, held: HeldAlone) -> tuple[Resource, ...]:
        """Of what this much more would take that of which too much is kept back for others: as quota/lending has it for GPUs."""
        asked = zip(RESOURCES, held.beside, strict=True) if self.kept else ()
        roots, path = self.tree.children.get(None, ()), self.tree.path(held.queue)

        def weight(line: HostLine, more: int) -> int:
            more = more if line.queue in path else 0
            children = [HostLine(child.name, line.resource) for child in self.tree.children.get(line.queue, ())]
            below = sum(weight(child, more) for child in children) if children else self.used.get(line, 0) + more
            return max(below, self.kept.get(line, 0))

        def together(resource: Resource, more: int) -> int:
            return sum(weight(HostLine(root.name, resource), more) for root in roots)

        return tuple(
            resource
            for resource, amount in asked
            if amount and together(resource, amount) > max(self.there.get(resource, 0), together(resource, 0))
        )

    def above(self, line: HostLine) -> int | None:
        """How much a queue holds above its fair share; None: its siblings have all that they want, so that takes from none."""
        path = self.tree.path(line.queue)
        parent = path[1] if len(path) > 1 else None
        return self.used.get(line, 0) - self.fair.get(line, 0) if (parent, line.resource) in self.short else None

    def above_alone(self, preemptor: QueueName, losses: Sequence[HeldAlone]) -> bool:
        """Whether only queues above their fair shares give, at each level below the first that they share with the preemptor's.

        One loss, the largest, may go beyond what a queue holds above it.
        """
        lost, largest = Counter[HostLine](), Counter[HostLine]()
        for one in losses:
            for line, amount in self.lines_apart(preemptor, one):
                lost[line] += amount
                largest[line] = max(amount, largest[line])
        spare = {line: self.above(line) for line in lost}
        return all(more is None or 0 < more >= lost[line] - largest[line] for line, more in spare.items())

    def lines_apart(self, preemptor: QueueName, held: HeldAlone) -> list[tuple[HostLine, int]]:
        """The lines of a queue that are not on a preemptor's path, and what this counts against each."""
        path = self.tree.path(preemptor)
        return [(line, amount) for line, amount in _lines(self.tree, held) if line.queue not in path]

    def fairer(self, preemptor: QueueName, gain: HostUse, losses: Iterable[HeldAlone]) -> bool:
        """Whether the least served get more when a preemptor gains what others lose, at each level where that changes hands.

        Of what is short there: as quota/fairshare.fairer for GPUs. At least one of the two has to be.
        """
        changes: dict[Level, Counter[QueueName]] = defaultdict(Counter)
        levels, judged = set[QueueName | None](), set[QueueName | None]()
        for loss in losses:
            apart, mine, ancestor = self.tree.parting(loss.queue, preemptor)
            levels.add(ancestor)
            for resource, lost, gained in zip(RESOURCES, loss.beside, gain, strict=True):
                if lost and gained and (ancestor, resource) in self.short:
                    judged.add(ancestor)
                    changes[ancestor, resource][apart] -= lost
                    changes[ancestor, resource][mine] = gained
        return levels == judged and all(
            self._served(level, change) > self._served(level, Counter()) for level, change in changes.items()
        )

    def _served(self, level: Level, change: Mapping[QueueName, int]) -> list[float]:
        """How far the queues of a level have what is fair, the least served first."""
        above, resource = level
        served = list[float]()
        for queue in self.tree.children.get(above, ()):
            line = HostLine(queue.name, resource)
            fair, used = self.fair.get(line, 0), self.used.get(line, 0) + change.get(queue.name, 0)
            served.append(min(used, fair) / fair if fair else 1.0)
        return sorted(served)


def _lines(tree: QueueTree, held: HeldAlone) -> list[tuple[HostLine, int]]:
    asked = [(resource, amount) for resource, amount in zip(RESOURCES, held.beside, strict=True) if amount]
    return [(HostLine(queue, resource), amount) for queue in tree.path(held.queue) for resource, amount in asked]
