"""Objects of `resource.k8s.io/v1` as the API server sends them: of each only the fields that matter here.

Written against k8s.io/api 0.36 (resource/v1/types.go). What the server leaves out when it is empty has a default.
"""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import Amount, Amounts, KubeCondition, Meta, NodeSelector, Owner, Wire

CLAIMS = Resource("resource.k8s.io/v1", "resourceclaims")
SLICES = Resource("resource.k8s.io/v1", "resourceslices")
CLASSES = Resource("resource.k8s.io/v1", "deviceclasses")

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Without it an allocated claim is gone as soon as it is deleted, with its devices still in use."""
RESULTS_MAX = 32
"""Devices that one claim may be given."""


class Attribute(Wire, frozen=True):
    """One value, of one of four kinds. None of them: a kind that this version does not know."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")


class CounterValue(Wire, frozen=True):
    """How much of something there is, or is used."""

    value: Amount


Attributes = dict[str, Attribute]
Counters = dict[str, CounterValue]


class CounterSet(Wire, frozen=True):
    """What several devices use parts of: that of one GPU, say."""

    name: str
    counters: Counters = msgspec.field(default_factory=dict)


class Consumption(Wire, frozen=True):
    """What a device uses of a counter set while it is allocated."""

    counter_set: str
    counters: Counters = msgspec.field(default_factory=dict)


class DeviceTaint(Wire, frozen=True):
    """What keeps claims away that do not tolerate it."""

    key: str
    effect: str
    value: str = ""


class WireDevice(Wire, frozen=True):
    """A device. `allow_multiple_allocations`: several claims may have parts of it."""

    name: str
    attributes: Attributes = msgspec.field(default_factory=dict)
    capacity: Counters = msgspec.field(default_factory=dict)
    consumes_counters: tuple[Consumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class WirePool(Wire, frozen=True):
    """Which pool a slice is of. Only slices of the newest generation count, and only when all of them are there."""

    name: str
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(Wire, frozen=True):
    """Devices of a driver, or what they share, and for which nodes."""

    driver: str
    pool: WirePool
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[WireDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Wire, frozen=True):
    """A part of a pool, as its driver publishes it."""

    metadata: Meta
    spec: SliceSpec


class Cel(Wire, frozen=True):
    """An expression about `device`."""

    expression: str


class Selector(Wire, frozen=True):
    """Which devices; without `cel` it is of a kind that this version does not know."""

    cel: Cel | None = None


class DeviceToleration(Wire, frozen=True):
    """A taint that a request puts up with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(Wire, frozen=True):
    """The least capacity that a device must have."""

    requests: Amounts = msgspec.field(default_factory=dict)


class Exactly(Wire, frozen=True):
    """What a request asks for. `allocation_mode`: ExactCount (`count` of them) or All."""

    device_class_name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class SubRequest(Exactly, frozen=True, kw_only=True):
    """One of the alternatives of `firstAvailable`."""

    name: str


class Request(Wire, frozen=True):
    """Devices under a name: exactly these, or the first of several alternatives that can be had."""

    name: str
    exactly: Exactly | None = None
    first_available: tuple[SubRequest, ...] = ()


class Constraint(Wire, frozen=True):
    """What the devices of some requests, or of all, have in common, or not."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class Config(Wire, frozen=True):
    """What the driver is told; `requests` empty: of all devices."""

    requests: tuple[str, ...] = ()
    opaque: dict[str, Any] | None = None


class DeviceClaim(Wire, frozen=True):
    """All that a claim asks for."""

    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[Config, ...] = ()


class ClaimSpec(Wire, frozen=True):
    """What a claim asks for."""

    devices: DeviceClaim = DeviceClaim()


class Result(Wire, frozen=True):
    """A device that a claim has."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


class DeviceAllocationResult(Wire, frozen=True):
    """All devices that a claim has."""

    results: tuple[Result, ...] = ()


class Allocation(Wire, frozen=True):
    """What a claim has, and on which nodes that can be used; `node_selector` None: on all."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class Consumer(Wire, frozen=True):
    """The pods that may use the claim's devices."""

    resource: str
    name: str
    uid: str
    api_group: str = ""


class DeviceStatus(Wire, frozen=True):
    """What the driver says of a device that is allocated."""

    driver: str
    pool: str
    device: str
    conditions: tuple[KubeCondition, ...] = ()


class ClaimStatus(Wire, frozen=True):
    """What each has."""

    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()
    devices: tuple[DeviceStatus, ...] = ()


class ClaimMeta(Meta, frozen=True):
    """As of any object, and what keeps it from being deleted."""

    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> Owner | None:
        """What made it."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class ResourceClaim(Wire, frozen=True):
    """A claim."""

    metadata: ClaimMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name


class ClassSpec(Wire, frozen=True):
    """Which devices are of a class, and what drivers are told of them."""

    selectors: tuple[Selector, ...] = ()
    config: tuple[Config, ...] = ()


class DeviceClass(Wire, frozen=True):
    """A class of devices."""

    metadata: Meta
    spec: ClassSpec = ClassSpec()
