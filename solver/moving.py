"""Consolidation: running jobs move elsewhere so that a waiting one fits where they were. Nobody loses a share by it, only time.

Who moves is asked to leave and is promised where it goes on, on as many GPUs of the same types: on nodes where nothing is
about to change, so that it waits for nothing but its own end. It is kept as close together as it is, or closer.

The search looks at the nodes that are cleared with the least lost work: the fewest of them on which the taker finds a place
once all have left who may move. Of those there whoever can be spared stays, and all others have to find a place beside it.
Whoever finds none stays, and the search begins anew. It is bounded, and may miss what a longer one would find.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from solver.movers import Mover, movers_in
from solver.placement import Mask, Placed, place
from solver.reach import reach
from solver.rules.demand import Candidate
from solver.rules.entitlement import Shares
from solver.rules.options import Option
from solver.rules.policy import Policy
from solver.starts import held_by
from solver.world.held import seen
from solver.world.room import Ints, Room
from solver.world.shape import Shape
from solver.world.snapshot import Snapshot
from solver.world.workload import JobName, TaskPlacement

SEARCHES_MAX = 16
"""Takers for which a round looks for jobs to move, the first in the order."""

TRIES_MAX = 8
"""Searches for one taker, each without one more that found no place."""

NODES_MAX = 256
"""Nodes that are looked at for one taker beside those that need not be cleared: the cheapest to clear."""

SPARED_MAX = 64
"""Jobs on the taker's nodes that are each tried to be spared."""

ABOUT = 1e-9
"""By how much a strain may differ that was worked out on other nodes."""


@dataclass(frozen=True, slots=True)
class Move:
    """A job that moves, and where it goes on."""

    mover: Mover
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
class Moving:
    """Looks for jobs to move, for one taker after the other of a round. `searches`: for how many more of them.

    `moved`: how many were found. No guarantee is so urgent that the limits of the policy would not hold for it.
    """

    snapshot: Snapshot
    policy: Policy
    shares: Shares
    searches: int = SEARCHES_MAX
    moved: int = 0
    _movers: tuple[Mover, ...] | None = None
    _has_place: dict[object, bool] = field(default_factory=dict)

    def find(
        self, taker: Candidate, option: Option, room: Room, soon: Room, gone: Collection[JobName]
    ) -> tuple[Placed, tuple[Move, ...]] | None:
        """A place for a taker, and who moves for it; None where none was found. The rooms, and who is gone, as in `MakingRoom`."""
        most = self._most(len(gone))
        if most <= 0 or self.searches <= 0 or not _enough_is_free(option, soon):
            return None
        search = _Search(taker, option, soon, _still(room, soon), most)
        able = [mover for mover in self._able(search, room) if mover.name not in gone]
        if not able:
            return None
        self.searches -= 1
        for _ in range(TRIES_MAX):
            found = search.fewest(able)
            if found is None:
                return None
            moves, stuck = search.moved(*found)
            if stuck is None:
                return (found[0], moves) if self._gains(option, moves) else None
            able.remove(stuck)
        return None

    def keep(self, moves: Sequence[Move], rooms: Iterable[Room]) -> None:
        """Those who were found move: where they go on is theirs."""
        self.moved += len(moves)
        for room in rooms:
            for move in moves:
                room.occupy(move.held)

    def _most(self, asked: int) -> int:
        """How many more may move, where so many were asked to leave in this round."""
        limits = self.policy.scheduling.evictions
        left = limits.moves_per_round - self.moved
        return left if limits.per_round is None else min(left, limits.per_round - asked)

    def _gains(self, option: Option, moves: Sequence[Move]) -> bool:
        gained, moved = sum(option.charge.values()), sum(move.mover.gpus for move in moves)
        return gained >= self.policy.scheduling.evictions.min_gain * moved

    def _able(self, search: _Search, room: Room) -> Iterator[Mover]:
        """Who has GPUs of the types that are wanted. Whoever is on one node has to find a place on another."""
        if self._movers is None:
            self._movers = tuple(sorted(movers_in(self.snapshot, self.policy, self.shares, room), key=_cheapest))
        for mover in self._movers:
            if mover.charge.keys() & search.option.charge.keys():
                # What is free only becomes less: where one finds no place, none of its like does later.
                if len(mover.gpus_on) == 1 and mover.likeness not in self._has_place:
                    self._has_place[mover.likeness] = search.place_of(mover, search.soon.copy()) is not None
                if self._has_place.get(mover.likeness, True):
                    yield mover


def _cheapest(mover: Mover) -> tuple[float, int, str]:
    return mover.lost_gpu_s, mover.gpus, mover.name


