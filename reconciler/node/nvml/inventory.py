"""What GPUs a machine has, for people and for the author of its NodePool: read once, and put together by pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from reconciler.model.gpu_products import type_of_product
from reconciler.node.nvml.driver import BusId, Card, Driver, DriverError, GpuUuid, Mig, OfferedProfile, Vitals, Wiring
from reconciler.node.nvml.profiles import vocabulary_of
from solver.model.cluster import GpuType, MigInstance, Node
from solver.model.document import API_VERSION, Document
from solver.model.quantities import Memory
from solver.plan.reason import count


class MigFound(Document, frozen=True):
    """`profiles`: names of those that the GPU offers and plans know. `unknown`: instances that they don't, as profile id@start."""

    enabled: bool
    pending: bool
    profiles: tuple[str, ...] = ()
    instances: tuple[MigInstance, ...] = ()
    unknown: tuple[str, ...] = ()


class GpuFound(Document, frozen=True):
    """One GPU. `mig` None: it can't be partitioned. `clique`: the NVLink domain beyond its machine that it belongs to, "" none."""

    uuid: GpuUuid
    product: str
    gpu_type: GpuType
    bus: BusId
    memory: Memory
    minor: int | None = None
    mig: MigFound | None = None
    clique: str = ""
    temperature_c: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    uncorrectable_errors: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None


class GpuInventory(Document, frozen=True, omit_defaults=False):
    """A machine's GPUs in the order of its driver. `absent`: why it has none.

    `islands`: which of them are joined by NVLink. `failures`: GPUs that did not answer, and why.
    `differences`: what of it is otherwise than Git has it.
    """

    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["Inventory"] = "Inventory"
    driver: str = ""
    gpus: tuple[GpuFound, ...] = ()
    islands: tuple[tuple[GpuUuid, ...], ...] = ()
    failures: tuple[str, ...] = ()
    absent: str = ""
    differences: tuple[str, ...] = ()


def differences(found: GpuInventory, declared: Node) -> Iterator[str]:
    """How a machine differs from the node that it is by Git, which alone says how many GPUs there are and of which type."""
    if len(found.gpus) != len(declared.gpus):
        yield f"Git declares {count(len(declared.gpus), 'GPU')} for {declared.name}, and {len(found.gpus)} are here"
    others = sorted({gpu.gpu_type for gpu in found.gpus} - {declared.gpu_type})
    if others and declared.gpus:
        yield f"Git declares GPUs of type {declared.gpu_type}, and {', '.join(others)} is here"
    cliques = sorted({gpu.clique for gpu in found.gpus})
    if len(cliques) > 1:
        names = ", ".join(clique or "none" for clique in cliques)
        yield f"its GPUs are in several NVLink domains ({names}), so that it is in no island by them"
    elif declared.island and cliques and cliques[0]:
        yield f"Git declares the island {declared.island}, which counts before the NVLink domain {cliques[0]}"


def read_inventory(driver: Driver) -> GpuInventory:
    """Ask for everything once. Raises DriverError where the driver itself does not answer."""
    found: list[GpuFound] = []
    wirings: dict[BusId, Wiring] = {}
    failures: list[str] = []
    for gpu in driver.gpus():
        try:
            card, wiring = driver.card(gpu), driver.wiring(gpu)
            found.append(_gpu_found(card, driver.vitals(gpu), wiring, driver.mig(gpu), driver.profiles(gpu)))
            wirings[card.bus] = wiring
        except DriverError as error:
            failures.append(str(error))
    name = {gpu.bus: gpu.uuid for gpu in found}
    joined = tuple(tuple(name[bus] for bus in island) for island in islands(wirings))
    return GpuInventory(driver=driver.version(), gpus=tuple(found), islands=joined, failures=tuple(failures))


def islands(wirings: Mapping[BusId, Wiring]) -> tuple[tuple[BusId, ...], ...]:
    """Which GPUs of a machine are joined by NVLink, however many links apart; one that is joined to none is not listed.

    All that are wired to NVSwitches are one island: a machine has one such fabric.
    """
    left = sorted(wirings)
    found: list[tuple[BusId, ...]] = []
    while left:
        island, open_ends = {left[0]}, [left[0]]
        while open_ends:
            here = open_ends.pop()
            new = {bus for bus in left if bus not in island and _joined(here, bus, wirings)}
            island |= new
            open_ends += sorted(new)
        left = [bus for bus in left if bus not in island]
        if len(island) > 1:
            found.append(tuple(sorted(island)))
    return tuple(found)


def _joined(one: BusId, other: BusId, wirings: Mapping[BusId, Wiring]) -> bool:
    a, b = wirings[one], wirings[other]
    return other in a.peers or one in b.peers or (a.switched and b.switched)


def _gpu_found(
    card: Card, vitals: Vitals, wiring: Wiring, mig: Mig | None, offers: Iterable[OfferedProfile]
) -> GpuFound:
    return GpuFound(
        card.uuid,
        card.product,
        type_of_product(card.product),
        card.bus,
        card.memory,
        card.minor,
        _mig_found(card, mig, offers) if mig else None,
        wiring.clique,
        vitals.temperature_c,
        vitals.throttle_reasons,
        vitals.uncorrectable_errors,
        vitals.remap_pending,
        vitals.remap_failed,
    )


def _mig_found(card: Card, mig: Mig, offers: Iterable[OfferedProfile]) -> MigFound:
    words = vocabulary_of(card.product, offers)
    places = [one.place for one in mig.instances]
    unknown = tuple(f"{place.profile}@{place.start}" for place in places if not words.name_of(place))
    return MigFound(mig.enabled, mig.pending, tuple(sorted(words.offered)), tuple(words.usable(mig.instances)), unknown)
