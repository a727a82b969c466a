"""What claims want, made ready for the search: classes looked up, expressions compiled, what can't be kept refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec

from reconciler.kubernetes.dra.expressions import Expression, Expressions, SelectorError
from reconciler.kubernetes.dra.wire import (
    RESULTS_MAX,
    Constraint,
    DeviceClass,
    DeviceToleration,
    Exactly,
    Request,
    ResourceClaim,
    Selector,
)
from reconciler.kubernetes.objects.amounts import amount
from reconciler.kubernetes.objects.remarks import Refusal


class LocatedExpression(NamedTuple):
    """An expression, and where it stands."""

    place: str
    expression: Expression


class Alternative(NamedTuple):
    """Devices that would do for a request. `name`: as results call it, REQUEST or REQUEST/SUBREQUEST. `number` None: all there are.

    `capacity`: the least that each device must have, by full or short name.
    """

    name: str
    request: str
    class_name: str
    conditions: tuple[LocatedExpression, ...]
    number: int | None
    tolerations: tuple[DeviceToleration, ...]
    capacity: tuple[tuple[str, Fraction], ...]


class DeviceConstraint(NamedTuple):
    """A constraint: devices of these requests (all, if none is named) have one value of an attribute, or each its own."""

    requests: frozenset[str]
    attribute: str
    is_distinct: bool

    def means(self, alternative: Alternative) -> bool:
        """Whether it speaks of the devices of a request."""
        return not self.requests or not self.requests.isdisjoint((alternative.request, alternative.name))


class ClaimDemand(NamedTuple):
    """All that a claim wants: for each request its alternatives, the first the best. `signature`: equal for equal wishes."""

    claim: str
    requests: tuple[tuple[Alternative, ...], ...]
    rules: tuple[DeviceConstraint, ...]
    signature: bytes


class RefusedClaimError(Exception):
    """A claim can't be kept, whatever there is. Its author must act."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def demand_of(claim: ResourceClaim, classes: Mapping[str, DeviceClass], expressions: Expressions) -> ClaimDemand:
    """What the claim wants; raises RefusedClaimError."""
    name = "/".join(claim.key)
    asked = claim.spec.devices
    named = sorted({each.device_class_name for request in asked.requests for each in _all(request)})
    selectors = [classes[each].spec.selectors if each in classes else None for each in named]
    wanted = ClaimDemand(
        claim=name,
        requests=tuple(_alternatives(name, request, classes, expressions) for request in asked.requests),
        rules=tuple(_rule(name, number, rule) for number, rule in enumerate(asked.constraints)),
        signature=msgspec.json.encode([asked.requests, asked.constraints, named, selectors]),
    )
    least = sum(min(each.number or 1 for each in alternatives) for alternatives in wanted.requests)
    if least > RESULTS_MAX:
        message = f"claim {name} asks for {least} devices, and one claim can have {RESULTS_MAX}"
        raise RefusedClaimError(Refusal("too-many-devices", message, "Ask for them in several claims."))
    return wanted


def _all(request: Request) -> tuple[Exactly, ...]:
    return (request.exactly,) if request.exactly else request.first_available


def _alternatives(
    claim: str, request: Request, classes: Mapping[str, DeviceClass], expressions: Expressions
) -> tuple[Alternative, ...]:
    if request.exactly:
        named: list[tuple[str, Exactly]] = [(request.name, request.exactly)]
    else:
        named = [(f"{request.name}/{each.name}", each) for each in request.first_available]
    if not named:
        raise _unknown(f"claim {claim}, request {request.name}: asks in a way that this version does not know")
    return tuple(_alternative(claim, name, request.name, each, classes, expressions) for name, each in named)


def _alternative(
    claim: str, name: str, request: str, asked: Exactly, classes: Mapping[str, DeviceClass], expressions: Expressions
) -> Alternative:
    place = f"claim {claim}, request {name}"
    if asked.admin_access:
        message = f"{place}: asks for admin access, to devices that others are using"
        fix = "Quorate gives each device to one claim. Drop adminAccess, or run the pod under another scheduler."
        raise RefusedClaimError(Refusal("admin-access", message, fix))
    if asked.allocation_mode not in ("ExactCount", "All"):
        raise _unknown(f"{place}: the allocation mode {asked.allocation_mode} is not known")
    device_class = classes.get(asked.device_class_name)
    if device_class is None:
        message = f"{place}: there is no device class {asked.device_class_name}"
        raise RefusedClaimError(Refusal("no-device-class", message, "Create it, or name one that there is."))
    conditions = (
        *_conditions(f"device class {asked.device_class_name}", device_class.spec.selectors, expressions),
        *_conditions(place, asked.selectors, expressions),
    )
    capacity = asked.capacity.requests if asked.capacity else {}
    return Alternative(
        name=name,
        request=request,
        class_name=asked.device_class_name,
        conditions=conditions,
        number=None if asked.allocation_mode == "All" else asked.count,
        tolerations=asked.tolerations,
        capacity=tuple((key, _amount(place, written)) for key, written in sorted(capacity.items())),
    )


def _conditions(place: str, selectors: Sequence[Selector], expressions: Expressions) -> Iterator[LocatedExpression]:
    for number, selector in enumerate(selectors):
        where = f"{place}, selector {number + 1}"
        if selector.cel is None:
            raise _unknown(f"{where}: is no CEL expression")
        try:
            yield LocatedExpression(where, expressions.get(selector.cel.expression))
        except SelectorError as wrong:
            raise RefusedClaimError(selector_refusal(where, wrong)) from wrong


def selector_refusal(place: str, wrong: SelectorError) -> Refusal:
    """What is said of an expression that does not work."""
    fix = "Correct the expression; has(...) or .?name asks for what a device may not have."
    return Refusal("selector-fails", f"{place}: {wrong}", fix)


def _rule(claim: str, number: int, constraint: Constraint) -> DeviceConstraint:
    requests = frozenset(constraint.requests)
    if constraint.match_attribute:
        return DeviceConstraint(requests, constraint.match_attribute, is_distinct=False)
    if constraint.distinct_attribute:
        return DeviceConstraint(requests, constraint.distinct_attribute, is_distinct=True)
    raise _unknown(f"claim {claim}, constraint {number + 1}: is of a kind that this version does not know")


def _amount(place: str, written: str | float) -> Fraction:
    try:
        return amount(written)
    except ValueError as wrong:
        raise RefusedClaimError(Refusal("unreadable-quantity", f"{place}: {wrong}", "Correct the capacity.")) from wrong


def _unknown(message: str) -> RefusedClaimError:
    return RefusedClaimError(Refusal("unknown-request", message, "Ask with what resource.k8s.io/v1 of 1.36 has."))
