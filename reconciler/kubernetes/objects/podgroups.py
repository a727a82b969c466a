"""PodGroup objects of four makers, read into one form.

Kubernetes' own (scheduling.k8s.io, v1alpha2 in 1.36, v1alpha3 and v1beta1 in 1.37: a group carries its policy itself, so its
Workload need not be read; in 1.35, v1alpha1, groups are a part of their Workload: workload_groups.py), Volcano's
(scheduling.volcano.sh/v1beta1), KAI's (scheduling.run.ai/v2alpha2), and coscheduling's (scheduling.x-k8s.io/v1alpha1). What each
calls a thing is known here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from reconciler.kubernetes.objects.object_kinds import ObjectKind, read_as
from reconciler.kubernetes.objects.pods import label_priority, queue_of
from reconciler.kubernetes.objects.remarks import Refusal, Remark
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.unit_rules import SubGroup, UnitRule, UnitRules, units_of_tree
from reconciler.kubernetes.objects.wire import Meta, Wire

Source = Literal[
    "gang",
    "podgroup",
    "workload",
    "volcano",
    "kai",
    "coscheduling",
    "kueue",
    "yunikorn",
    "lws",
    "jobset",
    "kubeflow",
    "ray",
    "job",
    "pod",
]
"""What made pods a gang: the second word of its name."""


class SubGroups(NamedTuple):
    """Roles of a gang that are in one domain of a label of nodes (`required`), or had best be (`preferred`)."""

    roles: frozenset[str]
    required: str = ""
    preferred: str = ""


class Group(NamedTuple):
    """What a PodGroup says. `least` None: its pods are each of their own. `least_of`: how many of a role, where it says so.

    `required`, `preferred`: labels of nodes, all pods in one domain of which; `sub_groups`: the same for some of its roles.
    `units`: sub-groups of which so many do.
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
    sub_groups: tuple[SubGroups, ...] = ()
    units: tuple[UnitRule, ...] = ()
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
    parent_composite_pod_group_name: str | None = None


class _Tiers(Wire, frozen=True):
    mode: str = "hard"


class _Selector(Wire, frozen=True):
    match_labels: dict[str, str] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    match_expressions: tuple[Any, ...] = ()


class _SubGroupPolicy(Wire, frozen=True):
    name: str = ""
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    label_selector: _Selector | None = None
    match_label_keys: tuple[str, ...] = ()
    network_topology: _Tiers | None = None


class _VolcanoSpec(Wire, frozen=True):
    min_member: int = 1
    min_task_member: dict[str, int] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    queue: str = ""
    priority_class_name: str = ""
    network_topology: _Tiers | None = None
    sub_group_policy: tuple[_SubGroupPolicy, ...] = ()


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


def group_of(sent: bytes | Mapping[str, Any]) -> Group:
    """A PodGroup of any maker; raises msgspec.ValidationError, and ValueError for an API that is not known."""
    return read_as(GROUPS, sent, "PodGroup that is understood")


def _labelled(meta: Meta, group: Group) -> Group:
    """What its labels say goes before what it says itself."""
    queue, priority_class = queue_of(meta) or group.queue, label_priority(meta) or group.priority_class
    return group._replace(queue=queue, priority_class=priority_class)


def _kubernetes(meta: Meta, spec: _KubernetesSpec) -> Group:
    gang = spec.scheduling_policy.gang
    claims = Refusal("resource-claims", "its PodGroup asks for devices by ResourceClaims", "Ask for them in the pods.")
    parent = spec.parent_composite_pod_group_name
    message = f"its PodGroup is a part of the CompositePodGroup {parent}, whose groups are to be scheduled together"
    composite = Refusal("composite-groups", message, "Make one PodGroup of its pods.")
    constraints = spec.scheduling_constraints or _Constraints()
    group = Group(
        source="podgroup",
        namespace=meta.namespace,
        name=meta.name,
        least=gang.min_count if gang else None,
        priority_class=spec.priority_class_name,
        required=tuple(topology.key for topology in constraints.topology),
        refusals=(*((claims,) if spec.resource_claims else ()), *((composite,) if parent else ())),
    )
    return _labelled(meta, group)


def _volcano(meta: Meta, spec: _VolcanoSpec) -> Group:
    asked = (spec.network_topology, *(known.network_topology for known in spec.sub_group_policy))
    modes = {tiers.mode for tiers in asked if tiers}
    rules = [_volcano_units(known, spec.min_member) for known in spec.sub_group_policy]
    hard = Refusal(
        "hyper-nodes",
        "its PodGroup requires a tier of HyperNodes, which have no place in the topology here",
        "Write the annotation kueue.x-k8s.io/podset-required-topology with a label of nodes, or mode: soft.",
    )
    soft = Remark("hyper-nodes", "the tier of HyperNodes that its PodGroup would like is not followed")
    group = Group(
        source="volcano",
        namespace=meta.namespace,
        name=meta.name,
        least=max(1, spec.min_member),
        queue=spec.queue,
        priority_class=spec.priority_class_name,
        least_of=tuple(sorted(spec.min_task_member.items())),
        units=tuple(rule for rule in rules if isinstance(rule, UnitRule)),
        refusals=(*((hard,) if "hard" in modes else ()), *(rule for rule in rules if isinstance(rule, Refusal))),
        remarks=(soft,) if "soft" in modes else (),
    )
    return _labelled(meta, group)


