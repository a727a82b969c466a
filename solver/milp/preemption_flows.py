"""What jobs of a preemption program send to nodes: tasks that are placed alike, and which keep together, or apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from solver.capacity.reserved_view import Against
from solver.model.cluster import GpuType, Level, SpreadLevel
from solver.model.shape import Shape
from solver.model.workload import JobSpec, KeptGroups
from solver.quota.options import Option


class SlotKind(NamedTuple):
    """What one task takes of a node. `mask`: the number of the set of jobs that may leave for it; `still`: it waits for nobody.

    `exceeds`: its job asks for more CPU or memory than its GPUs carry.
    """

    shape: Shape
    gpu_type: GpuType | None
    against: Against
    mask: int
    still: bool
    moves: bool
    exceeds: bool = False


class NodeReleases(NamedTuple):
    """What a node gets back when a holder, or who moves, leaves it: GPUs, and by name what is beside them."""

    who: int
    gpus: int
    beside: Mapping[str, int]


class TaskKind(NamedTuple):
    """Tasks that are placed alike. `tied_to`: the column, and what of its jobs, if that keeps together or apart; else None."""

    slot: SlotKind
    tied_to: tuple[int, ...] | None


class Flow(NamedTuple):
    """Tasks of one group of a job."""

    group: int
    kind: TaskKind
    tasks: int


class KeptTogether(NamedTuple):
    """So many `times` for each job, that many tasks of each of these kinds are in one domain of a level."""

    times: int
    tasks: Mapping[TaskKind, int]
    level: Level


class KeptApart(NamedTuple):
    """Of these kinds each domain of a level has at most so many tasks of a job."""

    kinds: frozenset[TaskKind]
    level: SpreadLevel
    most: int


@dataclass(frozen=True, slots=True)
class PlacedJobs:
    """Jobs that a column counts: what each sends to nodes, and what of it keeps together, and apart."""

    column: int
    flows: Sequence[Flow]
    together: Sequence[KeptTogether]
    apart: Sequence[KeptApart]

    @classmethod
    def of(
        cls,
        column: int,
        level: Level | None,
        spec: JobSpec,
        option: Option,
        tasks: Iterable[int],
        slot_of: Callable[[Shape, GpuType | None], SlotKind],
    ) -> PlacedJobs:
        """With so many tasks of each group."""
        ways = zip(option.shapes, option.gpu_types, strict=True)
        slots = [slot_of(*way) for way in ways]
        flows, bundles = list[Flow](), list[KeptTogether]()
        for number, (slot, count) in enumerate(zip(slots, tasks, strict=True)):
            if count:
                mine, kept = _of_group(column, spec, number, slot, count, is_tied=level is not None)
                flows += mine
                bundles += kept
        together = (*_whole_groups(level, spec, flows), *bundles)
        return cls(column, tuple(flows), together, tuple(_kept_apart(spec, flows)))

    @property
    def levels(self) -> Iterator[Level]:
        """Those of which domains matter to it."""
        yield from (known.level for known in self.together)
        yield from (known.level for known in self.apart if known.level != "node")

    def kinds_of_group(self, group: int) -> Iterator[tuple[TaskKind, int]]:
        """What it sends of one group, in the order of its tasks."""
        yield from ((flow.kind, flow.tasks) for flow in self.flows if flow.group == group)


def is_kept_near_or_apart(spec: JobSpec) -> bool:
    """Whether tasks have to be together, or apart, otherwise than in one domain all of them."""
    return bool(spec.topology.spread or spec.kept_groups) or any(
        spec.kept_in_bundles(group) or group.topology.spread for group in spec.task_groups
    )


def _of_group(
    column: int, spec: JobSpec, number: int, slot: SlotKind, count: int, *, is_tied: bool
) -> tuple[list[Flow], list[KeptTogether]]:
    """What the tasks of one group are, and how they keep together: whole bundles, then what is left, in smaller ones."""
    group = spec.task_groups[number]
    bundles = [bundle for bundle in spec.kept_in_bundles(group) if min(bundle[0], count) > 1]
    is_tied = is_tied or bool(spec.topology.spread) or any(number in known.groups for known in spec.kept_groups)
    in_units = any(number in known.groups and known.sizes for known in spec.kept_groups)
    if not bundles:
        tied = (column, number) if group.topology.spread or in_units else (column,) if is_tied else None
        return [Flow(number, TaskKind(slot, tied), count)], []
    # One that takes all tasks need not be cut into whole bundles.
    cut = [bundle for bundle in bundles if bundle[0] < count]
    by_size, kept, left = dict[int, Flow](), list[KeptTogether](), count
    for place, (size, _) in enumerate(cut):
        tasks = left - left % size
        if tasks:
            kind = TaskKind(slot, (column, number, size))
            by_size[size] = Flow(number, kind, tasks)
            kept += (KeptTogether(tasks // each, {kind: each}, level) for each, level in cut[place:])
        left -= tasks
    if left:
        by_size[left] = Flow(number, TaskKind(slot, (column, number, left)), left)
    # What is left of larger bundles is together with the smaller ones that are whole.
    for size, level in bundles:
        rest = {flow.kind: flow.tasks for each, flow in by_size.items() if each < size or size >= count}
        if rest:
            kept.append(KeptTogether(1, rest, level))
    return list(by_size.values()), kept


def _whole_groups(level: Level | None, spec: JobSpec, flows: Sequence[Flow]) -> Iterator[KeptTogether]:
    """All tasks, and those of groups that keep to one domain, together or unit by unit."""
    together = [KeptGroups(tuple(range(len(spec.task_groups))), level)] if level else []
    for known in (*together, *spec.kept_groups):
        tasks, counts = Counter[TaskKind](), [0] * len(spec.task_groups)
        for flow in flows:
            counts[flow.group] += flow.tasks
        for flow in flows:
            # Bundles are cut out of units, so that all tasks of a group in units are of one flow.
            tasks[flow.kind] += known.size(flow.group, flow.tasks) if flow.group in known.groups else 0
        yield KeptTogether(known.times(counts), +tasks, known.level)


def _kept_apart(spec: JobSpec, flows: Sequence[Flow]) -> Iterator[KeptApart]:
    if spread := spec.topology.spread:
        yield KeptApart(frozenset(flow.kind for flow in flows), spread.level, spread.max_per_domain)
    for number, group in enumerate(spec.task_groups):
        if spread := group.topology.spread:
            kinds = frozenset(flow.kind for flow in flows if flow.group == number)
            yield KeptApart(kinds, spread.level, spread.max_per_domain)
