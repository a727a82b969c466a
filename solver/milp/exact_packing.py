"""Exact packing: whether gangs fit side by side, by trying every way. A No is a proof, and a Yes names the nodes.

Whole GPUs and what is beside them on nodes; GPUs of a node are alike. Parts of GPUs and MIG instances are not tried here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import NOBODY, Against, seen
from solver.model.cluster import GpuType, Level, SpreadLevel
from solver.model.shape import MigShape, Shape, SharedShape, nodes_of
from solver.model.workload import Spread
from solver.queueing.demand import StartCandidate
from solver.quota.options import Option

Hosts = tuple[tuple[int, ...], ...]
"""For each task group of a gang, the node of each of its tasks."""

Free = tuple[tuple[int, ...], ...]
"""What is free on each node: whole GPUs, and of what is beside them what any gang takes."""

State = tuple[Free, ...]
"""What is free to each view (jobs that the same reservations hold back), in the order of the views."""


@dataclass(frozen=True, slots=True)
class PackingRequest:
    """A gang that wants a place: how it is served, in one domain of which level, in which pool, and with how many tasks."""

    candidate: StartCandidate
    option: Option
    level: Level | None
    pool: int | None
    tasks: tuple[int, ...]

    @property
    def asks_for_parts(self) -> bool:
        """Whether it wants parts of GPUs."""
        return any(isinstance(shape, SharedShape | MigShape) for shape in self.option.shapes)

    @property
    def hardness(self) -> tuple[int, int]:
        """Sorts the hardest to place first: large tasks, then large gangs."""
        return -max(shape.cost for shape in self.option.shapes), -sum(self.option.charge.values())


class TooManyWaysError(Exception):
    """The steps ran out before every way was tried: nothing is known."""


_Kept = tuple[tuple[int, ...], int, int]
"""Names tasks that keep together: of which groups, and of one group in bundles of which size which bundle (0, 0: all)."""


class _Task(NamedTuple):
    """One task to place; `kept`: with which other tasks it keeps together, and in one domain of which level."""

    group: int
    shape: Shape
    gpu_type: GpuType | None
    kept: tuple[tuple[_Kept, Level], ...]


@dataclass(slots=True)
class PackingSearch:
    """Looks for places in one room. `steps`: nodes that may still be tried for tasks, over all questions."""

    capacity: FreeCapacity
    steps: int
    _views: dict[Against, FreeCapacity] = field(default_factory=dict)
    _names: tuple[str, ...] = ()
    """Of what is beside GPUs, in the order of a node's numbers."""

    def places(self, gangs: Sequence[PackingRequest]) -> tuple[Hosts, ...] | None:
        """Nodes for all of them together; None: there are none. Raises TooManyWaysError, and ValueError for parts of GPUs."""
        if self.capacity.partitions or any(gang.asks_for_parts for gang in gangs):
            raise ValueError("parts of GPUs are not tried")
        self._names = tuple(sorted({name for gang in gangs for shape in gang.option.shapes for name in shape.beside}))
        order = sorted(range(len(gangs)), key=lambda number: gangs[number].hardness)
        views = sorted({NOBODY, *(gang.candidate.against for gang in gangs)}, key=sorted)
        state = tuple(self._free(view) for view in views)
        hosts = self._side_by_side([gangs[number] for number in order], state, views, set())
        return None if hosts is None else tuple(place for _, place in sorted(zip(order, hosts, strict=True)))

    def view(self, against: Against) -> FreeCapacity:
        """The room as jobs see it that these reservations hold back."""
        if against not in self._views:
            self._views[against] = seen(self.capacity, against)
        return self._views[against]

    def _free(self, against: Against) -> Free:
        capacity = self.view(against)
        beside = (capacity.free_beside[name].tolist() for name in self._names)
        return tuple(zip(capacity.free_gpus.tolist(), *beside, strict=True))

    def _side_by_side(
        self, gangs: Sequence[PackingRequest], state: State, views: Sequence[Against], hopeless: set[tuple[int, State]]
    ) -> list[Hosts] | None:
        if not gangs:
            return []
        if (len(gangs), state) in hopeless:
            return None
        bound = [number for number, view in enumerate(views) if view <= gangs[0].candidate.against]
        tried: set[State] = set()
        for hosts, after in self._ways(gangs[0], state, bound):
            if after not in tried:
                tried.add(after)
                rest = self._side_by_side(gangs[1:], after, views, hopeless)
                if rest is not None:
                    return [hosts, *rest]
        hopeless.add((len(gangs), state))
        return None

    def _ways(self, gang: PackingRequest, state: State, bound: Sequence[int]) -> Iterator[tuple[Hosts, State]]:
        """Every way to place one gang, as far as the nodes it leaves differ."""
        tasks = _tasks(gang)
        for domain in self._domains(gang):
            for nodes, after in self._hosts(gang, tasks, (), domain, state, bound):
                groups = range(len(gang.tasks))
                hosts = (
                    tuple(node for task, node in zip(tasks, nodes, strict=True) if task.group == n) for n in groups
                )
                yield tuple(hosts), after

    def _domains(self, gang: PackingRequest) -> Iterator[list[int]]:
        open_nodes = [node for node, is_open in enumerate(self.capacity.open_nodes.tolist()) if is_open]
        if gang.pool is not None:
            pools = self.capacity.topology["pool"].of_node
            open_nodes = [node for node in open_nodes if pools[node] == gang.pool]
        if gang.level is None:
            yield open_nodes
            return
        of_node = self.capacity.topology[gang.level].of_node.tolist()
        for domain in sorted({of_node[node] for node in open_nodes}):
            yield [node for node in open_nodes if of_node[node] == domain]

    def _hosts(
        self,
        gang: PackingRequest,
        tasks: Sequence[_Task],
        before: tuple[int, ...],
        domain: Sequence[int],
        state: State,
        bound: Sequence[int],
    ) -> Iterator[tuple[tuple[int, ...], State]]:
        if len(before) == len(tasks):
            yield before, state
            return
        task = tasks[len(before)]
        for node in self._candidates(gang, tasks, before, domain):
            self.steps -= 1
            if self.steps < 0:
                raise TooManyWaysError
            after = self._after(state, bound, node, task.shape)
            if after is not None:
                yield from self._hosts(gang, tasks, (*before, node), domain, after, bound)

    def _candidates(
        self, gang: PackingRequest, tasks: Sequence[_Task], before: tuple[int, ...], domain: Sequence[int]
    ) -> Iterator[int]:
        """Nodes that type, set, bundle and spreads allow; alike tasks ascending, since which is where doesn't matter."""
        task, alike = tasks[len(before)], [(t, n) for t, n in zip(tasks, before, strict=False)]
        mates = [node for other, node in alike if (other.group, other.kept) == (task.group, task.kept)]
        near = [(level, self._node_of(kept, alike)) for kept, level in task.kept]
        domains = [(self.capacity.topology[level].of_node, node) for level, node in near if node is not None]
        allowed = self.capacity.sets.get(nodes_of(task.shape))
        for node in domain:
            if (task.gpu_type not in (None, self.capacity.nodes[node].gpu_type)) or (mates and node < mates[-1]):
                continue
            if allowed is not None and not allowed[node]:
                continue
            if any(of_node[node] != of_node[other] for of_node, other in domains):
                continue
            own = [other for placed, other in alike if placed.group == task.group]
            spec = gang.candidate.job.spec
            if self._is_full(spec.topology.spread, before, node) or self._is_full(
                spec.task_groups[task.group].topology.spread, own, node
            ):
                continue
            yield node

    @staticmethod
    def _node_of(kept: _Kept, placed: Sequence[tuple[_Task, int]]) -> int | None:
        """Where the first of some tasks is that keep together; None: none is placed yet."""
        return next((node for other, node in placed if any(kept == mine for mine, _ in other.kept)), None)

    def _is_full(self, spread: Spread | None, before: Sequence[int], node: int) -> bool:
        if spread is None:
            return False
        there = self._domain(spread.level, node)
        return sum(self._domain(spread.level, other) == there for other in before) >= spread.max_per_domain

    def _domain(self, level: SpreadLevel, node: int) -> int:
        return node if level == "node" else int(self.capacity.topology[level].of_node[node])

    def _after(self, state: State, bound: Sequence[int], node: int, shape: Shape) -> State | None:
        """What is left once a task runs on a node; None where it does not fit. `bound`: the views that it takes from."""
        beside, left = shape.beside, list(state)
        needs = (shape.gpus, *(beside.get(name, 0) for name in self._names))
        for number in bound:
            after = tuple(has - need for has, need in zip(state[number][node], needs, strict=True))
            if any(need and rest < 0 for need, rest in zip(needs, after, strict=True)):
                return None
            left[number] = (*state[number][:node], after, *state[number][node + 1 :])
        return tuple(left)


def _tasks(gang: PackingRequest) -> list[_Task]:
    """Its tasks, in the order of groups and indexes."""
    spec, tasks = gang.candidate.job.spec, []
    for number, (group, count) in enumerate(zip(spec.task_groups, gang.tasks, strict=True)):
        bundles = spec.kept_in_bundles(group)
        shape, gpu_type = gang.option.shapes[number], gang.option.gpu_types[number]
        others = [each for each in spec.kept_groups if number in each.groups]
        for index in range(count):
            with_others = [((each.groups, 0, index // each.size(number, count)), each.level) for each in others]
            kept = [(((number,), size, index // size), level) for size, level in bundles]
            tasks.append(_Task(number, shape, gpu_type, (*with_others, *kept)))
    return tasks
