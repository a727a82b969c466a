"""Who may have to give way for takers that are alike, from the least harm up, and what all of them together would leave.

Kept up to date as some are asked to leave for others, so that who can't be served costs little to find out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from solver.freed import FreedNodes, Freeing
from solver.rules.entitlement import Charge
from solver.rules.lawful import Ranked
from solver.rules.victims import Law, Victim
from solver.world.cluster import GpuType
from solver.world.parts import owner_of
from solver.world.workload import JobName, QueueName


def charges_of(victims: Iterable[Victim]) -> dict[QueueName, dict[GpuType, int]]:
    """What is charged less, and to whom, once these have left."""
    gone: dict[QueueName, dict[GpuType, int]] = {}
    for victim in victims:
        holder = victim.holder
        add_charge(gone.setdefault(holder.job.spec.queue, {}), holder.charge, 1)
    return gone


def add_charge(charges: dict[GpuType, int], charge: Charge, sign: int) -> None:
    """Add a charge to others, or take it off."""
    for gpu_type, milli in charge.items():
        charges[gpu_type] = charges.get(gpu_type, 0) + sign * milli


@dataclass(slots=True)
class Givers:
    """`ranked` by name, from the least harm; with what leaves with them, they are charged `charges`, and nodes get back `freed`.

    `divided`: of these types they hold parts of GPUs, of which counting says nothing.
    """

    ranked: dict[JobName, Ranked]
    charges: dict[QueueName, dict[GpuType, int]]
    freed: FreedNodes
    divided: frozenset[GpuType]
    _freeing: Freeing
    _owned: dict[JobName, list[Victim]]
    _gone: int

    @classmethod
    def of(cls, ranked: Sequence[Ranked], law: Law, freeing: Freeing, gone: int) -> Givers:
        """All of these; `gone`: how many had been asked to leave before."""
        leaving = law.with_all_parts([victim for _, victim in ranked])
        owned: dict[JobName, list[Victim]] = defaultdict(list)
        for victim in leaving:
            owned[owner_of(victim.name)].append(victim)
        holders = [victim.holder for victim in leaving]
        freed = FreedNodes([one for holder in holders for one in freeing.of(holder.job) or ()])
        divided = {gpu_type for holder in holders if freeing.of(holder.job) is None for gpu_type in holder.charge}
        by_name = {victim.name: (harm, victim) for harm, victim in ranked}
        return cls(by_name, charges_of(leaving), freed, frozenset(divided), freeing, owned, gone)

    def pass_over(self, gone: Sequence[JobName]) -> None:
        """Those who were asked to leave, in the order in which they were, are not asked again."""
        for name in gone[self._gone :]:
            for victim in self._owned.pop(name, ()):
                self.ranked.pop(victim.name, None)
                add_charge(self.charges[victim.holder.job.spec.queue], victim.holder.charge, -1)
                self.freed.add(self._freeing.of(victim.holder.job) or (), -1)
        self._gone = len(gone)


def in_order(sides: Iterable[Givers], gpu_types: Collection[GpuType]) -> list[Victim]:
    """Those of several sides who hold GPUs of these types, from the least harm up."""
    ranked = sorted(chain.from_iterable(side.ranked.values() for side in sides))
    return [victim for _, victim in ranked if not victim.holder.charge.keys().isdisjoint(gpu_types)]
