"""The checker finds each rule broken, one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from hack.kubernetes.devices import DRIVER
from reconciler.kubernetes.dra.check import violations
from reconciler.kubernetes.dra.wire import Allocation, ClaimStatus, DeviceAllocationResult, ResourceClaim, Result
from tests.reconciler.kubernetes.dra.worlds import a_claim, a_device, a_request, a_slice, exactly


def _using(name: str, number: str, rail: int) -> dict[str, Any]:
    used = [{"counterSet": "s", "counters": {"x": {"value": number}}}]
    return {**a_device(name, rail=rail), "consumesCounters": used}


SLICES = a_slice(
    _using("a", "2", 0), _using("b", "1", 1), _using("c", "1", 0), a_device("free"),
    counters=[{"name": "s", "counters": {"x": {"value": "2"}}}],
)  # fmt: skip
RAIL = f"{DRIVER}/rail"


def _has(claim: ResourceClaim, *devices: str, request: str = "r") -> ResourceClaim:
    results = tuple(Result(request, DRIVER, "n1", device) for device in devices)
    return ResourceClaim(claim.metadata, claim.spec, ClaimStatus(Allocation(DeviceAllocationResult(results))))


ONE, OTHER = a_claim(a_request()), a_claim(a_request(), name="d")
PAIR = a_claim(a_request(count=2))
CHOICE = a_claim({"name": "r", "firstAvailable": [{"name": "x", **exactly()}, {"name": "y", **exactly()}]})


@pytest.mark.parametrize(
    ("claims", "codes"),
    [
        ([_has(ONE, "a")], []),
        ([_has(ONE, "b"), _has(OTHER, "c")], []),
        ([_has(ONE, "b"), _has(OTHER, "b")], ["device-twice"]),
        ([_has(PAIR, "free", "free")], ["device-twice"]),
        ([_has(ONE, "a"), _has(OTHER, "b")], ["counter-overdrawn"]),
        ([_has(ONE, "b", "c")], ["wrong-number"]),
        ([_has(ONE, "b", request="other")], ["not-one-alternative", "unknown-request"]),
        ([_has(CHOICE, "b", request="r/x")], []),
        ([_has(CHOICE, "b", request="r")], ["not-one-alternative", "unknown-request"]),
        ([_has(a_claim(a_request(count=2), constraints=[{"matchAttribute": RAIL}]), "b", "c")], ["constraint"]),
        ([_has(a_claim(a_request(), constraints=[{"matchAttribute": RAIL}]), "free")], ["constraint"]),
        ([_has(a_claim(a_request(count=2), constraints=[{"distinctAttribute": RAIL}]), "b", "c")], []),
        ([_has(a_claim(a_request(count=2), constraints=[{"requests": ["q"], "matchAttribute": RAIL}]), "b", "c")], []),
    ],
)
def test_each_broken_rule_is_found(claims: list[ResourceClaim], codes: list[str]) -> None:
    assert [found.code for found in violations(claims, SLICES)] == codes
