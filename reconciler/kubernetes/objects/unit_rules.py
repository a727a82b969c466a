"""Sub-groups of a PodGroup of which so many do: which roles and pods are in one, and what is asked of where each is.

KAI names every sub-group, and says of what is above them how many it needs (`minSubGroup`). Volcano tells pods apart by labels
(`subGroupPolicy`). A sub-group is a unit here: it starts whole, and all of them are alike.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from reconciler.kubernetes.objects.remarks import Refusal

_NUMBER: Final = re.compile(r"[-._]?\d+")


class UnitRule(NamedTuple):
    """At least so many units do, of so many pods each. `sizes`: how many of these are of which role; (): as they come.

    `roles`: for each role of one unit what it is called in all of them, and the unit. `keys`: where roles do not tell it, the
    labels by whose values pods are told apart, of those that have the labels of `selector`. `required`, `preferred`: labels of
    nodes, all pods of a unit in one domain of which.
    """

    name: str
    least: int
    size: int
    sizes: tuple[tuple[str, int], ...] = ()
    roles: tuple[tuple[str, str, str], ...] = ()
    keys: tuple[str, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    required: str = ""
    preferred: str = ""

    def place_of(self, role: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
        """The role that a pod has in all units, and in which unit it is; None: in none of these."""
        for own, common, unit in self.roles:
            if own == role:
                return common, unit
        if not self.keys or any(labels.get(key) != value for key, value in self.selector):
            return None
        values = [labels.get(key, "") for key in self.keys]
        return (role, f"{self.name}-{'-'.join(values)}") if all(values) else None


class SubGroup(NamedTuple):
    """One of KAI's: `pods` of it have to be there, or so many `groups` below it; None: all of these."""

    name: str
    parent: str
    pods: int
    groups: int | None
    required: str = ""
    preferred: str = ""


class UnitRules(NamedTuple):
    """What a tree of sub-groups says. `pods`: how many have to be there in all."""

    rules: tuple[UnitRule, ...]
    pods: int
    refusal: Refusal | None = None

    def common(self, role: str) -> str:
        """What a role of one unit is called in all of them."""
        return next((place[0] for rule in self.rules if (place := rule.place_of(role, {}))), role)

    @property
    def inside(self) -> frozenset[str]:
        """The roles that are in units, as KAI names them."""
        return frozenset(own for rule in self.rules for own, _, _ in rule.roles)


def units_of_tree(sub_groups: Sequence[SubGroup], least: int | None) -> UnitRules:
    """The units of KAI's sub-groups; `least`: how many of the topmost ones the PodGroup needs."""
    below = defaultdict[str, list[SubGroup]](list)
    for group in sub_groups:
        below[group.parent].append(group)
    rules, pods = list[UnitRule](), 0
    leaves = [group for group in sub_groups if not below[group.name]]
    for name, needed in (("", least), *((group.name, group.groups) for group in sub_groups)):
        members = below[name]
        if needed is None or needed == len(members):
            continue
        found = _rule(name, needed, members, below)
        if isinstance(found, Refusal):
            return UnitRules((), 1, found)
        rules.append(found)
        pods += found.least * found.size
    inside = {own for rule in rules for own, _, _ in rule.roles}
    pods += sum(leaf.pods for leaf in leaves if leaf.name.lower() not in inside)
    return UnitRules(tuple(rules), max(1, pods))


def _rule(
    name: str, needed: int, members: Sequence[SubGroup], below: Mapping[str, Sequence[SubGroup]]
) -> UnitRule | Refusal:
    whose = f"sub-group {name}" if name else "its PodGroup"
    if not 0 < needed <= len(members):
        message = f"{whose} needs {needed} of {len(members)} sub-groups"
        return Refusal("sub-groups", message, f"Let minSubGroup be from 1 to {len(members)}.")
    units = [sorted(below.get(member.name) or [member], key=_by_kind) for member in members]
    kinds = {tuple(leaf.pods for leaf in unit) for unit in units}
    asked = {(member.required, member.preferred) for member in members}
    inner = [leaf for member, unit in zip(members, units, strict=True) for leaf in unit if leaf is not member]
    is_flat = not any(below.get(leaf.name) or leaf.required or leaf.preferred for leaf in inner)
    is_whole = all(member.groups in (None, len(below.get(member.name, ()))) for member in members)
    if len(kinds) > 1 or len(asked) > 1 or not is_flat or not is_whole:
        message = f"{whose} needs {needed} of {len(members)} sub-groups, which are not alike, or have rules of their own inside"
        fix = "Let them have as many pods of each kind and one topology, or leave minSubGroup out: then all are needed."
        return Refusal("sub-groups", message, fix)
    names = list(_common_names(units))
    roles = tuple(
        (leaf.name.lower(), common, member.name.lower())
        for member, unit in zip(members, units, strict=True)
        for leaf, common in zip(unit, names, strict=True)
    )
    (sizes,), ((required, preferred),) = kinds, asked
    of_each = tuple(zip(names, sizes, strict=True))
    return UnitRule(name, needed, sum(sizes), of_each, roles, required=required, preferred=preferred)


def _by_kind(group: SubGroup) -> tuple[str, str]:
    return _NUMBER.sub("", group.name), group.name


def _common_names(units: Sequence[Sequence[SubGroup]]) -> Iterator[str]:
    """What each role is called in all units: without numbers, where that is the same and no other's; else as in the first."""
    stems = [{_NUMBER.sub("", leaf.name.lower()) for leaf in alike} for alike in zip(*units, strict=True)]
    known = [next(iter(stem)) if len(stem) == 1 else "" for stem in stems]
    for leaf, name in zip(units[0], known, strict=True):
        yield name if name and known.count(name) == 1 else leaf.name.lower()
