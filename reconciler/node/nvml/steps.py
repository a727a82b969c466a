"""What to do next so that a GPU has exactly the instances it is to have: one deed at a time, from what the driver says there is.

Nothing is remembered between two deeds. The process after a crash asks again and finishes; done twice is done once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from reconciler.node.nvml.driver import Instance, InstancePlacement, Mig


@dataclass(frozen=True, slots=True)
class SetMode:
    """Switch MIG mode on or off."""

    on: bool


@dataclass(frozen=True, slots=True)
class Create:
    """Make a GPU instance there."""

    place: InstancePlacement


@dataclass(frozen=True, slots=True)
class CreateCompute:
    """Make the compute instance that has all of a GPU instance."""

    instance: int


@dataclass(frozen=True, slots=True)
class DestroyCompute:
    """Destroy one compute instance of a GPU instance."""

    instance: int
    compute: int


@dataclass(frozen=True, slots=True)
class Destroy:
    """Destroy a GPU instance."""

    instance: int


Step = SetMode | Create | CreateCompute | DestroyCompute | Destroy


def next_step(mig: Mig, wanted: Collection[InstancePlacement] | None) -> Step | None:
    """The next deed; None: it is as it is to be. `wanted` None: whole, and not in MIG mode.

    What goes leaves before anything is made, since what is made needs its room.
    """
    for instance in mig.instances:
        stays = wanted is not None and instance.place in wanted
        if instance.compute and not (stays and instance.uuid):
            return DestroyCompute(instance.id, instance.compute[0])
        if not stays:
            return Destroy(instance.id)
    if mig.enabled != (wanted is not None):
        return SetMode(wanted is not None)
    return _next_made(mig.instances, wanted or ())


def _next_made(instances: Collection[Instance], wanted: Collection[InstancePlacement]) -> Step | None:
    there = {instance.place: instance for instance in instances}
    for place in sorted(wanted, key=lambda place: place.start):
        if place not in there:
            return Create(place)
        if not there[place].compute:
            return CreateCompute(there[place].id)
    return None


def instances_to_remove(mig: Mig, wanted: Collection[InstancePlacement] | None) -> tuple[Instance, ...]:
    """The instances that are not among the wanted ones."""
    return tuple(instance for instance in mig.instances if wanted is None or instance.place not in wanted)
