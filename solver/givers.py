"""Who may have to give way for takers that are alike, from the least harm up, and what all of them together would leave.

Kept up to date as some are asked to leave for others, so that who can't be served costs little to find out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from solver.freed import FreedNodes, Freeing
from solver.rules.entitlement import Charge
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
    """`victims` by name, from the least harm; with what leaves with them, they are charged `charges`.

    `freed` None: some hold parts of GPUs, of which counting says nothing.
    """

    victims: dict[JobName, Victim]
    charges: dict[QueueName, dict[GpuType, int]]
    freed: FreedNodes | None
    _freeing: Freeing
    _owned: dict[JobName, list[Victim]]
    _gone: int

    @classmethod
    def of(cls, victims: Sequence[Victim], law: Law, freeing: Freeing, gone: int) -> Givers:
        """All of these; `gone`: how many had been asked to leave before."""
        leaving = law.with_all_parts(victims)
        owned: dict[JobName, list[Victim]] = defaultdict(list)
        for victim in leaving:
            owned[owner_of(victim.name)].append(victim)
        of_each = [freeing.of(victim.holder.job) for victim in leaving]
        known = [each for each in of_each if each is not None]
        freed = FreedNodes([one for each in known for one in each]) if len(known) == len(of_each) else None
        return cls({victim.name: victim for victim in victims}, charges_of(leaving), freed, freeing, owned, gone)

    def pass_over(self, gone: Sequence[JobName]) -> None:
        """Those who were asked to leave, in the order in which they were, are not asked again."""
        for name in gone[self._gone :]:
            for victim in self._owned.pop(name, ()):
                self.victims.pop(victim.name, None)
                add_charge(self.charges[victim.holder.job.spec.queue], victim.holder.charge, -1)
                if self.freed is not None:
                    self.freed.add(self._freeing.of(victim.holder.job) or (), -1)
        self._gone = len(gone)

    def in_order(self) -> list[Victim]:
        """From the least harm up."""
        return list(self.victims.values())
