"""PodGroup objects of four makers, read into one form.

Kubernetes' own (scheduling.k8s.io, v1alpha2 in 1.36 and v1beta1 in 1.37: a group carries its policy itself, so its Workload need
not be read), Volcano's (scheduling.volcano.sh/v1beta1), KAI's (scheduling.run.ai/v2alpha2), and coscheduling's
(scheduling.x-k8s.io/v1alpha1). What each calls a thing is known here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from reconciler.backends.kubernetes.objects.pods import label_priority, queue_of
from reconciler.backends.kubernetes.objects.said import Refusal, Remark
from reconciler.backends.kubernetes.objects.wire import Meta, Wire, read

Source = Literal[
    "gang", "podgroup", "volcano", "kai", "coscheduling", "kueue", "lws", "jobset", "kubeflow", "ray", "job", "pod"
]
"""What made pods a gang: the second word of its name."""


class Group(NamedTuple):
    """What a PodGroup says. `least` None: its pods are each of their own. `least_of`: how many of a role, where it says so.

    `required`, `preferred`: labels of nodes, all pods in one domain of which.
    """

    source: Source
    namespace: str
    name: str
    least: int | None
    queue: str = ""
    priority_class: str = ""
    least_of: tuple[tuple[str, int], ...] = ()
    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    remarks: tuple[Remark, ...] = ()


class _Gang(Wire, frozen=True):
    min_count: int = 1


class _Policy(Wire, frozen=True):
    gang: _Gang | None = None


class _Key(Wire, frozen=True):
    key: str


class _Constraints(Wire, frozen=True):
    topology: tuple[_Key, ...] = ()


class _KubernetesSpec(Wire, frozen=True):
    scheduling_policy: _Policy = _Policy()
    scheduling_constraints: _Constraints | None = None
    priority_class_name: str = ""
    resource_claims: tuple[Any, ...] = ()


class _Tiers(Wire, frozen=True):
    mode: str = "hard"


_SUB_GROUPS: Final = Refusal(
    "sub-groups",
    "its PodGroup asks for a least number of sub-groups, or rules of their own for them",
    "Say how many pods of each role it needs (minTaskMember, or minMember of a sub-group).",
)


class _VolcanoSpec(Wire, frozen=True):
    min_member: int = 1
    min_task_member: dict[str, int] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    queue: str = ""
    priority_class_name: str = ""
    network_topology: _Tiers | None = None
    sub_group_policy: tuple[Any, ...] = ()


class _KaiTopology(Wire, frozen=True):
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class _SubGroup(Wire, frozen=True):
    name: str
    min_member: int = 1
    parent: str | None = None
    min_sub_group: int | None = None
    topology_constraint: _KaiTopology | None = None


class _KaiSpec(Wire, frozen=True):
    min_member: int = 1
    queue: str = ""
    priority_class_name: str = ""
    min_sub_group: int | None = None
    sub_groups: tuple[_SubGroup, ...] = ()
    topology_constraint: _KaiTopology | None = None


class _Coscheduling(Wire, frozen=True):
    min_member: int = 1


class _Said(Wire, frozen=True):
    api_version: str
    kind: str
    metadata: Meta
    spec: dict[str, Any] = {}  # noqa: RUF012


def group_of(sent: bytes | Mapping[str, Any]) -> Group:
    """A PodGroup of any maker; raises msgspec.ValidationError, and ValueError for an API that is not known."""
    said = read(sent, _Said)
    reader = _READERS.get(said.api_version)
    if reader is None or said.kind != "PodGroup":
        known = ", ".join(sorted(_READERS))
        raise ValueError(f"{said.kind} of {said.api_version} is no PodGroup that is understood: those of {known} are")
    group = reader(said.metadata, said.spec)
    return group._replace(
        queue=queue_of(said.metadata) or group.queue,
        priority_class=label_priority(said.metadata) or group.priority_class,
    )


def _kubernetes(meta: Meta, written: Mapping[str, Any]) -> Group:
    spec = read(written, _KubernetesSpec)
    gang = spec.scheduling_policy.gang
    claims = Refusal("resource-claims", "its PodGroup asks for devices by ResourceClaims", "Ask for them in the pods.")
    constraints = spec.scheduling_constraints or _Constraints()
    return Group(
        source="podgroup",
        namespace=meta.namespace,
        name=meta.name,
        least=gang.min_count if gang else None,
        priority_class=spec.priority_class_name,
        required=tuple(topology.key for topology in constraints.topology),
        refusals=(claims,) if spec.resource_claims else (),
    )


def _volcano(meta: Meta, written: Mapping[str, Any]) -> Group:
    spec = read(written, _VolcanoSpec)
    mode = spec.network_topology.mode if spec.network_topology else ""
    hard = Refusal(
        "hyper-nodes",
        "its PodGroup requires a tier of HyperNodes, which have no place in the topology here",
        "Write the annotation kueue.x-k8s.io/podset-required-topology with a label of nodes, or mode: soft.",
    )
    soft = Remark("hyper-nodes", "the tier of HyperNodes that its PodGroup would like is not followed")
    return Group(
        source="volcano",
        namespace=meta.namespace,
        name=meta.name,
        least=max(1, spec.min_member),
        queue=spec.queue,
        priority_class=spec.priority_class_name,
        least_of=tuple(sorted(spec.min_task_member.items())),
        refusals=(*((hard,) if mode == "hard" else ()), *((_SUB_GROUPS,) if spec.sub_group_policy else ())),
        remarks=(soft,) if mode == "soft" else (),
    )


def _kai(meta: Meta, written: Mapping[str, Any]) -> Group:
    spec = read(written, _KaiSpec)
    topology = spec.topology_constraint or _KaiTopology()
    within = any(group.topology_constraint for group in spec.sub_groups)
    refusal = Refusal(
        "sub-group-topology",
        "a sub-group of its PodGroup has a topology constraint of its own",
        "Constrain the whole PodGroup.",
    )
    some = {spec.min_sub_group, *(group.min_sub_group for group in spec.sub_groups)} != {None}
    leaves = {group.name for group in spec.sub_groups} - {group.parent for group in spec.sub_groups}
    return Group(
        source="kai",
        namespace=meta.namespace,
        name=meta.name,
        least=max(1, spec.min_member),
        queue=spec.queue,
        priority_class=spec.priority_class_name,
        least_of=tuple(sorted((group.name, group.min_member) for group in spec.sub_groups if group.name in leaves)),
        required=(topology.required_topology_level,) if topology.required_topology_level else (),
        preferred=(topology.preferred_topology_level,) if topology.preferred_topology_level else (),
        refusals=(*((refusal,) if within else ()), *((_SUB_GROUPS,) if some else ())),
    )


def _coscheduling(meta: Meta, written: Mapping[str, Any]) -> Group:
    return Group("coscheduling", meta.namespace, meta.name, max(1, read(written, _Coscheduling).min_member))


_READERS: Final[dict[str, Callable[[Meta, Mapping[str, Any]], Group]]] = {
    "scheduling.k8s.io/v1alpha2": _kubernetes,
    "scheduling.k8s.io/v1beta1": _kubernetes,
    "scheduling.run.ai/v2alpha2": _kai,
    "scheduling.volcano.sh/v1beta1": _volcano,
    "scheduling.x-k8s.io/v1alpha1": _coscheduling,
}
