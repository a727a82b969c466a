"""The node and the device for one task where several would do: whatever leaves the rest worth most to what is expected.

A place costs what it takes at the node's prices, plus a tenth of the fragmentation it adds, plus a little for what it leaves
free (best fit). Prices are those of `solver/milp/prices`; without them only the other two count. Ties go to the
smallest node name, then to the smallest device.

No GPU is divided for what may share one at the same price: then the divided GPU is taken that is left fullest, whatever
fragments. How much of it no job could use is a guess of what comes; that one whole GPU less is left is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.amounts import Amounts
from solver.model.arrays import Floats, Ints, Mask
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape, SharedShape, nodes_of
from solver.placement.fragmentation import Expected
from solver.placement.node_states import States, StatesInRows

FRAGMENTATION_WEIGHT = 0.1
"""Of milli-GPU that fragmentation grows by, beside milli-GPU of price."""

BEST_FIT_WEIGHT = 0.005 / 8
"""Of milli-GPU left free on the node: packs where prices and fragmentation say nothing."""

FRAGMENTATION_ALONE = 1.0
"""Its weight where there are no prices."""

DECIMALS = 6
"""Costs that agree so far are equal: the order in which floats were added up must not choose a node."""

PRICE_DECIMALS = 3
"""The same of prices, in milli-GPU: an optimiser's values are as exact as its tolerance."""


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

    @property
    def resources(self) -> Amounts:
        """What they take that no price and no state of a node counts."""
        return self.ways[0][0].resources

    def way_on(self, room: FreeCapacity, node: int) -> int:
        """The first of them that is served on a node."""
        types = (None, room.nodes[node].gpu_type)
        return next(number for number, way in zip(self.numbers, self.ways, strict=True) if way[1] in types)


