"""Judges what claims have been given by what is written alone: claims, slices, nothing of the search that chose it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from reconciler.kubernetes.dra.wire import (
    Attribute,
    Constraint,
    ResourceClaim,
    ResourceSlice,
    Result,
    WireDevice,
)
from reconciler.kubernetes.objects.amounts import amount

_Name = tuple[str, str, str]
"""Driver, pool and name of a device."""


class ClaimViolation(NamedTuple):
    """A rule that what was given breaks. `code` is a stable slug; `where`: a claim or a device."""

    code: str
    where: str
    message: str


def violations(claims: Iterable[ResourceClaim], slices: Iterable[ResourceSlice]) -> tuple[ClaimViolation, ...]:
    """All that is wrong, sorted. Devices that no slice has any more are judged by their names alone."""
    given = [(claim, result) for claim in claims for result in _results(claim) if not result.admin_access]
    published = tuple(slices)
    devices = {
        (part.spec.driver, part.spec.pool.name, device.name): device
        for part in published
        for device in part.spec.devices
    }
    holders: dict[_Name, list[str]] = defaultdict(list)
    for claim, result in given:
        holders[result.driver, result.pool, result.device].append("/".join(claim.key))
    found = [
        ClaimViolation("device-twice", "/".join(name), f"is given to {', '.join(sorted(names))}")
        for name, names in holders.items()
        if len(names) > 1
    ]
    found += _overdrawn(holders, devices, published)
    for claim in {claim.key: claim for claim, _ in given}.values():
        found += _wrong_numbers(claim)
        found += _broken_constraints(claim, devices)
    return tuple(sorted(set(found)))


def _results(claim: ResourceClaim) -> tuple[Result, ...]:
    return claim.status.allocation.devices.results if claim.status.allocation else ()


def _overdrawn(
    holders: Iterable[_Name], devices: Mapping[_Name, WireDevice], slices: Iterable[ResourceSlice]
) -> Iterator[ClaimViolation]:
    there: dict[tuple[str, ...], Fraction] = {}
    for part in slices:
        for counter_set in part.spec.shared_counters:
            for name, counter in counter_set.counters.items():
                there[part.spec.driver, part.spec.pool.name, counter_set.name, name] = amount(counter.value)
    used: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    for driver, pool, device in holders:
        known = devices.get((driver, pool, device))
        for consumption in known.consumes_counters if known else ():
            for name, counter in consumption.counters.items():
                used[driver, pool, consumption.counter_set, name] += amount(counter.value)
    for key, number in used.items():
        if number > there.get(key, 0):
            yield ClaimViolation("counter-overdrawn", "/".join(key), f"{number} used of {there.get(key, 0)}")


def _wrong_numbers(claim: ResourceClaim) -> Iterator[ClaimViolation]:
    where = "/".join(claim.key)
    numbers: dict[str, int] = defaultdict(int)
    for result in _results(claim):
        numbers[result.request] += 1
    for request in claim.spec.devices.requests:
        named = {request.name: request.exactly} if request.exactly else {}
        named |= {f"{request.name}/{each.name}": each for each in request.first_available}
        chosen = [(name, each) for name, each in named.items() if numbers.pop(name, 0)]
        if len(chosen) != 1:
            yield ClaimViolation("not-one-alternative", where, f"request {request.name} has devices of {len(chosen)}")
        for name, each in chosen:
            number = sum(1 for result in _results(claim) if result.request == name)
            if each is not None and each.allocation_mode == "ExactCount" and number != each.count:
                yield ClaimViolation(
                    "wrong-number", where, f"request {name} has {number} devices instead of {each.count}"
                )
    for name in numbers:
        yield ClaimViolation("unknown-request", where, f"has devices for {name}, which it does not ask for")


def _broken_constraints(claim: ResourceClaim, devices: Mapping[_Name, WireDevice]) -> Iterator[ClaimViolation]:
    for constraint in claim.spec.devices.constraints:
        names = constraint.match_attribute or constraint.distinct_attribute
        values = list(_values(claim, constraint, names, devices))
        wrong = len(set(values)) != len(values) if constraint.distinct_attribute else len(set(values)) > 1
        if None in values or wrong:
            kind = "distinct" if constraint.distinct_attribute else "matching"
            yield ClaimViolation("constraint", "/".join(claim.key), f"{names} is not {kind}: {values}")


def _values(
    claim: ResourceClaim, constraint: Constraint, attribute: str, devices: Mapping[_Name, WireDevice]
) -> Iterator[Attribute | None]:
    for result in _results(claim):
        of_it = (result.request, result.request.split("/")[0])
        device = devices.get((result.driver, result.pool, result.device))
        if device is not None and (not constraint.requests or any(name in constraint.requests for name in of_it)):
            short = attribute.removeprefix(f"{result.driver}/")
            yield device.attributes.get(attribute) or device.attributes.get(short)
