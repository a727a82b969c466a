"""How claims stand: which ones a pod needs, whether their devices are ready for it, and what is not needed any more. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from reconciler.kubernetes.dra.wire import FINALIZER, Consumer, ResourceClaim, Result
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.remarks import Missing, Refusal
from reconciler.kubernetes.objects.wire import Pod
from solver.model.quantities import Duration, Instant

Key = tuple[str, str]
"""Namespace and name."""
BINDING_LIMIT = Duration(600_000)
"""For so long drivers may make devices ready that have binding conditions; kube-scheduler's own default."""
CONSUMERS_MAX = 256
"""Pods that one claim may be reserved for."""


class Readiness(NamedTuple):
    """Whether a pod may be bound with a claim. `failed`: its devices will not come; what it has is given back."""

    state: Literal["ready", "waiting", "failed"]
    why: str = ""


class Allotment(NamedTuple):
    """What a claim is to have, and for which pod. `allocation` None: it has its devices, and the pod is to use them too."""

    claim: ResourceClaim
    pod: Consumer
    allocation: Mapping[str, Any] | None


class ClaimRelease(NamedTuple):
    """What a claim is to be rid of. `keep`: pods that still use it; none: its devices are free, and the claim may go."""

    claim: ResourceClaim
    keep: tuple[Consumer, ...]
    why: str


def claims_of(pod: Pod, claims: Mapping[Key, ResourceClaim]) -> tuple[ResourceClaim, ...] | Missing | Refusal:
    """The claims that a pod needs, in its order; what is still to be made of templates is waited for."""
    namespace = pod.metadata.namespace
    made = {each.name: each for each in pod.status.resource_claim_statuses}
    found: list[ResourceClaim] = []
    for wanted in pod.spec.resource_claims:
        name = wanted.resource_claim_name
        if name is None and wanted.name not in made:
            template = wanted.resource_claim_template_name
            return Missing(0, None, f"waiting for a ResourceClaim to be made of the template {template}")
        if name is None and (name := made[wanted.name].resource_claim_name) is None:
            continue
        claim = claims.get((namespace, name))
        if claim is None or claim.metadata.deletion_timestamp:
            return Missing(
                0, None, f"waiting for ResourceClaim {name}, which {'is leaving' if claim else 'is not there'}"
            )
        if wanted.resource_claim_name is None and not _is_of(claim, pod):
            message = f"ResourceClaim {name} was not made for this pod"
            return Refusal("foreign-claim", message, "Delete the pod, so that it is made anew with a claim of its own.")
        found.append(claim)
    return tuple({claim.key: claim for claim in found}.values())


def is_ours(claim: ResourceClaim) -> bool:
    """Whether it was Quorate that gave it what it has."""
    return names.LEADER in claim.metadata.annotations


def has_room_for(claim: ResourceClaim, consumer: Consumer) -> bool:
    """Whether a pod may use a claim that has its devices already, beside those that do."""
    uids = {each.uid for each in claim.status.reserved_for}
    return consumer.uid in uids or len(uids) < CONSUMERS_MAX


def readiness(claim: ResourceClaim, now: Instant, limit: Duration = BINDING_LIMIT) -> Readiness:
    """Whether the devices that a claim was given are ready for its pods, by what their drivers say of them."""
    allocation = claim.status.allocation
    if allocation is None:
        return Readiness("waiting", f"claim {'/'.join(claim.key)} has no devices yet")
    lacking: list[str] = []
    for result in allocation.devices.results:
        said = _conditions(claim, result)
        for condition in result.binding_failure_conditions:
            if said.get(condition) == "True":
                return Readiness("failed", f"device {result.device}: {condition}")
        lacking += [f"{result.device}: {name}" for name in result.binding_conditions if said.get(name) != "True"]
    if not lacking:
        return Readiness("ready")
    since = Instant.parse(allocation.allocation_timestamp) if allocation.allocation_timestamp else now
    if int(now) - int(since) > int(limit):
        return Readiness("failed", f"not ready within {int(limit) // 1000} s: {', '.join(lacking)}")
    return Readiness("waiting", f"waiting for {', '.join(lacking)}")


def releases(
    claims: Iterable[ResourceClaim], pods: Mapping[str, Pod], underway: Collection[str], now: Instant
) -> tuple[ClaimRelease, ...]:
    """Of claims that Quorate gave devices: what is not needed any more, sorted.

    `pods` by uid. `underway`: uids of pods that have no node yet and are about to have one: those that this process is binding,
    and those of journals. What a pod has that is not bound and not about to be is given back, whatever reserved it before.
    """
    found = [release for claim in claims if is_ours(claim) and (release := _release(claim, pods, underway, now))]
    return tuple(sorted(found, key=lambda release: release.claim.key))


def _release(
    claim: ResourceClaim, pods: Mapping[str, Pod], underway: Collection[str], now: Instant
) -> ClaimRelease | None:
    is_leaving = claim.metadata.deletion_timestamp is not None
    if claim.status.allocation is None:
        return (
            ClaimRelease(claim, (), "it is being deleted")
            if is_leaving and FINALIZER in claim.metadata.finalizers
            else None
        )
    ready = readiness(claim, now)
    keep = tuple(
        consumer
        for consumer in claim.status.reserved_for
        if not _is_pod(consumer) or _needs(pods.get(consumer.uid), underway, ready)
    )
    if keep and len(keep) == len(claim.status.reserved_for):
        return None
    return ClaimRelease(claim, keep, ready.why if ready.state == "failed" else "its pods are over")


def _is_pod(consumer: Consumer) -> bool:
    return consumer.resource == "pods" and not consumer.api_group


def _needs(pod: Pod | None, underway: Collection[str], ready: Readiness) -> bool:
    if pod is None or pod.is_over:
        return False
    return bool(pod.spec.node_name) or (pod.metadata.uid in underway and ready.state != "failed")


def _is_of(claim: ResourceClaim, pod: Pod) -> bool:
    owner = claim.metadata.controller
    return owner is not None and owner.uid == pod.metadata.uid


def _conditions(claim: ResourceClaim, result: Result) -> dict[str, str]:
    device = (result.driver, result.pool, result.device)
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device) == device:
            return {condition.type: condition.status for condition in status.conditions}
    return {}
