"""What a free GPU, a part of one, a core and a byte are worth to what is expected: prices from a linear program.

The program fills the free room with the expected mix and makes the GPUs in use as many as it can; its dual values are the
prices. GPUs are an arc flow (J. Valério de Carvalho, "Exact solution of bin-packing problems using column generation and
branch-and-bound", 1999): a task of m milli takes a GPU with r left to one with r - m. Whole GPUs of a node lie in bundles
of 8, 4, 2 and 1 that can be split, so that a bundle kept whole is worth what a large task would pay for it. Nodes are grouped
by which expected tasks may use their type, and by whether their free CPU suffices for the GPUs that are free there.

How much will come is not known. So prices are averages over `OUTLOOKS`: the mix repeated until it asks for so many times
the free GPUs. Tasks bound to some GPU types count `BOUND_MORE` times: leaving scarce types alone too late can't be
made up for, doing so too early can.

An Optimiser answers with values of columns and not with dual values: it is given the dual program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.sharing import Sharing
from solver.milp.builder import ProgramBuilder
from solver.milp.optimiser import Effort, Optimiser
from solver.model.arrays import Ints
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.placement.fit import Fit, Prices
from solver.placement.fragmentation import Expected, expected_of
from solver.policy.policy import SolverLimits

OUTLOOKS = (1.0, 1.1, 1.25)
"""GPUs that will be asked for, in free GPUs."""

BOUND_MORE = 1.5
"""How much more a task counts that may not use every GPU type."""

ENOUGH_GPU_MILLI = 150
"""Nodes with no more than that free are rich in CPU, whatever is left of it."""

BUNDLES = (8, 4, 2, 1)
"""Whole GPUs of one node that are worth something together."""

HOST_TASK_WORTH = 1e-3
"""GPUs that a task without GPUs counts for, so that prices keep room for it."""

PRICE_MAX = 1e4
"""GPUs per core or per GiB: a bound that keeps the dual program's columns finite."""

CORE = 1_000
GIB = 2**30

Row = tuple[object, ...]
"""Names a row of the program: GPUs in a state, tasks of a size, CPU or memory of a group, or the tasks of a kind."""

Kind = tuple[int, int, tuple[GpuType, ...]]
"""Needs that differ in CPU and memory only: whole GPUs, milli, types. They are priced by their means."""


@dataclass(slots=True)
class _Market:
    """One program being stated: columns of the primal are lists of (row, factor), with their worth."""

    capacity: FreeCapacity
    kinds: Mapping[Kind, tuple[float, float, float]]
    group_of_node: Ints
    types_of_group: list[GpuType]
    bundles: tuple[int, ...]
    level: Ints
    limits: dict[Row, float] = field(default_factory=lambda: defaultdict(float))
    columns: list[tuple[float, list[tuple[Row, float]]]] = field(default_factory=list)

    def state(self) -> None:
        """The free room, and every way to use it."""
        self._supply()
        for group, gpu_type in enumerate(self.types_of_group):
            mine = {kind: means for kind, means in self.kinds.items() if not kind[2] or gpu_type in kind[2]}
            for larger, smaller in pairwise(self.bundles):
                self._column(0.0, [(("whole", group, larger), 1.0), (("whole", group, smaller), -larger / smaller)])
            self._arcs(group, sorted({milli for _, milli, _ in mine if milli}))
            for kind, (_, cores, gib) in mine.items():
                self._serve(group, kind, cores, gib)

    def _column(self, worth: float, entries: list[tuple[Row, float]]) -> None:
        # A row in which no column has a factor stays out: it would be a dual column that nothing names.
        self.columns.append((worth, [(row, factor) for row, factor in entries if factor]))

    def _supply(self) -> None:
        capacity = self.capacity
        for node in np.flatnonzero(capacity.open_nodes).tolist():
            group, whole = int(self.group_of_node[node]), int(capacity.free_gpus[node])
            self.limits["cpu", group] += max(0, int(capacity.free_cpu[node])) / CORE
            self.limits["memory", group] += max(0, int(capacity.free_memory[node])) / GIB
            for bundle in self.bundles:
                self.limits["whole", group, bundle] += whole // bundle
                whole %= bundle
            for gpu in capacity.shared.get(node, ()):
                if gpu.healthy and gpu.free_milli > 0:
                    self.limits["left", group, int(self.level[gpu.free_milli])] += 1.0

    def _arcs(self, group: int, sizes: list[int]) -> None:
        """Tasks that take a GPU from one state to a fuller one; states too full for any task are worth nothing."""
        held = [row[2] for row in self.limits if row[:2] == ("left", group)]
        waiting = {MILLI_PER_GPU, *(left for left in held if isinstance(left, int) and sizes and left >= sizes[0])}
        done: set[int] = set()
        while waiting:
            left = max(waiting)
            waiting.remove(left)
            done.add(left)
            for size in sizes:
                if size > left:
                    break
                source: Row = ("whole", group, 1) if left == MILLI_PER_GPU else ("left", group, left)
                entries: list[tuple[Row, float]] = [(source, 1.0), (("served", group, size), -1.0)]
                rest = int(self.level[left - size])
                if rest >= sizes[0]:
                    entries.append((("left", group, rest), -1.0))
                    if rest not in done:
                        waiting.add(rest)
                self._column(0.0, entries)

    def _serve(self, group: int, kind: Kind, cores: float, gib: float) -> None:
        gpus, milli, _ = kind
        entries: list[tuple[Row, float]] = [(("tasks", kind), 1.0), (("cpu", group), cores), (("memory", group), gib)]
        if milli:
            entries.append((("served", group, milli), 1.0))
        else:
            entries += [(("whole", group, bundle), float(count)) for bundle, count in _split(gpus, self.bundles)]
        self._column(_worth(kind), entries)


