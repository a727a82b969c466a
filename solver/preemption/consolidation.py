"""Consolidation: running jobs move elsewhere so that a waiting one fits where they were. It costs no queue a share, only time.

Who moves is asked to leave and is promised where it goes on, on as many GPUs of the same types: on nodes where nothing is
about to change, so that it waits for nothing but its own end. It is kept as close together as it is, or closer.

The search looks at the nodes that are cleared with the least lost work: the fewest of them on which the preemptor finds a place
once all have left who may move. Of those there whoever can be spared stays, and all others have to find a place beside it.
Whoever finds none stays, and the search begins anew. It is bounded, and may miss what a longer one would find.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import seen
from solver.capacity.sharing import Sharing
from solver.model.arrays import Ints, Mask, begins, running_sums
from solver.model.cluster import DeviceId, GpuType
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape, SharedShape
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, TaskPlacement
from solver.placement.placement import PlacedGang, place
from solver.placement.reach import reach
from solver.placement.starts import held_by
from solver.placement.strain import strain_of
from solver.policy.policy import Policy
from solver.preemption.consolidation_candidates import (
    ConsolidationCandidate,
    ConsolidationCandidates,
    OnNode,
    may_leave,
    movers_in,
)
from solver.preemption.consolidation_screen import could_gain, gaining, in_the_way
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import Shares
from solver.quota.options import Option

SEARCHES_MAX = 16
"""Preemptors for which a round looks for jobs to move, the first in the order."""

TRIES_MAX = 8
"""Searches for one preemptor, each without one more that found no place."""

NODES_MAX = 256
"""Nodes that are looked at for one preemptor beside those that need not be cleared: the cheapest to clear."""

SPARED_MAX = 64
"""Jobs on the preemptor's nodes that are each tried to be spared."""

ABOUT = 1e-9
"""By how much a strain may differ that was worked out on other nodes."""


@dataclass(frozen=True, slots=True)
class Move:
    """A job that moves, and where it goes on."""

    mover: ConsolidationCandidate
    tasks: tuple[TaskPlacement, ...]

    @property
    def name(self) -> JobName:
        """The job's."""
        return self.mover.name

    @property
    def held(self) -> Iterator[tuple[TaskPlacement, Shape]]:
        """Its tasks where it goes on, each with what it takes."""
        return self.mover.held(self.tasks)


