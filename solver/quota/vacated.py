"""What limits and shares would allow once others have left: as under `Shares.without`, but worked out on one queue's path alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from solver.model.cluster import GpuType
from solver.model.workload import QueueName
from solver.policy.tree import QueueTree, QuotaLine
from solver.quota.entitlement import Charge, Inside, QuotaHeadroom, Shares
from solver.quota.guarantees import UNBOUNDED

Tier = Literal["entitled", "shared", "fair", "value"]
"""For which demand others may have to leave: inside a guarantee, inside one that a queue shares with those below it, inside a fair
share, or any, by its value.
"""

TIERS: tuple[Tier, ...] = ("entitled", "shared", "fair", "value")
"""In the order in which they are served."""

GUARANTEED: frozenset[Tier] = frozenset({"entitled", "shared"})
"""Those in which nothing may delay demand for ever."""

COUNTED: tuple[Tier, ...] = ("entitled", "fair")
"""Those whose GPUs a round counts in layers of their own; a claim of what is shared counts as far as it is a fair share."""


def tiers_in(tree: QueueTree) -> tuple[Tier, ...]:
    """Those that there are: nothing is claimed in common where no queue shares its guarantee, nor by value where none says so."""
    there = {"shared": tree.shares_any or tree.shares_host, "value": tree.reclaims_by_value}
    return tuple(tier for tier in TIERS if there.get(tier, True))


Leaving = Mapping[QueueName, Charge]
"""What is charged less to queues once some have left."""


class _Unlimited(Mapping[QuotaLine, int]):
    """No line has a limit."""

    def __getitem__(self, line: QuotaLine) -> int:
        return UNBOUNDED

    def __iter__(self) -> Iterator[QuotaLine]:
        return iter(())

    def __len__(self) -> int:
        return 0


_UNLIMITED = _Unlimited()


def limits_of(shares: Shares, tier: Tier) -> Mapping[QuotaLine, int]:
    """By line what a tier's demand lies inside of."""
    limits: dict[Tier, Mapping[QuotaLine, int]] = {
        "entitled": shares.guaranteed,
        "shared": shares.common,
        "fair": shares.fair,
        "value": _UNLIMITED,
    }
    return limits[tier]


def _inside_of(shares: Shares, tier: Tier) -> Mapping[QuotaLine, int]:
    inside: dict[Tier, Mapping[QuotaLine, int]] = {
        "entitled": shares.inside,
        "shared": shares.inside_common,
        "fair": shares.inside_fair,
    }
    return inside.get(tier, {})


def lines_of(headroom: QuotaHeadroom, tier: Tier) -> Inside:
    """What is left of that."""
    if tier == "value":
        return Inside(headroom.shares.tree, lambda _: UNBOUNDED)
    return {"entitled": headroom.entitled, "shared": headroom.common, "fair": headroom.fair}[tier]


def _counted_line(shares: Shares, tier: Tier, queue: QueueName, gpu_type: GpuType) -> QuotaLine:
    """The line by which it is told whether a queue has more than it is due already."""
    line = QuotaLine(queue, gpu_type)
    return (shares.tree.sharing(line) or line) if tier == "shared" else line


def lies_inside(headroom: QuotaHeadroom, tier: Tier, queue: QueueName, charge: Charge, leaving: Charge) -> bool:
    """Whether a charge would lie inside a queue's guarantees, or fair shares, once its own work has left that is charged this."""
    return all(
        milli <= left_inside(headroom, tier, queue, gpu_type, leaving.get(gpu_type, 0))
        for gpu_type, milli in charge.items()
        if milli
    )


def left_inside(headroom: QuotaHeadroom, tier: Tier, queue: QueueName, gpu_type: GpuType, less: int) -> int:
    """Milli-GPU that lie inside a queue's guarantees, or fair shares, once so much of its own work has left."""
    shares, tree = headroom.shares, headroom.shares.tree
    if tier == "value":
        return UNBOUNDED
    if tier == "shared" and tree.sharing(QuotaLine(queue, gpu_type)) is None:
        return 0
    limits, inside, taken = limits_of(shares, tier), _inside_of(shares, tier), lines_of(headroom, tier).taken
    lefts = list[int]()
    for line in tree.lines(queue, gpu_type):
        limit, now = limits.get(line, 0), inside.get(line, 0)
        if less:
            children = tree.lines_below(line)
            held = sum(inside.get(child, 0) for child in children) if children else shares.used.get(line, 0)
            before, now = now, min(limit, held - less)
            less = before - now
        lefts.append(max(0, limit - now - taken.get(line, 0)))
    return min(lefts, default=0)


def holds_more(headroom: QuotaHeadroom, tier: Tier, queue: QueueName, gpu_type: GpuType) -> bool:
    """Whether a queue holds more of a type than its guarantee, or its fair share; or the one above that shares its guarantee."""
    if tier == "value":
        return False
    shares = headroom.shares
    line, limits = _counted_line(shares, tier, queue, gpu_type), limits_of(shares, tier)
    return shares.used.get(line, 0) + headroom.taken.get(line, 0) > limits.get(line, 0)


def allows(headroom: QuotaHeadroom, queue: QueueName, charge: Charge, leaving: Leaving) -> bool:
    """Whether neither a max nor what is kept back for others would forbid the charge."""
    if headroom.allows(queue, charge):
        return True
    if not leaving:
        return False
    if headroom.shares.lending.kept:
        return headroom.under(headroom.shares.without(leaving.items())).allows(queue, charge)
    taken, queue_max, used = headroom.taken, headroom.shares.max, headroom.shares.used
    return all(
        charge[line.gpu_type]
        <= max(0, queue_max[line] - used.get(line, 0) + _gone(headroom, line, leaving)) - taken.get(line, 0)
        for line in headroom.blocking(queue, charge)
    )


def _gone(headroom: QuotaHeadroom, line: QuotaLine, leaving: Leaving) -> int:
    """What those charge less that leave a line's queue, and all below it."""
    below = sum(_gone(headroom, child, leaving) for child in headroom.shares.tree.lines_below(line))
    return below + leaving.get(line.queue, {}).get(line.gpu_type, 0)