def fit_for(
    snapshot: Snapshot,
    capacity: FreeCapacity,
    sharing: Sharing,
    limits: SolverLimits,
    optimiser: Optimiser | None,
    kept: RoundCache | None = None,
) -> Fit | None:
    """What chooses among places that are otherwise alike; None where no job asks for a part of a GPU: best fit does there."""
    expected = expected_of(snapshot.jobs, capacity.gpu_types, sharing, kept)
    if not expected.has_fractions:
        return None
    effort = Effort(limits.gap, limits.time_limit.seconds, limits.seed)
    return Fit.of(expected, prices_of(capacity, expected, optimiser, effort) if optimiser else None, capacity)


def prices_of(capacity: FreeCapacity, expected: Expected, optimiser: Optimiser, effort: Effort) -> Prices | None:
    """The prices of a room's free capacity; None where nothing is free or expected, or the optimiser gave no answer."""
    parts = sum(max(0, gpu.free_milli) for gpus in capacity.shared.values() for gpu in gpus)
    free = int(capacity.free_gpus.sum()) * MILLI_PER_GPU + parts
    wanted = sum(need.all_milli * count for need, count in expected.tasks.items())
    if not free or not wanted:
        return None
    market = _market(capacity, expected)
    market.state()
    return _solved(market, free / wanted, optimiser, effort)


def _solved(market: _Market, repeats: float, optimiser: Optimiser, effort: Effort) -> Prices | None:
    """The dual program, once for each outlook: a column for each row of the primal, a row for each of its columns."""
    rows = list(dict.fromkeys(row for _, entries in market.columns for row, _ in entries))
    builder, cost, start = ProgramBuilder(), dict[int, float](), dict[int, float]()
    answers: list[dict[Row, int]] = []
    for outlook in OUTLOOKS:
        columns = {row: builder.column(PRICE_MAX, integer=False) for row in rows}
        answers.append(columns)
        cost |= {column: market.limits.get(row, 0.0) for row, column in columns.items()}
        for kind, (tasks, _, _) in market.kinds.items():
            if ("tasks", kind) in columns:
                cost[columns["tasks", kind]] = tasks * repeats * outlook
                start[columns["tasks", kind]] = _worth(kind)  # Where tasks are what is scarce, all else may be free.
        for worth, entries in market.columns:
            builder.at_most({columns[row]: -factor for row, factor in entries}, -worth)
    builder.maximise("prices", {column: -limit for column, limit in cost.items()})
    program = builder.build()
    feasible = np.zeros(len(program.lower))
    feasible[list(start)] = list(start.values())
    solution = optimiser(program, feasible, effort)
    if solution is None:
        return None
    return _read(market, {row: float(np.mean([solution.values[known[row]] for known in answers])) for row in rows})


