"""In small worlds, devices are found exactly where trying everything finds some, and what is found breaks no rule."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from hack.kubernetes.devices import DRIVER
from reconciler.kubernetes.dra.allocator import Grant, NoDevices
from reconciler.kubernetes.dra.check import violations
from reconciler.kubernetes.dra.wire import (
    Allocation,
    ClaimStatus,
    DeviceAllocationResult,
    Exactly,
    ResourceClaim,
    ResourceSlice,
    Result,
    WireDevice,
)
from tests.reconciler.kubernetes.dra.worlds import ANY, a_claim, a_device, a_request, a_slice, exactly, given, written

SETS = ("s", "t")
World = tuple[tuple[ResourceSlice, ...], list[ResourceClaim], list[ResourceClaim]]
"""Slices, claims that have something, claims of one pod that want something."""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    counters = [{"name": name, "counters": {"x": {"value": "3"}, "y": {"value": "2"}}} for name in SETS]
    devices = [draw(_device(number)) for number in range(draw(st.integers(1, 6)))]
    slices = a_slice(*devices, counters=counters)
    others = []
    for name in sorted(draw(st.sets(st.sampled_from([device["name"] for device in devices]), max_size=2))):
        holder = a_claim(a_request(), name=f"has-{name}")
        results = DeviceAllocationResult((Result("r", DRIVER, "n1", name),))
        others.append(ResourceClaim(holder.metadata, holder.spec, ClaimStatus(Allocation(results))))
    claims = [draw(_claim(number)) for number in range(draw(st.integers(1, 2)))]
    return slices, others, claims


@st.composite
def _device(draw: st.DrawFn, number: int) -> dict[str, Any]:
    attributes = {"size": draw(st.integers(0, 2))}
    if draw(st.booleans()):
        attributes["rail"] = draw(st.integers(0, 1))
    device = a_device(f"d{number}", **attributes)
    used = {
        name: {counter: {"value": str(draw(st.integers(1, 2)))} for counter in draw(st.sets(st.sampled_from("xy"), min_size=1))}
        for name in sorted(draw(st.sets(st.sampled_from(SETS), max_size=2)))
    }  # fmt: skip
    if used:
        device["consumesCounters"] = [{"counterSet": name, "counters": counters} for name, counters in used.items()]
    if draw(st.integers(0, 5)) == 0:
        device["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    return device


@st.composite
def _asked(draw: st.DrawFn) -> dict[str, Any]:
    # `size` is read back out of the expression by the brute force below.
    least = draw(st.integers(0, 2))
    mode: dict[str, Any] = (
        {"allocationMode": "All"} if draw(st.integers(0, 4)) == 0 else {"count": draw(st.integers(1, 3))}
    )
    tolerations = [{"operator": "Exists"}] if draw(st.booleans()) else []
    return exactly(ANY, f"device.attributes['{DRIVER}'].size >= {least}", tolerations=tolerations, **mode)


@st.composite
def _claim(draw: st.DrawFn, number: int) -> ResourceClaim:
    requests: list[dict[str, Any]] = []
    for name in ("q", "r")[: draw(st.integers(1, 2))]:
        if draw(st.booleans()):
            requests.append({"name": name, "exactly": draw(_asked())})
        else:
            several = [{"name": each, **draw(_asked())} for each in ("one", "two")]
            requests.append({"name": name, "firstAvailable": several})
    constraints = []
    for kind in draw(st.lists(st.sampled_from(["matchAttribute", "distinctAttribute"]), max_size=2)):
        which = draw(st.sampled_from([[], ["q"], ["q/one"]]))
        constraints.append({"requests": which, kind: f"{DRIVER}/{draw(st.sampled_from(['rail', 'size']))}"})
    return a_claim(*requests, name=f"c{number}", constraints=constraints)


@pytest.mark.parametrize("examples", [20, pytest.param(200, marks=pytest.mark.thorough)])
def test_found_if_and_only_if_there_is_a_way(examples: int) -> None:
    met: set[bool] = set()

    @settings(max_examples=examples, deadline=None)
    @drawn(worlds())
    def agrees(world: World) -> None:
        slices, others, claims = world
        # Others may hold what contradicts: what they do is not the pod's fault.
        before = set(violations(others, slices))
        found = given(claims, slices, others)
        if isinstance(found, Grant):
            done = written(claims, found)
            assert set(violations([*others, *done], slices)) <= before
            assert all(_may_have(result, claim, slices) for claim in done for result in _results(claim))
        met.add(isinstance(found, Grant))
        if not before:
            exists = next(_ways(slices, others, claims), None) is not None
            assert isinstance(found, Grant if exists else NoDevices)

    agrees()
    assert met == {True, False}


def _results(claim: ResourceClaim) -> tuple[Result, ...]:
    assert claim.status.allocation
    return claim.status.allocation.devices.results


def _devices(slices: Sequence[ResourceSlice]) -> list[WireDevice]:
    return [device for part in slices for device in part.spec.devices]


def _ways(
    slices: Sequence[ResourceSlice], others: Sequence[ResourceClaim], claims: Sequence[ResourceClaim]
) -> Iterator[list[ResourceClaim]]:
    """Every combination of alternatives and devices that breaks no rule."""
    requests = [(claim, request) for claim in claims for request in claim.spec.devices.requests]
    for combination in itertools.product(*(list(_sets(request, slices)) for _, request in requests)):
        results: dict[str, list[Result]] = {claim.metadata.name: [] for claim in claims}
        for (claim, _), (name, devices) in zip(requests, combination, strict=True):
            results[claim.metadata.name] += [Result(name, DRIVER, "n1", device.name) for device in devices]
        done = [
            ResourceClaim(
                claim.metadata,
                claim.spec,
                ClaimStatus(Allocation(DeviceAllocationResult(tuple(results[claim.metadata.name])))),
            )
            for claim in claims
        ]
        if not violations([*others, *done], slices):
            yield done


def _sets(request: Any, slices: Sequence[ResourceSlice]) -> Iterator[tuple[str, tuple[WireDevice, ...]]]:
    named = [(request.name, request.exactly)] if request.exactly else []
    named += [(f"{request.name}/{each.name}", each) for each in request.first_available]
    for name, asked in named:
        selected = [device for device in _devices(slices) if _selected(asked, device)]
        may = [device for device in selected if _tolerated(asked, device)]
        if asked.allocation_mode == "All":
            if may and len(may) == len(selected):
                yield name, tuple(may)
        else:
            yield from ((name, some) for some in itertools.combinations(may, asked.count))


def _selected(asked: Exactly, device: WireDevice) -> bool:
    cel = asked.selectors[0].cel
    assert cel
    size = device.attributes["size"].int_value
    assert size is not None
    return size >= int(cel.expression.rpartition(" ")[2])


def _tolerated(asked: Exactly, device: WireDevice) -> bool:
    return not device.taints or bool(asked.tolerations)


def _may_have(result: Result, claim: ResourceClaim, slices: Sequence[ResourceSlice]) -> bool:
    device = next(device for device in _devices(slices) if device.name == result.device)
    for request in claim.spec.devices.requests:
        named = {
            request.name: request.exactly,
            **{f"{request.name}/{one.name}": one for one in request.first_available},
        }
        asked = named.get(result.request)
        if asked is not None:
            return _selected(asked, device) and _tolerated(asked, device)
    return False
