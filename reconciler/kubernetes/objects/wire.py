"""Objects as the API server sends them: of each only the fields that matter here, whatever else there is being ignored.

Written against the types of k8s.io/api 0.36 (core/v1). What the server leaves out when it is empty has a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from solver.model.quantities import Instant

T = TypeVar("T")
Amount = str | int | float
"""A quantity as it is written: the server sends strings, files may have numbers."""
Amounts = dict[str, Amount]
Labels = dict[str, str]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Wire(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Frozen data with camelCase JSON names; unknown fields are ignored."""


def read(sent: bytes | Mapping[str, Any], kind: type[T]) -> T:
    """An object from JSON, or from what JSON became; raises msgspec.ValidationError, which says the place."""
    return msgspec.json.decode(sent, type=kind) if isinstance(sent, bytes) else msgspec.convert(sent, type=kind)


@lru_cache(maxsize=8192)  # to the second, and thousands of pods are made in one
def instant_of(written: str) -> Instant:
    """A time as the server writes it. Raises ValueError."""
    return Instant.parse(written)


class Owner(Wire, frozen=True):
    """The owner of an object. `controller`: it made the object and will make it anew."""

    kind: str
    name: str
    uid: str = ""
    controller: bool = False


class Meta(Wire, frozen=True):
    """What every object has. Times are RFC 3339 in UTC, as the server writes them."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels = {}
    annotations: Labels = {}
    owner_references: tuple[Owner, ...] = ()


class SelectorRequirement(Wire, frozen=True):
    """One requirement of a selector: In, NotIn, Exists, DoesNotExist; of node selectors Gt and Lt too."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    """Which pods; an empty one means all of them."""

    match_labels: Labels = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    """Requirements of a node's labels and fields, all of which must hold; one without any holds nowhere."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """Terms one of which must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodes(Wire, frozen=True):
    """Nodes that are liked, by weight."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Wire, frozen=True):
    """Where a pod must and would like to run, by what nodes are."""

    required: NodeSelector | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: tuple[PreferredNodes, ...] = msgspec.field(default=(), name=_PREFERRED)


class PodTerm(Wire, frozen=True):
    """Pods of some namespaces, and the label that says what counts as the same place."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class WeightedPodTerm(Wire, frozen=True):
    """A wish, by weight."""

    weight: int
    pod_affinity_term: PodTerm


class PodAffinity(Wire, frozen=True):
    """Near which pods, or away from which, a pod must and would like to run."""

    required: tuple[PodTerm, ...] = msgspec.field(default=(), name=_REQUIRED)
    preferred: tuple[WeightedPodTerm, ...] = msgspec.field(default=(), name=_PREFERRED)


class Affinity(Wire, frozen=True):
    """All of a pod's affinities."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpread(Wire, frozen=True):
    """How evenly the pods that a selector means are to lie in the domains of a label."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: int | None = None
    node_taints_policy: str = "Ignore"
    node_affinity_policy: str = "Honor"


class Toleration(Wire, frozen=True):
    """A taint that a pod puts up with; without a key and with Exists, every one."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Resources(Wire, frozen=True):
    """What is asked for, and the most that may be used."""

    requests: Amounts = {}
    limits: Amounts = {}


class Port(Wire, frozen=True):
    """A port; `host_port` 0: none of the node's own. `host_ip` "" or 0.0.0.0: on all addresses of the node."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class KubeContainer(Wire, frozen=True):
    """One container. An init container that restarts Always is a sidecar."""

    name: str
    resources: Resources = Resources()
    restart_policy: str = ""
    ports: tuple[Port, ...] = ()


class Volume(Wire, frozen=True):
    """A volume: of a claim that is there (`claimName`), of one that is made for the pod (`ephemeral`), or of another kind."""

    name: str
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class Named(Wire, frozen=True):
    """Something that has a name."""

    name: str


class PodClaim(Wire, frozen=True):
    """A claim that a pod uses, under the name that its containers call it by: one that is there, or one made of a template.

    In a pod's status: the claim that was made; None: it turned out that none is needed.
    """

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGroup(Wire, frozen=True):
    """Which of Kubernetes' own PodGroups a pod is in."""

    pod_group_name: str | None = None


class WorkloadRef(Wire, frozen=True):
    """Of Kubernetes 1.35: in which group of which Workload a pod is; pods of another replica are another gang."""

    name: str
    pod_group: str = ""
    pod_group_replica_key: str = ""


class NodeLimit(Wire, frozen=True):
    """Nodes that something a pod uses can be had on: one of the terms holds. `said`: which nodes these are, in words."""

    said: str
    terms: tuple[NodeSelectorTerm, ...]


class PodSpec(Wire, frozen=True):
    """What a pod asks for."""

    containers: tuple[KubeContainer, ...]
    init_containers: tuple[KubeContainer, ...] = ()
    overhead: Amounts = {}
    resources: Resources | None = None
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority_class_name: str = ""
    preemption_policy: str = ""
    active_deadline_seconds: int | None = None
    node_selector: Labels = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpread, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None
    scheduling_gates: tuple[Named, ...] = ()
    resource_claims: tuple[PodClaim, ...] = ()
    # The next four are said by dra/pod_claims.py and pod_volumes.py, never by the server: a Refusal's fields, why it waits, whether
    # the GPUs that it asks for are had by claims, and the nodes that what it uses can be had on.
    unmet_claims: tuple[str, str, str] | None = None
    awaited: tuple[str, ...] = ()
    gpus_by_claims: bool = False
    limits: tuple[NodeLimit, ...] = ()
    volumes: tuple[Volume, ...] = ()
    termination_grace_period_seconds: int | None = None
    host_network: bool = False


class KubeCondition(Wire, frozen=True):
    """A condition of a node or a pod."""

    type: str
    status: str
    last_transition_time: str | None = None
    reason: str = ""


class Terminated(Wire, frozen=True):
    """A container that has ended."""

    finished_at: str | None = None


class ContainerState(Wire, frozen=True):
    """How a container stands, as far as it matters."""

    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    """One of the containers of a pod."""

    state: ContainerState = ContainerState()


class PodStatus(Wire, frozen=True):
    """How a pod stands."""

    phase: str = "Pending"
    start_time: str | None = None
    resource_claim_statuses: tuple[PodClaim, ...] = ()
    conditions: tuple[KubeCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    nominated_node_name: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")


class Pod(Wire, frozen=True):
    """A pod."""

    metadata: Meta
    spec: PodSpec
    status: PodStatus = PodStatus()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def is_over(self) -> bool:
        """It has ended, and holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def holds(self) -> bool:
        """It holds what it asks for, on its node."""
        return bool(self.spec.node_name) and not self.is_over


class Taint(Wire, frozen=True):
    """What keeps pods away that do not tolerate it."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(Wire, frozen=True):
    """What was decided about a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Wire, frozen=True):
    """What a node has (`capacity`), and what of it pods may have (`allocatable`)."""

    capacity: Amounts = {}
    allocatable: Amounts = {}
    conditions: tuple[KubeCondition, ...] = ()


class KubeNode(Wire, frozen=True):
    """A node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
