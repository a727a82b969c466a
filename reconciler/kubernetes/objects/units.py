"""Which pods of a gang are which task of which unit, and what that means for its task groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from reconciler.kubernetes.objects.closeness import Kept
from reconciler.kubernetes.objects.gangs import InRole
from reconciler.kubernetes.objects.membership import in_natural_order
from reconciler.kubernetes.objects.pods import PodTask
from reconciler.kubernetes.objects.remarks import Refusal
from reconciler.kubernetes.objects.unit_rules import UnitRule
from solver.model.workload import Bundle, GroupTopology, TaskGroup, Together


class Part(NamedTuple):
    """Tasks that are alike: one task group. `indices`: which tasks these are of `replicas`, where some are not there."""

    name: str
    tasks: tuple[PodTask, ...]
    role: str
    indices: tuple[int, ...]
    replicas: int


class Units(NamedTuple):
    """Task groups whose tasks come and go together: `sizes` of each, by name; at least so many of them."""

    rule: UnitRule
    sizes: dict[str, int]
    number: int
    least: int


@dataclass(slots=True)
class UnitParts:
    """The parts of a gang, and what is in units. Mutable: filled step by step.

    `lacks_pods`: a unit that is on nodes has lost a pod, and what takes its place is not there yet.
    """

    parts: tuple[Part, ...]
    lacks_pods: bool = False
    units: list[Units] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


def numbered(parts: Sequence[Part], pods: Sequence[InRole], rules: Sequence[UnitRule]) -> UnitParts:
    """The parts of a gang, each pod as the task that it is in its unit."""
    unit_of = {one.task.pod.key: one.unit for one in pods if one.unit}
    found = UnitParts(tuple(parts))
    for rule in rules if unit_of else ():
        mine = [part for part in parts if _is_of(part, rule)]
        if mine:
            _number(found, mine, rule, unit_of)
    return found


def _is_of(part: Part, rule: UnitRule) -> bool:
    if rule.roles:
        return any(common == part.role for _, common, _ in rule.roles)
    return any(rule.place_of(part.role, task.pod.metadata.labels) for task in part.tasks)


def _number(found: UnitParts, parts: Sequence[Part], rule: UnitRule, unit_of: dict[tuple[str, str], str]) -> None:
    units = [[unit_of.get(task.pod.key, "") for task in part.tasks] for part in parts]
    every = sorted({unit for of_part in units for unit in of_part}, key=in_natural_order)
    number, sizes, settled = {unit: place for place, unit in enumerate(every)}, dict[str, int](), dict[str, Part]()
    for part, of_part in zip(parts, units, strict=True):
        there = Counter(of_part)
        sizes[part.name] = dict(rule.sizes).get(part.role, max(there.values()))
        taken = Counter[str]()
        indices = list[int]()
        for unit in of_part:
            indices.append(number[unit] * sizes[part.name] + taken[unit])
            taken[unit] += 1
        settled[part.name] = part._replace(indices=tuple(indices), replicas=len(every) * sizes[part.name])
        if "" in there or max(there.values()) > sizes[part.name]:
            message = f"the pods of {part.role} are more than its sub-groups need, or not in one of them each"
            found.refusals.append(
                Refusal("sub-groups", message, "Let each sub-group have just the pods that it needs.")
            )
    if len({part.role for part in parts}) < len(parts) or sum(sizes.values()) != rule.size:
        message = "so many of its sub-groups do, and these are not alike: their pods ask for different things"
        fix = "Let the pods of one role in all sub-groups ask for the same."
        found.refusals.append(Refusal("sub-groups", message, fix))
        return
    found.lacks_pods |= sum(map(len, units)) < len(every) * rule.size
    found.parts = tuple(settled.get(part.name, part) for part in found.parts)
    found.units.append(Units(rule, sizes, len(every), min(rule.least, len(every))))


def together_in(units: Units, kept: Kept) -> Together:
    """Its groups, each unit of them in one domain. That of one group is a bundle."""
    groups = tuple(units.sizes)
    levels = (kept.required, kept.preferred or None) if len(groups) > 1 else (None, None)
    return Together(groups, *levels, units.number, units.least)


def grouped(group: TaskGroup, units: Sequence[tuple[Units, Kept]]) -> TaskGroup:
    """A task group that is in units: with how few of its tasks it starts, and where those of a unit are, if it is alone in them."""
    for known, kept in units:
        if group.name in known.sizes:
            size, topology = known.sizes[group.name], group.topology
            least = size * known.least if known.least < known.number else None
            if len(known.sizes) == 1 and kept != Kept():
                bundle = Bundle(size, kept.required, kept.preferred or None)
                topology = GroupTopology(topology.required, bundle, topology.spread, topology.preferred)
            return msgspec.structs.replace(group, min_replicas=least, replica_step=size, topology=topology)
    return group
