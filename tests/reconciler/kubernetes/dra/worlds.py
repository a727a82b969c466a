"""Claims, classes and pools of devices for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hack.kubernetes import devices
from reconciler.kubernetes.dra.allocation import allocation_of
from reconciler.kubernetes.dra.allocator import Allocator, Grant, NoDevices
from reconciler.kubernetes.dra.claim_demand import demand_of
from reconciler.kubernetes.dra.expressions import Expressions
from reconciler.kubernetes.dra.pools import pools_of
from reconciler.kubernetes.dra.prospects import node_devices
from reconciler.kubernetes.dra.usage import usage_of
from reconciler.kubernetes.dra.wire import DeviceClass, ResourceClaim, ResourceSlice
from reconciler.kubernetes.objects.wire import KubeNode, read

NOW = "2026-01-01T00:00:00Z"
ANY = "any"
"""A class of all devices."""

CLASSES = {name: read(written, DeviceClass) for written in devices.classes() for name in [written["metadata"]["name"]]}
CLASSES[ANY] = read({"metadata": {"name": ANY}}, DeviceClass)


def a_node(name: str = "n1", **labels: str) -> KubeNode:
    return read({"metadata": {"name": name, "labels": labels}}, KubeNode)


def slices_of(written: Iterable[Mapping[str, Any]]) -> tuple[ResourceSlice, ...]:
    return tuple(read(one, ResourceSlice) for one in written)


def a_slice(
    *of: dict[str, Any], name: str = "n1", counters: Sequence[dict[str, Any]] = ()
) -> tuple[ResourceSlice, ...]:
    """A pool of these devices, for the node of its name."""
    parts: list[dict[str, Any]] = [{"sharedCounters": list(counters)}] if counters else []
    parts.append({"devices": list(of)})
    return slices_of(devices.slice_of(name, number, len(parts), part) for number, part in enumerate(parts))


def a_device(name: str, /, **attributes: str | int | bool) -> dict[str, Any]:
    kinds = {bool: "bool", int: "int", str: "string"}
    return {"name": name, "attributes": {key: {kinds[type(value)]: value} for key, value in attributes.items()}}


def a_request(name: str = "r", device_class: str = ANY, *selectors: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "exactly": exactly(device_class, *selectors, **more)}


def exactly(device_class: str = ANY, *selectors: str, **more: Any) -> dict[str, Any]:
    cel = [{"cel": {"expression": expression}} for expression in selectors]
    return {"deviceClassName": device_class, "selectors": cel, **more}


def a_claim(*requests: dict[str, Any], name: str = "c", **more: Any) -> ResourceClaim:
    """`more`: constraints, config."""
    spec = {"devices": {"requests": list(requests), **more}}
    return read({"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec}, ResourceClaim)


def profile(name: str, **more: Any) -> dict[str, Any]:
    """A request for a MIG instance."""
    return a_request("mig", "mig.nvidia.com", f"device.attributes['{devices.DRIVER}'].profile == '{name}'", **more)


def given(
    claims: Sequence[ResourceClaim],
    slices: Iterable[ResourceSlice],
    others: Iterable[ResourceClaim] = (),
    node: KubeNode | None = None,
    allocator: Allocator | None = None,
) -> Grant | NoDevices:
    """What a pod with these claims gets on the node, beside what `others` have."""
    pools = pools_of(slices)
    known = Expressions()
    wanted = [demand_of(claim, CLASSES, known) for claim in claims]
    there = node_devices(node or a_node(), pools)
    return (allocator or Allocator()).grant(there, wanted, usage_of(pools, others))


def written(claims: Sequence[ResourceClaim], grant: Grant, node: str = "n1") -> list[ResourceClaim]:
    """The claims as they are once that is written."""
    done = []
    for number, claim in enumerate(claims):
        allocation = allocation_of(claim, grant.of(number), CLASSES, node, NOW)
        sent: Any = {
            "metadata": {"name": claim.metadata.name, "namespace": "default"},
            "status": {"allocation": allocation},
        }
        allocated = read(sent, ResourceClaim)
        done.append(ResourceClaim(claim.metadata, claim.spec, allocated.status))
    return done


def names(grant: Grant | NoDevices) -> list[str]:
    assert isinstance(grant, Grant), str(grant)
    return [pick.device.id.device for pick in grant.picks]
