"""What the roles of a gang ask of where they are: each by itself, or with others; and what that means for their task groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.closeness import Kept
from reconciler.kubernetes.objects.constraints import Places
from reconciler.kubernetes.objects.pod_affinity import as_level
from reconciler.kubernetes.objects.podgroups import SubGroups
from reconciler.kubernetes.objects.remarks import Refusal, Remark
from reconciler.kubernetes.objects.units import Units, together_in
from reconciler.kubernetes.objects.wire import Pod
from solver.model.cluster import LEVELS, Level, is_wider
from solver.model.workload import Together


class RoleGroup(NamedTuple):
    """One task group of a role: its pods, and whether it is in slices."""

    name: str
    role: str
    pods: Sequence[Pod]
    sliced: bool


@dataclass(slots=True)
class RoleTopology:
    """What roles ask. `groups`: of task groups, by name; `together`: of several; `units`: of each unit of them.

    Mutable: filled step by step.
    """

    groups: dict[str, Kept] = field(default_factory=dict)
    units: list[tuple[Units, Kept]] = field(default_factory=list)
    together: list[Together] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)


def role_topology(
    groups: Sequence[RoleGroup], sub_groups: Sequence[SubGroups], places: Places, units: Sequence[Units] = ()
) -> RoleTopology:
    """What is written on the pods of a gang of several roles, as Kueue has it, and of the sub-groups of KAI's PodGroup.

    A role of which not all pods are alike is several task groups, which are together then.
    """
    found = RoleTopology()
    for known in units:
        required, preferred = ([key] if key else [] for key in (known.rule.required, known.rule.preferred))
        kept = _levels(found, required, preferred, places)
        found.units.append((known, kept))
        found.together.append(together_in(known, kept))
    by_name = defaultdict[str, list[RoleGroup]](list)
    for group in groups:
        said = [names.label_or_annotation(pod.metadata, names.KUEUE_TOGETHER) for pod in group.pods]
        by_name[next(filter(None, said), f"role {group.role}")].append(group)
    # Of a gang of one role Kueue means all of it.
    for members in by_name.values() if len(groups) > 1 else ():
        required, preferred = (
            sorted({key for member in members for key in _written(member, annotation)})
            for annotation in (names.KUEUE_REQUIRED, names.KUEUE_PREFERRED)
        )
        _keep(found, members, _levels(found, required, preferred, places))
    for sub_group in sub_groups:
        members = [group for group in groups if group.role in sub_group.roles]
        required, preferred = ([key] if key else [] for key in (sub_group.required, sub_group.preferred))
        _keep(found, members, _levels(found, required, preferred, places))
    for role in {group.role for group in groups if group.sliced}:
        if sum(group.role == role for group in groups) > 1:
            message = f"requires slices of the role {role}, whose pods are not alike"
            found.refusals.append(Refusal("role-topology", message, "Give unlike pods roles of their own."))
    return found


def _written(group: RoleGroup, annotation: str) -> Iterator[str]:
    yield from {names.label_or_annotation(pod.metadata, annotation) for pod in group.pods} - {""}


def _levels(found: RoleTopology, required: Sequence[str], preferred: Sequence[str], places: Places) -> Kept:
    kept, wishes = set[Level](), set[Level]()
    for key in required:
        level = as_level(places.level(key))
        if level is None:
            fix = "Require a label of islands, racks or blocks that all nodes agree on, or prefer it."
            found.refusals.append(Refusal("not-a-level", f"requires one domain of {key}, which is no level here", fix))
        else:
            kept.add(level)
    for key in preferred:
        level = as_level(places.level(key))
        if level is None:
            found.remarks.append(Remark("not-a-level", f"prefers one domain of {key}, which is no level here"))
        else:
            wishes.add(level)
    closest = next((level for level in LEVELS if level in kept), None)
    return Kept(closest, tuple(level for level in LEVELS if level in wishes and is_wider(closest, level)))


def _keep(found: RoleTopology, members: Sequence[RoleGroup], kept: Kept) -> None:
    if not members or kept == Kept():
        return
    (first, *others), taken = members, {name for known in found.together for name in known.groups}
    if not others and first.name not in found.groups:
        found.groups[first.name] = kept
    elif others and taken.isdisjoint(member.name for member in members):
        every = tuple(member.name for member in members)
        found.together.append(Together(every, kept.required, kept.preferred or None))
    else:
        message = "asks in two ways with which others pods are to be together"
        found.refusals.append(Refusal("role-topology", message, "Let each role be together with others in one way."))
