"""The GPUs of a cluster that are, or may be, partitioned by MIG: what a round fills up and changes while it decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np

from solver.capacity.instance_counts import NONE, Counted, InstanceCounts, best_spent
from solver.capacity.mig_gpus import MigGpu, MigRule, chosen, is_allowed, settled, spread, with_whole
from solver.capacity.pool_rules import PoolRules
from solver.model.arrays import Ints, Mask
from solver.model.cluster import DeviceId, MigInstance, Node
from solver.model.mig import Geometry, PlacedInstance, cost_milli_gpu, mig_model
from solver.model.mig_layout import geometry_of
from solver.model.mig_table import MigProfile
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.model.shape import MigShape
from solver.model.workload import MigSlot


class PartitionChange(NamedTuple):
    """A GPU of a node (by number) that has to be changed: what it is to have, None: nothing, as a whole GPU."""

    node: int
    device: DeviceId
    before: Geometry | None
    after: Geometry | None


class _Drained(NamedTuple):
    """The GPUs of a node that may become something else (`able`), kept until one of the two changes that it follows from."""

    known: tuple[MigGpu, ...]
    now: tuple[MigGpu, ...]
    able: tuple[MigGpu, ...]


def _is_idle(gpu: MigGpu) -> bool:
    return not (gpu.held or gpu.is_changed)


@dataclass(slots=True)
class MigPartitions:
    """`rules` and `gpus` by node: how its GPUs may be partitioned, and those of them in MIG mode that no task has whole.

    `changes_left` by pool. `aside`: GPUs that were promised to a job for which they have to be partitioned anew.
    Mutable: a round takes from it.
    """

    rules: dict[int, MigRule] = field(default_factory=dict)
    gpus: dict[int, tuple[MigGpu, ...]] = field(default_factory=dict)
    changes_left: dict[str, int] = field(default_factory=dict)
    aside: dict[DeviceId, MigGpu] = field(default_factory=dict)
    counts: InstanceCounts = field(default_factory=InstanceCounts, compare=False)
    drained: dict[int, _Drained] = field(default_factory=dict, compare=False)
    """By node, the last answer: an attempt to evict asks for all nodes, and few of them have changed since the last one."""
    unused: dict[int, int] = field(init=False)
    """By node, how many GPUs have no task, where they may be made whole again."""

    def __post_init__(self) -> None:
        self.unused = {node: count for node in self.rules if (count := self._count_unused(node))}

    @classmethod
    def of(cls, nodes: Sequence[Node], pools: PoolRules, *, broken_too: bool) -> Self:
        """Of an inventory without tasks."""
        known = ((number, _rule_of(node, pools)) for number, node in enumerate(nodes))
        rules = {number: rule for number, rule in known if rule}
        gpus = {number: _in_mig_mode(nodes[number], rule, broken_too=broken_too) for number, rule in rules.items()}
        return cls(rules, gpus, dict(pools.changes_left))

    def empty(self, number: int, node: Node, pools: PoolRules) -> None:
        """A node is without tasks, and its GPUs are as they are now; broken ones are not counted."""
        rule = _rule_of(node, pools)
        if rule is None:
            return
        if rule != self.rules[number]:
            # Copies share what there is.
            self.rules = {**self.rules, number: rule}
        self.have(number, _in_mig_mode(node, rule, broken_too=False))

    def copy(self) -> Self:
        """An independent one."""
        made = copy(self)
        made.gpus, made.changes_left = dict(self.gpus), dict(self.changes_left)
        made.aside, made.unused = dict(self.aside), dict(self.unused)
        return made

    def become(self, other: Self) -> None:
        """Be as another one of the same pools."""
        self.gpus, self.changes_left, self.aside, self.unused = (
            other.gpus,
            other.changes_left,
            other.aside,
            other.unused,
        )

    def draining(self, now: Self) -> Self:
        """The same as it may become for guarantees, with the changes that are left `now`.

        What the round changes already stays; where no work may have to leave, so does what is in use.
        """
        made = copy(self)
        made.gpus, made.aside, made.unused = dict(self.gpus), dict(self.aside), dict(self.unused)
        made.changes_left = {pool: max(0, left) for pool, left in now.changes_left.items()}
        for node in self.rules:
            able = self._draining_gpus(node, now.gpus[node])
            if able is not self.gpus[node]:
                made.have(node, able)
        return made

    def _draining_gpus(self, node: int, now: tuple[MigGpu, ...]) -> tuple[MigGpu, ...]:
        """Those of a node's GPUs that may become something else; the very same tuple where all may."""
        known, kept = self.gpus[node], self.drained.get(node)
        if kept is None or kept.known is not known or kept.now is not now:
            idle = {gpu.device for gpu in now if _is_idle(gpu)}
            drains = self.rules[node].drains
            able = tuple(gpu for gpu in known if not gpu.is_changed and (drains or gpu.device in idle))
            kept = self.drained[node] = _Drained(known, now, known if len(able) == len(known) else able)
        return kept.able

    @property
    def may_change(self) -> bool:
        """Whether any GPU may still be partitioned anew."""
        return any(left > 0 for left in self.changes_left.values())

    @property
    def may_drain(self) -> bool:
        """Whether jobs may have to leave so that a GPU can be partitioned anew."""
        return any(rule.drains and self.changes_left[rule.pool] > 0 for rule in self.rules.values())

    def set_aside(self, node: int, device: DeviceId, *, is_whole: bool) -> None:
        """A GPU will be partitioned anew for a job, and is no other's until then."""
        if node in self.rules and (is_whole or self.is_divided(node, device)):
            self.aside[device] = self._gpu(node, device)
            self.drop(node, device, counted=False)

    def is_idle(self, node: int, device: DeviceId) -> bool:
        """Whether a GPU is in MIG mode without a task, and promised to none."""
        return any(gpu.device == device and _is_idle(gpu) for gpu in self.gpus[node])

    def is_divided(self, node: int, device: DeviceId) -> bool:
        """Whether a GPU is in MIG mode, or about to be."""
        return any(gpu.device == device for gpu in self.gpus.get(node, ()))

    def __bool__(self) -> bool:
        return bool(self.rules)

    def counted(self, node: int, model: str, profile: str, whole: Sequence[DeviceId] | None) -> Counted:
        """Tasks that find an instance on a node, `whole` being the devices that are free as a whole; None: no GPU is changed."""
        rule = self.rules.get(node)
        known = rule.profile(profile) if rule and rule.model == model else None
        return self.counts.of(node, rule, known, self.gpus[node], whole) if rule and known else NONE

    def instance_slots(
        self, model: str, profile: str, devices: int, whole: Sequence[Sequence[DeviceId]], within: Mask
    ) -> Ints:
        """Tasks that find so many instances on these nodes together, and so with the changes that are left."""
        if devices > 1:
            return self._several_slots(model, profile, devices, whole, within)
        slots = np.zeros(len(whole), dtype=np.int64)
        gains: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for node, rule in self.rules.items():
            if within[node]:
                counted = self.counted(node, model, profile, whole[node])
                slots[node] = counted.as_it_is
                gains[rule.pool] += ((-gain, node) for gain in counted.gains)
        for pool, ranked in gains.items():
            for gain, node in sorted(ranked)[: max(0, self.changes_left[pool])]:
                slots[node] -= gain
        return slots

    def _several_slots(
        self, model: str, profile: str, devices: int, whole: Sequence[Sequence[DeviceId]], within: Mask
    ) -> Ints:
        slots = np.zeros(len(whole), dtype=np.int64)
        by_pool: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
        for node, rule in self.rules.items():
            if within[node]:
                counted = self.counted(node, model, profile, whole[node])
                found = accumulate(sorted(counted.gains, reverse=True), initial=counted.as_it_is)
                tasks = tuple(instances // devices for instances in found)
                slots[node], by_pool[rule.pool][node] = tasks[0], tasks
        for pool, tasks_by_changes in by_pool.items():
            for node, most in best_spent(tasks_by_changes, max(0, self.changes_left[pool])).items():
                slots[node] = most
        return slots

    def whole_slots(self, gpus: int, free: Ints, within: Mask) -> Ints:
        """Tasks of so many whole GPUs, if GPUs are made whole that have idle instances alone: on these nodes together."""
        most: Ints = np.maximum(free, 0)
        slots: Ints = most // gpus
        costs: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for node, count in sorted(self.unused.items()):
            if not within[node]:
                continue
            # The first task more takes what is free into account, each further one is made of partitioned GPUs alone.
            for more in range((int(most[node]) % gpus + count) // gpus):
                costs[self.rules[node].pool].append((gpus - (int(most[node]) % gpus) * (more == 0), node, more))
        for pool, ranked in costs.items():
            left = self.changes_left[pool]
            for cost, node, _ in sorted(ranked):
                left -= cost
                slots[node] += left >= 0
        return slots

    def take(self, node: int, shape: MigShape, tasks: int, whole: Sequence[DeviceId]) -> list[MigSlot]:
        """The instances of so many tasks on a node, task by task: those that are there first, then with the fewest changes."""
        rule = self.rules[node]
        profile = _profile(rule, shape)
        if profile is None:
            raise AssertionError(f"GPUs of pool {rule.pool} have no {shape.mig}")
        slots: list[MigSlot] = []
        for gpu, count in spread(rule, profile, tuple(with_whole(rule, self.gpus[node], whole)), tasks * shape.devices):
            after = chosen(rule, gpu, profile, count)
            self._put(node, gpu, after)
            slots += (self._slot(after, placed, shape) for placed in after.held if placed not in gpu.held)
        return slots

    def make_whole(self, node: int, count: int) -> list[DeviceId]:
        """Take GPUs out of MIG mode, those with the fewest instances first."""
        unused = sorted(self._unused(node), key=lambda gpu: (len(gpu.before or ()), gpu.device))[:count]
        for gpu in unused:
            self.drop(node, gpu.device)
        return [gpu.device for gpu in unused]

    def drop(self, node: int, device: DeviceId, *, counted: bool = True) -> None:
        """A task has a GPU as a whole; if it was in MIG mode, it is so no more."""
        if self.is_divided(node, device):
            self.changes_left[self.rules[node].pool] -= counted
            self.have(node, tuple(gpu for gpu in self.gpus[node] if gpu.device != device))

    def hold(self, node: int, slot: MigSlot) -> None:
        """A task has exactly this instance, on a GPU that may have been whole."""
        rule = self.rules.get(node)
        profile = rule.profile(slot.instance.profile) if rule else None
        if profile is not None:
            gpu = self._gpu(node, slot.gpu)
            self._put(node, gpu, gpu.with_held(PlacedInstance(slot.instance.start, profile)))

    def confirm(self, node: int, slots: Iterable[MigSlot]) -> None:
        """Tasks have these instances already: they count as being there, and what they overlap as gone."""
        rule = self.rules.get(node)
        known = ((slot, rule.profile(slot.instance.profile)) for slot in slots) if rule else ()
        placed: dict[DeviceId, list[PlacedInstance]] = defaultdict(list)
        for slot, profile in known:
            if profile is not None:
                placed[slot.gpu].append(PlacedInstance(slot.instance.start, profile))
        if placed:
            gpus = {gpu.device: gpu for gpu in self.gpus[node]}
            gpus |= {device: self._gpu(node, device).confirmed(tuple(mine)) for device, mine in placed.items()}
            self.have(node, tuple(gpus[device] for device in sorted(gpus)))

    def offers(self, node: int, slot: MigSlot, whole: Collection[DeviceId]) -> bool:
        """Whether this instance can be had now, `whole` being the devices that are free as a whole."""
        rule = self.rules.get(node)
        profile = rule.profile(slot.instance.profile) if rule else None
        there = slot.gpu in whole or self.is_divided(node, slot.gpu)
        if rule is None or profile is None or not there:
            return False
        gpu, placed = self._gpu(node, slot.gpu), PlacedInstance(slot.instance.start, profile)
        after = gpu.with_held(placed)
        paid = gpu.is_changed or self.changes_left[rule.pool] > 0
        return placed not in gpu.held and (not after.is_changed or (paid and is_allowed(rule, after.held)))

    def offers_all(self, node: int, slots: Sequence[MigSlot], whole: Collection[DeviceId]) -> bool:
        """Whether one task can have all these instances now."""
        if len(slots) == 1:
            return self.offers(node, slots[0], whole)
        then = self.copy()
        for slot in slots:
            if not then.offers(node, slot, whole):
                return False
            then.hold(node, slot)
        return True

    def stays(self, node: int, slot: MigSlot) -> bool:
        """Whether this instance is there, on a GPU that nothing changes."""
        gpu = self._gpu(node, slot.gpu)
        there = {(placed.profile.name, placed.start) for placed in gpu.before or ()}
        return not gpu.is_changed and (slot.instance.profile, slot.instance.start) in there

    def could_be_whole(self, node: int, devices: Collection[DeviceId]) -> bool:
        """Whether these GPUs in MIG mode could all be made whole, with the changes that are left."""
        if node not in self.rules or len(devices) > self.changes_left[self.rules[node].pool]:
            return False
        return {gpu.device for gpu in self._unused(node)}.issuperset(devices)

    def give_back(self, node: int, slot: MigSlot) -> bool:
        """No task has this instance any more. Whether the GPU is whole again thereby: it was partitioned for this alone."""
        rule = self.rules.get(node)
        profile = rule.profile(slot.instance.profile) if rule else None
        if profile is None or all(gpu.device != slot.gpu for gpu in self.gpus[node]):
            return False
        gpu = self._gpu(node, slot.gpu)
        after = gpu.without(PlacedInstance(slot.instance.start, profile))
        if after.before is None and not after.held:
            self.have(node, tuple(other for other in self.gpus[node] if other.device != slot.gpu))
            return True
        self._put(node, gpu, after)
        return False

    def milli_free(self, node: int, *, instances_too: bool) -> int:
        """Milli-GPU of the GPUs in MIG mode: what could be made whole; or, as instances count too, all that no task has."""
        if not instances_too:
            return MilliGpu.gpus(self.unused.get(node, 0))
        rule = self.rules[node]
        return sum(MILLI_PER_GPU - sum(_cost(rule, placed.profile) for placed in gpu.held) for gpu in self.gpus[node])

    def repartitioned(self, then: Self) -> Iterator[PartitionChange]:
        """What has to change for the cluster to become as it is `then`."""
        for node, rule in self.rules.items():
            now = {gpu.device: gpu for gpu in self.gpus[node]}
            later = {gpu.device: gpu for gpu in then.gpus[node]}
            for device in sorted({*now, *later}):
                gpu = later.get(device)
                if gpu is None:
                    yield PartitionChange(node, device, now[device].before, None)
                elif gpu.is_changed:
                    yield PartitionChange(node, device, gpu.before, settled(rule, gpu))

    def have(self, node: int, gpus: tuple[MigGpu, ...]) -> None:
        """These are the node's GPUs in MIG mode now."""
        self.gpus[node] = gpus
        count = self._count_unused(node)
        if count:
            self.unused[node] = count
        else:
            self.unused.pop(node, None)

    def _count_unused(self, node: int) -> int:
        return sum(1 for _ in self._unused(node))

    def _unused(self, node: int) -> Iterator[MigGpu]:
        if self.rules[node].changes:
            yield from (gpu for gpu in self.gpus[node] if not gpu.held)

    def _gpu(self, node: int, device: DeviceId) -> MigGpu:
        return next((gpu for gpu in self.gpus[node] if gpu.device == device), MigGpu(device, None))

    def _put(self, node: int, gpu: MigGpu, after: MigGpu) -> None:
        others = (other for other in self.gpus[node] if other.device != gpu.device)
        self.have(node, tuple(sorted((*others, after), key=lambda known: known.device)))
        self.changes_left[self.rules[node].pool] -= after.is_changed - gpu.is_changed

    def _slot(self, gpu: MigGpu, placed: PlacedInstance, shape: MigShape) -> MigSlot:
        return MigSlot(gpu.device, MigInstance(placed.profile.name, placed.start), MilliGpu(shape.milli))


def _rule_of(node: Node, pools: PoolRules) -> MigRule | None:
    rule = pools.rules.get(node.pool)
    return rule.kept() if rule and node.keeps_geometry else rule


def _in_mig_mode(node: Node, rule: MigRule, *, broken_too: bool) -> tuple[MigGpu, ...]:
    return tuple(
        MigGpu(gpu.id, geometry_of(gpu.instances, rule.model))
        for gpu in node.gpus
        if gpu.instances is not None and (gpu.healthy or broken_too)
    )


def _profile(rule: MigRule, shape: MigShape) -> MigProfile | None:
    return rule.profile(shape.mig or "") if rule.model == shape.model else None


def _cost(rule: MigRule, profile: MigProfile) -> int:
    return cost_milli_gpu(mig_model(rule.model), profile)
