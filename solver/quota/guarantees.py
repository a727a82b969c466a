"""What each queue is guaranteed of each GPU type: as stated, and by weight what its parent has not given to others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.model.workload import QueueName
from solver.policy.policy import Queue
from solver.policy.tree import QueueTree, QuotaLine

NO_MORE: Final[Mapping[QuotaLine, int]] = {}

UNBOUNDED = 2**50
"""Milli-GPU: more than there ever are."""


def guarantees(
    tree: QueueTree, capacity: Mapping[GpuType, int], more: Mapping[QuotaLine, int] = NO_MORE
) -> dict[QuotaLine, int]:
    """Guaranteed milli-GPU of every queue and type. `more`: so much above that for some of them.

    Unset is the weighted share of what the parent has not given to other children; above the roots stands the
    cluster itself, with all it has. An explicit 0 is none. A child never has more than its parent. What is shared out
    by weight are whole GPUs, rounded down: what is left over is nobody's guarantee, so that none depends on a name.
    """
    shares: dict[QuotaLine, int] = {}
    for gpu_type, milli in sorted(capacity.items()):
        _share_out(tree, None, gpu_type, milli, shares, more)
    return shares


def common_limits(tree: QueueTree, guaranteed: Mapping[QuotaLine, int]) -> dict[QuotaLine, int]:
    """What may be claimed on each line of guarantees that queues share with those below them: below such a queue nothing limits it.

    {} where no queue shares any.
    """
    if not tree.shares_any:
        return {}
    return {line: milli if tree.sharing(line) is None else UNBOUNDED for line, milli in guaranteed.items()}


def too_small(
    tree: QueueTree,
    guaranteed: Mapping[QuotaLine, int],
    lines: Sequence[QuotaLine],
    left: Callable[[QuotaLine], int],
    wanted: int,
) -> Sequence[QuotaLine]:
    """The guarantees that have to grow before work of a queue lies inside all of them; () where all have so much left.

    `lines`: those of its path, from the queue up. A guarantee that is less than was stated, or all of its parent's, would not grow
    by itself: only the parent's can. Where it is the cluster itself that is too small, the one that has the least left.
    """
    short = [line for line in lines if left(line) < wanted]
    above = dict(pairwise(lines))

    def would_not_grow(line: QuotaLine) -> bool:
        stated = _stated(tree.by_name[line.queue], line.gpu_type)
        if stated is not None:
            return left(line) + stated - guaranteed.get(line, 0) >= wanted
        parent = above.get(line)
        return parent in short and guaranteed.get(parent, 0) == guaranteed.get(line, 0)

    found = [line for line in short if not would_not_grow(line)]
    return found or [min(short, key=lambda line: (left(line), line))] if short else ()


def _share_out(
    tree: QueueTree,
    parent: QueueName | None,
    gpu_type: GpuType,
    milli: int,
    shares: dict[QuotaLine, int],
    more: Mapping[QuotaLine, int],
) -> None:
    children = tree.children.get(parent, ())
    stated = {queue.name: _stated(queue, gpu_type) for queue in children}
    raised = {queue.name: more.get(QuotaLine(queue.name, gpu_type), 0) for queue in children}
    stated |= {name: value + raised[name] for name, value in stated.items() if value is not None}
    unset = [queue for queue in children if stated[queue.name] is None]
    rest = max(0, milli - sum(value for value in stated.values() if value is not None))
    whole, weights = rest // MILLI_PER_GPU, sum(queue.weight for queue in unset)
    split = {queue.name: MilliGpu.gpus(whole * queue.weight // weights) if weights else 0 for queue in unset}
    for queue in children:
        value = stated[queue.name]
        mine = min(milli, split[queue.name] + raised[queue.name] if value is None else value)
        shares[QuotaLine(queue.name, gpu_type)] = mine
        _share_out(tree, queue.name, gpu_type, mine, shares, more)


def _stated(queue: Queue, gpu_type: GpuType) -> int | None:
    entry = queue.quota_for(gpu_type)
    return entry.guaranteed if entry else None
