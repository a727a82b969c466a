"""What pods may have, while slices, claims and classes come, change and go."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from hack.kubernetes import devices
from reconciler.kubernetes.dra.allocator import NoDevices
from reconciler.kubernetes.dra.check import violations
from reconciler.kubernetes.dra.claim_status import Allotment
from reconciler.kubernetes.dra.stock import Needs, Stock, consumer_of
from reconciler.kubernetes.dra.wire import (
    Allocation,
    ClaimStatus,
    Consumer,
    ResourceClaim,
    ResourceSlice,
)
from reconciler.kubernetes.objects.remarks import Missing, Refusal
from reconciler.kubernetes.objects.wire import Pod, read
from solver.model.cluster import NodeName
from tests.reconciler.kubernetes.dra.worlds import CLASSES, NOW, a_claim, a_node, a_request, profile, slices_of

N1, N2 = NodeName("n1"), NodeName("n2")


def a_pod(name: str, *claims: str, template: str = "", made: str = "") -> Pod:
    asked: list[dict[str, Any]] = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    asked += [{"name": "t", "resourceClaimTemplateName": template}] if template else []
    status = {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": made}]} if made else {}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return read({"metadata": metadata, "spec": {"containers": [], "resourceClaims": asked}, "status": status}, Pod)


def a_stock(*claims: ResourceClaim, nodes: tuple[str, ...] = ("n1", "n2"), gpus: int = 1) -> Stock:
    stock = Stock()
    for node in nodes:
        stock.published.node(None, a_node(node))
        for part in slices_of(devices.mig_slices(node, gpus)):
            stock.published.slice(None, part)
    for known in CLASSES.values():
        stock.device_class(None, known)
    for claim in claims:
        stock.claim(None, claim)
    return stock


def needs(stock: Stock, pod: Pod) -> Needs:
    found = stock.needs(pod)
    assert isinstance(found, Needs), str(found)
    return found


def written(allotment: Allotment) -> ResourceClaim:
    """As the server has it then."""
    claim, allocation = allotment.claim, allotment.allocation
    has = read(allocation, Allocation) if allocation is not None else claim.status.allocation
    status = ClaimStatus(has, (*claim.status.reserved_for, allotment.pod))
    return ResourceClaim(claim.metadata, claim.spec, status)


def allotted(stock: Stock, pod: Pod, node: NodeName) -> Allotment:
    """What its only claim is to have."""
    found = stock.allot(pod, needs(stock, pod), node, NOW)
    assert not isinstance(found, NoDevices)
    return found[0]


def chosen(found: Any) -> list[str]:
    return [result["device"] for one in found if one.allocation for result in one.allocation["devices"]["results"]]


def test_what_was_decided_is_taken_until_it_is_seen_or_forgotten() -> None:
    first, second = a_claim(profile("7g.80gb"), name="a"), a_claim(profile("7g.80gb"), name="b")
    stock = a_stock(first, second, nodes=("n1",))
    one, other = a_pod("p", "a"), a_pod("q", "b")
    found = stock.allot(one, needs(stock, one), N1, NOW)
    assert chosen(found) == ["gpu-0-mig-7g80gb-0-0"]
    assert isinstance(stock.allot(other, needs(stock, other), N1, NOW), NoDevices)
    stock.forget(first.key)
    assert chosen(stock.allot(other, needs(stock, other), N1, NOW)) == ["gpu-0-mig-7g80gb-0-0"]
    # Seen: it counts once, and is free when the claim has lost it.
    stock.forget(second.key)
    allotment = allotted(stock, one, N1)
    stock.claim(first, written(allotment))
    assert stock.nodes_for(needs(stock, other)) == frozenset()
    stock.claim(written(allotment), first)
    assert stock.nodes_for(needs(stock, other)) == {N1}


def test_slices_that_change_are_seen_at_once() -> None:
    claim = a_claim(profile("1g.10gb"))
    stock = a_stock(claim, nodes=("n1",))
    pod = a_pod("p", "c")
    assert stock.nodes_for(needs(stock, pod)) == {N1}
    parts = slices_of(devices.mig_slices("n1", 1))
    stock.published.slice(parts[0], None)
    assert "is being updated: 1 of 2 slices" in str(stock.allot(pod, needs(stock, pod), N1, NOW))
    stock.published.slice(None, parts[0])
    assert chosen(stock.allot(pod, needs(stock, pod), N1, NOW)) == ["gpu-0-mig-1g10gb-19-6"]
    # What is used is counted in the pool as it is now.
    whole = a_claim(a_request(device_class=devices.DRIVER), name="whole")
    stock.claim(None, whole)
    stock.published.slice(parts[1], None)
    stock.published.slice(None, parts[1])
    second = a_pod("q", "whole")
    assert isinstance(stock.allot(second, needs(stock, second), N1, NOW), NoDevices)
    stock.published.node(a_node("n1"), None)
    assert "n1 can't use" in str(stock.allot(second, needs(stock, second), N1, NOW))


def test_classes_that_change_are_looked_up_anew() -> None:
    claim = a_claim(profile("1g.10gb"))
    stock = a_stock(claim)
    pod = a_pod("p", "c")
    assert isinstance(stock.needs(pod), Needs)
    stock.device_class(CLASSES["mig.nvidia.com"], None)
    assert isinstance(refused := stock.needs(pod), Refusal)
    assert refused.code == "no-device-class"


def test_what_a_pod_waits_for() -> None:
    claim = a_claim(profile("1g.10gb"))
    stock = a_stock()
    assert "waiting for ResourceClaim c, which is not there" in str(stock.needs(a_pod("p", "c")))
    assert isinstance(stock.needs(a_pod("p", template="x")), Missing)
    stock.claim(None, claim)
    assert isinstance(foreign := stock.needs(a_pod("p", template="x", made="c")), Refusal)
    assert foreign.code == "foreign-claim"
    none_needed = a_pod("p", template="x")
    nothing = read({"resourceClaimStatuses": [{"name": "t"}]}, type(none_needed.status))
    assert needs(stock, Pod(none_needed.metadata, none_needed.spec, nothing)) == Needs((), (), ())


def test_pods_that_share_a_claim_go_where_it_is() -> None:
    claim = a_claim(profile("1g.10gb"))
    stock = a_stock(claim)
    pods = [a_pod("p", "c"), a_pod("q", "c")]
    # Both in one decision: the second uses what the first was given, and it is asked for until it is seen.
    found = stock.allot_all([(pods[0], N1), (pods[1], N1)], NOW)
    assert isinstance(found, tuple)
    assert [one.pod.name for one in found if isinstance(one, Allotment)] == ["p", "q"]
    assert chosen(found[:1]) == chosen(found[1:])
    again = stock.allot_all([(pods[0], N1)], NOW)
    assert (isinstance(again, tuple), chosen(again)) == (True, chosen(found[:1]))
    stock.forget(claim.key)
    assert isinstance(stock.allot_all([(pods[0], N1), (pods[1], N2)], NOW), NoDevices)
    # Nothing of what failed is held.
    assert stock.nodes_for(needs(stock, pods[0])) == {N1, N2}
    first = allotted(stock, pods[0], N2)
    stock.claim(claim, written(first))
    assert stock.nodes_for(needs(stock, pods[1])) == {N2}
    assert stock.allot(pods[0], needs(stock, pods[0]), N2, NOW) == ()
    full = written(first)
    users = tuple(Consumer("pods", f"p{number}", f"u{number}") for number in range(256))
    stock.claim(full, ResourceClaim(full.metadata, full.spec, ClaimStatus(full.status.allocation, users)))
    assert isinstance(refused := stock.needs(pods[1]), Refusal)
    assert refused.code == "claim-full"


def test_nodes_that_are_alike_are_tried_once() -> None:
    names = tuple(f"n{number}" for number in range(20))
    claim = a_claim(profile("3g.40gb", count=2))
    stock = a_stock(claim, nodes=names)
    pod = a_pod("p", "c")
    assert len(stock.nodes_for(needs(stock, pod))) == 20
    assert stock.searches == 1
    # One of them is used: it is a class of its own.
    stock.allot(pod, needs(stock, pod), NodeName("n3"), NOW)
    other = a_claim(profile("3g.40gb", count=2), name="d")
    stock.claim(None, other)
    before = stock.searches
    assert len(stock.nodes_for(needs(stock, a_pod("q", "d")))) == 19
    assert stock.searches == before + 1


@pytest.mark.parametrize("seed", range(4))
def test_many_decisions_in_any_order_break_no_rule(seed: int) -> None:
    chance = Random(seed)
    names = ("n1", "n2", "n3")
    claims = {
        (name := f"c{number}"): a_claim(profile(chance.choice(["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"])), name=name)
        for number in range(60)
    }
    stock = a_stock(*claims.values(), nodes=names, gpus=2)
    slices: list[ResourceSlice] = [part for node in names for part in slices_of(devices.mig_slices(node, 2))]
    placed = 0
    for _ in range(150):
        name = chance.choice(sorted(claims))
        claim = claims[name]
        if claim.status.allocation:
            freed = ResourceClaim(claim.metadata, claim.spec)
            stock.claim(claim, freed)
            claims[name] = freed
            continue
        pod = a_pod(f"p-{name}", name)
        where = stock.nodes_for(needs(stock, pod))
        for node in sorted(names, key=lambda _: chance.random()):
            found = stock.allot(pod, needs(stock, pod), NodeName(node), NOW)
            assert isinstance(found, NoDevices) == (node not in where)
            if not isinstance(found, NoDevices):
                claims[name] = written(found[0])
                stock.claim(claim, claims[name])
                placed += 1
                break
        assert violations(claims.values(), slices) == ()
    assert placed > 40
    assert consumer_of(a_pod("p")).resource == "pods"
