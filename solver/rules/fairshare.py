"""Fair shares: what each queue would hold if idle capacity were divided by weight among those that want it.

Per GPU type, undecayed (DESIGN section 5): guaranteed first, as far as there is demand; then the rest by weight among
siblings that still want more, at each level of the tree. Counted in milli-GPU, but what goes by weight are whole GPUs, and
demand is rounded up to them: a third of a GPU to each of three queues would be of use to none. What one can't use goes to
the others (max-min fairness by water-filling; Bertsekas and Gallager, "Data Networks", section 6.5.2).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from solver.rules.entitlement import Charge, Headroom, Shares, by_weight
from solver.rules.options import Option
from solver.rules.tree import Line
from solver.world.cluster import GpuType
from solver.world.quantities import MILLI_PER_GPU, MilliGpu, whole_gpus
from solver.world.snapshot import Snapshot
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
    demand: dict[Line, int] = defaultdict(int)
    for queue, charge in wanted:
        for gpu_type, milli in charge.items():
            demand[Line(queue, gpu_type)] += milli
    fair: dict[Line, int] = {}
    for gpu_type, milli in sorted(capacity.items()):
        _add_up(shares, None, gpu_type, demand)
        _share_out(shares, None, gpu_type, milli, demand, fair)
    return replace(shares, fair=fair)


def demand_of(admitted: Iterable[tuple[Job, Sequence[Option]]]) -> Iterator[tuple[QueueName, Charge]]:
    """What admissible pending jobs want. A job that accepts several types counts as demand for each of them."""
    for job, options in admitted:
        most: dict[GpuType, int] = {}
        for option in options:
            for gpu_type, milli in option.wanted.items():
                most[gpu_type] = max(milli, most.get(gpu_type, 0))
        yield job.spec.queue, most


def live_gpus(snapshot: Snapshot) -> dict[GpuType, int]:
    """Milli-GPU that can be divided now: the healthy ones of nodes that are there, cordoned or not."""
    capacity: dict[GpuType, int] = defaultdict(int)
    for node in snapshot.nodes:
        if node.ready and node.gpus:
            capacity[node.gpu_type] += MilliGpu.gpus(sum(gpu.healthy for gpu in node.gpus))
    return dict(capacity)


def _add_up(shares: Shares, parent: QueueName | None, gpu_type: GpuType, demand: dict[Line, int]) -> int:
    """Turn what is wanted at the leaves into the demand of every queue below `parent`; returns their sum."""
    total = 0
    for queue in shares.tree.children.get(parent, ()):
        line = Line(queue.name, gpu_type)
        below = _add_up(shares, queue.name, gpu_type, demand)
        own = below if queue.name in shares.tree.children else _whole(shares.used.get(line, 0) + demand.get(line, 0))
        demand[line] = min(own, shares.ceiling.get(line, own))
        total += demand[line]
    return total


def _whole(milli: int) -> int:
    return MilliGpu.gpus(whole_gpus(milli))


def _share_out(
    shares: Shares,
    parent: QueueName | None,
    gpu_type: GpuType,
    milli: int,
    demand: Mapping[Line, int],
    fair: dict[Line, int],
) -> None:
    children = shares.tree.children.get(parent, ())
    claimants = {
        queue.name: Claimant(
            shares.guaranteed.get(Line(queue.name, gpu_type), 0), demand[Line(queue.name, gpu_type)], queue.weight
        )
        for queue in children
    }
    for name, part in divide(milli, claimants).items():
        fair[Line(name, gpu_type)] = part
        _share_out(shares, name, gpu_type, part, demand, fair)


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
