"""The node and the device for one task where several would do: whatever leaves the rest worth most to what is expected.

A place costs what it takes at the node's prices, plus a tenth of the fragmentation it adds, plus a little for what it leaves
free (best fit). Prices are those of `solver/prices`; without them only the other two count. Ties go to the
smallest node name, then to the smallest device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.fragmentation import Expected
from solver.world.cluster import GpuType
from solver.world.quantities import MILLI_PER_GPU
from solver.world.room import Room
from solver.world.shape import Shape, SharedShape, TrustDomain, nodes_of
from solver.world.shared_gpus import SharedGpus

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FRAGMENTATION_WEIGHT = 0.1
"""Of milli-GPU that fragmentation grows by, beside milli-GPU of price."""

BEST_FIT_WEIGHT = 0.005 / 8
"""Of milli-GPU left free on the node: packs where prices and fragmentation say nothing."""

FRAGMENTATION_ALONE = 1.0
"""Its weight where there are no prices."""

DECIMALS = 6
"""Costs that agree so far are equal: the order in which floats were added up must not choose a node."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What free capacity is worth, in milli-GPU, on the nodes of each group.

    `whole[group, n]`: n free GPUs of one node. `divided[group, m]`: m milli-GPU left of a divided GPU. `cpu`: a milli-core;
    `memory`: a byte.
    """

    group_of_node: Ints
    whole: Floats
    divided: Floats
    cpu: Floats
    memory: Floats

    @classmethod
    def none(cls, nodes: int, gpus_max: int) -> Prices:
        """Nothing is worth anything."""
        zero = np.zeros(1)
        return cls(
            np.zeros(nodes, dtype=np.int64), np.zeros((1, gpus_max + 1)), np.zeros((1, MILLI_PER_GPU + 1)), zero, zero
        )


class Spot(NamedTuple):
    """A place for one task: its cost, the node's number, the way it is served, and what is left of the GPU that it shares.

    `left_milli` None: it gets GPUs that are whole.
    """

    cost: float
    node: int
    way: int
    left_milli: int | None


class _Part(NamedTuple):
    """What is left of a divided GPU, and for whom; nothing where it is broken or over-full."""

    left_milli: int
    domain: TrustDomain | None


class _State(NamedTuple):
    """All of a node that costs depend on; nodes in the same state are alike."""

    group: int
    gpu_type: int
    pool: str
    cpu: int
    memory: int
    whole: int
    shared: tuple[_Part, ...]


class _Costs(NamedTuple):
    """By state, for one shape: cost (inf: does not fit, nan: not worked out), and the GPU it would share (0: a whole one)."""

    cost: Floats
    left_milli: Ints


@dataclass(slots=True)
class Fit:
    """Chooses places in rooms of one snapshot. Costs are kept by the state of a node, so that any copy may be asked about."""

    expected: Expected
    prices: Prices
    weight: float
    _states: list[_State] = field(default_factory=list)
    _numbers: dict[_State, int] = field(default_factory=dict)
    _costs: dict[tuple[object, ...], _Costs] = field(default_factory=dict)
    _seen: Room | None = None
    _state_of_node: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, expected: Expected, prices: Prices | None, room: Room) -> Fit:
        """By prices and fragmentation, or where there are no prices by fragmentation alone."""
        gpus_max = max((len(node.gpus) for node in room.nodes), default=0)
        known = prices or Prices.none(len(room.nodes), gpus_max)
        return cls(expected, known, FRAGMENTATION_WEIGHT if prices else FRAGMENTATION_ALONE)

    def cheapest(self, room: Room, ways: Sequence[tuple[Shape, GpuType | None]]) -> Spot | None:
        """The cheapest place for a task over its ways to be served (type None: on any node); None where there is none.

        Takes nothing. Ties go to the smallest node name, then to the earlier way.
        """
        self._follow(room)
        spots = []
        for numbers in _alike(ways):
            nodes = np.flatnonzero(np.logical_or.reduce([room.usable(*ways[number]) for number in numbers]))
            states = self._state_of_node[nodes]
            known = self._costs_of(ways[numbers[0]][0], states)
            costs = known.cost[states]
            if len(costs) and np.isfinite(costs.min()):
                best = int(costs.argmin())
                way = next(n for n in numbers if ways[n][1] in (None, room.nodes[nodes[best]].gpu_type))
                left_milli = int(known.left_milli[states[best]]) or None
                spots.append(Spot(float(costs[best]), int(nodes[best]), way, left_milli))
        return min(spots, default=None, key=lambda spot: spot[:3])

    def _follow(self, room: Room) -> None:
        """Bring the states up to what a room is now: only nodes that differ from the last one seen."""
        before = self._seen
        if before is None:
            self._state_of_node = np.full(len(room.nodes), -1, dtype=np.int64)
            changed = set(range(len(room.nodes)))
        else:
            differs = (room.free_cpu != before.free_cpu) | (room.free_memory != before.free_memory)
            differs |= room.free_gpus != before.free_gpus
            changed = set(np.flatnonzero(differs).tolist())
            now, then = room.shared, before.shared
            changed |= {node for node, gpus in now.items() if then.get(node, ()) is not gpus}
            changed |= then.keys() - now.keys()
        if changed:
            for node in changed:
                self._state_of_node[node] = self._number(room, node)
            self._seen = room.copy()

    def _number(self, room: Room, node: int) -> int:
        state = _State(
            int(self.prices.group_of_node[node]),
            int(room.type_of_node[node]),
            room.nodes[node].pool,
            int(room.free_cpu[node]),
            int(room.free_memory[node]),
            int(room.free_gpus[node]),
            _parts(room.shared.get(node, ())),
        )
        if state not in self._numbers:
            self._numbers[state] = len(self._states)
            self._states.append(state)
        return self._numbers[state]

    def _costs_of(self, shape: Shape, states: Ints) -> _Costs:
        key = _key(shape)
        known = self._costs.get(key, _Costs(np.zeros(0), np.zeros(0, dtype=np.int64)))
        if len(known.cost) < len(self._states):
            size = 2 * len(self._states)
            cost, left = np.full(size, np.nan), np.zeros(size, dtype=np.int64)
            cost[: len(known.cost)], left[: len(known.cost)] = known
            known = self._costs[key] = _Costs(cost, left)
        missing = np.unique(states[np.isnan(known.cost[states])])
        if len(missing):
            chosen = _Nodes.of([self._states[number] for number in missing.tolist()])
            known.cost[missing], known.left_milli[missing] = self._work_out(chosen, shape)
        return known

    def _work_out(self, nodes: _Nodes, shape: Shape) -> tuple[Floats, Ints]:
        """The cheapest way to put a task on each of some nodes, and the GPU it shares in it."""
        before = self.expected.unusable(nodes.gpu_type, nodes.cpu, nodes.memory, nodes.whole, nodes.left)
        best = np.full(len(nodes.cpu), np.inf)
        left_milli = np.zeros(len(nodes.cpu), dtype=np.int64)
        host_ok = (nodes.cpu >= shape.cpu) & (nodes.memory >= shape.memory)
        for roomy, whole, left, shared in nodes.ways(shape):
            able = roomy & host_ok
            if not able.any():
                continue
            cpu, memory = nodes.cpu - shape.cpu, nodes.memory - shape.memory
            after = self.expected.unusable(nodes.gpu_type, cpu, memory, whole, left)
            price = self._worth(nodes, nodes.whole, nodes.left) - self._worth(nodes, whole, left)
            price += self.prices.cpu[nodes.group] * shape.cpu + self.prices.memory[nodes.group] * shape.memory
            rest = whole * MILLI_PER_GPU + left.sum(axis=1)
            cost = np.round(price + self.weight * (after - before) + BEST_FIT_WEIGHT * rest, DECIMALS)
            better = able & (cost < best)
            best[better], left_milli[better] = cost[better], shared[better]
        return best, left_milli

    def _worth(self, nodes: _Nodes, whole: Ints, left: Ints) -> Floats:
        parts = self.prices.divided[nodes.group[:, None], left].sum(axis=1)
        return np.asarray(self.prices.whole[nodes.group, np.maximum(whole, 0)] + parts, dtype=np.float64)


def _alike(ways: Sequence[tuple[Shape, GpuType | None]]) -> list[list[int]]:
    """Ways by what they take and the nodes they are limited to: only the type may differ."""
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, (shape, gpu_type) in enumerate(ways):
        alike.setdefault((_key(shape), nodes_of(shape), gpu_type is None), []).append(number)
    return list(alike.values())


def _key(shape: Shape) -> tuple[object, ...]:
    circles = shape.circles if isinstance(shape, SharedShape) else ()
    return (shape.gpus, int(shape.cost), shape.cpu, shape.memory, circles)


def _parts(gpus: SharedGpus) -> tuple[_Part, ...]:
    parts = (_Part(max(0, gpu.free_milli) if gpu.healthy else 0, gpu.domain) for gpu in gpus)
    return tuple(sorted(parts, key=lambda part: (part.left_milli, part.domain or "")))


@dataclass(frozen=True, slots=True)
class _Nodes:
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
    def of(cls, states: Sequence[_State]) -> _Nodes:
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
