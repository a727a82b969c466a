"""Instances by the names of the MIG table, and by the profile ids of one GPU.

Names are never taken from the driver, nor ids from the table: a profile is its compute slices, memory slices and media engines. Its
name differs from board to board (GB200 has 1g.23gb or 1g.24gb), and one name is two profiles on two models (1g.10gb is 1/8 of an
A100-80GB and 2/8 of an A100-40GB).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from reconciler.model.gpu_products import type_of_product
from reconciler.node.nvml.driver import Instance, InstancePlacement, OfferedProfile
from solver.model.cluster import MigInstance
from solver.model.mig import PlacedInstance, ProfileKey, is_valid, mig_model, mig_profile
from solver.model.mig_layout import model_of_type


class Vocabulary(NamedTuple):
    """What the instances of one GPU are called: offered profiles by the table's names. Those that it lacks have no name."""

    model: str
    offered: Mapping[str, OfferedProfile]

    def name_of(self, place: InstancePlacement) -> str:
        """The table's name of an instance's profile; "" for one that it lacks."""
        return next((name for name, offered in self.offered.items() if offered.id == place.profile), "")

    def place_of(self, instance: MigInstance) -> InstancePlacement | None:
        """Where the driver has to make it; None: this GPU can't have it there."""
        offered = self.offered.get(instance.profile)
        if offered is None or instance.start not in offered.starts:
            return None
        return InstancePlacement(offered.id, instance.start, offered.memory_slices)

    def fits(self, instances: Iterable[MigInstance]) -> bool:
        """One GPU can have all of them at a time. Raises KeyError for one that it can't have at all."""
        model = mig_model(self.model)
        by_name = {profile.name: profile for profile in model.profiles}
        return is_valid(model, [PlacedInstance(one.start, by_name[one.profile]) for one in instances])

    def usable(self, instances: Iterable[Instance]) -> dict[MigInstance, Instance]:
        """Those that tasks can run in, by what they are called."""
        return {
            MigInstance(name, one.place.start): one
            for one in instances
            if one.uuid and (name := self.name_of(one.place))
        }


def vocabulary_of(product: str, offers: Iterable[OfferedProfile]) -> Vocabulary:
    """By the product's name; where the table lacks its model nothing has a name."""
    model = model_of_type(type_of_product(product))
    if not model:
        return Vocabulary("", {})
    return Vocabulary(model, {name: offered for offered in offers if (name := _table_name(model, offered))})


def _table_name(model: str, offered: OfferedProfile) -> str:
    """The table's name of a profile, where the driver allows exactly the starts that plans are made with, or more."""
    if offered.kind == "other":
        return ""
    key = ProfileKey(
        mig_model(model).name, offered.compute_slices, offered.memory_slices, ("me",) if offered.kind == "me" else ()
    )
    try:
        return mig_profile(key).name
    except KeyError:
        return ""
