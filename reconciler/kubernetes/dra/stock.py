"""Which devices are whose, and what pods may get of the rest: kept up to date by watches, and by what was decided since.

Pure: it is told what there is, and says what is to be written.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from reconciler.kubernetes.dra.allocation import allocation_of
from reconciler.kubernetes.dra.allocator import Allocator, Grant, NoDevices
from reconciler.kubernetes.dra.claim_demand import ClaimDemand, RefusedClaimError, demand_of
from reconciler.kubernetes.dra.claim_status import Allotment, Key, claims_of, has_room_for, is_ours
from reconciler.kubernetes.dra.expressions import Expressions
from reconciler.kubernetes.dra.pools import DeviceId
from reconciler.kubernetes.dra.published_pools import PublishedPools
from reconciler.kubernetes.dra.usage import DeviceUsage, devices_of, usage_of
from reconciler.kubernetes.dra.wire import Allocation, ClaimStatus, Consumer, DeviceClass, ResourceClaim
from reconciler.kubernetes.objects.remarks import Missing, Refusal
from reconciler.kubernetes.objects.selectors import meets
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from solver.model.cluster import NodeName


class Needs(NamedTuple):
    """What a pod needs: claims without devices, with what they want, and those that have theirs."""

    claims: tuple[ResourceClaim, ...]
    wanted: tuple[ClaimDemand, ...]
    had: tuple[ResourceClaim, ...]


NotAllotted = NoDevices | Missing | Refusal


class Stock:
    """Told of classes and claims that came (`before` None), changed, and went (`after` None); `published` of slices and nodes.

    What `allot` gives is taken from then on, and asked for again, until it is seen in the claim, or `forget` says that it was not
    written and never will be.
    """

    def __init__(self) -> None:
        self.published = PublishedPools()
        self._claims: dict[Key, ResourceClaim] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._expressions = Expressions()
        self._wanted: dict[str, ClaimDemand] = {}
        self._allocator = Allocator()
        self._usage = DeviceUsage(())
        self._version = 0
        self._classes_version = 0
        self._given: dict[Key, ResourceClaim] = {}
        self._allocations: dict[Key, dict[str, Any]] = {}

    @property
    def searches(self) -> int:
        """How often devices were searched rather than remembered to be there, or not."""
        return self._allocator.searches

    def device_class(self, before: DeviceClass | None, after: DeviceClass | None) -> None:
        """A class. What claims want is looked up anew."""
        if before:
            self._classes.pop(before.metadata.name, None)
        if after:
            self._classes[after.metadata.name] = after
        self._wanted.clear()
        self._classes_version += 1

    def claim(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        """A claim."""
        if before:
            self._claims.pop(before.key, None)
            self._usage.give_back(devices_of(before))
            if after is None or after.metadata.uid != before.metadata.uid:
                self._wanted.pop(before.metadata.uid, None)
                self.forget(before.key)
        if after:
            self._claims[after.key] = after
            self._usage.take(devices_of(after))
            if after.status.allocation:
                self.forget(after.key)

    def forget(self, claim: Key) -> None:
        """What was decided for a claim, and not written, or seen in it by now."""
        self._allocations.pop(claim, None)
        given = self._given.pop(claim, None)
        if given:
            self._usage.give_back(devices_of(given))

    @property
    def claims(self) -> Collection[ResourceClaim]:
        """All claims as they were seen."""
        return self._claims.values()

    def users(self) -> dict[DeviceId, Literal["ours", "others"]]:
        """Every device that is used, with whether it is by claims that Quorate gave it to."""
        found: dict[DeviceId, Literal["ours", "others"]] = {}
        for claim in self._claims.values():
            found |= dict.fromkeys(devices_of(claim), "ours" if is_ours(claim) else "others")
        for claim in self._given.values():
            found |= dict.fromkeys(devices_of(claim), "ours")
        return found

    def claims_of(self, pod: Pod) -> tuple[ResourceClaim, ...] | Missing | Refusal:
        """The claims that a pod needs, with what was decided for them."""
        return claims_of(pod, ChainMap(self._given, self._claims))

    @property
    def version(self) -> tuple[int, int]:
        """Another one once classes, or pools, are not as they were."""
        return self._classes_version, self.published.version

    def wishes(self, pod: Pod) -> tuple[ClaimDemand, ...] | Missing | Refusal:
        """What all claims of a pod want, those that have it too."""
        claims = self.claims_of(pod)
        if isinstance(claims, Missing | Refusal):
            return claims
        try:
            return tuple(self._wants(claim) for claim in claims)
        except RefusedClaimError as refused:
            return refused.refusal

    def nodes_ever(self, wishes: Sequence[ClaimDemand]) -> frozenset[NodeName]:
        """The nodes on which these would be met if nothing was used."""
        nobody = usage_of(self.published.pools, ())
        return frozenset(
            NodeName(node.metadata.name)
            for node in self.published.nodes
            if (there := self.published.on(node.metadata.name)) and self._allocator.fits(there, wishes, nobody)
        )

    def needs(self, pod: Pod) -> Needs | Missing | Refusal:
        """What a pod needs; what it waits for; or why it can't be had anywhere."""
        claims = self.claims_of(pod)
        if isinstance(claims, Missing | Refusal):
            return claims
        consumer = consumer_of(pod)
        for claim in claims:
            if not has_room_for(claim, consumer):
                message = f"claim {'/'.join(claim.key)} is used by as many pods as it can be"
                return Refusal("claim-full", message, "Let some of its pods use another claim.")
        try:
            lacking = tuple(claim for claim in claims if claim.status.allocation is None)
            return Needs(
                lacking,
                tuple(self._wants(claim) for claim in lacking),
                tuple(claim for claim in claims if claim.status.allocation is not None),
            )
        except RefusedClaimError as refused:
            return refused.refusal

    def nodes_for(self, needs: Needs) -> frozenset[NodeName]:
        """The nodes on which a pod that needs this would get it now. Nodes that are alike are tried once."""
        return frozenset(
            NodeName(node.metadata.name)
            for node in self.published.nodes
            if may_use(needs.had, node) and self._fits(needs, node.metadata.name)
        )

    def allot_all(self, pods: Iterable[tuple[Pod, NodeName]], timestamp: str) -> tuple[Allotment, ...] | NotAllotted:
        """What is to be written, in this order, so that each pod may be bound to its node; nothing if one of them can't be.

        `timestamp`: now, RFC 3339.
        """
        found: list[Allotment] = []
        for pod, node in pods:
            needs = self.needs(pod)
            more = self.allot(pod, needs, node, timestamp) if isinstance(needs, Needs) else needs
            if isinstance(more, NoDevices | Missing | Refusal):
                for allotment in found:
                    if allotment.allocation is not None:
                        self.forget(allotment.claim.key)
                return more
            found += more
        return tuple(found)

    def allot(self, pod: Pod, needs: Needs, node: NodeName, timestamp: str) -> tuple[Allotment, ...] | NoDevices:
        """What is to be written so that a pod may be bound to a node; () where nothing is."""
        consumer = consumer_of(pod)
        grant = self._grant(needs, node)
        if isinstance(grant, NoDevices):
            return grant
        allotments = [
            Allotment(self._claims.get(claim.key, claim), consumer, self._allocations.get(claim.key))
            for claim in needs.had
            if claim.key in self._given or not _uses(claim, consumer)
        ]
        for number, claim in enumerate(needs.claims):
            allocation = allocation_of(claim, grant.of(number), self._classes, node, timestamp)
            given = ResourceClaim(claim.metadata, claim.spec, ClaimStatus(read(allocation, Allocation), (consumer,)))
            self.forget(claim.key)
            self._given[claim.key] = given
            self._allocations[claim.key] = allocation
            self._usage.take(devices_of(given))
            allotments.append(Allotment(claim, consumer, allocation))
        return tuple(allotments)

    def _grant(self, needs: Needs, node: NodeName) -> Grant | NoDevices:
        there = self.published.on(node)
        wrong = next((claim for claim in needs.had if there and not _is_for(claim, there.node)), None)
        if there is None or wrong is not None:
            names = [*needs.claims, *needs.had]
            name = "/".join((wrong or names[0]).key) if names else ""
            return NoDevices(name, problems=(f"node {node} can't use its devices",))
        return self._allocator.grant(there, needs.wanted, self._current()) if needs.wanted else Grant((), 0)

    def _fits(self, needs: Needs, node: str) -> bool:
        there = self.published.on(node)
        return there is not None and (not needs.wanted or self._allocator.fits(there, needs.wanted, self._current()))

    def _wants(self, claim: ResourceClaim) -> ClaimDemand:
        uid = claim.metadata.uid
        if uid not in self._wanted:
            self._wanted[uid] = demand_of(claim, self._classes, self._expressions)
        return self._wanted[uid]

    def _current(self) -> DeviceUsage:
        if self._version != self.published.version:
            self._version = self.published.version
            self._usage = usage_of(self.published.pools, [*self._claims.values(), *self._given.values()])
        return self._usage


def consumer_of(pod: Pod) -> Consumer:
    """A pod, as claims name it."""
    return Consumer("pods", pod.metadata.name, pod.metadata.uid)


def _uses(claim: ResourceClaim, consumer: Consumer) -> bool:
    return any(each.uid == consumer.uid for each in claim.status.reserved_for)


def may_use(claims: Iterable[ResourceClaim], node: KubeNode) -> bool:
    """Whether a node can use what these claims have."""
    return all(_is_for(claim, node) for claim in claims)


def _is_for(claim: ResourceClaim, node: KubeNode) -> bool:
    """Whether a node can use what a claim has."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return True
    return any(meets(term, node) for term in allocation.node_selector.node_selector_terms)
