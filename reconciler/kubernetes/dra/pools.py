"""Pools of devices, put together from the slices that drivers publish, and which of them a node can use.

A pool counts once all slices of its newest generation are there; one that contradicts itself does not count, with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from reconciler.kubernetes.dra.expressions import DeviceTraits, look_of, qualified_name
from reconciler.kubernetes.dra.wire import (
    Attribute,
    Consumption,
    DeviceTaint,
    ResourceSlice,
    SliceSpec,
    WireDevice,
)
from reconciler.kubernetes.objects.amounts import amount
from reconciler.kubernetes.objects.selectors import meets
from reconciler.kubernetes.objects.wire import Amount, KubeNode, NodeSelector

Number = int | Fraction


class DeviceId(NamedTuple):
    """What tells a device from all others of the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


class CounterId(NamedTuple):
    """One counter of one counter set of a pool."""

    driver: str
    pool: str
    counter_set: str
    counter: str


class NodeReach(NamedTuple):
    """The nodes that can use a device. `name` "", `selector` None and not `everywhere`: none of them."""

    name: str = ""
    selector: NodeSelector | None = None
    everywhere: bool = False

    def includes(self, node: KubeNode) -> bool:
        """Whether that node can."""
        if self.name:
            return self.name == node.metadata.name
        if self.selector is not None:
            return any(meets(term, node) for term in self.selector.node_selector_terms)
        return self.everywhere


class Device(NamedTuple):
    """A device. `attributes`: by their full names. `consumes`: what of which counters it uses while it is allocated.

    `is_shared`: several claims may have parts of it, which Quorate does not give.
    """

    id: DeviceId
    look: DeviceTraits
    attributes: dict[str, Attribute]
    consumes: tuple[tuple[CounterId, Number], ...]
    capacity: dict[str, Fraction]
    where: NodeReach
    taints: tuple[DeviceTaint, ...]
    binds_to_node: bool
    conditions: tuple[str, ...]
    failure_conditions: tuple[str, ...]
    is_shared: bool


class Pool(NamedTuple):
    """A pool with all its devices. `places`: nodes that may use it. `problem`: why nothing can be allocated; "" where it can."""

    driver: str
    name: str
    devices: tuple[Device, ...]
    counters: dict[CounterId, Number]
    places: tuple[NodeReach, ...]
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


class _InvalidPoolError(ValueError):
    """What a driver publishes contradicts itself."""


def pools_of(slices: Iterable[ResourceSlice]) -> tuple[Pool, ...]:
    """All pools, sorted by driver and name."""
    by_pool: dict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
    for part in slices:
        by_pool[part.spec.driver, part.spec.pool.name].append(part)
    return tuple(pool_of(*key, by_pool[key]) for key in sorted(by_pool))


def pool_of(driver: str, name: str, slices: Sequence[ResourceSlice]) -> Pool:
    """The pool that these slices, all of them its own, make."""
    newest = max(part.spec.pool.generation for part in slices)
    parts = sorted(
        (part for part in slices if part.spec.pool.generation == newest), key=lambda part: part.metadata.name
    )
    wanted = {part.spec.pool.resource_slice_count for part in parts}
    devices: tuple[Device, ...] = ()
    counters: dict[CounterId, Number] = {}
    problem = ""
    try:
        counters = _counters(parts)
        devices = tuple(_device(part.spec, device) for part in parts for device in part.spec.devices)
        _check(devices, counters)
    except ValueError as wrong:
        problem = f"contradicts itself: {wrong}"
    if wanted != {len(parts)}:
        problem = f"is being updated: {len(parts)} of {max(wanted)} slices of generation {newest} are there"
    return Pool(driver, name, () if problem else devices, counters, _places(parts), problem)


@lru_cache(maxsize=4096)
def exact(written: Amount) -> Number:
    """A quantity, as an int where it is one: those are many times faster. Raises ValueError."""
    number = amount(written)
    return number.numerator if number.denominator == 1 else number


def _counters(parts: Sequence[ResourceSlice]) -> dict[CounterId, Number]:
    found: dict[CounterId, Number] = {}
    names: set[str] = set()
    for part in parts:
        for counter_set in part.spec.shared_counters:
            if counter_set.name in names:
                raise _InvalidPoolError(f"two counter sets are called {counter_set.name}")
            names.add(counter_set.name)
            for name, counter in counter_set.counters.items():
                counter_id = CounterId(part.spec.driver, part.spec.pool.name, counter_set.name, name)
                found[counter_id] = exact(counter.value)
    return found


def _places(parts: Sequence[ResourceSlice]) -> tuple[NodeReach, ...]:
    found: list[NodeReach] = []
    for part in parts:
        own = part.spec.per_device_node_selection
        for placed in part.spec.devices if own else (part.spec,) if part.spec.devices else ():
            place = NodeReach(placed.node_name, placed.node_selector, placed.all_nodes)
            if place not in found[-1:]:
                found.append(place)
    return tuple(found)


def _device(spec: SliceSpec, device: WireDevice) -> Device:
    own = spec.per_device_node_selection
    placed = device if own else spec
    return Device(
        id=DeviceId(spec.driver, spec.pool.name, device.name),
        look=look_of(spec.driver, device.attributes, device.capacity),
        attributes={_full(name, spec.driver): value for name, value in device.attributes.items()},
        consumes=tuple(_consumed(spec, device.consumes_counters)),
        capacity={_full(name, spec.driver): amount(there.value) for name, there in device.capacity.items()},
        where=NodeReach(placed.node_name, placed.node_selector, placed.all_nodes),
        taints=device.taints,
        binds_to_node=device.binds_to_node,
        conditions=device.binding_conditions,
        failure_conditions=device.binding_failure_conditions,
        is_shared=device.allow_multiple_allocations,
    )


@lru_cache(maxsize=4096)
def _full(name: str, driver: str) -> str:
    return "/".join(qualified_name(name, driver))


def _consumed(spec: SliceSpec, consumptions: Iterable[Consumption]) -> Iterable[tuple[CounterId, Number]]:
    total: dict[CounterId, Number] = {}
    for consumption in consumptions:
        for name, counter in consumption.counters.items():
            used = CounterId(spec.driver, spec.pool.name, consumption.counter_set, name)
            total[used] = total.get(used, 0) + exact(counter.value)
    return sorted(total.items())


def _check(devices: Sequence[Device], counters: dict[CounterId, Number]) -> None:
    names: set[str] = set()
    for device in devices:
        if device.id.device in names:
            raise _InvalidPoolError(f"two devices are called {device.id.device}")
        names.add(device.id.device)
        for used, _ in device.consumes:
            if used not in counters:
                raise _InvalidPoolError(
                    f"{device.id.device} uses {used.counter_set}/{used.counter}, which is not there"
                )