@dataclass(slots=True)
class ConsolidationSearch:
    """Looks for jobs to move, for one preemptor after the other of a round. `searches`: for how many more of them.

    `moved`: how many were found. No guarantee is so urgent that the limits of the policy would not hold for it.
    """

    snapshot: Snapshot
    policy: Policy
    shares: Shares
    sharing: Sharing
    searches: int = SEARCHES_MAX
    moved: int = 0
    _leaving: Sequence[Job] = ()
    _in_the_way: Mask | None = None
    _movers: dict[frozenset[GpuType], ConsolidationCandidates] = field(default_factory=dict)
    _has_place: dict[Hashable, bool] = field(default_factory=dict)

    def find(
        self,
        preemptor: StartCandidate,
        option: Option,
        room: FreeCapacity,
        soon: FreeCapacity,
        gone: Collection[JobName],
    ) -> tuple[PlacedGang, tuple[Move, ...]] | None:
        """A place for a preemptor, and the jobs that move for it, if one was found. `gone` and what is free: as in `Preemptor`."""
        most = self.moves_left(len(gone))
        if most <= 0 or self.searches <= 0 or not (_enough_is_free(option, soon) and self._is_in_the_way(option, soon)):
            return None
        search = _Search(
            preemptor, option, soon, still(room, soon), most, self._movers_with(option.charge.keys(), soon)
        )
        able = self._able(search, gone)
        if not (able.any() and could_gain(preemptor.job.spec, option, soon, search.movers, able, most)):
            return None
        self.searches -= 1
        able = gaining(preemptor.job.spec, option, soon, search.movers, able)
        for _ in range(TRIES_MAX):
            found = search.fewest(able)
            if found is None:
                return None
            moves, stuck = search.moved(*found)
            if stuck is None:
                return (found[0], moves) if self._gains(option, moves) else None
            able[stuck] = False
        return None

    def candidates(
        self, gpu_types: Collection[GpuType], soon: FreeCapacity, gone: Collection[JobName]
    ) -> tuple[ConsolidationCandidate, ...]:
        """Who may move that has GPUs of some of these types, and was not asked yet."""
        self._is_in_the_way_at_all(soon)
        return tuple(mover for mover in self._movers_with(gpu_types, soon).all if mover.name not in gone)

    def keep(self, moves: Sequence[Move], rooms: Iterable[FreeCapacity]) -> None:
        """Those who were found move: where they go on is theirs."""
        self.moved += len(moves)
        for room in rooms:
            for move in moves:
                room.occupy(move.held)

    def moves_left(self, asked: int) -> int:
        """How many more may move, where so many were asked to leave in this round."""
        limits = self.policy.scheduling.evictions
        left = limits.moves_per_round - self.moved
        return left if limits.per_round is None else min(left, limits.per_round - asked)

    def _gains(self, option: Option, moves: Sequence[Move]) -> bool:
        gained, moved = sum(option.charge.values()), sum(move.mover.gpus for move in moves)
        return gained >= self.policy.scheduling.evictions.min_gain * moved

    def _is_in_the_way(self, option: Option, soon: FreeCapacity) -> bool:
        """Whether anybody who might move has GPUs on nodes where the preemptor might be."""
        where = self._is_in_the_way_at_all(soon)
        served = zip(option.shapes, option.gpu_types, strict=True)
        return any((soon.conceivable(*way) & where).any() for way in served if way[1] is not None)

    def _is_in_the_way_at_all(self, soon: FreeCapacity) -> Mask:
        if self._in_the_way is None:
            self._leaving = tuple(may_leave(self.snapshot, self.policy))
            self._in_the_way = in_the_way(self._leaving, soon)
        return self._in_the_way

    def _able(self, search: _Search, gone: Collection[JobName]) -> Mask:
        """Who is not asked yet, and not too large by itself. Whoever is on one node has to find a place on another."""
        movers, min_gain = search.movers, self.policy.scheduling.evictions.min_gain
        able = movers.but(gone)
        if min_gain:
            able &= movers.milli <= ceil(sum(search.option.charge.values()) / min_gain)
        alone = able & movers.is_on_one
        alike = {*movers.likeness[alone].tolist()}
        stuck = [number for number in alike if not self._finds_place(movers.all[movers.first[number]], search)]
        return able & ~(alone & np.isin(movers.likeness, stuck))

    def _movers_with(self, gpu_types: Collection[GpuType], soon: FreeCapacity) -> ConsolidationCandidates:
        key = frozenset(gpu_types)
        if key not in self._movers:
            found = movers_in(self._leaving, key, self.snapshot, self.policy, self.shares, self.sharing, soon)
            self._movers[key] = ConsolidationCandidates(found, soon)
        return self._movers[key]

    def _finds_place(self, mover: ConsolidationCandidate, search: _Search) -> bool:
        """Whether one that is on one node has a place on another."""
        # What is free only becomes less: where one finds no place, none of its like does later.
        if mover.likeness not in self._has_place:
            with search.soon.trying():
                self._has_place[mover.likeness] = search.place_of(mover, search.soon) is not None
        return self._has_place[mover.likeness]


def _enough_is_free(option: Option, soon: FreeCapacity) -> bool:
    """Moving frees nothing: what the preemptor needs has to be free already, wherever it is."""
    free = np.maximum(soon.milli_free(option.shapes), soon.milli_left)
    return all(free[reach(soon, option, gpu_type)].sum() >= milli for gpu_type, milli in option.charge.items())


def still(room: FreeCapacity, soon: FreeCapacity) -> Mask:
    """The nodes that nobody is about to leave."""
    still: Mask = room.free_gpus == soon.free_gpus
    for name in {**room.free_beside, **soon.free_beside}:
        still &= room.free_beside[name] == soon.free_beside[name]
    still[[node for node, gpus in room.shared.items() if soon.shared.get(node) != gpus]] = False
    return still


