"""Which nodes take how many tasks of one group: packed or scattered, bundles together, no domain above what a spread allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.offers import Offer
from solver.model.arrays import Counts, Ints
from solver.model.cluster import Level, SpreadLevel, is_wider
from solver.model.topology import Topology
from solver.model.workload import Bundle, JobSpec, Spread, TaskPlacement

Chosen = list[tuple[int, int]]
"""Nodes with the number of tasks that each takes, in the order of the tasks' indexes."""


Domain = tuple[Level, int]
"""One of a level, by its number."""

NESTED: tuple[Level, ...] = ("block", "rack", "island")
"""The levels of which few domains are used, the widest first."""


@dataclass(frozen=True, slots=True)
class DomainLimit:
    """How many more tasks each domain of one spread takes. A caller that chooses nodes counts them here."""

    of_node: Ints
    left: Ints

    @classmethod
    def of(cls, room: FreeCapacity, spread: Spread, nodes: Iterable[int]) -> DomainLimit:
        """The limit of a spread, with tasks on `nodes` already."""
        of_node = _domains(room, spread.level)
        left = np.full(int(of_node.max(initial=0)) + 1, spread.max_per_domain, dtype=np.int64)
        for node in nodes:
            left[of_node[node]] -= 1
        return cls(of_node, left)


Limits = tuple[DomainLimit, ...]


@dataclass(frozen=True, slots=True)
class Manner:
    """How the tasks of one group lie: `limits` bind, and `beside` has the gang's tasks on each node where it is to be scattered.

    `beside` None: it is packed.
    """

    limits: Limits = ()
    beside: Ints | None = None

    @property
    def is_plain(self) -> bool:
        """Nothing but room decides."""
        return not self.limits and self.beside is None

    def counted(self) -> tuple[Ints, ...]:
        """What was counted on it so far, for `count_as`."""
        return tuple(count.copy() for count in self._counts())

    def count_as(self, before: tuple[Ints, ...]) -> None:
        """Forget what was counted on it since then."""
        for count, was in zip(self._counts(), before, strict=True):
            count[:] = was

    def _counts(self) -> Iterator[Ints]:
        yield from (limit.left for limit in self.limits)
        yield from () if self.beside is None else (self.beside,)


@dataclass(frozen=True, slots=True)
class Manners:
    """How a gang lies: the limit over all of its tasks, those over each group's, and its tasks by node if it is scattered."""

    whole: Limits
    groups: tuple[Limits, ...]
    beside: Ints | None

    @classmethod
    def of(cls, room: FreeCapacity, spec: JobSpec, placed: Sequence[TaskPlacement] = ()) -> Manners:
        """Those of a gang that already has these tasks."""

        def limits(spread: Spread | None, tasks: Iterable[TaskPlacement]) -> Limits:
            return (DomainLimit.of(room, spread, (room.index[task.node] for task in tasks)),) if spread else ()

        groups = (
            limits(group.topology.spread, [task for task in placed if task.group == group.name])
            for group in spec.task_groups
        )
        beside = None
        if spec.effective_topology.placement == "spread":
            hosts = np.array([room.index[task.node] for task in placed], dtype=np.int64)
            beside = np.bincount(hosts, minlength=len(room.nodes)).astype(np.int64)
        return cls(limits(spec.topology.spread, placed), tuple(groups), beside)

    def of_group(self, number: int) -> Manner:
        """How the tasks of one group lie."""
        return Manner((*self.whole, *self.groups[number]), self.beside)

    def counted(self) -> tuple[Ints, ...]:
        """What was counted on it so far, for `count_as`."""
        return self._of_all().counted()

    def count_as(self, before: tuple[Ints, ...]) -> None:
        """Forget what was counted on it since then."""
        self._of_all().count_as(before)

    def _of_all(self) -> Manner:
        return Manner((*self.whole, *(limit for limits in self.groups for limit in limits)), self.beside)


def choose(
    room: FreeCapacity,
    offer: Offer,
    tasks: int,
    bundles: Sequence[Bundle],
    manner: Manner,
    domain: Domain | None = None,
) -> Chosen | None:
    """Nodes for all the tasks, or None. After None the manner may have been counted on: begin with a new one.

    `domain`: in this one alone.
    """
    if domain is None:
        chosen = more_tasks(room, offer, tasks, bundles, manner, ())
    elif not bundles and manner.is_plain:
        chosen = _fill(room, offer, tasks, (), domain)
    else:
        here = offer.within(room.topology[domain[0]].of_node == domain[1])
        chosen = more_tasks(room, here, tasks, bundles, manner, ())
    return chosen if _count(chosen) == tasks else None


