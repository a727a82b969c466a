"""The node and the device for one task where several would do: whatever leaves the rest worth most to what is expected.

A place costs what it takes at the node's prices, plus a tenth of the fragmentation it adds, plus a little for what it leaves
free (best fit). Prices are those of `solver/prices`; without them only the other two count. Ties go to the
smallest node name, then to the smallest device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from solver.fragmentation import Expected
from solver.node_states import States, StatesInRows
from solver.world.arrays import Floats, Ints, Mask
from solver.world.cluster import GpuType
from solver.world.quantities import MILLI_PER_GPU
from solver.world.room import Room
from solver.world.shape import Shape, SharedShape, nodes_of

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


Way = tuple[Shape, GpuType | None]
"""What a task takes, and on which type it is served; None: on any node."""

_Takes = tuple[object, ...]


class Spot(NamedTuple):
    """A place for one task: its cost, the node's number, the way it is served, and what is left of the GPU that it shares.

    `left_milli` None: it gets GPUs that are whole.
    """

    cost: float
    node: int
    way: int
    left_milli: int | None


class _Alike(NamedTuple):
    """Ways that take the same and are limited to the same nodes: only the type may differ. `numbers`: their places among all."""

    numbers: tuple[int, ...]
    takes: _Takes
    ways: tuple[Way, ...]


class _Costs(NamedTuple):
    """By state, for one shape: cost (inf: does not fit, nan: not worked out), and the GPU it would share (0: a whole one)."""

    cost: Floats
    left_milli: Ints


@dataclass(slots=True)
class _Costly:
    """What a place costs on each node (inf: there is none) for tasks that are alike. `seen`: how many changes it knows."""

    usable: Mask
    masks: list[Mask]
    cost: Floats
    seen: int = 0


@dataclass(slots=True)
class Fit:
    """Chooses places in rooms of one snapshot. Costs are kept by the state of a node, so that any copy may be asked about."""

    expected: Expected
    prices: Prices
    weight: float
    _states: States
    _costs: dict[_Takes, _Costs] = field(default_factory=dict)
    _by_node: dict[tuple[Way, ...], _Costly] = field(default_factory=dict)

    @classmethod
    def of(cls, expected: Expected, prices: Prices | None, room: Room) -> Fit:
        """By prices and fragmentation, or where there are no prices by fragmentation alone."""
        gpus_max = max((len(node.gpus) for node in room.nodes), default=0)
        known = prices or Prices.none(len(room.nodes), gpus_max)
        weight = FRAGMENTATION_WEIGHT if prices else FRAGMENTATION_ALONE
        return cls(expected, known, weight, States(known.group_of_node))

    def cheapest(self, room: Room, ways: Sequence[Way]) -> Spot | None:
        """The cheapest place for a task over its ways to be served (type None: on any node); None where there is none.

        Takes nothing. Ties go to the smallest node name, then to the earlier way.
        """
        self._states.follow(room)
        spots = []
        for alike in _alike(tuple(ways)):
            costs = self._cost_by_node(room, alike)
            node = int(costs.argmin()) if len(costs) else 0
            if len(costs) and costs[node] < np.inf:
                way = next(n for n in alike.numbers if ways[n][1] in (None, room.nodes[node].gpu_type))
                left = self._costs[alike.takes].left_milli[self._states.of_node[node]]
                spots.append(Spot(float(costs[node]), node, way, int(left) or None))
        return min(spots, default=None, key=lambda spot: spot[:3])

    def _cost_by_node(self, room: Room, alike: _Alike) -> Floats:
        changes, masks = self._states.changes, [room.usable(*way) for way in alike.ways]
        kept = self._by_node.get(alike.ways)
        if kept is None or any(known is not mask for known, mask in zip(kept.masks, masks, strict=True)):
            usable = np.logical_or.reduce(masks)
            kept = self._by_node[alike.ways] = _Costly(usable, masks, np.full(len(usable), np.inf))
            nodes = np.flatnonzero(usable)
        else:
            nodes = np.array([node for node in set(changes[kept.seen :]) if kept.usable[node]], dtype=np.int64)
        if len(nodes):
            states = self._states.of_node[nodes]
            kept.cost[nodes] = self._costs_of(alike, states).cost[states]
        kept.seen = len(changes)
        return kept.cost

    def _costs_of(self, alike: _Alike, states: Ints) -> _Costs:
        known = self._costs.get(alike.takes, _Costs(np.zeros(0), np.zeros(0, dtype=np.int64)))
        if len(known.cost) < len(self._states.known):
            size = 2 * len(self._states.known)
            cost, left = np.full(size, np.nan), np.zeros(size, dtype=np.int64)
            cost[: len(known.cost)], left[: len(known.cost)] = known
            known = self._costs[alike.takes] = _Costs(cost, left)
        unknown = np.isnan(known.cost[states])
        if unknown.any():
            missing = sorted(set(states[unknown].tolist()))
            chosen = StatesInRows.of([self._states.known[number] for number in missing])
            known.cost[missing], known.left_milli[missing] = self._work_out(chosen, alike.ways[0][0])
        return known

    def _work_out(self, nodes: StatesInRows, shape: Shape) -> tuple[Floats, Ints]:
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

    def _worth(self, nodes: StatesInRows, whole: Ints, left: Ints) -> Floats:
        parts = self.prices.divided[nodes.group[:, None], left].sum(axis=1)
        return np.asarray(self.prices.whole[nodes.group, np.maximum(whole, 0)] + parts, dtype=np.float64)


@lru_cache(maxsize=4096)
def _alike(ways: tuple[Way, ...]) -> tuple[_Alike, ...]:
    found: dict[tuple[object, ...], list[int]] = {}
    for number, (shape, gpu_type) in enumerate(ways):
        found.setdefault((_taken_by(shape), nodes_of(shape), gpu_type is None), []).append(number)
    return tuple(
        _Alike(tuple(numbers), _taken_by(ways[numbers[0]][0]), tuple(ways[number] for number in numbers))
        for numbers in found.values()
    )


def _taken_by(shape: Shape) -> _Takes:
    circles = shape.circles if isinstance(shape, SharedShape) else ()
    return (shape.gpus, int(shape.cost), shape.cpu, shape.memory, circles)
