"""What jobs of a preemption program send to nodes: tasks that are placed alike, and which keep together, or apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from solver.capacity.reserved_view import Against
from solver.model.cluster import GpuType, Level, SpreadLevel
from solver.model.shape import Shape
from solver.model.workload import JobSpec
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
    """Tasks of one group of a job. `together`: so many of them at a time are in one domain of `within`; None: they may be apart."""

    group: int
    kind: TaskKind
    tasks: int
    together: int
    within: Level | None


class KeptApart(NamedTuple):
    """Of these kinds each domain of a level has at most so many tasks of a job."""

    kinds: frozenset[TaskKind]
    level: SpreadLevel
    most: int


@dataclass(frozen=True, slots=True)
class PlacedJobs:
    """Jobs that a column counts: the level of which each keeps to one domain, and what it sends to nodes."""

    column: int
    level: Level | None
    flows: Sequence[Flow]
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
        flows = tuple(_flows(column, level, spec, slots, tasks))
        return cls(column, level, flows, tuple(_kept_apart(spec, flows)))

    @property
    def levels(self) -> Iterator[Level]:
        """Those of which domains matter to it."""
        for level in (self.level, *(flow.within for flow in self.flows), *(known.level for known in self.apart)):
            if level and level != "node":
                yield level

    def kinds_of_group(self, group: int) -> Iterator[tuple[TaskKind, int]]:
        """What it sends of one group, in the order of its tasks."""
        yield from ((flow.kind, flow.tasks) for flow in self.flows if flow.group == group)


def is_kept_near_or_apart(spec: JobSpec) -> bool:
    """Whether tasks have to be together, or apart, otherwise than in one domain all of them."""
    return bool(spec.topology.spread) or any(
        spec.bundle_of(group) or group.topology.spread for group in spec.task_groups
    )


def _flows(
    column: int, level: Level | None, spec: JobSpec, slots: Sequence[SlotKind], tasks: Iterable[int]
) -> Iterator[Flow]:
    for number, (group, slot, count) in enumerate(zip(spec.task_groups, slots, tasks, strict=True)):
        if not count:
            continue
        bundle = spec.bundle_of(group)
        if bundle is None or min(bundle.tasks, count) <= 1:
            is_tied = level or spec.topology.spread or group.topology.spread
            tied = (column, number) if group.topology.spread else (column,) if is_tied else None
            yield Flow(number, TaskKind(slot, tied), count, 1, None)
            continue
        full, rest = divmod(count, bundle.tasks)
        if full:
            kind = TaskKind(slot, (column, number, bundle.tasks))
            yield Flow(number, kind, full * bundle.tasks, bundle.tasks, bundle.within)
        if rest:
            yield Flow(number, TaskKind(slot, (column, number, rest)), rest, rest, bundle.within)


def _kept_apart(spec: JobSpec, flows: Sequence[Flow]) -> Iterator[KeptApart]:
    if spread := spec.topology.spread:
        yield KeptApart(frozenset(flow.kind for flow in flows), spread.level, spread.max_per_domain)
    for number, group in enumerate(spec.task_groups):
        if spread := group.topology.spread:
            kinds = frozenset(flow.kind for flow in flows if flow.group == number)
            yield KeptApart(kinds, spread.level, spread.max_per_domain)
