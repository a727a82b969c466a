"""Fair shares: what each queue would hold if idle capacity were divided by weight among those that want it.

Per GPU type, undecayed (DESIGN section 5): guaranteed first, as far as there is demand; then the rest by weight among
siblings that still want more, at each level of the tree. Counted in milli-GPU, but what goes by weight are whole GPUs, and
demand is rounded up to them: a third of a GPU to each of three queues would be of use to none. What one can't use goes to
the others (max-min fairness by water-filling; Bertsekas and Gallager, "Data Networks", section 6.5.2), but for what it does
not lend (quota/lending).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple, TypeVar

from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU, MilliGpu, whole_gpus
from solver.model.workload import Job, QueueName
from solver.policy.tree import QuotaLine
from solver.quota.entitlement import Charge, QuotaHeadroom, ServedOrder, Shares
from solver.quota.options import Option

Name = TypeVar("Name", QueueName, QuotaLine)
"""How siblings are told apart."""


class Claimant(NamedTuple):
    """One of several siblings that divide what their parent has, all in milli-GPU.

    `used`: what it holds; `order`: the queue served longest ago first, then the one whose job was submitted first.
    """

    guaranteed: int
    demand: int
    weight: int
    used: int = 0
    order: ServedOrder = ServedOrder()


def divide(milli: int, claimants: Mapping[Name, Claimant]) -> dict[Name, int]:
    """Split milli-GPU among siblings; nobody gets more than it wants, and less than a GPU is left while somebody wants more.

    Who holds the odd GPU keeps it; then the largest remainder has it, then the queue served longest ago, then the earliest job.
    """
    shares = {name: min(known.guaranteed, known.demand) for name, known in claimants.items()}
    rest = milli - sum(shares.values())
    while rest >= MILLI_PER_GPU:
        hungry = [name for name in claimants if shares[name] < claimants[name].demand]
        gpus, weights = rest // MILLI_PER_GPU, sum(claimants[name].weight for name in hungry)
        if not weights:
            break
        floors = {name: MilliGpu.gpus(gpus * claimants[name].weight // weights) for name in hungry}
        if not any(floors.values()):
            return shares | _odd(shares, claimants, hungry, gpus, weights)
        for name, floor in floors.items():
            given = min(floor, claimants[name].demand - shares[name])
            shares[name] += given
            rest -= given
    return shares


def _odd(
    shares: Mapping[Name, int], claimants: Mapping[Name, Claimant], hungry: Iterable[Name], gpus: int, weights: int
) -> dict[Name, int]:
    """Who gets one of the GPUs that are too few to be divided by weight, with all it has then."""

    def turn(name: Name) -> tuple[bool, int, ServedOrder, Name]:
        known = claimants[name]
        return known.used <= shares[name], -(gpus * known.weight % weights), known.order, name

    return {name: min(shares[name] + MILLI_PER_GPU, claimants[name].demand) for name in sorted(hungry, key=turn)[:gpus]}


def with_fair_shares(shares: Shares, capacity: Charge, wanted: Iterable[tuple[QueueName, Charge]]) -> Shares:
    """The shares, with the fair share of every queue: of `capacity`, under what it holds and what `wanted` adds to that."""
    division = _Division(shares)
    for queue, charge in wanted:
        for gpu_type, milli in charge.items():
            division.demand[QuotaLine(queue, gpu_type)] += milli
    for gpu_type, milli in sorted(capacity.items()):
        division.add_up(gpu_type)
        division.share_out(gpu_type, milli)
    return shares.with_fair(division.fair)


def demand_of(admitted: Iterable[tuple[Job, Sequence[Option]]]) -> Iterator[tuple[QueueName, Charge]]:
    """What admissible pending jobs want. A job that accepts several types counts as demand for each of them."""
    for job, options in admitted:
        most: dict[GpuType, int] = {}
        for option in options:
            for gpu_type, milli in option.wanted.items():
                most[gpu_type] = max(milli, most.get(gpu_type, 0))
        yield job.spec.queue, most


def _whole(milli: int) -> int:
    return MilliGpu.gpus(whole_gpus(milli))


@dataclass(slots=True)
class _Division:
    """The division of all types among all queues. `idle`: what lines do not lend and would not use if all demand were served.

    Idle or not, what a queue does not lend is divided to it first: it lies inside its guarantee.
    """

    shares: Shares
    demand: dict[QuotaLine, int] = field(default_factory=lambda: defaultdict(int))
    idle: dict[QuotaLine, int] = field(default_factory=dict)
    fair: dict[QuotaLine, int] = field(default_factory=dict)

    def add_up(self, gpu_type: GpuType) -> None:
        """The demand of every queue, from what is wanted at the leaves, and what lies idle."""
        shares, demand, idle = self.shares, self.demand, self.idle
        for line, below in shares.tree.upwards(gpu_type):
            if below:
                own, idle_below = sum([demand[child] for child in below]), sum([idle[child] for child in below])
            else:
                own, idle_below = _whole(shares.used.get(line, 0) + demand.get(line, 0)), 0
            demand[line] = min(own, shares.max.get(line, own))
            idle[line] = max(idle_below, shares.lending.kept.get(line, 0) - demand[line])

    def share_out(self, gpu_type: GpuType, milli: int) -> None:
        """Divide milli-GPU among the roots, and what each queue gets among those below it."""
        tree = self.shares.tree
        given = self._divided(milli, tree.roots(gpu_type))
        for line, below in reversed(tree.upwards(gpu_type)):
            self.fair[line] = max(0, given[line] - self.idle[line])
            if below:
                own_idle = self.idle[line] - sum([self.idle[child] for child in below])
                given |= self._divided(given[line] - own_idle, below)

    def _divided(self, milli: int, lines: Iterable[QuotaLine]) -> dict[QuotaLine, int]:
        guaranteed, queues = self.shares.guaranteed, self.shares.tree.by_name
        claimants = {
            line: Claimant(
                guaranteed.get(line, 0),
                self.demand[line] + self.idle[line],
                queues[line.queue].weight,
                self.shares.used.get(line, 0),
                self.shares.served.get(line.queue, ServedOrder()),
            )
            for line in lines
        }
        return divide(milli, claimants)


def fairer(
    headroom: QuotaHeadroom, preemptor: QueueName, gain: Charge, losses: Iterable[tuple[QueueName, Charge]]
) -> bool:
    """Whether the least served get more when `preemptor` gains what others lose (DESIGN section 5, "Reclaim").

    At the level below each common ancestor the ascending vector of min(use, fair share) / fair share must strictly
    improve, for every GPU type that changes hands there. So work can't be taken back and forth.
    """
    tree = headroom.shares.tree
    changes: dict[tuple[QueueName | None, GpuType], Counter[QueueName]] = defaultdict(Counter)
    for queue, charge in losses:
        apart, mine, ancestor = tree.parting(queue, preemptor)
        for gpu_type in charge.keys() & gain.keys():
            change = changes[ancestor, gpu_type]
            change[apart] -= charge[gpu_type]
            change[mine] = gain[gpu_type]
    return all(
        _served(headroom, ancestor, gpu_type, change) > _served(headroom, ancestor, gpu_type, Counter())
        for (ancestor, gpu_type), change in changes.items()
    )


def to_spare(headroom: QuotaHeadroom, preemptor: QueueName, gpu_type: GpuType) -> Iterator[tuple[QueueName, int]]:
    """The queues beside a preemptor's path, each with its loss until it has less of its fair share than the preemptor's branch.

    In milli-GPU. Who takes more from one of them makes the least served worse off, whatever else it takes: see `fairer`.
    """
    tree = headroom.shares.tree
    path = tree.path(preemptor)
    for mine, ancestor in zip(path, (*path[1:], None), strict=True):
        served = _part_of_fair(headroom, mine, gpu_type)
        for queue in tree.children.get(ancestor, ()) if served < 1 else ():
            if queue.name != mine:
                fair = headroom.shares.fair.get(QuotaLine(queue.name, gpu_type), 0)
                yield queue.name, ceil(_use(headroom, queue.name, gpu_type) - served * fair)


def only_above_shares(
    headroom: QuotaHeadroom, preemptor: QueueName, losses: Sequence[tuple[QueueName, Charge]]
) -> bool:
    """Whether only queues above their fair share give, at each level below the first that they share with the preemptor's.

    One loss, the largest, may go beyond what a queue holds above it.
    """
    tree, lost, largest = headroom.shares.tree, Counter[QuotaLine](), Counter[QuotaLine]()
    path = tree.path(preemptor)
    for queue, charge in losses:
        for gpu_type, milli in charge.items():
            for line in tree.lines(queue, gpu_type):
                if line.queue not in path:
                    lost[line] += milli
                    largest[line] = max(milli, largest[line])
    fair = headroom.shares.fair
    above = {line: _use(headroom, *line) - fair.get(line, 0) for line, milli in lost.items() if milli}
    return all(milli > 0 and lost[line] - largest[line] <= milli for line, milli in above.items())


def _served(
    headroom: QuotaHeadroom, ancestor: QueueName | None, gpu_type: GpuType, change: Mapping[QueueName, int]
) -> list[float]:
    """How far the queues below an ancestor have what is fair, the least served first."""
    queues = headroom.shares.tree.children.get(ancestor, ())
    return sorted(_part_of_fair(headroom, queue.name, gpu_type, change.get(queue.name, 0)) for queue in queues)


def _part_of_fair(headroom: QuotaHeadroom, queue: QueueName, gpu_type: GpuType, more: int = 0) -> float:
    fair = headroom.shares.fair.get(QuotaLine(queue, gpu_type), 0)
    return min(_use(headroom, queue, gpu_type) + more, fair) / fair if fair else 1.0


def _use(headroom: QuotaHeadroom, queue: QueueName, gpu_type: GpuType) -> int:
    line = QuotaLine(queue, gpu_type)
    return headroom.shares.used.get(line, 0) + headroom.taken.get(line, 0)
