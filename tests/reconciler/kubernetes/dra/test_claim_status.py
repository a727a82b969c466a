"""What is given back, and when: by what stands in claims and pods alone."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.kubernetes.dra.claim_status import readiness, releases
from reconciler.kubernetes.dra.wire import (
    FINALIZER,
    Allocation,
    ClaimMeta,
    ClaimStatus,
    Consumer,
    DeviceAllocationResult,
    DeviceStatus,
    ResourceClaim,
    Result,
)
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.wire import KubeCondition, Meta, Pod, PodSpec, PodStatus
from solver.model.quantities import Instant
from tests.reconciler.kubernetes.dra.worlds import NOW

AT = Instant.parse(NOW)
POD = Consumer("pods", "p", "u")


def a_held_claim(
    *consumers: Consumer, ours: bool = True, deleted: bool = False, conditions: tuple[str, ...] = ()
) -> ResourceClaim:
    metadata = ClaimMeta(
        name="c",
        namespace="default",
        uid="c",
        annotations={names.LEADER: "l", names.EPOCH: "1"} if ours else {},
        finalizers=(FINALIZER,),
        deletion_timestamp=NOW if deleted else None,
    )
    result = Result("r", "d", "p", "x", binding_conditions=conditions, binding_failure_conditions=("lost",))
    allocation = Allocation(DeviceAllocationResult((result,)), allocation_timestamp=NOW)
    return ResourceClaim(metadata, status=ClaimStatus(allocation, consumers))


def a_pod(node: str = "", phase: str = "Pending") -> dict[str, Pod]:
    return {"u": Pod(Meta("p", "default", "u"), PodSpec((), node_name=node), PodStatus(phase))}


@pytest.mark.parametrize(
    ("pods", "underway", "is_given_back"),
    [
        (a_pod("n1", "Running"), (), False),
        (a_pod("n1", "Succeeded"), (), True),
        (a_pod("n1", "Failed"), ("u",), True),
        ({}, ("u",), True),
        # Not bound: whether it is about to be is what whoever leads knows.
        (a_pod(), ("u",), False),
        (a_pod(), (), True),
    ],
)
def test_devices_are_given_back_when_no_pod_needs_them(
    pods: dict[str, Pod], underway: tuple[str, ...], is_given_back: bool
) -> None:
    found = releases([a_held_claim(POD)], pods, underway, AT)
    assert [release.keep for release in found] == ([()] if is_given_back else [])


def test_what_others_allocated_or_use_is_theirs() -> None:
    assert releases([a_held_claim(POD, ours=False)], {}, (), AT) == ()
    group = Consumer("podgroups", "g", "g", "scheduling.k8s.io")
    (release,) = releases([a_held_claim(POD, group)], {}, (), AT)
    assert release.keep == (group,)
    assert releases([a_held_claim(group)], {}, (), AT) == ()


def test_a_deleted_claim_without_devices_is_let_go() -> None:
    held = a_held_claim(deleted=True)
    empty = ResourceClaim(held.metadata)
    (release,) = releases([empty], {}, (), AT)
    assert (release.keep, release.why) == ((), "it is being deleted")
    gone = msgspec.structs.replace(held.metadata, finalizers=())
    assert releases([ResourceClaim(gone)], {}, (), AT) == ()


def test_devices_that_do_not_become_ready_are_given_back_unless_the_pod_runs() -> None:
    claim = a_held_claim(POD, conditions=("attached",))
    late = Instant(int(AT) + 600_001)
    assert releases([claim], a_pod(), ("u",), AT) == ()
    (release,) = releases([claim], a_pod(), ("u",), late)
    assert release.why == "not ready within 600 s: x: attached"
    assert releases([claim], a_pod("n1", "Running"), (), late) == ()


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ((), "waiting"),
        ((KubeCondition("attached", "True"),), "ready"),
        ((KubeCondition("attached", "False"),), "waiting"),
        ((KubeCondition("attached", "True"), KubeCondition("lost", "True")), "failed"),
        ((KubeCondition("lost", "False"), KubeCondition("attached", "True")), "ready"),
    ],
)
def test_a_driver_says_whether_a_device_is_ready(conditions: tuple[KubeCondition, ...], state: str) -> None:
    claim = a_held_claim(POD, conditions=("attached",))
    status = msgspec.structs.replace(claim.status, devices=(DeviceStatus("d", "p", "x", conditions),))
    assert readiness(ResourceClaim(claim.metadata, status=status), AT).state == state
    other = msgspec.structs.replace(claim.status, devices=(DeviceStatus("d", "p", "y", conditions),))
    assert readiness(ResourceClaim(claim.metadata, status=other), AT).state == "waiting"
    assert readiness(a_held_claim(POD), AT).state == "ready"
