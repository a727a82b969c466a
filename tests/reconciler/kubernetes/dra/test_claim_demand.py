"""GPUs of claims as a round counts them, and the GPUs that a driver publishes as a round knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hack.kubernetes import devices
from reconciler.kubernetes.dra.charges import ClaimCharge, charge_of
from reconciler.kubernetes.dra.claim_demand import demand_of
from reconciler.kubernetes.dra.expressions import Expressions
from reconciler.kubernetes.dra.inventory import gpus_of
from reconciler.kubernetes.dra.pools import Device, pools_of
from reconciler.kubernetes.dra.wire import ResourceClaim
from reconciler.kubernetes.objects.remarks import Refusal
from solver.model.cluster import GpuType, MigInstance
from tests.reconciler.kubernetes.dra.worlds import (
    ANY,
    CLASSES,
    a_claim,
    a_device,
    a_request,
    exactly,
    profile,
    slices_of,
)

H100, A30 = GpuType("H100-SXM5-80GB"), GpuType("A30-24GB")
D = devices.DRIVER
OF_H100 = f"device.attributes['{D}'].productName.contains('H100')"
OF_A30 = f"device.attributes['{D}'].productName.contains('A30')"
A_NIC: Any = devices.slice_of("nics", 0, 1, {"devices": [a_device("nic", speed=400)]})
A_NIC["spec"]["driver"] = "nic.example.com"


def _devices(*written: dict[str, Any]) -> list[Device]:
    return [device for pool in pools_of(slices_of(written)) for device in pool.devices]


EVERYTHING = _devices(*devices.mig_slices("n1", 2), *devices.mig_slices("n2", 2, "A30-24GB"), A_NIC)


def _either(*alternatives: dict[str, Any]) -> dict[str, Any]:
    return {"name": "r", "firstAvailable": [{"name": f"s{i}", **each} for i, each in enumerate(alternatives)]}


def _asked(*claims: ResourceClaim, there: Sequence[Device] = EVERYTHING) -> ClaimCharge | Refusal:
    known = Expressions()
    return charge_of([demand_of(claim, CLASSES, known) for claim in claims], there)


@pytest.mark.parametrize(
    ("claims", "asked"),
    [
        ([a_claim(a_request("r", D, count=2))], ClaimCharge(2)),
        ([a_claim(a_request("r", D, OF_A30))], ClaimCharge(1, (A30,))),
        ([a_claim(a_request("q", D), a_request("r", D, count=3))], ClaimCharge(4)),
        ([a_claim(a_request("r", D, OF_H100)), a_claim(a_request("r", D), name="d")], ClaimCharge(2, (H100,))),
        ([a_claim(profile("1g.10gb"))], ClaimCharge(0, (H100,), "1g.10gb", 1)),
        ([a_claim(profile("1g.10gb", count=2)), a_claim(profile("1g.10gb"), name="d")], ClaimCharge(0, (H100,), "1g.10gb", 3)),
        # What is no GPU counts for nothing.
        ([a_claim(a_request("n", ANY, "device.driver == 'nic.example.com'"), a_request("r", D))], ClaimCharge(1)),
        ([a_claim(a_request("n", ANY, "device.driver == 'nic.example.com'", allocationMode="All"))], ClaimCharge()),
        # The order of alternatives is that of the types.
        ([a_claim(_either(exactly(D, OF_H100), exactly(D, OF_A30)))], ClaimCharge(1, (H100, A30))),
        # One that nobody has makes no difference.
        ([a_claim(_either(exactly(D, "false", count=2), exactly(D, OF_A30)))], ClaimCharge(1, (A30,))),
    ],
)  # fmt: skip
def test_what_claims_come_to(claims: list[ResourceClaim], asked: ClaimCharge) -> None:
    assert _asked(*claims) == asked


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ([a_claim(a_request("r", D, allocationMode="All"))], "claim-counts"),
        ([a_claim(a_request("r", ANY, f"device.driver == '{D}'"))], "claim-costs"),
        ([a_claim(a_request("r", "mig.nvidia.com"))], "claim-costs"),
        ([a_claim(_either(exactly(D), exactly(D, count=2)))], "claim-costs"),
        ([a_claim(profile("1g.10gb")), a_claim(profile("3g.40gb"), name="d")], "several-profiles"),
        ([a_claim(profile("1g.10gb")), a_claim(a_request("r", D), name="d")], "several-profiles"),
        ([a_claim(a_request("q", D, OF_H100), a_request("r", D, OF_A30))], "several-types"),
    ],
)  # fmt: skip
def test_what_has_no_cost_that_can_be_said_is_refused(claims: list[ResourceClaim], code: str) -> None:
    refused = _asked(*claims)
    assert isinstance(refused, Refusal)
    assert refused.code == code
    assert refused.fix


def test_gpus_are_whole_until_instances_of_them_are_used() -> None:
    there = _devices(*devices.mig_slices("n1", 2))
    free = gpus_of(there, lambda _: "")
    assert (free.gpu_type, [gpu.id for gpu in free.gpus]) == (H100, ["GPU-n1-0", "GPU-n1-1"])
    assert all(gpu.instances is None and gpu.healthy and gpu.memory == 81152 * 2**20 for gpu in free.gpus)
    used = {"gpu-1-mig-3g40gb-9-4", "gpu-1-mig-1g10gb-19-2"}
    some = gpus_of(there, lambda device: "ours" if device.id.device in used else "")
    assert some.gpus[0] == free.gpus[0]
    assert some.gpus[1].instances == (MigInstance("1g.10gb", 2), MigInstance("3g.40gb", 4))
    others = gpus_of(there, lambda device: "others" if device.id.device in used else "")
    assert others.gpus == free.gpus[:1]


def test_gpus_that_were_partitioned_beforehand_have_all_their_instances() -> None:
    def instance(start: int) -> dict[str, Any]:
        said = a_device(f"i{start}", type="mig", parentUUID="GPU-x", profile="1g.6gb", productName="NVIDIA A30")
        return {**said, "capacity": {"memory": {"value": "6Gi"}, f"memorySlice{start}": {"value": "1"}}}

    found = gpus_of(_devices(devices.slice_of("n1", 0, 1, {"devices": [instance(0), instance(2)]})), lambda _: "")
    assert found.gpu_type == A30
    assert [gpu.instances for gpu in found.gpus] == [(MigInstance("1g.6gb", 0), MigInstance("1g.6gb", 2))]


def test_a_tainted_gpu_is_not_well_and_what_says_nothing_is_no_gpu() -> None:
    (part,) = devices.plain_slices("n1", 1)
    part["spec"]["devices"][0]["taints"] = [{"key": "unhealthy", "effect": "NoExecute"}]
    part["spec"]["devices"].append(a_device("what", type="gpu"))
    found = gpus_of(_devices(part, A_NIC), lambda _: "")
    assert [(gpu.id, gpu.healthy) for gpu in found.gpus] == [("GPU-n1-0", False)]