def _enough_is_free(option: Option, soon: Room) -> bool:
    """Moving frees nothing: what the taker needs has to be free already, wherever it is."""
    free = soon.milli_free(option.shapes)
    return all(free[reach(soon, option, gpu_type)].sum() >= milli for gpu_type, milli in option.charge.items())


def _still(room: Room, soon: Room) -> Mask:
    """The nodes that nobody is about to leave."""
    still: Mask = (
        (room.free_gpus == soon.free_gpus) & (room.free_cpu == soon.free_cpu) & (room.free_memory == soon.free_memory)
    )
    return still


@dataclass(frozen=True, slots=True)
class _Search:
    """For one taker, served one way: on what will be free, with places for at most so many on the nodes that are `still`."""

    taker: Candidate
    option: Option
    soon: Room
    still: Mask
    most: int

    def fewest(self, able: Sequence[Mover]) -> tuple[Placed, tuple[Mover, ...]] | None:
        """A place for the taker, and who has to leave it, if all could who are able to move."""
        order = self._cheapest_to_clear(able)
        looked_at = set(order.tolist())
        near = [mover for mover in able if not looked_at.isdisjoint(mover.gpus_on)]
        everybody = self._without(near)
        placed, too_few, suffices = self._place(everybody, order), 0, len(order)
        while placed is not None and too_few + 1 < suffices:
            middle = (too_few + suffices) // 2
            found = self._place(everybody, order[:middle])
            if found is None:
                too_few = middle
            else:
                placed, suffices = found, middle
        return None if placed is None else self._spare(near, placed, order[:suffices])

    def moved(self, placed: Placed, movers: Collection[Mover]) -> tuple[tuple[Move, ...], Mover | None]:
        """Where each goes on beside the taker and the others, the largest first; and who finds no place."""
        moves: list[Move] = []
        for mover in sorted(movers, key=lambda mover: (-mover.gpus, mover.name)):
            room = self._without((mover,))
            room.occupy(held_by(self.taker.job.spec, self.option, placed.tasks))
            for move in moves:
                room.occupy(move.held)
            found = self.place_of(mover, room)
            if found is None or found.strain > mover.strain + ABOUT:
                return (), mover
            moves.append(Move(mover, found.tasks))
        return tuple(moves), None

    def place_of(self, mover: Mover, room: Room) -> Placed | None:
        """Where a job could go on; nowhere near what is reserved for anybody. Takes from the room."""
        return place(seen(room, room.reserved), mover.job.spec, mover.option, self.still, mover.tasks)

    def _spare(self, able: Sequence[Mover], placed: Placed, nodes: Ints) -> tuple[Placed, tuple[Mover, ...]] | None:
        """Without those that can stay, tried from the one that loses most."""
        chosen = self._on_nodes_of(placed, able)
        for mover in chosen[::-1][:SPARED_MAX]:
            others = [other for other in chosen if other is not mover]
            found = self._place(self._without(others), nodes)
            if found is not None:
                placed, chosen = found, others
        chosen = self._on_nodes_of(placed, chosen)
        return (placed, tuple(chosen)) if len(chosen) <= self.most else None

    def _on_nodes_of(self, placed: Placed, movers: Iterable[Mover]) -> list[Mover]:
        nodes = {self.soon.index[task.node] for task in placed.tasks}
        return [mover for mover in movers if not nodes.isdisjoint(mover.gpus_on)]

    def _place(self, room: Room, nodes: Ints) -> Placed | None:
        within = np.zeros(len(room.nodes), dtype=bool)
        within[nodes] = True
        return place(seen(room.copy(), self.taker.against), self.taker.job.spec, self.option, within)

    def _without(self, movers: Iterable[Mover]) -> Room:
        room = self.soon.copy()
        for mover in movers:
            mover.leave(room)
        return room

    def _cheapest_to_clear(self, able: Sequence[Mover]) -> Ints:
        """Nodes in the order of what is lost until a task of the taker fits: nothing, then as little as possible."""
        need = max((shape.gpus for shape in self.option.shapes), default=0) or 1
        lost = np.where(self.soon.free_gpus >= need, 0.0, np.inf)
        wanted = np.logical_or.reduce([reach(self.soon, self.option, gpu_type) for gpu_type in self.option.charge])
        on_node: dict[int, list[Mover]] = defaultdict(list)
        for mover in able:
            for node in mover.gpus_on:
                on_node[node].append(mover)
        for node, movers in on_node.items():
            free = int(self.soon.free_gpus[node])
            for count, mover in enumerate(movers, 1):
                if free >= need or count > self.most:
                    break
                free += mover.gpus_on[node]
                if free >= need:
                    lost[node] = sum(known.lost_gpu_s for known in movers[:count])
        lost[~wanted] = np.inf
        order = np.argsort(lost, kind="stable")
        return order[: int((lost == 0).sum()) + NODES_MAX]
