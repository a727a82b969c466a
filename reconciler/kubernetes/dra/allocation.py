"""What is written into a claim's status for the devices it gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from reconciler.kubernetes.dra.pools import Device
from reconciler.kubernetes.dra.search import Pick
from reconciler.kubernetes.dra.wire import Config, DeviceClass, ResourceClaim
from reconciler.kubernetes.objects.wire import NodeSelectorTerm, SelectorRequirement


def allocation_of(
    claim: ResourceClaim, picks: Sequence[Pick], classes: Mapping[str, DeviceClass], node: str, timestamp: str
) -> dict[str, Any]:
    """`status.allocation`. `timestamp`: now, RFC 3339; `node`: where the pod is to run."""
    written: dict[str, Any] = {"devices": {"results": [_result(pick) for pick in picks]}}
    if config := [*_of_classes(picks, classes), *_of_claim(claim, picks)]:
        written["devices"]["config"] = config
    if selector := _node_selector([pick.device for pick in picks], node):
        written["nodeSelector"] = selector
    return {**written, "allocationTimestamp": timestamp}


def _result(pick: Pick) -> dict[str, Any]:
    device, result = pick.device, {"request": pick.alternative.name, **pick.device.id._asdict()}
    if pick.alternative.tolerations:
        result["tolerations"] = [_without_nulls(each) for each in pick.alternative.tolerations]
    if device.conditions:
        result["bindingConditions"] = list(device.conditions)
        result["bindingFailureConditions"] = list(device.failure_conditions)
    return result


def _of_classes(picks: Iterable[Pick], classes: Mapping[str, DeviceClass]) -> Iterable[dict[str, Any]]:
    """Each class's, once, for all requests that name it."""
    requests: dict[str, dict[str, None]] = {}
    for pick in picks:
        requests.setdefault(pick.alternative.class_name, {})[pick.alternative.name] = None
    for name, named in requests.items():
        for config in classes[name].spec.config if name in classes else ():
            yield {"source": "FromClass", "requests": list(named), **_opaque(config)}


def _of_claim(claim: ResourceClaim, picks: Sequence[Pick]) -> Iterable[dict[str, Any]]:
    """The claim's own, without what is for alternatives that were not chosen."""
    chosen = {name for pick in picks for name in (pick.alternative.request, pick.alternative.name)}
    for config in claim.spec.devices.config:
        if not config.requests or chosen.intersection(config.requests):
            requests = {"requests": list(config.requests)} if config.requests else {}
            yield {"source": "FromClaim", **requests, **_opaque(config)}


def _opaque(config: Config) -> dict[str, Any]:
    return {"opaque": config.opaque} if config.opaque is not None else {}


def _node_selector(devices: Iterable[Device], node: str) -> dict[str, Any] | None:
    """Where all of them can be used; None: everywhere. One that is of a node, or binds to one, is used on this node alone."""
    term = NodeSelectorTerm()
    for device in devices:
        if device.where.name or device.binds_to_node:
            only = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [only]}]}
        # An API server stores slices with one term alone.
        for other in device.where.selector.node_selector_terms[:1] if device.where.selector else ():
            term = NodeSelectorTerm(
                _joined(term.match_expressions, other.match_expressions),
                _joined(term.match_fields, other.match_fields),
            )
    written = _without_nulls(term)
    return {"nodeSelectorTerms": [written]} if written else None


def _joined(
    known: tuple[SelectorRequirement, ...], more: tuple[SelectorRequirement, ...]
) -> tuple[SelectorRequirement, ...]:
    return tuple(dict.fromkeys((*known, *more)))


def _without_nulls(value: msgspec.Struct) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return {key: each for key, each in built.items() if each not in (None, "", [])}
