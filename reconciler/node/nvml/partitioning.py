"""Makes a GPU have exactly the instances that an order names, or says why it has not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from reconciler.node.nvml.driver import (
    Driver,
    DriverError,
    GpuUuid,
    InstancePlacement,
    InUseError,
    Mig,
    Process,
    ResetNeededError,
)
from reconciler.node.nvml.profiles import Vocabulary
from reconciler.node.nvml.steps import (
    Create,
    CreateCompute,
    Destroy,
    DestroyCompute,
    SetMode,
    Step,
    instances_to_remove,
    next_step,
)
from solver.model.cluster import DeviceId, MigInstance
from solver.plan.words import with_article

STEPS_MAX: Final = 64
"""A GPU has at most 7 instances: 14 deeds undo them, 14 make others, and one switches the mode. More: others undo ours."""


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """An order about one GPU, `device`. `instances` None: whole. `used`: devices that tasks use or will."""

    device: DeviceId
    instances: tuple[MigInstance, ...] | None
    used: Collection[DeviceId]

    def takes(self, device: DeviceId) -> bool:
        """A task uses this device, and would lose it."""
        stays = {one.id_on(self.device) for one in self.instances or ()}
        return device == self.device or (device.startswith(f"{self.device}/") and device not in stays)


def partition(driver: Driver, gpu: GpuUuid, words: Vocabulary, wish: PartitionRequest) -> str:
    """Do it; "" or why not, or not all. Raises DriverError where the GPU can't be asked what it has.

    Before the first deed everything is looked at that can be known; what the driver refuses after that leaves the GPU as the last
    deed left it, and the next order begins from there.
    """
    mig = driver.mig(gpu)
    if mig is None:
        return "" if wish.instances is None else "this GPU can't be partitioned"
    wanted = None if wish.instances is None else places_of(words, wish.instances)
    if isinstance(wanted, str):
        return wanted
    refused = objection(mig, wanted, words, wish, driver.processes(gpu))
    return refused or _made(driver, gpu, wanted)


def places_of(words: Vocabulary, instances: Collection[MigInstance]) -> frozenset[InstancePlacement] | str:
    """Where the driver has to make them; or which of them this GPU can't have."""
    if not words.model:
        return "this version knows no MIG profiles of this GPU's model"
    places = {instance: words.place_of(instance) for instance in instances}
    lacking = sorted(f"{one.profile}@{one.start}" for one, place in places.items() if place is None)
    if lacking:
        return f"{with_article(words.model)} of this driver has no instance {', '.join(lacking)}"
    if not words.fits(instances):
        written = sorted(f"{one.profile}@{one.start}" for one in instances)
        return f"these instances can't be on one GPU together: {', '.join(written)}"
    return frozenset(place for place in places.values() if place)


def objection(
    mig: Mig,
    wanted: Collection[InstancePlacement] | None,
    words: Vocabulary,
    wish: PartitionRequest,
    processes: Collection[Process],
) -> str:
    """What speaks against touching it at all; "" if nothing does. Pure."""
    for device in sorted(wish.used):
        if wish.takes(device):
            return f"a task uses {device}"
    leaving = instances_to_remove(mig, wanted)
    for instance in leaving:
        if not words.name_of(instance.place):
            at = f"profile {instance.place.profile} at {instance.place.start}"
            return f"it has an instance of a kind that Quorate does not know ({at}). Destroy it by hand, if it may go"
    ids = {instance.id for instance in leaving}
    switches = mig.enabled != (wanted is not None)
    busy = sorted({each.pid for each in processes if switches or each.instance is None or each.instance in ids})
    if busy and (switches or leaving):
        return f"process {', '.join(map(str, busy))} uses it, and is none of Quorate's"
    return ""


def _made(driver: Driver, gpu: GpuUuid, wanted: Collection[InstancePlacement] | None) -> str:
    for _ in range(STEPS_MAX):
        mig = driver.mig(gpu)
        step = next_step(mig, wanted) if mig else None
        if step is None:
            return ""
        try:
            _take(driver, gpu, step)
        except (InUseError, ResetNeededError) as error:
            return _waits(driver, gpu, step, str(error))
        except DriverError as error:
            return str(error)
    return f"it did not become so in {STEPS_MAX} steps: another program partitions it too"


def _waits(driver: Driver, gpu: GpuUuid, step: Step, why: str) -> str:
    """A mode that could not be switched now is not left to come with some reset later, when it is not expected."""
    if isinstance(step, SetMode):
        try:
            driver.set_mig(gpu, not step.on)
        except DriverError as error:
            return f"{why}; and MIG mode stays pending: {error}"
        return f"{why}. Or switch MIG mode by hand while nothing has it open (`nvidia-smi -mig {int(step.on)}`), then reset it"
    return why


def _take(driver: Driver, gpu: GpuUuid, step: Step) -> None:
    match step:
        case SetMode(on):
            driver.set_mig(gpu, on)
        case Create(place):
            driver.create(gpu, place)
        case CreateCompute(instance):
            driver.create_compute(gpu, instance)
        case DestroyCompute(instance, compute):
            driver.destroy_compute(gpu, instance, compute)
        case Destroy(instance):
            driver.destroy(gpu, instance)
