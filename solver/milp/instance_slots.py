"""Rows for MIG instances on the nodes of a preemption program: those that are there, that leave, or that GPUs are partitioned for.

What GPUs become for one kind of task counts against all others, so rows are sufficient rather than necessary: the start of an
instance, and what of a geometry stays beside it, are known to placement alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.capacity.free_capacity import FreeCapacity
from solver.milp.builder import ProgramBuilder
from solver.model.shape import MigShape
from solver.model.workload import Job


class Profile(NamedTuple):
    """Instances of one size, of a model of GPUs."""

    model: str
    name: str

    @classmethod
    def of(cls, shape: MigShape) -> Profile:
        """What a task takes."""
        return cls(shape.model, shape.mig or "")


class _Change(NamedTuple):
    """A column that says of a GPU that it is partitioned for a profile, and how many more tasks find an instance then."""

    column: int
    gain: int


@dataclass(slots=True)
class InstanceSlots:
    """`leaving`: the jobs that may leave, by their numbers. `changes`: GPUs are partitioned for jobs that start.

    `whole`: by node the column of idle GPUs that are made whole.
    """

    builder: ProgramBuilder
    room: FreeCapacity
    leaving: Mapping[int, Job]
    changes: bool
    whole: dict[int, int] = field(default_factory=dict)
    _changes: dict[tuple[int, Profile], list[_Change]] = field(default_factory=dict)
    _left: dict[tuple[int, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    """By node and name of a profile, who leaves one of its instances."""

    def __post_init__(self) -> None:
        """Count what could leave."""
        for number, job in self.leaving.items():
            for task in job.placement:
                node = self.room.index.get(task.node)
                for slot in task.slots if node is not None else ():
                    if node is not None and self.room.partitions.is_divided(node, slot.gpu):
                        self._left[node, slot.instance.profile].append(number)

    def most(self, node: int, profile: Profile, *, still: bool) -> int:
        """Instances that a node has at most, with what may leave unless they wait for nobody."""
        if not self._is_of(node, profile):
            return 0
        gained = sum(change.gain for change in self._changes_of(node, profile))
        return self._there(node, profile) + gained + (0 if still else len(self._left[node, profile.name]))

    def could_be_whole(self, node: int) -> int:
        """Idle GPUs in MIG mode that could be made whole; they have a column from then on."""
        count = self.room.partitions.unused.get(node, 0)
        if count and node not in self.whole:
            self.whole[node] = self.builder.column(count)
        return count

    def gpus(self, node: int) -> dict[int, float]:
        """What partitioning takes of a node's whole GPUs, less those that are made whole."""
        taken = {change.column: 1.0 for (at, _), known in self._changes.items() if at == node for change in known}
        return taken | ({self.whole[node]: -1.0} if node in self.whole else {})

    def rows(
        self, node: int, tasks: Iterable[tuple[MigShape, int]], back: Mapping[int, int], *, now: bool
    ) -> Iterator[tuple[dict[int, float], float]]:
        """Of each profile: its tasks find instances. `tasks`: shapes with their columns; `back`: the columns of who may leave."""
        by_profile = defaultdict[Profile, dict[int, float]](dict)
        for shape, column in tasks:
            by_profile[Profile.of(shape)][column] = float(shape.devices)
        for profile, terms in by_profile.items():
            for change in self._changes_of(node, profile):
                terms[change.column] = -float(change.gain)
            for column, lost in self._lost(node, profile):
                terms[column] = float(lost)
            for number in () if now else self._left[node, profile.name]:
                if number in back:
                    terms[back[number]] = terms.get(back[number], 0.0) - 1.0
            yield terms, float(self._there(node, profile))

    def state(self) -> None:
        """Write the rows about how much is changed."""
        by_pool = defaultdict[str, list[int]](list)
        for (node, _), known in self._changes.items():
            by_pool[self.room.partitions.rules[node].pool] += [change.column for change in known]
        for node, column in self.whole.items():
            by_pool[self.room.partitions.rules[node].pool].append(column)
        for pool, columns in by_pool.items():
            left = max(0, self.room.partitions.changes_left[pool])
            self.builder.at_most(dict.fromkeys(columns, 1.0), float(left))

    def _is_of(self, node: int, profile: Profile) -> bool:
        rule = self.room.partitions.rules.get(node)
        return rule is not None and rule.model == profile.model and rule.profile(profile.name) is not None

    def _there(self, node: int, profile: Profile) -> int:
        return self.room.partitions.counted(node, profile.model, profile.name, None).as_it_is

    def _changes_of(self, node: int, profile: Profile) -> Sequence[_Change]:
        """Those that gain most first: of each it is known how many more tasks a GPU takes."""
        if (node, profile) not in self._changes:
            devices = self.room.free_devices[node]
            gains = self.room.partitions.counted(node, profile.model, profile.name, devices).gains
            left = max(0, self.room.partitions.changes_left[self.room.partitions.rules[node].pool]) * self.changes
            ranked = sorted(gains, reverse=True)[:left]
            self._changes[node, profile] = [_Change(self.builder.column(1), gain) for gain in ranked]
        return self._changes[node, profile]

    def _lost(self, node: int, profile: Profile) -> Iterator[tuple[int, int]]:
        """Where GPUs become something else, the instances that may go with them."""
        idle = self.room.partitions.unused.get(node, 0)
        there = self._there(node, profile) if idle else 0
        if there:
            for (at, other), known in self._changes.items():
                if at == node and other != profile:
                    yield from ((change.column, there) for change in known)
            if node in self.whole:
                yield self.whole[node], there
