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
    _of_others: dict[tuple[QueueName, bool], list[Ranked]] = field(default_factory=dict)

    def victims(self, taker: Taker, *, reclaims: bool) -> list[Victim]:
        """Everybody who may have to leave for a taker, from the least harm; `reclaims`: other queues' work as well."""
        queue = taker.job.spec.queue
        own = list(self._victims_in(queue, taker))
        others = self._taken_back(taker) if reclaims else []
        return [victim for _, victim in sorted([*others, *own])]

    def _taken_back(self, taker: Taker) -> list[Ranked]:
        """Of all other queues, sorted."""
        mine = taker.job.spec.queue
        key = (mine, taker.overdue)
        if key not in self._of_others:
            shared = set(self.law.tree.path(mine))
            found = list[Ranked]()
            for queue in self.law.holders_of_queue:
                if queue != mine:
                    apart = sum(name not in shared for name in self.law.tree.path(queue))
                    found += self._taken_from(queue, apart, taker)
            self._of_others[key] = sorted(found)
        return self._of_others[key]

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
