"""A drawn-up tree of queues made one that can be kept: sums and ceilings agree, weights are whole. Says each change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from reconciler.importers.draft import HOST_RESOURCES, PolicyDraft, QueueDraft, QuotaDraft

WEIGHT_MAX: Final = 10_000
_MOST: Final = {"cpu": Fraction(1_000_000), "memory": Fraction(10**18)}
"""What a document can say of them; of GPUs a million."""
_GPUS_MAX: Final = Fraction(1_000_000)
_SUMMED: Final = ("guaranteed", "extra", "borrowing")
_MILLI: Final = 1000
_NOTHING: Final = Fraction(0)


def settle(draft: PolicyDraft) -> None:
    """Let every guarantee be within those above it and below its ceiling; what had to change is remarked at its queue."""
    draft.close()
    for parent in [None, *draft.queues]:
        _settle_weights(draft, draft.children(parent))
    for resource in [*draft.gpu_types(), *HOST_RESOURCES]:
        for root in draft.children(None):
            _round(draft, root, resource)
            _sum_up(draft, root, resource)
            if resource not in HOST_RESOURCES:
                _keep_below(draft, root, resource, None)
            _settle_entry(draft, root, resource)


def amount_text(resource: str, amount: Fraction) -> str:
    """An amount in words: `8 H100`, `4 cores of CPU`, `64 GiB of memory`."""
    if resource == "memory":
        return f"{float(amount / 2**30):g} GiB of memory"
    return f"{float(amount):g} {'cores of CPU' if resource == 'cpu' else resource}"


def _round(draft: PolicyDraft, queue: QueueDraft, resource: str) -> None:
    """To what documents can say: GPUs and cores to a thousandth, memory to a byte, rounded down."""
    unit, most = 1 if resource == "memory" else _MILLI, _MOST.get(resource, _GPUS_MAX)
    # Numbers that stand for no end there must not add up to more than a document can say.
    share = most / len(draft.queues)
    entry = queue.quota.get(resource)
    for field in ("guaranteed", "lendable", "max", "per_user", "extra", "borrowing"):
        value = getattr(entry, field, None)
        if entry is not None and value is not None:
            within = min(share if field in _SUMMED else most, max(_NOTHING, value))
            setattr(entry, field, Fraction(math.floor(within * unit), unit))
    for child in draft.children(queue.name):
        _round(draft, child, resource)


def _sum_up(draft: PolicyDraft, queue: QueueDraft, resource: str) -> Fraction:
    """What the queue is guaranteed, or those below it where it says nothing; a stated guarantee is raised to what they have."""
    below = sum((_sum_up(draft, child, resource) for child in draft.children(queue.name)), _NOTHING)
    entry = queue.quota.get(resource)
    if entry is None:
        return below
    if entry.extra is not None:
        entry.guaranteed, entry.extra = below + entry.extra, None
    if entry.guaranteed is not None and entry.guaranteed < below:
        said = amount_text(resource, entry.guaranteed)
        draft.remark(queue, f"guaranteed {said} is raised to the {amount_text(resource, below)} of the queues below it")
        entry.guaranteed = below
    if entry.borrowing is not None:
        entry.max, entry.borrowing = (entry.guaranteed or _NOTHING) + entry.borrowing, None
        entry.max = min(entry.max, _MOST.get(resource, _GPUS_MAX))
    return below if entry.guaranteed is None else entry.guaranteed


def _keep_below(draft: PolicyDraft, queue: QueueDraft, resource: str, ceiling: Fraction | None) -> None:
    """No max above that of a queue above, and no guarantees above a max: they are cut in proportion."""
    entry = queue.quota.get(resource)
    if entry is not None and entry.max is not None and ceiling is not None and entry.max > ceiling:
        said, most = amount_text(resource, entry.max), amount_text(resource, ceiling)
        draft.remark(queue, f"max {said} is lowered to the {most} of a queue above it")
        entry.max = ceiling
    lowest = entry.max if entry is not None and entry.max is not None else ceiling
    if lowest is not None and _promised(draft, queue, resource) > lowest:
        _cut(draft, queue, resource, lowest)
    for child in draft.children(queue.name):
        _keep_below(draft, child, resource, lowest)


def _promised(draft: PolicyDraft, queue: QueueDraft, resource: str) -> Fraction:
    entry = queue.quota.get(resource)
    if entry is not None and entry.guaranteed is not None:
        return entry.guaranteed
    return sum((_promised(draft, child, resource) for child in draft.children(queue.name)), _NOTHING)


def _cut(draft: PolicyDraft, queue: QueueDraft, resource: str, most: Fraction) -> None:
    """Lower what a queue and those below it are guaranteed to so much together."""
    entry = queue.quota.get(resource)
    if entry is not None and entry.guaranteed is not None and entry.guaranteed > most:
        said, kept = amount_text(resource, entry.guaranteed), amount_text(resource, most)
        draft.remark(queue, f"guaranteed {said} is cut to {kept}: a max of it or of a queue above it allows no more")
        entry.guaranteed = most
    children = draft.children(queue.name)
    parts = {child.name: _promised(draft, child, resource) for child in children}
    total = sum(parts.values(), _NOTHING)
    if total > most:
        for child in children:
            _cut(draft, child, resource, Fraction(math.floor(parts[child.name] * most / total * _MILLI), _MILLI))


def _settle_entry(draft: PolicyDraft, queue: QueueDraft, resource: str) -> None:
    """Within one entry: a max of CPU or memory below the guarantee is raised, and lendable is a part of the guarantee."""
    for each in _below(draft, queue):
        entry = each.quota.get(resource)
        if entry is not None:
            _settle_parts(draft, each, resource, entry)


def _settle_parts(draft: PolicyDraft, queue: QueueDraft, resource: str, entry: QuotaDraft) -> None:
    if entry.guaranteed is not None and entry.max is not None and entry.max < entry.guaranteed:
        said = amount_text(resource, entry.max)
        draft.remark(queue, f"max {said} is raised to guaranteed: the queues below it have so much")
        entry.max = entry.guaranteed
    if entry.lendable is not None and entry.lendable >= (entry.guaranteed or _NOTHING):
        entry.lendable = None
    if entry.per_user is not None and entry.max is not None and entry.per_user >= entry.max:
        entry.per_user = None


def _below(draft: PolicyDraft, queue: QueueDraft) -> Iterator[QueueDraft]:
    yield queue
    for child in draft.children(queue.name):
        yield from _below(draft, child)


def _settle_weights(draft: PolicyDraft, siblings: list[QueueDraft]) -> None:
    """Whole numbers from 1 to 10,000 in the same proportion, as near as these can be."""
    weights = [queue.weight for queue in siblings if queue.weight is not None]
    if not weights:
        return
    scale = Fraction(math.lcm(*(weight.denominator for weight in weights)))
    # A queue that states none has the weight 1, which is scaled with the others.
    everyone = [Fraction(1) if queue.weight is None else queue.weight for queue in siblings]
    scale /= math.gcd(*(int(weight * scale) for weight in everyone)) or 1
    if max(everyone) * scale > WEIGHT_MAX:
        scale = WEIGHT_MAX / max(everyone)
    for queue, weight in zip(siblings, everyone, strict=True):
        whole = max(1, round(weight * scale))
        if queue.weight is not None and abs(whole - weight * scale) > weight * scale / 100:
            draft.remark(queue, f"weight {float(weight):g} is rounded: it is {whole} beside its siblings'")
        queue.weight = Fraction(whole) if whole != 1 else None