@dataclass(frozen=True, slots=True)
class _Search:
    """For one preemptor, served one way: on what will be free, with places for at most so many on the nodes that are `still`.

    Whoever is tried to leave, or to go on somewhere, does so in the room itself, and that is undone.
    """

    preemptor: StartCandidate
    option: Option
    soon: FreeCapacity
    still: Mask
    most: int
    movers: ConsolidationCandidates

    def fewest(self, able: Mask) -> tuple[PlacedGang, Sequence[int]] | None:
        """A place for the preemptor, and who has to leave it, if all could who are able to move."""
        order = self._cheapest_to_clear(able)
        near = np.flatnonzero(able & self.movers.on(order)).tolist()
        with self._without(near):
            placed, too_few, suffices = self._place(order), 0, len(order)
            while placed is not None and too_few + 1 < suffices:
                middle = (too_few + suffices) // 2
                found = self._place(order[:middle])
                if found is None:
                    too_few = middle
                else:
                    placed, suffices = found, middle
        return None if placed is None else self._spare(near, placed, order[:suffices])

    def moved(self, placed: PlacedGang, leaving: Sequence[int]) -> tuple[tuple[Move, ...], int | None]:
        """Where each goes on beside the preemptor and the others, the largest first; and who finds no place."""
        moves: list[Move] = []
        movers = self.movers.all
        for number in sorted(leaving, key=lambda number: (-movers[number].gpus, movers[number].name)):
            mover = movers[number]
            with self._without((number,)) as room:
                room.occupy(held_by(self.preemptor.job.spec, self.option, placed.tasks))
                for move in moves:
                    room.occupy(move.held)
                found = self.place_of(mover, room)
            if found is None or found.strain > strain_of(room, mover.job.spec, mover.job.placement) + ABOUT:
                return (), number
            if _devices(found.tasks) == _devices(mover.job.placement):
                return (), number
            moves.append(Move(mover, found.tasks))
        return tuple(moves), None

    def place_of(self, mover: ConsolidationCandidate, room: FreeCapacity) -> PlacedGang | None:
        """Where a job could go on; nowhere near what is reserved for anybody. Takes from the room."""
        return place(seen(room, room.reserved), mover.job.spec, mover.option, self.still, mover.tasks)

    def _spare(self, able: Sequence[int], placed: PlacedGang, nodes: Ints) -> tuple[PlacedGang, Sequence[int]] | None:
        """Without those that can stay, tried from the one that loses most."""
        chosen = self._on_nodes_of(placed, able)
        for number in chosen[::-1][:SPARED_MAX]:
            others = [other for other in chosen if other != number]
            with self._without(others):
                found = self._place(nodes)
            if found is not None:
                placed, chosen = found, others
        chosen = self._on_nodes_of(placed, chosen)
        return (placed, chosen) if len(chosen) <= self.most else None

    def _on_nodes_of(self, placed: PlacedGang, numbers: Sequence[int]) -> list[int]:
        is_there = self.movers.on(np.array([self.soon.index[task.node] for task in placed.tasks], dtype=np.int64))
        return [number for number in numbers if is_there[number]]

    def _place(self, nodes: Ints) -> PlacedGang | None:
        within = np.zeros(len(self.soon.nodes), dtype=bool)
        within[nodes] = True
        with self.soon.trying():
            return place(seen(self.soon, self.preemptor.against), self.preemptor.job.spec, self.option, within)

    @contextmanager
    def _without(self, numbers: Iterable[int]) -> Iterator[FreeCapacity]:
        """The room while these have left."""
        with self.soon.trying():
            for number in numbers:
                self.movers.all[number].leave(self.soon)
            yield self.soon

    def _cheapest_to_clear(self, able: Mask) -> Ints:
        """Nodes in the order of what is lost until a task of the preemptor fits: nothing, then as little as possible."""
        shapes = self.option.shapes
        need = max((shape.gpus for shape in shapes), default=0) or 1
        milli = min(
            (min(MILLI_PER_GPU, shape.cost // shape.devices) for shape in shapes if shape.cost), default=MILLI_PER_GPU
        )
        is_free = self.soon.free_gpus >= need
        for shape, gpu_type in zip(shapes, self.option.gpu_types, strict=True):
            if isinstance(shape, SharedShape):
                is_free = is_free | (self.soon.slots(shape, gpu_type) > 0)
        lost = np.where(is_free, 0.0, np.inf)
        wanted = np.logical_or.reduce([reach(self.soon, self.option, gpu_type) for gpu_type in self.option.charge])
        node, holder, gpus = self._held_on_nodes(able, milli)
        first = begins(node)
        free = self.soon.free_gpus[node] + running_sums(first, gpus)
        leaves = (free - gpus < need) & (running_sums(first, np.ones_like(node)) <= self.most)
        total = np.bincount(node[leaves], weights=self.movers.lost_gpu_s[holder[leaves]], minlength=len(lost))
        cleared = node[leaves & (free >= need)]
        lost[cleared] = np.minimum(lost[cleared], total[cleared])
        lost[~wanted] = np.inf
        order = np.argsort(lost, kind="stable")
        return order[: int((lost == 0).sum()) + NODES_MAX]

    def _held_on_nodes(self, able: Mask, milli: int) -> OnNode:
        """The GPUs that those who are able leave on nodes; of parts the last of a GPU leaves it, with so much free of it."""
        movers, count = self.movers, len(self.movers.all)
        parts = movers.parts_of(able, milli)
        on_node = movers.on_node
        key = on_node.node * count + on_node.holder
        left = on_node.gpus + np.bincount(
            np.searchsorted(key, parts.last.node * count + parts.last.holder), minlength=len(key)
        )
        counts = (left > 0) | np.isin(key, parts.node * count + parts.holder)
        chosen = counts & able[on_node.holder]
        return OnNode(on_node.node[chosen], on_node.holder[chosen], left[chosen])


def _devices(tasks: Iterable[TaskPlacement]) -> set[DeviceId]:
    return {device for task in tasks for device in task.devices}
