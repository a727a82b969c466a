"""Layouts as people write them (`3g.40gb + 2g.20gb + 2x 1g.10gb`), and which model of the MIG table a GPU type is."""

from __future__ import annotations

import re
from collections import Counter
from difflib import get_close_matches
from functools import lru_cache

from solver.model.cluster import GpuType, MigInstance
from solver.model.mig import Geometry, PlacedInstance, geometries, mig_model
from solver.model.mig_table import MODELS, MigModel, MigProfile

_PART = re.compile(r"(?:([1-9])x )?([0-9a-z.]+(?:\+[a-z]+)?)")


def model_of_type(gpu_type: GpuType) -> str:
    """The model that a type's name says it is (`H100-SXM5-80GB` is an `H100-80GB`); "" where it says none, or several."""
    words = set(gpu_type.split("-"))
    named = [model.name for model in MODELS if set(model.name.split("-")) <= words]
    if not named and not any(word.endswith("GB") for word in words):
        named = [model.name for model in MODELS if model.name.split("-")[0] in words]
    return named[0] if len(named) == 1 else ""


def find_profile(model: MigModel, name: str) -> MigProfile | None:
    """The profile that the model calls so. The same name is another profile on another model."""
    return next((profile for profile in model.profiles if profile.name == name), None)


@lru_cache(maxsize=1024)
def profile_on(model_name: str, name: str) -> MigProfile | None:
    """The same, by the name of the model: asked for every instance of a cluster."""
    return find_profile(mig_model(model_name), name)


@lru_cache(maxsize=1024)
def geometry_of(instances: tuple[MigInstance, ...], model_name: str) -> Geometry:
    """A GPU's instances, each once; instances that its model does not have are left out, and no task uses them."""
    known = ((profile_on(model_name, instance.profile), instance.start) for instance in instances)
    there = dict.fromkeys(PlacedInstance(start, profile) for profile, start in known if profile)
    return tuple(sorted(there, key=lambda placed: placed.start))


def near_profiles(model: MigModel, name: str) -> tuple[str, ...]:
    """What an unknown name may have been meant to be."""
    return tuple(get_close_matches(name, [profile.name for profile in model.profiles]))


def profiles_of(layout: str) -> tuple[str, ...]:
    """The profile names of a layout, each as often as it occurs, sorted; raises ValueError where it can't be read."""
    names: list[str] = []
    for part in re.split(r"\s+\+\s+", layout.strip()):
        match = _PART.fullmatch(part)
        if not match:
            raise ValueError(f"expected a layout such as 7x 1g.10gb or 3g.40gb + 2g.20gb, got {part!r}")
        names += [match[2]] * int(match[1] or 1)
    return tuple(sorted(names))


@lru_cache(maxsize=1024)
def realisations(model_name: str, layout: str) -> tuple[Geometry, ...]:
    """Every way to place a layout's instances on one GPU, in a fixed order; () where there is none."""
    names = profiles_of(layout)
    model = mig_model(model_name)
    usable = [profile for profile in model.profiles if profile.name in names]
    wanted = Counter(names)
    return tuple(
        sorted(
            (
                found
                for found in geometries(model, usable)
                if Counter(placed.profile.name for placed in found) == wanted
            ),
            key=lambda found: [(placed.start, placed.profile.profile_id) for placed in found],
        )
    )