def _read(market: _Market, price: Mapping[Row, float]) -> Prices:
    """Prices of rows, in GPUs, as prices of what nodes have, in milli-GPU."""
    groups = len(market.types_of_group)
    gpus_max = max(len(node.gpus) for node in market.capacity.nodes)
    whole, divided = np.zeros((groups, gpus_max + 1)), np.zeros((groups, MILLI_PER_GPU + 1))
    for group in range(groups):
        for count in range(gpus_max + 1):
            bundles = _split(count, market.bundles)
            whole[group, count] = sum(price.get(("whole", group, bundle), 0.0) * times for bundle, times in bundles)
        known = [price.get(("left", group, int(left)), 0.0) for left in market.level]
        divided[group] = np.maximum.accumulate(known)
    cpu, memory = (
        np.array([price.get((what, group), 0.0) / unit for group in range(groups)])
        for what, unit in (("cpu", CORE), ("memory", GIB))
    )
    scale = MILLI_PER_GPU
    return Prices(market.group_of_node, whole * scale, divided * scale, cpu * scale, memory * scale)


def _market(capacity: FreeCapacity, expected: Expected) -> _Market:
    kinds = _kinds(expected)
    sizes = sorted({milli for _, milli, _ in kinds if milli})
    largest = max(gpus for gpus, _, _ in kinds)
    group_of_node, types_of_group = _groups(capacity, expected)
    return _Market(
        capacity,
        kinds,
        group_of_node,
        types_of_group,
        tuple(bundle for bundle in BUNDLES if bundle == 1 or bundle <= largest),
        _levels(sizes),
    )


def _kinds(expected: Expected) -> dict[Kind, tuple[float, float, float]]:
    """By kind: its tasks, and cores and GiB of one in the mean. Tasks that may not use every type count more."""
    sums: dict[Kind, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for need, count in sorted(expected.tasks.items()):
        total = sums[need.gpus, need.milli, need.gpu_types]
        for number, amount in enumerate((1.0, need.cpu / CORE, need.memory / GIB)):
            total[number] += count * amount
    real = {gpu_type for gpu_type in expected.gpu_types if gpu_type}
    return {
        kind: (tasks * (BOUND_MORE if kind[2] and real - set(kind[2]) else 1.0), cores / tasks, gib / tasks)
        for kind, (tasks, cores, gib) in sums.items()
    }


def _groups(capacity: FreeCapacity, expected: Expected) -> tuple[Ints, list[GpuType]]:
    """The group of each node, and a GPU type of each group, which stands for all that the same tasks may use."""
    wishes = sorted({need.gpu_types for need in expected.tasks if need.gpu_types})
    able = [tuple(gpu_type in wish for wish in wishes) for gpu_type in capacity.gpu_types]
    free = capacity.free_gpus * MILLI_PER_GPU
    for node, gpus in capacity.shared.items():
        free[node] += sum(max(0, gpu.free_milli) for gpu in gpus if gpu.healthy)
    sharers = [(need, count) for need, count in expected.tasks.items() if need.uses_gpus]
    cpu = sum(need.cpu * count for need, count in sharers)
    milli = sum(need.all_milli * count for need, count in sharers)
    rich = (free <= ENOUGH_GPU_MILLI) | (capacity.free_cpu * milli > free * cpu)
    keys = [
        (able[kind], bool(enough)) for kind, enough in zip(capacity.type_of_node.tolist(), rich.tolist(), strict=True)
    ]
    ordered = sorted(set(keys))
    index = {key: number for number, key in enumerate(ordered)}
    types = [capacity.gpu_types[able.index(key[0])] for key in ordered]
    return np.array([index[key] for key in keys], dtype=np.int64), types


def _levels(sizes: Sequence[int]) -> Ints:
    """For each milli-GPU that may be left of a GPU: the most of it that tasks of these sizes can fill."""
    fills = np.zeros(MILLI_PER_GPU + 1, dtype=bool)
    fills[0] = True
    for size in sizes:
        for left in range(size, MILLI_PER_GPU + 1):
            fills[left] |= fills[left - size]
    level: Ints = np.maximum.accumulate(np.where(fills, np.arange(MILLI_PER_GPU + 1), 0))
    # A whole GPU is not among what is left of a divided one.
    level[MILLI_PER_GPU] = level[MILLI_PER_GPU - 1]
    return level


def _split(gpus: int, bundles: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Whole GPUs of one node as bundles, the largest first."""
    for bundle in bundles:
        if gpus >= bundle:
            yield bundle, gpus // bundle
        gpus %= bundle


def _worth(kind: Kind) -> float:
    gpus, milli, _ = kind
    return gpus + milli / MILLI_PER_GPU or HOST_TASK_WORTH
