"""A node's devices as one pod's claims see them: which would do for which request, and which are alike.

Devices that use counters of one set belong together, as the partitions of a GPU do: they are an island. Two islands that are built
alike and are used alike are one case for the search, on one node or on two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, NamedTuple

from reconciler.kubernetes.dra.claim_demand import Alternative, ClaimDemand, selector_refusal
from reconciler.kubernetes.dra.expressions import SelectorError, qualified_name
from reconciler.kubernetes.dra.pools import CounterId, Device, Number, Pool
from reconciler.kubernetes.dra.wire import Attribute, DeviceTaint, DeviceToleration
from reconciler.kubernetes.objects.remarks import Refusal
from reconciler.kubernetes.objects.wire import KubeNode

Fit = Literal["yes", "no", "barred"]
"""Barred: it is what is asked for, and can't be given: tainted, shared, or an expression fails on it."""
Fitting = tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]


class NodeDevices(NamedTuple):
    """What a node can use. `counters`: all there is of each; `problems`: pools that nothing can be allocated of, and why."""

    node: KubeNode
    devices: tuple[Device, ...]
    counters: dict[CounterId, Number]
    problems: tuple[str, ...]


def node_devices(node: KubeNode, pools: Iterable[Pool]) -> NodeDevices:
    """Devices in the order of their pools and slices."""
    devices: list[Device] = []
    counters: dict[CounterId, Number] = {}
    problems: list[str] = []
    for pool in pools:
        if pool.problem and any(place.includes(node) for place in pool.places):
            problems.append(f"pool {pool} {pool.problem}")
        here = [device for device in pool.devices if device.where.includes(node)]
        devices += here
        if here:
            counters |= pool.counters
    return NodeDevices(node, tuple(devices), counters, tuple(problems))


class Island(NamedTuple):
    """Devices that belong together, by their place in the prospect. `kind` is equal for islands that are built alike.

    `uses`: of each device, what it uses of which of the island's `counters`, by their place there.
    """

    kind: int
    devices: tuple[int, ...]
    counters: tuple[CounterId, ...]
    totals: tuple[Number, ...]
    uses: tuple[tuple[tuple[int, Number], ...], ...]


class Prospect(NamedTuple):
    """`fitting`: for each alternative of each request of each claim, the devices that would do. `wrongs`: expressions that failed.

    `values`: of each device the value of each claim's rules' attributes, None where it has none.
    `local`: of each device, for each of these, whether no device of another island has that value.
    """

    devices: tuple[Device, ...]
    islands: tuple[Island, ...]
    home: tuple[tuple[int, int], ...]
    fitting: Fitting
    values: tuple[tuple[Hashable, ...], ...]
    local: tuple[tuple[bool, ...], ...]
    wrongs: tuple[Refusal, ...]
    problems: tuple[str, ...]


def prospect_of(there: NodeDevices, claims: Sequence[ClaimDemand], kinds: dict[Hashable, int]) -> Prospect:
    """What the node has for a pod with these claims, before it is asked what of it is free.

    `kinds`: numbers of islands that are built alike, remembered from call to call.
    """
    wrongs: dict[Refusal, None] = {}
    cases = [(claim, request, each) for claim in claims for request in claim.requests for each in request]
    fits = [tuple(_fits(device, each, wrongs) for _, _, each in cases) for device in there.devices]
    components = _components(there.devices)
    kept = [
        component
        for component in components
        if any("yes" in fits[index] or "barred" in fits[index] for index in component)
    ]
    order = sorted(index for component in kept for index in component)
    place = {index: number for number, index in enumerate(order)}
    devices = tuple(there.devices[index] for index in order)
    does = [fits[index] for index in order]
    groups = [tuple(place[index] for index in component) for component in kept]
    attributes = [rule.attribute for claim in claims for rule in claim.rules]
    values = tuple(tuple(value_of(device, attribute) for attribute in attributes) for device in devices)
    local = _local(values, groups, len(attributes))
    islands = tuple(_island(group, devices, does, values, local, there.counters, kinds) for group in groups)
    return Prospect(
        devices=devices,
        islands=islands,
        home=_homes(islands, len(devices)),
        fitting=_fitting(claims, does),
        values=values,
        local=local,
        wrongs=tuple(wrongs),
        problems=there.problems,
    )


def value_of(device: Device, attribute: str) -> Hashable:
    """An attribute's value, unlike any of another type; None where the device has none."""
    found = device.attributes.get("/".join(qualified_name(attribute, device.id.driver)))
    return _typed(found) if found else None


