"""The states of a room's nodes: all of a node that the cost of a place on it depends on. Nodes in one state are alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from solver.capacity.changes import NOTHING_READ, Mark
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.offers import ONE_BY_ONE_MAX
from solver.capacity.shared_gpus import SharedGpus
from solver.model.arrays import Ints, Mask
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape, SharedShape, TrustDomain


class DividedGpu(NamedTuple):
    """What is left of a divided GPU, and for which domain; nothing where it is broken or over-full."""

    left_milli: int
    domain: TrustDomain | None


class State(NamedTuple):
    """`group`: that of its prices; CPU in milli-cores, memory in bytes, `whole`: free GPUs."""

    group: int
    gpu_type: int
    pool: str
    cpu: int
    memory: int
    whole: int
    shared: tuple[DividedGpu, ...]


@dataclass(slots=True)
class States:
    """The states of the nodes of a room, or of one copy of it after the other, and the `changes` of them, in order."""

    group_of_node: Ints
    known: list[State] = field(default_factory=list)
    of_node: Ints = field(init=False)
    changes: list[int] = field(default_factory=list)
    _numbers: dict[State, int] = field(default_factory=dict)
    _room: FreeCapacity | None = None
    _mark: Mark = NOTHING_READ
    _free: tuple[Ints, Ints, Ints] = field(init=False)
    _shared: dict[int, SharedGpus] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """No node is known yet."""
        nodes = len(self.group_of_node)
        self.of_node = np.full(nodes, -1, dtype=np.int64)
        self._free = tuple(np.full(nodes, np.iinfo(np.int64).min) for _ in range(3))  # type: ignore[assignment]

    def follow(self, room: FreeCapacity) -> None:
        """Bring the states up to what a room is now: only nodes that differ from the last one seen."""
        changed = room.changes.since(self._mark) if room is self._room else None
        nodes = set(self._different(room) if changed is None else changed)
        if len(nodes) > ONE_BY_ONE_MAX:
            whole = nodes.difference(room.shared, self._shared)
            self._number_many(room, np.fromiter(whole, dtype=np.int64, count=len(whole)))
            nodes -= whole
        for node in nodes:
            number = self._number(room, node)
            if number != self.of_node[node]:
                self.of_node[node] = number
                self.changes.append(node)
        self._room, self._mark = room, room.changes.mark

    def _number_many(self, room: FreeCapacity, nodes: Ints) -> None:
        """Nodes with no divided GPU, now or before: each state that some of them are in is looked at once."""
        pools, free = room.topology["pool"], (room.free_cpu, room.free_memory, room.free_gpus)
        for known, now in zip(self._free, free, strict=True):
            known[nodes] = now[nodes]
        rows = np.stack([of[nodes] for of in (self.group_of_node, room.type_of_node, pools.of_node, *free)])
        alike, of_row = np.unique(rows, axis=1, return_inverse=True)
        states = [
            State(group, gpu_type, pools.names[pool], cpu, memory, whole, ())
            for group, gpu_type, pool, cpu, memory, whole in alike.T.tolist()
        ]
        numbers = np.array([self._number_of(state) for state in states], dtype=np.int64)[of_row.reshape(-1)]
        differs = numbers != self.of_node[nodes]
        self.of_node[nodes] = numbers
        self.changes += nodes[differs].tolist()

    def _different(self, room: FreeCapacity) -> Iterable[int]:
        differs = np.zeros(len(self.of_node), dtype=bool)
        for now, before in zip((room.free_cpu, room.free_memory, room.free_gpus), self._free, strict=True):
            differs |= now != before
        shared = {node for node, gpus in room.shared.items() if self._shared.get(node, ()) is not gpus}
        return {*np.flatnonzero(differs).tolist(), *shared, *(self._shared.keys() - room.shared.keys())}

    def _number(self, room: FreeCapacity, node: int) -> int:
        free, shared = (room.free_cpu[node], room.free_memory[node], room.free_gpus[node]), room.shared.get(node, ())
        for known, now in zip(self._free, free, strict=True):
            known[node] = now
        if shared:
            self._shared[node] = shared
        else:
            self._shared.pop(node, None)
        cpu, memory, whole = map(int, free)
        group, gpu_type = int(self.group_of_node[node]), int(room.type_of_node[node])
        return self._number_of(State(group, gpu_type, room.nodes[node].pool, cpu, memory, whole, _parts(shared)))

    def _number_of(self, state: State) -> int:
        number = self._numbers.setdefault(state, len(self.known))
        if number == len(self.known):
            self.known.append(state)
        return number


def _parts(gpus: SharedGpus) -> tuple[DividedGpu, ...]:
    parts = (DividedGpu(max(0, gpu.free_milli) if gpu.healthy else 0, gpu.domain) for gpu in gpus)
    return tuple(sorted(parts, key=lambda part: (part.left_milli, part.domain or "")))


@dataclass(frozen=True, slots=True)
class StatesInRows:
    """Some states as arrays; `left` has a row for each, with what is left of each divided GPU (0: nothing usable)."""

    group: Ints
    gpu_type: Ints
    cpu: Ints
    memory: Ints
    whole: Ints
    left: Ints
    pools: list[str]
    domains: list[list[TrustDomain | None]]

    @classmethod
    def of(cls, states: Sequence[State]) -> StatesInRows:
        """Each in a row of its own."""
        columns = ((state.group, state.gpu_type, state.cpu, state.memory, state.whole) for state in states)
        group, gpu_type, cpu, memory, whole = np.array(list(columns), dtype=np.int64).reshape(-1, 5).T
        left = np.zeros((len(states), max((len(state.shared) for state in states), default=0)), dtype=np.int64)
        for row, state in enumerate(states):
            for column, gpu in enumerate(state.shared):
                left[row, column] = gpu.left_milli
        domains = [[gpu.domain for gpu in state.shared] for state in states]
        return cls(group, gpu_type, cpu, memory, whole, left, [state.pool for state in states], domains)

    def ways(self, shape: Shape) -> list[tuple[Mask, Ints, Ints, Ints]]:
        """The ways to put a task there: which nodes can, whole and divided GPUs afterwards, and what was left of the shared one."""
        none = np.zeros(len(self.cpu), dtype=np.int64)
        if not isinstance(shape, SharedShape):
            return [(self.whole >= shape.gpus, self.whole - shape.gpus, self.left, none)]
        fresh = np.concatenate([self.left, (none + MILLI_PER_GPU - shape.milli)[:, None]], axis=1)
        mine = self._in_domain_of(shape)
        ways = [(mine[:, -1] & (self.whole > 0), self.whole - 1, fresh, none)]
        for column in range(self.left.shape[1]):
            able = mine[:, column] & (self.left[:, column] >= shape.milli)
            after = self.left.copy()
            after[able, column] -= shape.milli
            ways.append((able, self.whole, after, self.left[:, column]))
        return ways

    def _in_domain_of(self, shape: SharedShape) -> Mask:
        """By node and divided GPU: may it join there; in a last column, may it divide another."""
        mine = np.zeros((len(self.cpu), self.left.shape[1] + 1), dtype=bool)
        for row, (pool, domains) in enumerate(zip(self.pools, self.domains, strict=True)):
            own = shape.domain(pool)
            mine[row, -1] = own is not None
            mine[row, : len(domains)] = [own is not None and domain == own for domain in domains]
        return mine