def more_tasks(
    room: FreeCapacity, offer: Offer, tasks: int, bundles: Sequence[Bundle], manner: Manner, before: Sequence[int]
) -> Chosen:
    """Nodes for as many of the tasks as can be; `before` has the nodes of the group's earlier tasks, in order.

    `bundles`: the largest first.
    """
    if not bundles:
        if manner.beside is None:
            return _fill(room, offer, tasks, manner.limits)
        return _scatter(room, offer.slots, tasks, manner.limits, manner.beside)
    bundle, slots = bundles[0], offer.slots.copy()
    chosen: Chosen = []
    done = len(before)
    while tasks:
        begun = done % bundle.tasks
        size = min(tasks, bundle.tasks - begun)
        left = Offer(slots, room.topology)
        found = _more_of_bundle(room, left, size, bundles, manner, before[len(before) - begun :] if begun else ())
        for node, count in found:
            slots[node] -= count
        chosen += found
        done, tasks, before = done + size, tasks - size, ()
        if _count(found) < size:
            break
    return chosen


def tasks_that_fit(
    room: FreeCapacity, offer: Offer, spec: JobSpec, number: int, bundles: Sequence[Bundle] | None = None
) -> int:
    """How many of the tasks that one group needs to start its bundles and the spreads allow, were it alone; in whole bundles.

    `bundles`: as if it had to keep to these alone; None: to all that it has to keep to.
    """
    manner, group = Manners.of(room, spec).of_group(number), spec.task_groups[number]
    kept = [bundle for bundle in spec.bundles_of(group) if bundle.within] if bundles is None else bundles
    fit = _count(more_tasks(room, offer, group.least, kept, manner, ()))
    return fit - fit % kept[0].tasks if kept and fit < group.least else fit


def torn_bundle(room: FreeCapacity, offer: Offer, spec: JobSpec, number: int) -> tuple[Bundle, int] | None:
    """The smallest bundles of a group of which there is room for too few, with the smaller ones that these are made of.

    Beside them how many of its tasks fit in such bundles; None: it has none, or there is room for all.
    """
    group = spec.task_groups[number]
    kept = [bundle for bundle in spec.bundles_of(group) if bundle.within]
    for place in reversed(range(len(kept))):
        fits = tasks_that_fit(room, offer, spec, number, kept[place:])
        if fits < group.least:
            return kept[place], fits
    return None


def _more_of_bundle(
    room: FreeCapacity, offer: Offer, size: int, bundles: Sequence[Bundle], manner: Manner, begun: Sequence[int]
) -> Chosen:
    """Nodes for the next tasks of one bundle, those begun of which are on these nodes; as close as it wishes, if all find place."""
    bundle, inner = bundles[0], bundles[1:]
    for level in bundle.wishes:
        before = manner.counted()
        found = _in_one_domain(room, offer, size, level, inner, manner, begun)
        if _count(found) == size:
            return found
        manner.count_as(before)
    if bundle.within:
        return _in_one_domain(room, offer, size, bundle.within, inner, manner, begun)
    return more_tasks(room, offer, size, inner, manner, begun)


def _in_one_domain(
    room: FreeCapacity,
    offer: Offer,
    size: int,
    level: Level,
    inner: Sequence[Bundle],
    manner: Manner,
    begun: Sequence[int],
) -> Chosen:
    """Nodes for so many tasks in one domain of a level; in the one that takes most where none takes all.

    `begun`: the nodes of earlier tasks of the bundle.
    """
    of_node = room.topology[level].of_node
    if begun:
        if (of_node[list(begun)] != of_node[begun[-1]]).any():
            return []
        return _in_domain(room, offer.within(of_node == of_node[begun[-1]]), size, inner, manner, begun)
    domains = _domains_for_bundle(room, offer, level, size, inner, manner)
    most, roomiest = -1, domains[0]
    for domain in domains if len(domains) > 1 else ():
        before = manner.counted()
        found = _in_domain(room, offer.within(of_node == domain), size, inner, manner, ())
        if _count(found) == size:
            return found
        manner.count_as(before)
        most, roomiest = max((most, roomiest), (_count(found), domain), key=lambda known: known[0])
    return _in_domain(room, offer.within(of_node == roomiest), size, inner, manner, ())


def _in_domain(
    room: FreeCapacity, offer: Offer, size: int, inner: Sequence[Bundle], manner: Manner, begun: Sequence[int]
) -> Chosen:
    if inner:
        return more_tasks(room, offer, size, inner, manner, begun)
    found = _fill(room, offer, size, manner.limits)
    if manner.beside is not None:
        for node, count in found:
            manner.beside[node] += count
    return found


def _domains_for_bundle(
    room: FreeCapacity, offer: Offer, level: Level, size: int, inner: Sequence[Bundle], manner: Manner
) -> list[int]:
    """The domains to try for such a bundle: the one that it fills best first; where none takes all of it, the roomiest alone.

    Scattered bundles go first where fewest of the gang's tasks are. Of bundles without inner ones one domain is enough to try.
    """
    of_node = room.topology[level].of_node
    totals = room_in_domains(offer, level, of_node, manner.limits)
    able = np.flatnonzero(totals >= size)
    if not len(able):
        return [int(totals.argmax())]
    beside = np.zeros(len(of_node)) if manner.beside is None else manner.beside
    mine = np.bincount(of_node, weights=beside, minlength=len(totals))[able]
    ordered: list[int] = able[np.lexsort((totals[able], mine))].tolist()
    return ordered if inner else ordered[:1]


