"""MIG resources of a node as GPUs with instances.

The device plugin says how many instances of each profile there are, not on which GPU, and picks the one a pod gets by itself. So
these are slots: the instances laid out on as few GPUs as they fit, the largest first. What counts is right, which chip it is isn't.
"""

from __future__ import annotations

from collections.abc import Mapping

from solver.model.cluster import MigInstance
from solver.model.mig import Geometry, PlacedInstance, is_valid
from solver.model.mig_layout import find_profile
from solver.model.mig_table import MigModel, MigProfile


class UnknownProfileError(ValueError):
    """A node has MIG instances of a profile that is not in the table of its GPU model."""


def laid_out(model: MigModel, counts: Mapping[str, int]) -> tuple[tuple[MigInstance, ...], ...]:
    """The instances of each GPU; raises UnknownProfileError."""
    wanted: list[MigProfile] = []
    for name, count in sorted(counts.items()):
        profile = find_profile(model, name)
        if profile is None:
            raise UnknownProfileError(f"a GPU of model {model.name} has no MIG profile {name}")
        wanted += [profile] * count
    wanted.sort(key=lambda profile: (-profile.memory_slices, -profile.compute_slices, profile.name))
    gpus: list[Geometry] = []
    for profile in wanted:
        number, start = _first_place(model, gpus, profile)
        if number == len(gpus):
            gpus.append(())
        gpus[number] = (*gpus[number], PlacedInstance(start, profile))
    return tuple(
        tuple(MigInstance(placed.profile.name, placed.start) for placed in sorted(gpu, key=lambda placed: placed.start))
        for gpu in gpus
    )


def _first_place(model: MigModel, gpus: list[Geometry], profile: MigProfile) -> tuple[int, int]:
    """The first GPU where the profile fits, and its start there; a further GPU where it fits on none."""
    for number, geometry in enumerate(gpus):
        for start in profile.starts:
            if is_valid(model, (*geometry, PlacedInstance(start, profile))):
                return number, start
    return len(gpus), profile.starts[0]
