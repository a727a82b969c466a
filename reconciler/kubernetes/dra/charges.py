"""What a pod's claims come to in a round: whole GPUs of some types, or MIG instances of one profile: quotas count them.

Claims say which devices would do, not what they cost. So they are held against all that drivers publish: what they select says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reconciler.kubernetes.dra.claim_demand import Alternative, ClaimDemand
from reconciler.kubernetes.dra.expressions import SelectorError
from reconciler.kubernetes.dra.inventory import GpuDevice, gpu_device
from reconciler.kubernetes.dra.pools import Device
from reconciler.kubernetes.objects.remarks import Refusal
from solver.model.cluster import GpuType


class ClaimCharge(NamedTuple):
    """What a pod is charged for its claims. `gpu_types` in order of preference; (): any. `gpus` 0 and `mig` "": no GPUs at all.

    `instances`: how many of the profile `mig`.
    """

    gpus: int = 0
    gpu_types: tuple[GpuType, ...] = ()
    mig: str = ""
    instances: int = 0


class _Cost(NamedTuple):
    """What an alternative of a request costs. `number` None: it can't be said how many."""

    number: int | None
    profiles: frozenset[str]
    has_whole: bool


def charge_of(claims: Sequence[ClaimDemand], devices: Iterable[Device]) -> ClaimCharge | Refusal:
    """What the claims come to, by all devices of the cluster; devices of other drivers than NVIDIA's count for nothing."""
    known = [(device, found) for device in devices if (found := gpu_device(device))]
    every = tuple(sorted({found.gpu_type for _, found in known}))
    total = ClaimCharge()
    for claim in claims:
        for request in claim.requests:
            one = _request(claim.claim, request, known, every)
            if isinstance(one, Refusal):
                return one
            joined = _joined(claim.claim, total, one)
            if isinstance(joined, Refusal):
                return joined
            total = joined
    return total


def asked_of_given(given: Sequence[GpuDevice]) -> ClaimCharge | None:
    """What devices that a pod has already come to; None: rounds can't say it."""
    profiles = [found.instance.profile for found in given if found.instance]
    whole = len(given) - len(profiles)
    if len(set(profiles)) > 1 or (profiles and whole):
        return None
    return ClaimCharge(whole, (), profiles[0] if profiles else "", len(profiles))


def _request(
    claim: str, request: tuple[Alternative, ...], known: Sequence[tuple[Device, GpuDevice]], every: tuple[GpuType, ...]
) -> ClaimCharge | Refusal:
    place = f"claim {claim}, request {request[0].request}"
    costs: dict[_Cost, None] = {}
    types: dict[GpuType, None] = {}
    for alternative in request:
        matching = [found for device, found in known if _selects(alternative, device)]
        if matching:  # what selects no GPU costs none
            types |= dict.fromkeys(sorted({found.gpu_type for found in matching}))
            costs[_cost(alternative, matching)] = None
    if not costs:
        return ClaimCharge()
    cost = next(iter(costs))
    if cost.number is None:
        message = f"{place}: asks for all devices there are, which is another number on each node"
        return Refusal("claim-counts", message, "Say how many, with the allocation mode ExactCount.")
    if len(costs) > 1 or len(cost.profiles) + cost.has_whole > 1:
        message = f"{place}: may be met by GPUs and by instances, or by several numbers or profiles of them"
        return Refusal("claim-costs", message, "Let it select whole GPUs, or instances of one profile, and one number.")
    limited = () if len(request) == 1 and types.keys() == set(every) else tuple(types)
    if cost.has_whole:
        return ClaimCharge(cost.number, limited)
    return ClaimCharge(0, limited, next(iter(cost.profiles)), cost.number)


def _cost(alternative: Alternative, matching: Sequence[GpuDevice]) -> _Cost:
    profiles = frozenset(found.instance.profile for found in matching if found.instance)
    return _Cost(alternative.number, profiles, any(found.instance is None for found in matching))


def _selects(alternative: Alternative, device: Device) -> bool:
    try:
        return all(condition.expression.selects(device.look) for condition in alternative.conditions)
    except SelectorError:
        return False


def _joined(claim: str, one: ClaimCharge, other: ClaimCharge) -> ClaimCharge | Refusal:
    if not (other.gpus or other.mig):
        return one
    if not (one.gpus or one.mig):
        return other
    if one.mig != other.mig:
        message = f"claim {claim}: its pod asks for MIG instances of several profiles, or for some beside GPUs"
        return Refusal("several-profiles", message, "Ask for instances of one profile in each pod.")
    both = tuple(each for each in one.gpu_types if each in other.gpu_types)
    if one.gpu_types and other.gpu_types and not both:
        message = f"claim {claim}: its pod asks for {', '.join(one.gpu_types)} and for {', '.join(other.gpu_types)}"
        return Refusal("several-types", message, "GPUs of one pod are of one node, and of one type: ask for one type.")
    types, instances = both or one.gpu_types or other.gpu_types, one.instances + other.instances
    return ClaimCharge(one.gpus + other.gpus, types, one.mig, instances)
