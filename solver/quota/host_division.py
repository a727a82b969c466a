"""CPU and memory are divided among jobs without GPUs: guarantees first, then by weight what is idle beside that.

As GPUs are (quota/fairshare): of what jobs with GPUs leave of nodes that are there, guarantees first, as far as there is demand;
the rest by weight among siblings that want more, at each level of the tree; in whole cores, and in parts of 1,000 bytes. Only where
some queue says anything of CPU or memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import Job, QueueName
from solver.policy.host_share import Resource, resource_of
from solver.policy.policy import Policy, Queue
from solver.policy.tree import QueueTree
from solver.quota.allocation_table import AllocationTable
from solver.quota.dominance import HostUse, beside_wanted
from solver.quota.entitlement import ServedOrder, Shares
from solver.quota.fairshare import Claimant, divide
from solver.quota.host_dues import UNIT, HostDues, Level
from solver.quota.host_guarantees import RESOURCES, HeldAlone, HostGuarantees
from solver.quota.host_shares import sum_of, tasks_with_shapes
from solver.quota.options import Option
from solver.quota.users import HostLine
from solver.quota.victims import gangs_of

Waiting = Iterable[tuple[Job, Sequence[Option]]]


def with_host_dues(
    shares: Shares, snapshot: Snapshot, policy: Policy, waiting: Waiting, kept: RoundCache | None = None
) -> Shares:
    """The shares, with what jobs without GPUs are due. `waiting`: those that could start one day."""
    tree = shares.tree
    if not tree.divides_host:
        return shares
    allocations = AllocationTable.of(gangs_of(snapshot, policy, kept=kept), tree, kept)
    found = host_guarantees_of(snapshot, allocations, tree)
    division = _Division(shares, found.guarantees, _kept(tree))
    left = dict(zip(RESOURCES, _there(snapshot), strict=True))
    for held, has_gpus in _held(snapshot):
        division.count(division.used, () if has_gpus else (held,))
        for resource, amount in zip(RESOURCES, held.beside if has_gpus else (), strict=False):
            left[resource] -= amount
    alone = ((job, options) for job, options in waiting if options and not any(options[0].charge.values()))
    division.count(division.wanted, (HeldAlone(job.spec.queue, beside_wanted(job.spec)) for job, _ in alone))
    for resource in RESOURCES:
        division.add_up(resource)
        division.share_out(resource, max(0, left[resource]))
    dues = HostDues(
        *(found.guarantees, division.used, division.fair, division.wanted, frozenset(division.short)),
        *(division.kept, left),
        common=found.common,
        at_most=division.used if tree.shares_host else {},
    )
    return replace(shares, host=dues.added_up())


def _kept(tree: QueueTree) -> dict[HostLine, int]:
    """What queues do not lend of their guarantees."""
    return {
        HostLine(queue.name, resource_of(entry)): int(entry.guaranteed - entry.lendable)
        for queue in tree.by_name.values()
        for entry in queue.host_quota
        if entry.guaranteed is not None and entry.lendable is not None and entry.guaranteed > entry.lendable
    }


def _there(snapshot: Snapshot) -> HostUse:
    """CPU and memory of all nodes that are there, cordoned or not."""
    ready = [node for node in snapshot.nodes if node.ready]
    return HostUse(int(sum(node.cpu for node in ready)), int(sum(node.memory for node in ready)))


def host_use_by_line(snapshot: Snapshot, tree: QueueTree) -> Counter[HostLine]:
    """What jobs are charged of both, with GPUs and without; nothing where no queue says anything of either."""
    found = Counter[HostLine]()
    for held, _ in _held(snapshot) if tree.divides_host else ():
        for queue in tree.path(held.queue):
            for resource, amount in zip(RESOURCES, held.beside, strict=True):
                found[HostLine(queue, resource)] += amount
    return found


def _held(snapshot: Snapshot) -> Iterator[tuple[HeldAlone, bool]]:
    """What each job is charged of both, and whether it has GPUs."""
    for job, tasks in charged(snapshot):
        if tasks:
            shapes = {group.name: group.shape for group in job.spec.task_groups}
            beside = sum_of(shapes[task.group] for task in tasks if task.group in shapes)
            yield HeldAlone(job.spec.queue, beside), any(task.gpus for task in tasks)


@dataclass(slots=True)
class _Division:
    """Mutable. `demand`: what a queue would hold if it had all that it wants, but no more than its max; `claims`: the same, or what
    it does not lend: that is divided to it first, wanted or not.
    """

    shares: Shares
    guarantees: HostGuarantees
    kept: Mapping[HostLine, int]
    used: Counter[HostLine] = field(default_factory=Counter)
    wanted: Counter[HostLine] = field(default_factory=Counter)
    demand: dict[HostLine, int] = field(default_factory=dict)
    claims: dict[HostLine, int] = field(default_factory=dict)
    fair: dict[HostLine, int] = field(default_factory=dict)
    short: set[Level] = field(default_factory=set)

    def count(self, into: Counter[HostLine], held: Iterable[HeldAlone]) -> None:
        """Add up what jobs of queues have, by every line on their paths."""
        for one in held:
            for queue in self.shares.tree.path(one.queue):
                for resource, amount in zip(RESOURCES, one.beside, strict=True):
                    into[HostLine(queue, resource)] += amount

    def add_up(self, resource: Resource) -> None:
        """The demand of every queue, from the leaves up."""
        for queue in self.shares.tree.children.get(None, ()):
            self._demand_of(queue, resource)

    def _demand_of(self, queue: Queue, resource: Resource) -> int:
        line, below = HostLine(queue.name, resource), self.shares.tree.children.get(queue.name, ())
        own = sum(self._demand_of(child, resource) for child in below) if below else self.used[line] + self.wanted[line]
        self.demand[line] = min(own, self.shares.users.host_max.get(line, own))
        claims = sum(self.claims[HostLine(child.name, resource)] for child in below)
        self.claims[line] = max(self.demand[line], claims, self.kept.get(line, 0))
        return self.demand[line]

    def share_out(self, resource: Resource, amount: int, above: QueueName | None = None) -> None:
        """Divide what there is among the queues below one, and what each gets among those below it."""
        queues = self.shares.tree.children.get(above, ())
        claimants = {
            queue.name: Claimant(
                self.guarantees.guaranteed.get(HostLine(queue.name, resource), 0),
                self.claims[HostLine(queue.name, resource)],
                queue.weight,
                self.used[HostLine(queue.name, resource)],
                self.shares.served.get(queue.name, ServedOrder()),
            )
            for queue in queues
        }
        given = divide(amount, claimants)
        if any(given[name] + UNIT <= self.demand[HostLine(name, resource)] for name in claimants):
            self.short.add((above, resource))
        for queue in queues:
            line = HostLine(queue.name, resource)
            self.fair[line] = min(given[queue.name], self.demand[line])
            self.share_out(resource, given[queue.name], queue.name)


class HostInside(NamedTuple):
    """Of running jobs without GPUs, by number, those that lie `inside` what is guaranteed of CPU and memory; and of the others
    those inside what queues share, each with the highest of these. What that leaves of `guarantees`, and of what is in `common`.
    """

    inside: frozenset[int]
    shared: Mapping[int, QueueName]
    guarantees: HostGuarantees
    common: HostGuarantees


def host_guarantees_of(snapshot: Snapshot, allocations: AllocationTable, tree: QueueTree) -> HostInside:
    """Which running jobs without GPUs lie inside what is guaranteed of CPU and memory, and what is left of that."""
    guarantees = HostGuarantees.of(tree)
    if not guarantees.guaranteed:
        return HostInside(frozenset(), {}, guarantees, guarantees.common)
    alone = [n for n in range(len(allocations.holders)) if not allocations.leave[allocations.base[n]]]
    # Those that begin, or were promised something, keep it.
    known, keep = set(allocations.of_gang), list[HeldAlone]()
    for job, tasks in charged(snapshot):
        if job.name not in known and tasks and not any(task.gpus for task in tasks):
            shapes = {group.name: group.shape for group in job.spec.task_groups}
            beside = sum_of(shapes[task.group] for task in tasks if task.group in shapes)
            keep.append(HeldAlone(job.spec.queue, beside))

    def place(number: int) -> tuple[bool, int, int, str, int]:
        holder = allocations.holders[number]
        known = holder.priority_class
        started = holder.job.started_at or 0
        return known.preemptible, -known.value, started, allocations.holders[allocations.base[number]].job.name, number

    alone.sort(key=place)
    jobs = [allocations.holders[number].job for number in alone]
    held = [HeldAlone(job.spec.queue, sum_of(shape for _, shape in tasks_with_shapes(job))) for job in jobs]
    stays, left = guarantees.beside_more(keep).those_inside(held)
    inside = frozenset(number for number, stay in zip(alone, stays, strict=True) if stay)
    common = guarantees.common.beside_more([*keep, *(one for one, stay in zip(held, stays, strict=True) if stay)])
    claiming = [(n, one) for n, one in zip(alone, held, strict=True) if n not in inside and guarantees.sharing(one)]
    stays, common = common.those_inside([one for _, one in claiming])
    shared = {
        number: min((line.queue for line, _ in guarantees.sharing(one)), key=lambda name: len(tree.path(name)))
        for (number, one), stay in zip(claiming, stays, strict=True)
        if stay
    }
    return HostInside(inside, shared, left, common)