class _Costs(NamedTuple):
    """By state, for one shape: cost (inf: does not fit, nan: not worked out), and the GPU it would share (0: a whole one).

    `price`: what of the cost is price. `shared_price`, `shared_left`: of the cheapest place on a divided GPU, of these the fullest.
    """

    cost: Floats
    left_milli: Ints
    price: Floats
    shared_price: Floats
    shared_left: Ints

    @classmethod
    def unknown(cls, states: int) -> _Costs:
        """Nothing is worked out."""
        none = np.zeros(states, dtype=np.int64)
        return cls(np.full(states, np.nan), none, np.full(states, np.inf), np.full(states, np.inf), none.copy())

    def better(self, able: Mask, cost: Floats, price: Floats, shared: Ints) -> None:
        """Another way: where it is the cheapest, and, on a divided GPU, where it has the least price. `shared` as `left_milli`."""
        cheaper = able & (cost < self.cost)
        for mine, of in ((self.cost, cost), (self.price, price), (self.left_milli, shared)):
            mine[cheaper] = of[cheaper]
        least = able & (shared > 0) & (price < self.shared_price)
        for mine, of in ((self.shared_price, price), (self.shared_left, shared)):
            mine[least] = of[least]

    def put(self, states: Sequence[int] | slice, found: _Costs) -> None:
        """These are known now."""
        for mine, of in zip(self, found, strict=True):
            mine[states] = of


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
    def of(cls, expected: Expected, prices: Prices | None, room: FreeCapacity) -> Fit:
        """By prices and fragmentation, or where there are no prices by fragmentation alone."""
        gpus_max = max((len(node.gpus) for node in room.nodes), default=0)
        known = prices or Prices.none(len(room.nodes), gpus_max)
        weight = FRAGMENTATION_WEIGHT if prices else FRAGMENTATION_ALONE
        return cls(expected, known, weight, States(known.group_of_node))

    def cheapest(self, room: FreeCapacity, ways: Sequence[Way]) -> Spot | None:
        """The cheapest place for a task over its ways to be served (type None: on any node); None where there is none.

        Takes nothing. Ties go to the smallest node name, then to the earlier way.
        """
        self._states.follow(room)
        spots = []
        for alike in _alike(tuple(ways)):
            costs = self._cost_by_node(room, alike)
            if alike.resources:
                costs = np.where(room.free_beside.covers(alike.resources), costs, np.inf)
            node = int(costs.argmin()) if len(costs) else 0
            if len(costs) and costs[node] < np.inf:
                left = self._costs[alike.takes].left_milli[self._states.of_node[node]]
                spots.append(Spot(float(costs[node]), node, alike.way_on(room, node), int(left) or None))
        cheapest = min(spots, default=None, key=lambda spot: spot[:3])
        if cheapest is None or cheapest.left_milli or not isinstance(ways[cheapest.way][0], SharedShape):
            return cheapest
        takes = _taken_by(ways[cheapest.way][0])
        most = float(self._costs[takes].price[self._states.of_node[cheapest.node]])
        return self._sharing(room, ways, most) or cheapest

    def worth(self, room: FreeCapacity) -> float:
        """What all that is free is worth, in milli-GPU."""
        self._states.follow(room)
        states, counts = np.unique(self._states.of_node[room.open_nodes], return_counts=True)
        nodes = StatesInRows.of([self._states.known[number] for number in states.tolist()])
        hosts = self.prices.cpu[nodes.group] * nodes.cpu + self.prices.memory[nodes.group] * nodes.memory
        return float((self._worth(nodes, nodes.whole, nodes.left) + hosts) @ counts)

    def _sharing(self, room: FreeCapacity, ways: Sequence[Way], most: float) -> Spot | None:
        """The divided GPU that a task leaves fullest, of those priced at `most` or less; of alike ones on the fullest node."""
        spots = []
        for alike in _alike(tuple(ways)):
            known, states = self._costs[alike.takes], self._states.of_node
            nodes = np.flatnonzero(self._by_node[alike.ways].usable)
            nodes = nodes[known.shared_price[states[nodes]] <= most]
            if alike.resources:
                nodes = nodes[room.free_beside.covers(alike.resources)[nodes]]
            if len(nodes):
                left = known.shared_left[states[nodes]]
                node = int(nodes[np.lexsort((room.free_gpus[nodes], left))[0]])
                shared = int(known.shared_left[states[node]])
                spots.append(Spot(shared, node, alike.way_on(room, node), shared))
        return min(spots, default=None, key=lambda spot: spot[:3])

    def _cost_by_node(self, room: FreeCapacity, alike: _Alike) -> Floats:
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
        known = self._costs.get(alike.takes) or _Costs.unknown(0)
        if len(known.cost) < len(self._states.known):
            more = _Costs.unknown(2 * len(self._states.known))
            more.put(slice(len(known.cost)), known)
            known = self._costs[alike.takes] = more
        unknown = np.isnan(known.cost[states])
        if unknown.any():
            missing = sorted(set(states[unknown].tolist()))
            chosen = StatesInRows.of([self._states.known[number] for number in missing])
            known.put(missing, self._work_out(chosen, alike.ways[0][0]))
        return known

    def _work_out(self, nodes: StatesInRows, shape: Shape) -> _Costs:
        """The cheapest way to put a task on each of some nodes, and the GPU it shares in it."""
        before = self.expected.unusable(nodes.gpu_type, nodes.cpu, nodes.memory, nodes.whole, nodes.left)
        best = _Costs.unknown(len(nodes.cpu))
        best.cost[:] = np.inf
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
            best.better(able, cost, np.round(price, PRICE_DECIMALS), shared)
        return best

    def _worth(self, nodes: StatesInRows, whole: Ints, left: Ints) -> Floats:
        parts = self.prices.divided[nodes.group[:, None], left].sum(axis=1)
        return np.asarray(self.prices.whole[nodes.group, np.maximum(whole, 0)] + parts, dtype=np.float64)


@lru_cache(maxsize=4096)
def _alike(ways: tuple[Way, ...]) -> tuple[_Alike, ...]:
    found: dict[tuple[object, ...], list[int]] = {}
    for number, (shape, gpu_type) in enumerate(ways):
        found.setdefault((_taken_by(shape), shape.resources, nodes_of(shape), gpu_type is None), []).append(number)
    return tuple(
        _Alike(tuple(numbers), _taken_by(ways[numbers[0]][0]), tuple(ways[number] for number in numbers))
        for numbers in found.values()
    )


def _taken_by(shape: Shape) -> _Takes:
    circles = shape.circles if isinstance(shape, SharedShape) else ()
    return (shape.gpus, int(shape.cost), shape.cpu, shape.memory, circles)
