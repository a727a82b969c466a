"""Each holder judged by itself for each preemptor, as DESIGN states it: what the arrays of `preemption.lawful` are held against."""

from __future__ import annotations

from solver.model.parts import owner_of
from solver.model.workload import JobName, QueueName
from solver.policy.harm import Means
from solver.policy.tree import QuotaLine
from solver.preemption.eviction_rules import EvictionRules
from solver.quota.entitlement import Shares
from solver.quota.victims import STANDINGS, Holder, PreemptorJob, Standing, Victim, protected


def victims_of(rules: EvictionRules, preemptor: PreemptorJob) -> list[Victim]:
    """Everybody who may have to leave for a preemptor, from the least harm."""
    judged = [victim_for(rules, holder, preemptor) for holder in rules.holders]
    return sorted(filter(None, judged), key=lambda victim: victim.harm)


def victim_for(rules: EvictionRules, holder: Holder, preemptor: PreemptorJob) -> Victim | None:
    """What evicting a holder for a preemptor would be; None: it may not be."""
    means = _means(rules, holder, preemptor)
    # Nobody's guarantee waits for a turn: what protects holds however long the preemptor has waited.
    if means is None or ((means == "turn" or not preemptor.overdue) and _protected(rules, holder)):
        return None
    if holder.job.leaves == "not" and not (holder.job.held_by and preemptor.past_budgets and means != "turn"):
        return None
    rank: float = rules.ranks[holder.job.spec.queue, holder.base_priority]
    if means == "turn":
        rank = -rules.precedence.places[owner_of(holder.job.name)].cost
    return Victim(holder, means, rank, rules.lost_gpu_s(holder))


def standing_towards(rules: EvictionRules, holder: Holder, queue: QueueName) -> Standing:
    """The most protected standing on the lines between the holder's queue and the first that both queues share."""
    shared = set(rules.tree.path(queue))
    between = [name for name in rules.tree.path(holder.job.spec.queue) if name not in shared]
    found = {rules.standing_on(holder, (name,)) for name in between}
    return max(found, key=STANDINGS.index, default="borrowed")


def _means(rules: EvictionRules, holder: Holder, preemptor: PreemptorJob) -> Means | None:
    if holder.job.spec.queue == preemptor.job.spec.queue:
        if not holder.priority_class.preemptible:
            return None
        is_part = owner_of(holder.job.name) != holder.job.name
        if holder.base_priority < preemptor.base_priority or (
            is_part and holder.base_priority == preemptor.base_priority
        ):
            return "preempt"
        return "turn" if rules.precedence.yields(owner_of(holder.job.name), preemptor.job.name) else None
    if not holder.evictable:
        return None
    standing = standing_towards(rules, holder, preemptor.job.spec.queue)
    if standing == "borrowed":
        return "reclaim"
    return "straddle" if standing == "straddles" and holder.priority_class.preemptible else None


def _protected(rules: EvictionRules, holder: Holder) -> bool:
    return protected(holder.job, holder.priority_class.protection, rules.now)


def standing_in_line(rules: EvictionRules, shares: Shares, line: QuotaLine) -> dict[JobName, Standing]:
    """Where everybody who is charged for a line stands in it, one after the other."""
    below: dict[JobName, Standing] = {}
    for child in rules.tree.lines_below(line):
        below |= standing_in_line(rules, shares, child)
    charged = [
        holder
        for holder in rules.holders
        if line.gpu_type in holder.charge and line in rules.tree.lines(holder.job.spec.queue, line.gpu_type)
    ]
    charged.sort(key=lambda holder: (-STANDINGS.index(below.get(holder.job.name, "inside")), *_place_in_line(holder)))
    held, guaranteed, found = 0, shares.guaranteed.get(line, 0), dict[JobName, Standing]()
    for holder in charged:
        milli, preemptible = holder.charge[line.gpu_type], holder.priority_class.preemptible
        inside = held + milli <= guaranteed
        found[holder.job.name] = (
            "inside" if inside else "straddles" if preemptible and held < guaranteed else "borrowed"
        )
        # What may not be preempted but may borrow is borrowed as a whole where it crosses the line.
        held += milli if inside or preemptible else 0
    return found


def _place_in_line(holder: Holder) -> tuple[bool, int, int, str, str]:
    job, known = holder.job, holder.priority_class
    return known.preemptible, -known.value, job.started_at or 0, owner_of(job.name), job.name
