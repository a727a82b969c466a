"""What claims get of a node's devices, feature by feature."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from hack.kubernetes import devices
from reconciler.kubernetes.dra.allocation import allocation_of
from reconciler.kubernetes.dra.allocator import Allocator, Grant, NoDevices
from reconciler.kubernetes.dra.check import violations
from reconciler.kubernetes.dra.claim_demand import RefusedClaimError, demand_of
from reconciler.kubernetes.dra.expressions import Expressions
from reconciler.kubernetes.dra.usage import devices_of
from reconciler.kubernetes.dra.wire import ResourceClaim
from tests.reconciler.kubernetes.dra.worlds import (
    ANY,
    CLASSES,
    NOW,
    a_claim,
    a_device,
    a_node,
    a_request,
    a_slice,
    exactly,
    given,
    names,
    profile,
    slices_of,
    written,
)

MIG = slices_of(devices.mig_slices("n1", gpus=2))
PLAIN = slices_of(devices.plain_slices("n1", gpus=4))
TWO = a_slice(a_device("a", size=1), a_device("b", size=2))


def _devices_of(claims: Iterable[ResourceClaim]) -> list[str]:
    return [device.device for claim in claims for device in devices_of(claim)]


def test_a_node_of_eight_gpus_publishes_all_placements_as_a_server_takes_them() -> None:
    parts = devices.mig_slices("n1")
    assert sum(len(part["spec"].get("devices", ())) for part in parts) == 152
    assert all(len(part["spec"].get("devices", ())) <= 64 for part in parts)
    assert all(len(part["spec"].get("sharedCounters", ())) <= 8 for part in parts)


def test_a_gpu_is_given_once() -> None:
    claims = [a_claim(a_request(device_class=devices.DRIVER), name=f"c{number}") for number in range(5)]
    done: list[ResourceClaim] = []
    for claim in claims[:4]:
        grant = given([claim], PLAIN, done)
        assert isinstance(grant, Grant)
        done += written([claim], grant)
    assert sorted(_devices_of(done)) == [f"gpu-{index}" for index in range(4)]
    refused = given(claims[4:], PLAIN, done)
    assert str(refused) == "claim default/c4, request r: wants 1, 4 match and 0 are free"
    assert violations(done, PLAIN) == ()


def test_instances_are_packed_so_that_others_still_fit() -> None:
    claims = [a_claim(profile("1g.10gb"), name="small"), a_claim(profile("4g.40gb"), name="large")]
    done: list[ResourceClaim] = []
    for claim in claims:
        grant = given([claim], MIG, done)
        assert isinstance(grant, Grant)
        done += written([claim], grant)
    assert _devices_of(done) == ["gpu-0-mig-1g10gb-19-6", "gpu-0-mig-4g40gb-5-0"]
    assert violations(done, MIG) == ()


def test_a_whole_gpu_and_its_instances_exclude_each_other() -> None:
    small = a_claim(profile("1g.10gb"), name="small")
    whole = a_claim(a_request(device_class=devices.DRIVER), name="whole")
    grant = given([small], MIG)
    assert isinstance(grant, Grant)
    assert names(given([whole], MIG, written([small], grant))) == ["gpu-1"]
    both = given([whole], MIG)
    assert isinstance(both, Grant)
    assert names(both) == ["gpu-0"]
    assert names(given([small], MIG, written([whole], both)))[0].startswith("gpu-1-")


def test_sixteen_halves_fit_on_eight_gpus_and_not_one_more() -> None:
    slices = slices_of(devices.mig_slices("n1"))
    claim = a_claim(profile("3g.40gb", count=16))
    grant = given([claim], slices)
    assert isinstance(grant, Grant)
    assert violations(written([claim], grant), slices) == ()
    assert isinstance(given([a_claim(profile("3g.40gb", count=17))], slices), NoDevices)


def test_what_can_t_be_is_found_out_in_few_tries() -> None:
    """Four instances of 2g on one GPU: three fit there, and a search without memory would try all ways on all eight GPUs."""
    match = [{"matchAttribute": f"{devices.DRIVER}/parentUUID"}]
    slices = slices_of(devices.mig_slices("n1"))
    assert isinstance(given([a_claim(profile("2g.20gb", count=4), constraints=match)], slices), NoDevices)
    assert len(names(given([a_claim(profile("2g.20gb", count=3), constraints=match)], slices))) == 3


def test_the_first_alternative_that_is_there_is_taken() -> None:
    request = {
        "name": "r",
        "firstAvailable": [
            {"name": "large", **exactly(ANY, f"device.attributes['{devices.DRIVER}'].size > 2")},
            {"name": "medium", **exactly(ANY, f"device.attributes['{devices.DRIVER}'].size > 1")},
        ],
    }
    claim = a_claim(request)
    grant = given([claim], TWO)
    assert isinstance(grant, Grant)
    assert (names(grant), grant.rank) == (["b"], 1)
    result = allocation_of(claim, grant.picks, CLASSES, "n1", NOW)["devices"]["results"][0]
    assert result["request"] == "r/medium"


def test_an_alternative_gives_way_to_a_request_that_has_none() -> None:
    preferring = {
        "name": "p",
        "firstAvailable": [
            {"name": "b", **exactly(ANY, f"device.attributes['{devices.DRIVER}'].size == 2")},
            {"name": "a", **exactly(ANY, f"device.attributes['{devices.DRIVER}'].size == 1")},
        ],
    }
    needing = a_request("n", ANY, f"device.attributes['{devices.DRIVER}'].size == 2")
    assert names(given([a_claim(preferring), a_claim(needing, name="d")], TWO)) == ["a", "b"]


def test_all_devices_means_every_one() -> None:
    every = a_claim(a_request(allocationMode="All"))
    grant = given([every], TWO)
    assert names(grant) == ["a", "b"]
    one = a_claim(a_request(), name="one")
    had = given([one], TWO)
    assert isinstance(had, Grant)
    assert (
        str(given([every], TWO, written([one], had))) == "claim default/c, request r: wants all, 2 match and 1 are free"
    )
    assert isinstance(given([a_claim(a_request(ANY, ANY, "false", allocationMode="All"))], TWO), NoDevices)


def test_constraints_keep_devices_together_or_apart() -> None:
    there = a_slice(*(a_device(f"d{number}", rail=number // 2) for number in range(4)))
    rail = f"{devices.DRIVER}/rail"
    together = a_claim(a_request(count=2), constraints=[{"matchAttribute": rail}])
    assert names(given([together], there)) == ["d0", "d1"]
    apart = a_claim(a_request(count=2), constraints=[{"distinctAttribute": rail}])
    assert names(given([apart], there)) == ["d0", "d2"]
    assert isinstance(given([a_claim(a_request(count=3), constraints=[{"distinctAttribute": rail}])], there), NoDevices)
    unknown = a_claim(a_request(), constraints=[{"matchAttribute": f"{devices.DRIVER}/nothing"}])
    assert "constraints or shared counters rule them out" in str(given([unknown], there))
    some = a_claim(a_request("x"), a_request("y", count=2), constraints=[{"requests": ["y"], "matchAttribute": rail}])
    assert names(given([some], there)) == ["d0", "d2", "d3"]


def test_taints_keep_away_who_does_not_tolerate_them() -> None:
    tainted = {**a_device("t"), "taints": [{"key": "broken", "value": "yes", "effect": "NoSchedule"}]}
    there = a_slice(tainted, {**a_device("n"), "taints": [{"key": "note", "effect": "None"}]})
    assert names(given([a_claim(a_request())], there)) == ["n"]
    for toleration in ({"operator": "Exists"}, {"key": "broken", "operator": "Equal", "value": "yes"}):
        claim = a_claim(a_request(count=2, tolerations=[toleration]))
        grant = given([claim], there)
        assert names(grant) == ["t", "n"]
        assert isinstance(grant, Grant)
        results = allocation_of(claim, grant.picks, CLASSES, "n1", NOW)["devices"]["results"]
        assert results[0]["tolerations"] == [{"operator": "Equal", **toleration}]
    other = [{"key": "broken", "operator": "Equal", "value": "no"}]
    assert isinstance(given([a_claim(a_request(count=2, tolerations=other))], there), NoDevices)
    assert isinstance(given([a_claim(a_request(allocationMode="All"))], there), NoDevices)


def test_a_device_needs_the_capacity_that_is_asked_for() -> None:
    there = a_slice(
        {**a_device("small"), "capacity": {"memory": {"value": "10Gi"}}},
        {**a_device("large"), "capacity": {"memory": {"value": "40Gi"}}},
        {**a_device("shared"), "capacity": {"memory": {"value": "80Gi"}}, "allowMultipleAllocations": True},
    )
    assert names(given([a_claim(a_request(capacity={"requests": {"memory": "20Gi"}}))], there)) == ["large"]
    assert isinstance(given([a_claim(a_request(capacity={"requests": {"memory": "50Gi"}}))], there), NoDevices)


def test_pools_that_are_being_updated_are_left_alone() -> None:
    half = slices_of([devices.slice_of("n1", 0, 2, {"devices": [a_device("a")]})])
    assert "pool gpu.nvidia.com/n1 is being updated: 1 of 2 slices of generation 1 are there" in str(
        given([a_claim(a_request())], half)
    )
    other = slices_of([devices.slice_of("n1", 1, 1, {"devices": [a_device("b")]}, generation=2)])
    assert names(given([a_claim(a_request())], [*half, *other])) == ["b"]
    elsewhere = slices_of([devices.slice_of("n2", 0, 2, {"devices": [a_device("z")]})])
    every = a_claim(a_request(allocationMode="All"))
    assert names(given([every], [*other, *elsewhere])) == ["b"]
    moved: Any = devices.slice_of("n1-more", 0, 2, {"devices": [a_device("m")]})
    moved["spec"]["nodeName"] = "n1"
    assert isinstance(given([every], [*other, *slices_of([moved])]), NoDevices)


def test_a_pool_that_contradicts_itself_is_not_used() -> None:
    using = {**a_device("a"), "consumesCounters": [{"counterSet": "s", "counters": {"x": {"value": "1"}}}]}
    assert "a uses s/x, which is not there" in str(given([a_claim(a_request())], a_slice(using)))
    assert "two devices are called a" in str(given([a_claim(a_request())], a_slice(a_device("a"), a_device("a"))))


def test_devices_of_the_network_are_for_the_nodes_that_a_selector_means() -> None:
    rack = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}
    shared: Any = devices.slice_of("fabric", 0, 1, {"devices": [a_device("f")]})
    del shared["spec"]["nodeName"]
    shared["spec"]["nodeSelector"] = rack
    claim = a_claim(a_request())
    grant = given([claim], slices_of([shared]), node=a_node("n1", rack="r1"))
    assert isinstance(grant, Grant)
    assert allocation_of(claim, grant.picks, CLASSES, "n1", NOW)["nodeSelector"] == rack
    assert isinstance(given([claim], slices_of([shared]), node=a_node("n2", rack="r2")), NoDevices)
    del shared["spec"]["nodeSelector"]
    everywhere = slices_of([{**shared, "spec": {**shared["spec"], "allNodes": True}}])
    free = given([claim], everywhere, node=a_node("n2"))
    assert isinstance(free, Grant)
    assert "nodeSelector" not in allocation_of(claim, free.picks, CLASSES, "n2", NOW)
    each: Any = {**shared["spec"], "perDeviceNodeSelection": True, "devices": [{**a_device("f"), "nodeName": "n2"}]}
    assert names(given([claim], slices_of([{**shared, "spec": each}]), node=a_node("n2"))) == ["f"]
    assert isinstance(given([claim], slices_of([{**shared, "spec": each}])), NoDevices)


def test_what_is_written_for_a_device_of_a_node() -> None:
    bound = {**a_device("b"), "bindingConditions": ["attached"], "bindingFailureConditions": ["lost"]}
    opaque = {"driver": devices.DRIVER, "parameters": {"sharing": "none"}}
    claim = a_claim(
        a_request(),
        config=[{"opaque": opaque}, {"requests": ["r"], "opaque": opaque}, {"requests": ["other"], "opaque": opaque}],
    )
    grant = given([claim], a_slice(bound))
    assert isinstance(grant, Grant)
    assert allocation_of(claim, grant.picks, CLASSES, "n1", NOW) == {
        "devices": {
            "results": [
                {
                    "request": "r",
                    "driver": devices.DRIVER,
                    "pool": "n1",
                    "device": "b",
                    "bindingConditions": ["attached"],
                    "bindingFailureConditions": ["lost"],
                }
            ],
            "config": [
                {"source": "FromClaim", "opaque": opaque},
                {"source": "FromClaim", "requests": ["r"], "opaque": opaque},
            ],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
        },
        "allocationTimestamp": NOW,
    }


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (a_request(adminAccess=True), "admin-access", "asks for admin access"),
        (a_request("r", "nothing"), "no-device-class", "there is no device class nothing"),
        (a_request("r", ANY, "device."), "selector-fails", "claim default/c, request r, selector 1: "),
        (a_request("r", ANY, "1 + 1"), "selector-fails", "has to be true or false"),
        (a_request(count=33), "too-many-devices", "asks for 33 devices"),
        (a_request(allocationMode="Some"), "unknown-request", "the allocation mode Some"),
        ({"name": "r"}, "unknown-request", "asks in a way"),
    ],
)
def test_what_can_t_be_kept_is_refused(request_: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(RefusedClaimError) as refused:
        demand_of(a_claim(request_), CLASSES, Expressions())
    assert refused.value.refusal.code == code
    assert message in refused.value.refusal.message
    assert refused.value.refusal.fix


def test_an_expression_that_fails_is_told_where_nothing_else_does() -> None:
    asks_b = f"device.attributes['{devices.DRIVER}'].b == 1"
    there = a_slice(a_device("x"), a_device("y", b=1))
    assert names(given([a_claim(a_request("r", ANY, asks_b))], there)) == ["y"]
    said = str(given([a_claim(a_request("r", ANY, asks_b, count=2))], there))
    assert said.startswith("claim default/c, request r, selector 1, device gpu.nvidia.com/n1/x: ")
    assert "has(...)" in said


def test_nodes_that_are_alike_are_searched_once() -> None:
    allocator = Allocator()
    claim = a_claim(profile("7g.80gb"), a_request("g", devices.DRIVER, count=2))
    for node in ("n1", "n2", "n3"):
        refused = given([claim], slices_of(devices.mig_slices(node, gpus=2)), node=a_node(node), allocator=allocator)
        assert isinstance(refused, NoDevices)
    assert allocator.searches == 1


def _of_type(kind: str) -> str:
    return f"device.attributes['{devices.DRIVER}'].kind == '{kind}'"


def test_a_state_that_failed_is_another_where_constraints_have_met_other_values() -> None:
    """d0 and d1 taken is a dead end with d1's rail for what is to match, and not with d0's."""
    there = a_slice(
        *(a_device(f"d{rail}", rail=rail, kind="x") for rail in (0, 1)),
        *(a_device(f"e{rail}", rail=rail, kind="y") for rail in (1, 0)),
    )
    other = a_claim(a_request("r", ANY, _of_type("y")), name="other")
    held = given([other], there)
    assert names(held) == ["e1"]
    assert isinstance(held, Grant)
    claim = a_claim(
        a_request("q", ANY, _of_type("x")),
        a_request("r", ANY, _of_type("x")),
        a_request("s", ANY, _of_type("y")),
        constraints=[{"requests": ["r", "s"], "matchAttribute": f"{devices.DRIVER}/rail"}],
    )
    assert names(given([claim], there, written([other], held))) == ["d1", "d0", "e0"]


def test_gpus_that_are_used_alike_are_not_alike_to_a_constraint_that_has_met_one_of_them() -> None:
    def part(gpu: str, kind: str) -> dict[str, Any]:
        used = [{"counterSet": gpu, "counters": {"slices": {"value": "1"}}}]
        return {**a_device(f"{gpu}-{kind}", gpu=gpu, kind=kind), "consumesCounters": used}

    sets = [{"name": gpu, "counters": {"slices": {"value": "2"}}} for gpu in ("a", "b")]
    there = a_slice(*(part(gpu, kind) for gpu in ("a", "b") for kind in ("x", "y")), counters=sets)
    other = a_claim(a_request("r", ANY, _of_type("x")), name="other")
    held = given([other], there)
    assert names(held) == ["a-x"]
    assert isinstance(held, Grant)
    claim = a_claim(
        a_request("x", ANY, _of_type("x")),
        a_request("y", ANY, _of_type("y")),
        constraints=[{"matchAttribute": f"{devices.DRIVER}/gpu"}],
    )
    assert names(given([claim], there, written([other], held))) == ["b-x", "b-y"]


def test_what_is_remembered_is_bounded_and_forgetting_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.kubernetes.dra.allocator.KINDS_MAX", 0)
    monkeypatch.setattr("reconciler.kubernetes.dra.expressions.COMPILED_MAX", 1)
    allocator, done = Allocator(), list[ResourceClaim]()
    for number, wanted in enumerate(["3g.40gb", "1g.10gb", "3g.40gb", "2g.20gb"]):
        claim = a_claim(profile(wanted), name=f"c{number}")
        grant = given([claim], MIG, done, allocator=allocator)
        assert isinstance(grant, Grant)
        assert names(grant) == names(given([claim], MIG, done))
        done += written([claim], grant)
    assert violations(done, MIG) == ()