def is_tolerated(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> bool:
    """Whether a claim may be given a device in spite of this taint; effects that are not known keep no claim away."""
    if taint.effect not in ("NoSchedule", "NoExecute"):
        return True
    return any(_tolerates(each, taint) for each in tolerations)


def _typed(attribute: Attribute) -> Hashable:
    for name in ("string_value", "int_value", "bool_value", "version_value"):
        value = getattr(attribute, name)
        if value is not None:
            return name, value
    return None


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _fits(device: Device, wanted: Alternative, wrongs: dict[Refusal, None]) -> Fit:
    """Whether a device would do. One on which an expression fails would not: what failed is told if nothing else does."""
    for condition in wanted.conditions:
        try:
            if not condition.expression.selects(device.look):
                return "no"
        except SelectorError as wrong:
            wrongs[selector_refusal(f"{condition.place}, device {device.id}", wrong)] = None
            return "barred"
    driver = device.id.driver
    if not all(
        device.capacity.get("/".join(qualified_name(key, driver)), -1) >= least for key, least in wanted.capacity
    ):
        return "no"
    if device.is_shared or not all(is_tolerated(taint, wanted.tolerations) for taint in device.taints):
        return "barred"
    return "yes"


def _components(devices: Sequence[Device]) -> list[tuple[int, ...]]:
    """Devices that use counters of the same sets, directly or through others; one that uses none is alone."""
    leader: dict[Hashable, Hashable] = {}

    def root(of: Hashable) -> Hashable:
        while leader.setdefault(of, of) != of:
            leader[of] = leader[leader[of]]
            of = leader[of]
        return of

    for index, device in enumerate(devices):
        for counter, _ in device.consumes:
            leader[root(counter[:3])] = root(index)
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index in range(len(devices)):
        members[root(index)].append(index)
    return [tuple(group) for group in members.values()]


def _local(
    values: Sequence[tuple[Hashable, ...]], groups: Sequence[tuple[int, ...]], number: int
) -> tuple[tuple[bool, ...], ...]:
    islands: list[dict[Hashable, set[int]]] = [defaultdict(set) for _ in range(number)]
    for name, group in enumerate(groups):
        for index in group:
            for which, value in enumerate(values[index]):
                islands[which][value].add(name)
    return tuple(
        tuple(value is not None and len(islands[which][value]) == 1 for which, value in enumerate(row))
        for row in values
    )


def _island(
    group: tuple[int, ...],
    devices: Sequence[Device],
    does: Sequence[tuple[Fit, ...]],
    values: Sequence[tuple[Hashable, ...]],
    local: Sequence[tuple[bool, ...]],
    there: dict[CounterId, Number],
    kinds: dict[Hashable, int],
) -> Island:
    counters = tuple(dict.fromkeys(counter for index in group for counter, _ in devices[index].consumes))
    spot = {counter: number for number, counter in enumerate(counters)}
    uses = tuple(tuple((spot[counter], used) for counter, used in devices[index].consumes) for index in group)
    shape = []
    met: dict[Hashable, int] = {}
    for index, used in zip(group, uses, strict=True):
        # A value that only this island has is called by its turn there, so that GPUs with different UUIDs are alike.
        called = tuple(
            met.setdefault((which, value), len(met)) if only_here else ("everywhere", value)
            for which, (value, only_here) in enumerate(zip(values[index], local[index], strict=True))
        )
        shape.append((used, does[index], called))
    totals = tuple(there[counter] for counter in counters)
    kind = kinds.setdefault((tuple(shape), totals), len(kinds))
    return Island(kind, group, counters, totals, uses)


def _homes(islands: Sequence[Island], number: int) -> tuple[tuple[int, int], ...]:
    homes = [(0, 0)] * number
    for name, island in enumerate(islands):
        for spot, index in enumerate(island.devices):
            homes[index] = name, spot
    return tuple(homes)


def _fitting(claims: Sequence[ClaimDemand], does: Sequence[tuple[Fit, ...]]) -> Fitting:
    number = sum(len(request) for claim in claims for request in claim.requests)
    columns = iter([[row[column] for row in does] for column in range(number)])
    return tuple(
        tuple(tuple(_candidates(each, next(columns)) for each in request) for request in claim.requests)
        for claim in claims
    )


def _candidates(wanted: Alternative, fits: Sequence[Fit]) -> tuple[int, ...]:
    """A claim for all devices gets none where one of them is barred: fewer would not be all."""
    if wanted.number is None and "barred" in fits:
        return ()
    return tuple(index for index, fit in enumerate(fits) if fit == "yes")
