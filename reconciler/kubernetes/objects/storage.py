"""Volumes of pods, as the API server has them: claims, what they are bound to, and by which rules that is made.

Written against the types of k8s.io/api 0.36 (core/v1, storage/v1).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from reconciler.kubernetes.objects.amounts import amount
from reconciler.kubernetes.objects.wire import (
    LabelSelector,
    Meta,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    Resources,
    SelectorRequirement,
    Wire,
)

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim: a scheduler has decided that its pod runs there, so that its volume may be made for that node."""
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""On a claim, by the controller of volumes: it and its volume name each other."""
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""As the provisioner of a class: people make its volumes, one by one."""

ONE_POD: Final = "ReadWriteOncePod"
"""Among the access modes of a claim (KEP-2485)."""

_ZONES: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_SEVERAL: Final = "__"
"""Between the zones that a volume names in one label."""


class PvcSpec(Wire, frozen=True):
    """`storage_class_name` None: none was written, and the cluster has no default class. `volume_name`: what it is bound to."""

    storage_class_name: str | None = None
    volume_name: str = ""
    resources: Resources = Resources()
    access_modes: tuple[str, ...] = ()


class PvcStatus(Wire, frozen=True):
    """`phase`: Pending, Bound or Lost."""

    phase: str = "Pending"


class PersistentVolumeClaim(Wire, frozen=True):
    """A claim."""

    metadata: Meta
    spec: PvcSpec = PvcSpec()
    status: PvcStatus = PvcStatus()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def is_bound(self) -> bool:
        """It has its volume for good."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def is_of_one_pod(self) -> bool:
        """One pod of the whole cluster mounts it at a time."""
        return ONE_POD in self.spec.access_modes

    @property
    def bytes_wanted(self) -> Fraction:
        """How large its volume is to be; 0 where that can't be read."""
        try:
            return amount(self.spec.resources.requests.get("storage", 0))
        except ValueError:
            return Fraction(0)


class VolumeNodeAffinity(Wire, frozen=True):
    """The nodes that can mount a volume; `required` None: all."""

    required: NodeSelector | None = None


class CsiSource(Wire, frozen=True):
    """Where a volume comes from that a CSI driver mounts."""

    driver: str = ""


class PvSpec(Wire, frozen=True):
    """What of a volume matters. `csi` None: no CSI driver mounts it."""

    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None


class PersistentVolume(Wire, frozen=True):
    """A volume."""

    metadata: Meta
    spec: PvSpec = PvSpec()

    @property
    def reach(self) -> tuple[NodeSelectorTerm, ...]:
        """The nodes that can mount it, by terms one of which must hold; (): all of them."""
        affinity = self.spec.node_affinity
        if affinity is not None and affinity.required is not None:
            return affinity.required.node_selector_terms
        zones = ((key, self.metadata.labels[key].split(_SEVERAL)) for key in _ZONES if key in self.metadata.labels)
        within = tuple(SelectorRequirement(key, "In", tuple(named)) for key, named in zones)
        return (NodeSelectorTerm(within),) if within else ()


class TopologyLabel(Wire, frozen=True):
    """A label of nodes, with the values that it may have."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(Wire, frozen=True):
    """Labels that a node must have, all of them."""

    match_label_expressions: tuple[TopologyLabel, ...] = ()


class StorageClass(Wire, frozen=True):
    """How volumes of a class are made. `volume_binding_mode`: Immediate, or WaitForFirstConsumer."""

    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()

    @property
    def waits_for_pods(self) -> bool:
        """A volume is made once it is known on which node its pod will run."""
        return self.volume_binding_mode == "WaitForFirstConsumer"

    @property
    def reach(self) -> tuple[NodeSelectorTerm, ...]:
        """The nodes for which it makes volumes, by terms one of which must hold; (): for all."""
        return tuple(
            NodeSelectorTerm(
                tuple(SelectorRequirement(one.key, "In", one.values) for one in term.match_label_expressions)
            )
            for term in self.allowed_topologies
        )


class DriverSpec(Wire, frozen=True):
    """`storage_capacity`: its driver says how much it has where, and nothing is to be made where it has not said so."""

    storage_capacity: bool = False


class CsiDriver(Wire, frozen=True):
    """A driver of volumes, which has the name of the provisioner."""

    metadata: Meta
    spec: DriverSpec = DriverSpec()


class MountLimit(Wire, frozen=True):
    """How many volumes of a driver a node can have at once; None: the driver knows no limit."""

    count: int | None = None


class NodeDriver(Wire, frozen=True):
    """A driver on a node."""

    name: str
    allocatable: MountLimit | None = None


class CsiNodeSpec(Wire, frozen=True):
    """The drivers of a node."""

    drivers: tuple[NodeDriver, ...] = ()


class CsiNode(Wire, frozen=True):
    """What CSI drivers say of a node, by its name."""

    metadata: Meta
    spec: CsiNodeSpec = CsiNodeSpec()

    @property
    def limits(self) -> dict[str, int]:
        """How many volumes it can have of each driver that knows a limit."""
        known = ((one.name, one.allocatable.count) for one in self.spec.drivers if one.allocatable)
        return {name: count for name, count in known if count is not None}


class CsiStorageCapacity(Wire, frozen=True):
    """How much of a class there is for some nodes. `node_topology` None: for none. `maximum_volume_size` goes before `capacity`."""

    metadata: Meta
    storage_class_name: str
    node_topology: LabelSelector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None

    def has(self, wanted: Fraction) -> bool:
        """Whether a volume of so many bytes can be made, as far as it is known."""
        said = self.capacity if self.maximum_volume_size is None else self.maximum_volume_size
        try:
            return said is not None and amount(said) >= wanted
        except ValueError:
            return False

    @property
    def reach(self) -> NodeSelectorTerm | None:
        """Its nodes, as a term that requires nothing where they are all; None: there are none."""
        if self.node_topology is None:
            return None
        labels = (SelectorRequirement(key, "In", (value,)) for key, value in self.node_topology.match_labels.items())
        return NodeSelectorTerm((*labels, *self.node_topology.match_expressions))


def claims_named(pod: Pod) -> tuple[str, ...]:
    """The claims that a pod mounts, by name; those that are made for it alone have a name that follows from its own."""
    found: list[str] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(str(volume.persistent_volume_claim.get("claimName", "")))
        elif volume.ephemeral is not None:
            found.append(f"{pod.metadata.name}-{volume.name}")
    return tuple(found)
