"""What jobs without GPUs are due of CPU and memory: what queues are guaranteed, then by weight what is idle beside that.

What is divided, and how: quota/host_division.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import QueueName
from solver.policy.host_share import Resource
from solver.policy.tree import QueueTree
from solver.quota.dominance import HostUse
from solver.quota.host_guarantees import RESOURCES, HeldAlone, HostGuarantees
from solver.quota.users import HostLine

HostTier = Literal["guarantee", "claim", "fair share", "any"]
"""What work without GPUs has to lie inside of to be served; a claim is one of what a queue above shares."""

UNIT = MILLI_PER_GPU
"""What is divided is given out in multiples of this: whole cores, and parts of 1,000 bytes."""

Level = tuple[QueueName | None, Resource]
"""The queues right below one, None: the roots; and what is divided among them."""


@dataclass(frozen=True, slots=True)
class HostDues:
    """`used`: by line what jobs without GPUs hold, CPU in milli-cores, memory in bytes; `fair`: the fair share of it.

    `wanted`: what those that wait ask for at their full size. `short`: where siblings want more than there is for them. `kept`: of
    guarantees what is not lent; `there`: what jobs with GPUs leave. Nothing is divided where `fair` is empty. `inside`: of what is
    used the part inside fair shares from the holders' queues up: the rest stands in no job's way. `weights`: what is used and kept
    back, as quota/lending has it. Both follow from the others (`added_up`). `common`: what may be claimed
    of guarantees that are shared, and what lies inside that; `at_most`: where any are, what is used if all stay.
    """

    guarantees: HostGuarantees = field(default_factory=lambda: HostGuarantees(QueueTree({}, {}), {}))
    used: Mapping[HostLine, int] = field(default_factory=dict)
    fair: Mapping[HostLine, int] = field(default_factory=dict)
    wanted: Mapping[HostLine, int] = field(default_factory=dict)
    short: frozenset[Level] = frozenset()
    kept: Mapping[HostLine, int] = field(default_factory=dict)
    there: Mapping[Resource, int] = field(default_factory=dict)
    inside: Mapping[HostLine, int] = field(default_factory=dict)
    weights: Mapping[HostLine, int] = field(default_factory=dict)
    common: HostGuarantees = field(default_factory=lambda: HostGuarantees(QueueTree({}, {}), {}))
    at_most: Mapping[HostLine, int] = field(default_factory=dict)

    @property
    def tree(self) -> QueueTree:
        """Whose queues these are."""
        return self.guarantees.tree

    def serves(self, tier: HostTier, held: HeldAlone) -> bool:
        """Whether this much more, of a job without GPUs, is served where what lies inside a tier is."""
        if tier == "any" or not self.fair:
            return True
        if self.guarantees.lies_inside(held) or (tier == "claim" and self.claims(held)):
            return True
        return tier == "fair share" and self.lies_inside_fair(held)

    def claims(self, held: HeldAlone) -> bool:
        """Whether it would lie inside what queues above share, beside all that jobs without GPUs below these hold.

        Whoever leaves counts: it may turn out not to be needed, and stay.
        """
        lines = self.guarantees.sharing(held)
        beside = all(self.at_most.get(line, 0) + amount <= self.common.guaranteed[line] for line, amount in lines)
        return bool(lines) and beside and self.common.lies_inside(held)

    def lies_inside_fair(self, held: HeldAlone) -> bool:
        """Whether it would lie inside the fair shares of its queue and of all above it, but for less than is given out at once."""
        path = self.tree.path(held.queue)
        return all(
            amount < UNIT + self.fair.get(HostLine(queue, resource), 0) - self.inside.get(HostLine(queue, resource), 0)
            for resource, amount in zip(RESOURCES, held.beside, strict=True)
            if amount
            for queue in path
        )

    def after(self, more: Iterable[HeldAlone], gone: Iterable[HeldAlone] = ()) -> HostDues:
        """The same once some is held as well, and what was borrowed is not any more."""
        more = tuple(more)
        if not self.fair:
            return self
        used, inside, weights = Counter(self.used), dict(self.inside), dict(self.weights)
        for held, sign in (*((one, 1) for one in more), *((one, -1) for one in gone)):
            for line, amount in _lines(self.tree, held):
                used[line] += sign * amount
                self._add_up(line, used, inside, weights)
        guarantees, common = self._inside(more)
        changed = replace(self, used=used, inside=inside, weights=weights, guarantees=guarantees, common=common)
        if not self.tree.shares_host:
            return changed
        at_most = Counter(self.at_most)
        for held in more:
            at_most.update(dict(_lines(self.tree, held)))
        return replace(changed, at_most=at_most)

    def added_up(self) -> HostDues:
        """The same, with what follows of the others."""
        inside, weights = dict[HostLine, int](), dict[HostLine, int]()
        for queue in sorted(self.tree.by_name, key=lambda name: -len(self.tree.path(name))):
            for resource in RESOURCES:
                self._add_up(HostLine(queue, resource), self.used, inside, weights)
        return replace(self, inside=inside, weights=weights)

    def _add_up(
        self, line: HostLine, used: Mapping[HostLine, int], inside: dict[HostLine, int], weights: dict[HostLine, int]
    ) -> None:
        """What lies inside on a line, and what it weighs, once that is known of those below it."""
        below = [HostLine(child.name, line.resource) for child in self.tree.children.get(line.queue, ())]
        own = used.get(line, 0)
        inside[line] = min(self.fair.get(line, 0), sum([inside[child] for child in below]) if below else own)
        weights[line] = max(self.kept.get(line, 0), sum([weights[child] for child in below]) if below else own)

    def _inside(self, more: Iterable[HeldAlone]) -> tuple[HostGuarantees, HostGuarantees]:
        """What is left of guarantees, and of what is shared, once jobs have come: those count that lie inside."""
        guarantees, common = self.guarantees, self.common
        for one in more:
            is_inside = guarantees.lies_inside(one)
            if is_inside:
                guarantees = guarantees.beside_more([one])
            if is_inside or (guarantees.sharing(one) and common.lies_inside(one)):
                common = common.beside_more([one])
        return guarantees, common

    def not_lent(self, held: HeldAlone) -> tuple[Resource, ...]:
        """Of what this much more would take that of which too much is kept back for others: as quota/lending has it for GPUs."""
        asked = zip(RESOURCES, held.beside, strict=True) if self.kept else ()
        roots = self.tree.children.get(None, ())

        def exceeds(resource: Resource, more: int) -> bool:
            for queue in self.tree.path(held.queue):
                line, before = HostLine(queue, resource), self.weights.get(HostLine(queue, resource), 0)
                below = [HostLine(child.name, resource) for child in self.tree.children.get(queue, ())]
                now = sum([self.weights.get(child, 0) for child in below]) if below else self.used.get(line, 0)
                more = max(self.kept.get(line, 0), now + more) - before
            total = sum(self.weights.get(HostLine(root.name, resource), 0) for root in roots)
            return more > 0 and total + more > self.there.get(resource, 0)

        return tuple(resource for resource, amount in asked if amount and exceeds(resource, amount))

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