def _count(chosen: Chosen) -> int:
    return sum(count for _, count in chosen)


def room_in_domains(offer: Offer, level: Level, of_node: Ints, limits: Limits) -> Ints:
    """Tasks that each domain of a level takes, as far as each limit alone says. `of_node`: the domain of each node."""
    totals = offer.in_domains(level)
    for limit in limits:
        both, of_pair = np.unique(np.stack((of_node, limit.of_node)), axis=1, return_inverse=True)
        each = np.bincount(of_pair.reshape(-1), weights=offer.slots).astype(np.int64)
        clipped = np.minimum(each, limit.left[both[1]])
        of_limit = np.bincount(both[0], weights=clipped, minlength=len(totals)).astype(np.int64)
        totals = np.minimum(totals, of_limit)
    return totals


def _fill(room: FreeCapacity, offer: Offer, tasks: int, limits: Limits, domain: Domain | None = None) -> Chosen:
    """Take nodes until the tasks have one or nothing is left: few racks and islands, then the nodes that are left fullest."""
    if limits:
        each: list[Ints | Counts] = [offer.slots, *(limit.left[limit.of_node] for limit in limits)]
        offer = Offer(np.minimum.reduce(each), room.topology)
        nodes, closer = np.arange(len(offer.slots)), list(NESTED)
    else:
        nodes, closer = _closest(room.topology, offer, tasks, domain)
    nodes = nodes[offer.slots[nodes] > 0]
    if len(nodes) > 1:
        # From the least to the most significant; where they all are equal, the first node is the first.
        of_domain = (_rank(offer, level, room.topology[level].of_node[nodes], tasks) for level in closer[::-1])
        nodes = nodes[np.lexsort([room.free_gpus[nodes], *of_domain])]
    chosen: Chosen = []
    for node, slots in zip(nodes.tolist(), offer.slots[nodes].tolist(), strict=True):
        if not tasks:
            break
        count = min(tasks, slots, *(int(limit.left[limit.of_node[node]]) for limit in limits))
        if count:
            for limit in limits:
                limit.left[limit.of_node[node]] -= count
            chosen.append((node, count))
            tasks -= count
    return chosen


def _closest(topology: Topology, offer: Offer, tasks: int, domain: Domain | None) -> tuple[Ints, list[Level]]:
    """The nodes of the tightest domain that takes all tasks, in the tightest wider one that does, down to a rack.

    And the levels of which they may need several domains.
    """
    closer = [level for level in NESTED if domain is None or is_wider(domain[0], level)]
    while closer and closer[0] != "island":
        level = closer[0]
        sums = offer.in_domains(level)
        able = np.flatnonzero(sums >= tasks)
        if domain:
            able = able[topology[domain[0]].of_node[topology[level].first[able]] == domain[1]]
        if not len(able):
            break
        domain, closer = (level, int(able[sums[able].argmin()])), closer[1:]
    return (topology[domain[0]].nodes_of(domain[1]) if domain else np.arange(len(offer.slots))), closer


def _scatter(room: FreeCapacity, slots: Counts, tasks: int, limits: Limits, beside: Ints) -> Chosen:
    """Each task in the block, there in the rack and on the node with fewest of the gang's; of those on the node left fullest."""
    left, chosen = slots.astype(np.int64), list[tuple[int, int]]()
    for limit in limits:
        left = np.minimum(left, limit.left[limit.of_node])
    of_nodes = [_domains(room, level) for level in ("block", "rack", "node")]
    mine_in = [np.bincount(of_node, weights=beside).astype(np.int64) for of_node in of_nodes]
    able = np.flatnonzero(left > 0)
    for _ in range(tasks):
        if not len(able):
            break
        nodes = able
        for of_node, mine in zip(of_nodes, mine_in, strict=True):
            here = mine[of_node[nodes]]
            nodes = nodes[here == here.min()]
        node = int(nodes[room.free_gpus[nodes].argmin()])
        left[node] -= 1
        beside[node] += 1
        for of_node, mine in zip(of_nodes, mine_in, strict=True):
            mine[of_node[node]] += 1
        for limit in limits:
            limit.left[limit.of_node[node]] -= 1
            left = np.minimum(left, limit.left[limit.of_node])
        able = able[left[able] > 0]
        chosen.append((node, 1))
    return chosen


def _domains(room: FreeCapacity, level: SpreadLevel) -> Ints:
    if level == "node":
        return np.arange(len(room.nodes), dtype=np.int64)
    of_node: Ints = room.topology[level].of_node
    return of_node


def _rank(offer: Offer, level: Level, of_node: Ints, tasks: int) -> Ints:
    """Sort key that puts the tightest domain that takes all tasks first, else the roomiest first, each kept together."""
    sums = offer.in_domains(level)
    mine = sums[of_node]
    unwanted = np.where(mine >= tasks, mine, 2 * offer.total + tasks - mine)
    return np.asarray(unwanted * len(sums) + of_node, dtype=np.int64)
