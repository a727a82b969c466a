"""A node's GPUs as slots, as the device plugin counts them: the whole ones, then instances on as few GPUs as they fit. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from reconciler.kubernetes.mig.configs import Layout
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.instances import laid_out
from reconciler.kubernetes.objects.wire import KubeNode
from solver.model.cluster import MigInstance
from solver.model.mig import mig_model

Slots = tuple[tuple[MigInstance, ...] | None, ...]
"""What each slot has; None: it is a whole GPU."""
WHOLE = ""
"""Among profiles, a whole GPU."""


def counts_of(layouts: Iterable[Layout]) -> Counter[str]:
    """How many instances of each profile, and whole GPUs, these layouts come to."""
    found: Counter[str] = Counter()
    for layout in layouts:
        found.update((WHOLE,) if layout is None else layout)
    return found


def layouts_of(slots: Slots) -> tuple[Layout, ...]:
    """The same without places."""
    return tuple(None if slot is None else tuple(sorted(one.profile for one in slot)) for slot in slots)


def slots_of(model: str, layouts: Iterable[Layout]) -> Slots:
    """How a node whose GPUs have these layouts will be seen. Raises UnknownProfileError."""
    counts = counts_of(layouts)
    whole = counts.pop(WHOLE, 0)
    return (*(None,) * whole, *laid_out(mig_model(model), counts))


def changed_between(now: Slots, then: Slots) -> int:
    """How many GPUs are others then, whatever their places."""
    before, after = Counter(layouts_of(now)), Counter(layouts_of(then))
    return max(len(now), len(then)) - (before & after).total()


def offered_slots(node: KubeNode) -> Mapping[str, int]:
    """How many of each resource of the device plugin a node has, those of which it has any."""
    ours = ((name, said) for name, said in node.status.capacity.items() if _is_gpu(name))
    return {name: int(said) for name, said in ours if str(said).isdecimal() and int(said)}


def offers_of(slots: Sequence[tuple[MigInstance, ...] | None]) -> Mapping[str, int]:
    """What a node with these slots has then."""
    return {resource_of(profile): count for profile, count in counts_of(layouts_of(tuple(slots))).items()}


def resource_of(profile: str) -> str:
    """The resource that counts it."""
    return names.MIG_PREFIX + profile.replace("+", ".") if profile else names.GPU


def _is_gpu(name: str) -> bool:
    return name == names.GPU or name.startswith(names.MIG_PREFIX)
