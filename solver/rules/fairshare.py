"""Fair shares: what each queue would hold if idle capacity were divided by weight among those that want it.

Per GPU type, undecayed (DESIGN section 5): guaranteed first, as far as there is demand; then the rest by weight among
siblings that still want more, at each level of the tree. Counted in milli-GPU, but what goes by weight are whole GPUs, and
demand is rounded up to them: a third of a GPU to each of three queues would be of use to none. What one can't use goes to
the others (max-min fairness by water-filling; Bertsekas and Gallager, "Data Networks", section 6.5.2), but for what it does
not lend (rules/lending).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from solver.rules.entitlement import Charge, Headroom, Shares
from solver.rules.guaranteed import by_weight
from solver.rules.options import Option
from solver.rules.tree import Line
from solver.world.cluster import GpuType
from solver.world.quantities import MILLI_PER_GPU, MilliGpu, whole_gpus
from solver.world.workload import Job, QueueName


@dataclass(frozen=True, slots=True)
class Claimant:
    """One of several siblings that divide what their parent has."""

    guaranteed: int
    demand: int
    weight: int


def divide(milli: int, claimants: Mapping[QueueName, Claimant]) -> dict[QueueName, int]:
    """Split milli-GPU among siblings; nobody gets more than it wants, and less than a GPU is left while somebody wants more."""
    shares = {name: min(known.guaranteed, known.demand) for name, known in claimants.items()}
    rest = milli - sum(shares.values())
    while rest >= MILLI_PER_GPU:
        hungry = [name for name in sorted(claimants) if shares[name] < claimants[name].demand]
        parts = by_weight(rest // MILLI_PER_GPU, [claimants[name].weight for name in hungry])
        given = {
            name: min(MilliGpu.gpus(part), claimants[name].demand - shares[name])
            for name, part in zip(hungry, parts, strict=True)
        }
        if not any(given.values()):
            break
        for name, part in given.items():
            shares[name] += part
        rest -= sum(given.values())
    return shares


def with_fair_shares(shares: Shares, capacity: Charge, wanted: Iterable[tuple[QueueName, Charge]]) -> Shares:
    """The shares, with the fair share of every queue: of `capacity`, under what it holds and what `wanted` adds to that."""
    division = _Division(shares)
    for queue, charge in wanted:
        for gpu_type, milli in charge.items():
            division.demand[Line(queue, gpu_type)] += milli
    for gpu_type, milli in sorted(capacity.items()):
        division.add_up(None, gpu_type)
        division.share_out(None, gpu_type, milli)
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
    demand: dict[Line, int] = field(default_factory=lambda: defaultdict(int))
    idle: dict[Line, int] = field(default_factory=dict)
    fair: dict[Line, int] = field(default_factory=dict)

    def add_up(self, parent: QueueName | None, gpu_type: GpuType) -> tuple[int, int]:
        """The demand of every queue below `parent`, from what is wanted at the leaves; returns the sums of demand and idle."""
        total = total_idle = 0
        for queue in self.shares.tree.children.get(parent, ()):
            line = Line(queue.name, gpu_type)
            below, idle_below = self.add_up(queue.name, gpu_type)
            wanted = _whole(self.shares.used.get(line, 0) + self.demand.get(line, 0))
            own = below if queue.name in self.shares.tree.children else wanted
            self.demand[line] = min(own, self.shares.ceiling.get(line, own))
            self.idle[line] = max(idle_below, self.shares.lending.kept.get(line, 0) - self.demand[line])
            total += self.demand[line]
            total_idle += self.idle[line]
        return total, total_idle

    def share_out(self, parent: QueueName | None, gpu_type: GpuType, milli: int) -> None:
        """Divide milli-GPU among the queues below `parent`, and what each gets among those below it."""
        lines = {queue.name: Line(queue.name, gpu_type) for queue in self.shares.tree.children.get(parent, ())}
        claimants = {
            name: Claimant(
                self.shares.guaranteed.get(line, 0),
                self.demand[line] + self.idle[line],
                self.shares.tree.by_name[name].weight,
            )
            for name, line in lines.items()
        }
        for name, part in divide(milli, claimants).items():
            line = lines[name]
            self.fair[line] = max(0, part - self.idle[line])
            below = (Line(child.name, gpu_type) for child in self.shares.tree.children.get(name, ()))
            own_idle = self.idle[line] - sum(self.idle[child] for child in below)
            self.share_out(name, gpu_type, part - own_idle)


def fairer(headroom: Headroom, taker: QueueName, gain: Charge, losses: Iterable[tuple[QueueName, Charge]]) -> bool:
    """Whether the least served get more when `taker` gains what others lose (DESIGN section 5, "Reclaim").

    At the level below each common ancestor the ascending vector of min(use, fair share) / fair share must strictly
    improve, for every GPU type that changes hands there. So work can't be taken back and forth.
    """
    tree = headroom.shares.tree
    changes: dict[tuple[QueueName | None, GpuType], Counter[QueueName]] = defaultdict(Counter)
    for queue, charge in losses:
        apart, mine, ancestor = tree.parting(queue, taker)
        for gpu_type in charge.keys() & gain.keys():
            change = changes[ancestor, gpu_type]
            change[apart] -= charge[gpu_type]
            change[mine] = gain[gpu_type]
    return all(
        _served(headroom, ancestor, gpu_type, change) > _served(headroom, ancestor, gpu_type, Counter())
        for (ancestor, gpu_type), change in changes.items()
    )


def _served(
    headroom: Headroom, ancestor: QueueName | None, gpu_type: GpuType, change: Mapping[QueueName, int]
) -> list[float]:
    """How far the queues below an ancestor have what is fair, the least served first."""
    shares = headroom.shares
    served = []
    for queue in shares.tree.children.get(ancestor, ()):
        line = Line(queue.name, gpu_type)
        fair = shares.fair.get(line, 0)
        use = shares.used.get(line, 0) + headroom.taken.get(line, 0) + change.get(queue.name, 0)
        served.append(min(use, fair) / fair if fair else 1.0)
    return sorted(served)
