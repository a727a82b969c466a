"""Which named config gives a node what a plan wants of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from reconciler.kubernetes.mig.configs import Layout, NamedConfig
from reconciler.kubernetes.mig.slots import Slots, changed_between, counts_of, layouts_of, slots_of
from solver.model.mig import mig_model
from solver.model.mig_layout import find_profile, profiles_of, realisations
from solver.policy.division import MigGeometry


class GeometryRequest(NamedTuple):
    """What a plan wants of a node. `gpus`: how many it has; `now` and `target`: its slots, and as the plan has them.

    `needs`: how many instances of each profile, and whole GPUs, are needed there. `current`: the config that its label
    names. `changes_left`: how many GPUs of its pool may still be changed.
    """

    geometry: MigGeometry
    gpus: int
    now: Slots
    target: Slots
    needs: Mapping[str, int]
    current: str
    changes_left: int


class Choice(NamedTuple):
    """A named config, and how the node will be seen; `changed` GPUs of it are others then."""

    changed: int
    away: int
    config: str
    slots: Slots


def choose(configs: Iterable[NamedConfig], wish: GeometryRequest) -> Choice | None:
    """That which changes the fewest GPUs, then that which is nearest to the plan, then the first by name; None: there is none.

    Not the config that the label names already: the MIG manager does nothing about a label that stays as it is.
    """
    return min(_able(configs, wish), key=lambda choice: choice[:3], default=None)


def _able(configs: Iterable[NamedConfig], wish: GeometryRequest) -> Iterator[Choice]:
    wanted = counts_of(layouts_of(wish.target))
    for config in configs:
        layouts = config.layouts(wish.gpus)
        if (
            layouts is None
            or config.name == wish.current
            or not all(_is_allowed(wish.geometry, one) for one in layouts)
        ):
            continue
        given, slots = counts_of(layouts), slots_of(wish.geometry.model, layouts)
        changed = changed_between(wish.now, slots)
        if Counter(wish.needs) <= given and 0 < changed <= wish.changes_left:
            yield Choice(changed, ((given - wanted) + (wanted - given)).total(), config.name, slots)


def _is_allowed(geometry: MigGeometry, layout: Layout) -> bool:
    """A GPU may be whole, or what it can be and the policy lets it."""
    if layout is None:
        return True
    if geometry.mode == "bounded":
        return layout in [profiles_of(known) for known in geometry.layouts]
    known = all(find_profile(mig_model(geometry.model), profile) for profile in layout)
    return bool(layout) and known and bool(realisations(geometry.model, " + ".join(layout)))
