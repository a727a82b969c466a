"""Who may be evicted for each taker, from the least harm: what is the same for many takers is found out once.

Whether work of another queue may be taken back depends on the two queues alone, and of these only on how far they stand apart in
the tree; so it is asked per queue and distance, not per taker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from solver.rules.victims import Law, Taker, Victim
from solver.world.workload import QueueName

Ranked = tuple[tuple[object, ...], Victim]
"""A victim behind its harm, which no other one has: lists of such sort without asking for it again."""


@dataclass(slots=True)
class Lawful:
    """The victims that a law allows, by taker."""

    law: Law
    _apart: dict[tuple[QueueName, int, bool], list[Ranked]] = field(default_factory=dict)
    _beside: dict[tuple[QueueName, bool], list[Ranked]] = field(default_factory=dict)

    def victims(self, taker: Taker) -> list[Victim]:
        """Everybody who may have to leave for a taker, from the least harm."""
        branches = self.law.tree.path(taker.job.spec.queue)
        others = (ranked for branch in branches for ranked in self.beside(branch, taker))
        return [victim for _, victim in sorted([*others, *self.of_its_own(taker)])]

    def of_its_own(self, taker: Taker) -> list[Ranked]:
        """Work of the taker's queue, from the least harm."""
        return sorted(self._victims_in(taker.job.spec.queue, taker))

    def beside(self, branch: QueueName, taker: Taker) -> list[Ranked]:
        """Work of other queues, from the least harm: of those below the parent of a branch on the taker's path, but not in it.

        So whoever comes from that branch may have the same; all branches of a path together have all other queues beside them.
        """
        key = (branch, taker.overdue)
        if key not in self._beside:
            path = self.law.tree.path
            above = next(iter(path(branch)[1:]), None)
            found = list[Ranked]()
            for queue in self.law.holders_of_queue:
                if branch not in path(queue) and (above is None or above in path(queue)):
                    apart = len(path(queue)) if above is None else path(queue).index(above)
                    found += self._taken_from(queue, apart, taker)
            self._beside[key] = sorted(found)
        return self._beside[key]

    def _taken_from(self, queue: QueueName, apart: int, taker: Taker) -> list[Ranked]:
        key = (queue, apart, taker.overdue)
        if key not in self._apart:
            self._apart[key] = list(self._victims_in(queue, taker))
        return self._apart[key]

    def _victims_in(self, queue: QueueName, taker: Taker) -> Iterator[Ranked]:
        for holder in self.law.holders_of_queue.get(queue, ()):
            victim = self.law.victim_for(holder, taker)
            if victim is not None:
                yield victim.harm, victim
