"""Each holder judged by itself for each taker, as DESIGN states it: what the arrays of `solver.rules.lawful` are held against."""

from __future__ import annotations

from solver.rules.victims import STANDINGS, Holder, Law, Means, Standing, Taker, Victim, protected
from solver.world.parts import owner_of
from solver.world.workload import QueueName


def victims_of(law: Law, taker: Taker) -> list[Victim]:
    """Everybody who may have to leave for a taker, from the least harm."""
    judged = [victim_for(law, holder, taker) for holder in law.holders]
    return sorted(filter(None, judged), key=lambda victim: victim.harm)


def victim_for(law: Law, holder: Holder, taker: Taker) -> Victim | None:
    """What evicting a holder for a taker would be; None: it may not be."""
    means = None if holder.job.leaves == "not" else _means(law, holder, taker)
    # Nobody's guarantee waits for a turn: what protects holds however long the taker has waited.
    if means is None or ((means == "turn" or not taker.overdue) and _protected(law, holder)):
        return None
    rank: float = law.ranks[holder.job.spec.queue, holder.base_priority]
    if means == "turn":
        rank = -law.precedence.places[owner_of(holder.job.name)].cost
    return Victim(holder, means, rank, law.lost_gpu_s(holder))


def standing_towards(law: Law, holder: Holder, queue: QueueName) -> Standing:
    """The most protected standing on the lines between the holder's queue and the first that both queues share."""
    shared = set(law.tree.path(queue))
    between = [name for name in law.tree.path(holder.job.spec.queue) if name not in shared]
    found = {law.standing_on(holder, (name,)) for name in between}
    return max(found, key=STANDINGS.index, default="borrowed")


def _means(law: Law, holder: Holder, taker: Taker) -> Means | None:
    if holder.job.spec.queue == taker.job.spec.queue:
        if not holder.priority_class.preemptible:
            return None
        if holder.base_priority < taker.base_priority:
            return "preempt"
        return "turn" if law.precedence.yields(owner_of(holder.job.name), taker.job.name) else None
    if not holder.evictable:
        return None
    standing = standing_towards(law, holder, taker.job.spec.queue)
    if standing == "borrowed":
        return "reclaim"
    return "straddle" if standing == "straddles" and holder.priority_class.preemptible else None


def _protected(law: Law, holder: Holder) -> bool:
    return protected(holder.job, holder.priority_class.protection, law.now)