def _volcano_units(policy: _SubGroupPolicy, pods: int) -> UnitRule | Refusal:
    """Sub-groups of so many pods each, told apart by labels; where it does not say how many do, as many as its pods make."""
    size, selector = policy.sub_group_size or 0, policy.label_selector or _Selector()
    if size < 1 or not policy.match_label_keys or selector.match_expressions:
        message = f"subGroupPolicy {policy.name} does not say of how many pods each sub-group is, or which labels tell them apart"
        fix = "Write matchLabelKeys and subGroupSize, and choose pods by matchLabels alone."
        return Refusal("sub-groups", message, fix)
    # A PodGroup needs its pods, too: without a selector all of them are in sub-groups.
    least = max(policy.min_sub_groups or 0, 0 if selector.match_labels else -(-pods // size))
    labels = tuple(sorted(selector.match_labels.items()))
    return UnitRule(policy.name, max(1, least), size, keys=policy.match_label_keys, selector=labels)


def _kai(meta: Meta, spec: _KaiSpec) -> Group:
    topology = spec.topology_constraint or _KaiTopology()
    tree = [_in_tree(group) for group in spec.sub_groups]
    some = {spec.min_sub_group, *(group.min_sub_group for group in spec.sub_groups)} != {None}
    units = units_of_tree(tree, spec.min_sub_group) if some else UnitRules((), max(1, spec.min_member))
    leaves = {group.name for group in spec.sub_groups} - {group.parent for group in spec.sub_groups}
    least_of = {group.name: group.min_member for group in spec.sub_groups if group.name in leaves}
    alone = [(name, pods) for name, pods in least_of.items() if name.lower() not in units.inside]
    alone += [(name, rule.least * size) for rule in units.rules for name, size in rule.sizes]
    group = Group(
        source="kai",
        namespace=meta.namespace,
        name=meta.name,
        least=units.pods,
        queue=spec.queue,
        priority_class=spec.priority_class_name,
        least_of=tuple(sorted(alone)),
        required=(topology.required_topology_level,) if topology.required_topology_level else (),
        preferred=(topology.preferred_topology_level,) if topology.preferred_topology_level else (),
        sub_groups=tuple(_kept_sub_groups(tree, units)),
        units=units.rules,
        refusals=(units.refusal,) if units.refusal else (),
    )
    return _labelled(meta, group)


def _in_tree(group: _SubGroup) -> SubGroup:
    asked = group.topology_constraint or _KaiTopology()
    levels = asked.required_topology_level, asked.preferred_topology_level
    return SubGroup(group.name, group.parent or "", group.min_member, group.min_sub_group, *levels)


def _kept_sub_groups(sub_groups: Sequence[SubGroup], units: UnitRules) -> Iterator[SubGroups]:
    """Those with a topology constraint of their own, each with the roles that it holds, itself or in those below it.

    What a unit asks is a part of its rule.
    """
    below = dict[str, list[str]]()
    for group in sub_groups:
        below.setdefault(group.parent, []).append(group.name)
    of_units = {unit for rule in units.rules for _, _, unit in rule.roles}

    def leaves(name: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        inner = [one for one in below.get(name, ()) if one not in seen]
        yield from (leaf for one in inner for leaf in leaves(one, seen | {name})) if inner else (name.lower(),)

    for group in sub_groups:
        if (group.required or group.preferred) and group.name.lower() not in of_units:
            roles = frozenset(units.common(role) for role in leaves(group.name))
            yield SubGroups(roles, group.required, group.preferred)


def _coscheduling(meta: Meta, spec: _Coscheduling) -> Group:
    return _labelled(meta, Group("coscheduling", meta.namespace, meta.name, max(1, spec.min_member)))


def _resources(*versions: str) -> tuple[Resource, ...]:
    return tuple(Resource(version, "podgroups") for version in versions)


GROUPS: Final[tuple[ObjectKind[Any, Group], ...]] = (
    ObjectKind(
        "PodGroup",
        _resources("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1alpha2"),
        _KubernetesSpec,
        _kubernetes,
    ),
    ObjectKind("PodGroup", _resources("scheduling.volcano.sh/v1beta1"), _VolcanoSpec, _volcano),
    ObjectKind("PodGroup", _resources("scheduling.run.ai/v2alpha2"), _KaiSpec, _kai),
    ObjectKind("PodGroup", _resources("scheduling.x-k8s.io/v1alpha1"), _Coscheduling, _coscheduling),
)
"""The makers whose PodGroups are understood."""
