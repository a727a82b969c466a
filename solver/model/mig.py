"""MIG geometry: which sets of placed instances one GPU can have at a time.

An instance takes the memory slices from its start on. A set is valid if these do not overlap, every start is one that
the driver lists, and the media engines are given away at most once. Compute slices need no rule of their own: wherever
memory slices don't overlap, they suffice (checked over every model in tests/solver/model/test_mig.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from solver.model.mig_table import MODELS, MigAttribute, MigModel, MigProfile


class ProfileKey(NamedTuple):
    """What a profile is, on one model. Names are not keys: `1g.10gb` is 1/8 of an A100-80GB and 2/8 of an A100-40GB."""

    model: str
    compute_slices: int
    memory_slices: int
    attributes: tuple[MigAttribute, ...] = ()


class PlacedInstance(NamedTuple):
    """An instance at its start, in memory slices."""

    start: int
    profile: MigProfile

    @property
    def end(self) -> int:
        """The first memory slice after it."""
        return self.start + self.profile.memory_slices


Geometry = tuple[PlacedInstance, ...]
"""The instances of one GPU, sorted by start."""

_MODEL_BY_NAME = {model.name: model for model in MODELS}
_PROFILE_BY_KEY = {
    ProfileKey(model.name, profile.compute_slices, profile.memory_slices, profile.attributes): profile
    for model in MODELS
    for profile in model.profiles
}


def mig_model(name: str) -> MigModel:
    """The model of that name; raises KeyError where MIG does not exist or is not known."""
    return _MODEL_BY_NAME[name]


def mig_profile(key: ProfileKey) -> MigProfile:
    """The profile with that key; raises KeyError."""
    return _PROFILE_BY_KEY[key]


def cost_milli_gpu(model: MigModel, profile: MigProfile) -> int:
    """What an instance costs against a quota: its part of the GPU's memory slices, in thousandths of a GPU."""
    return 1000 * profile.memory_slices // model.memory_slices


def is_valid(model: MigModel, instances: Iterable[PlacedInstance]) -> bool:
    """Whether one GPU of the model can have exactly these instances at a time."""
    end = 0
    engines_given = 0
    for placed in sorted(instances, key=lambda placed: placed.start):
        engines_given += "me" in placed.profile.attributes
        listed = placed.profile in model.profiles and placed.start in placed.profile.starts
        if not listed or placed.start < end or engines_given > 1:
            return False
        end = placed.end
    return True


def geometries(model: MigModel, profiles: Iterable[MigProfile] | None = None) -> Iterator[Geometry]:
    """Every valid set of instances, the empty one too, in a fixed order; of the given profiles, or of all."""
    usable = model.profiles if profiles is None else tuple(profiles)
    starting = [tuple(profile for profile in usable if start in profile.starts) for start in range(model.memory_slices)]
    yield from _extend((), 0, starting)


def maximal_geometries(model: MigModel, profiles: Iterable[MigProfile] | None = None) -> Iterator[Geometry]:
    """The valid sets to which no further instance of the given profiles can be added."""
    usable = model.profiles if profiles is None else tuple(profiles)
    single = [PlacedInstance(start, profile) for profile in usable for start in profile.starts]
    for geometry in geometries(model, usable):
        if not any(is_valid(model, (*geometry, more)) for more in single):
            yield geometry


def _extend(placed: Geometry, start: int, starting: list[tuple[MigProfile, ...]]) -> Iterator[Geometry]:
    """Every completion of a geometry by instances from `start` on; at most as deep as the GPU has slices."""
    if start == len(starting):
        yield placed
        return
    yield from _extend(placed, start + 1, starting)
    engines_given = any("me" in instance.profile.attributes for instance in placed)
    for profile in starting[start]:
        if not (engines_given and "me" in profile.attributes):
            instance = PlacedInstance(start, profile)
            yield from _extend((*placed, instance), instance.end, starting)
