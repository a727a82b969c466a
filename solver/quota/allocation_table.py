"""What each job holds, as arrays in the order of the quota tree: holders of a queue and all below it are neighbours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType
from solver.model.parts import owner_of
from solver.model.round_cache import RoundCache
from solver.model.workload import JobName, QueueName
from solver.policy.tree import QueueTree
from solver.quota.entitlement import Charge
from solver.quota.held_columns import GangColumns, GangsInColumns, HeldColumns
from solver.quota.victims import HeldGang, Holder


@dataclass(frozen=True, slots=True)
class AllocationTable:
    """All holders by number, and per holder and GPU type what it is charged (`charge`, milli-GPU), and whether at all (`has`).

    `gpus`: milli-GPU of all types, by holder; `leave`: those that leave with it: a base takes all of its gang along.
    `place`: the number of the task that a part of a gang is (model/parts). `countable`: who holds no part of a GPU.
    `gang`: by holder the number of its gang; `parts`: by gang how many holders it is; `first`: by gang the number of what it can't
    be without, behind which its other parts stand; `base`: the same by holder. `of_gang`: all that a gang holds; `whole`: the same
    of gangs in parts, by the first of them.
    `by_name`: by holder its place in the order of names; `by_owner`: by gang. `devices`: by holder, on how many GPUs its tasks are.
    `columns`: what each gang is beside that. `own` and `below`: the holders of a queue, and these with all below it.
    """

    gangs: tuple[HeldGang, ...]
    columns: GangColumns
    holders: tuple[Holder, ...]
    place: Ints
    countable: Mask
    gpu_types: tuple[GpuType, ...]
    charge: Ints
    has: Mask
    gpus: Ints
    leave: Ints
    gang: Ints
    parts: Ints
    first: Ints
    base: Ints
    of_gang: Mapping[JobName, range]
    whole: Mapping[int, range]
    by_name: Ints
    by_owner: Ints
    devices: Ints
    own: Mapping[QueueName, slice]
    below: Mapping[QueueName, slice]

    @classmethod
    def of(cls, gangs: Iterable[HeldGang], tree: QueueTree, kept: RoundCache | None = None) -> AllocationTable:
        """What these hold; those of queues that do not exist stand last. `kept`: what was known of them in rounds before."""
        of_queue: dict[QueueName, list[HeldGang]] = {}
        for gang in gangs:
            of_queue.setdefault(gang.holders[0].job.spec.queue, []).append(gang)
        ordered, own, below = list[HeldGang](), dict[QueueName, slice](), dict[QueueName, slice]()

        def enter(queue: QueueName) -> None:
            first = len(ordered)
            ordered.extend(of_queue.pop(queue, ()))
            own[queue] = slice(first, len(ordered))
            for child in tree.children.get(queue, ()):
                enter(child.name)
            below[queue] = slice(first, len(ordered))

        for root in tree.children.get(None, ()):
            enter(root.name)
        for queue in sorted(of_queue):
            enter(queue)
        holders = tuple(chain.from_iterable([gang.holders for gang in ordered]))
        known = GangsInColumns.kept(kept).of(ordered)
        first = [0, *np.cumsum(known.parts).tolist()]
        charge, has = _charges(known)
        gpus = charge.sum(axis=1)
        members = [range(*ends) for ends in pairwise(first)]
        gang_of = np.repeat(np.arange(len(ordered)), np.diff(first))
        return cls(
            tuple(ordered),
            known.gangs,
            holders,
            known.place,
            known.countable,
            known.gpu_types,
            *(charge, has, gpus, _leave(gpus, first[:-1])),
            gang_of,
            known.parts,
            np.array(first[:-1], dtype=np.int64),
            np.array(first, dtype=np.int64)[gang_of],
            {gang.holders[0].job.name: numbers for gang, numbers in zip(ordered, members, strict=True)},
            {numbers[0]: numbers for numbers in members if len(numbers) > 1},
            ranks_of([holder.job.name for holder in holders]),
            ranks_of([gang.holders[0].job.name for gang in ordered]),
            known.devices,
            {queue: slice(first[gangs.start], first[gangs.stop]) for queue, gangs in own.items()},
            {queue: slice(first[gangs.start], first[gangs.stop]) for queue, gangs in below.items()},
        )

    @property
    def bases(self) -> list[Holder]:
        """What each gang can't be without. Its other parts differ in nothing but what they hold."""
        return [gang.holders[0] for gang in self.gangs]

    def paths(self, tree: QueueTree) -> tuple[Ints, tuple[QueueName, ...]]:
        """By holder and depth (roots: 0) the number of the queue on its path, -1 beyond its end; and these queues."""
        queues = tuple(self.own)
        number = {queue: place for place, queue in enumerate(queues)}
        paths = [[number[step] for step in reversed(tree.path(queue))] for queue in queues]
        levels = max(map(len, paths), default=1) or 1
        at = np.array([[*path, *[-1] * (levels - len(path))] for path in paths], dtype=np.int64).reshape(-1, levels)
        return np.repeat(at, [own.stop - own.start for own in self.own.values()], axis=0), queues

    def number_of(self, holder: Holder) -> int:
        """Its number."""
        name = holder.job.name
        return next(number for number in self.of_gang[owner_of(name)] if self.holders[number].job.name == name)

    def with_all_parts(self, leaving: Mask) -> Mask:
        """Those that leave, and what leaves with them."""
        whole: Mask = leaving | leaving[self.base]
        return whole

    def leaving_with(self, number: int) -> Sequence[int]:
        """A holder, and what leaves with it."""
        return self.whole.get(number) or (number,)

    def with_any(self, gpu_types: Collection[GpuType]) -> Mask:
        """Who is charged for one of these types."""
        columns = [number for number, gpu_type in enumerate(self.gpu_types) if gpu_type in gpu_types]
        any_of: Mask = np.logical_or.reduce(self.has[:, columns], axis=1)
        return any_of


def ranks_of(names: Sequence[str]) -> Ints:
    """By number, the place of each in the order of names."""
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks


def _charges(known: HeldColumns) -> tuple[Ints, Mask]:
    """By holder and type what it is charged, and whether at all."""
    shape, (holder, column, milli) = (len(known.place), len(known.gpu_types)), known.charged
    charge, has = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    charge[holder, column], has[holder, column] = milli, True
    return charge, has


def _leave(gpus: Ints, first: Sequence[int]) -> Ints:
    leaving = gpus.copy()
    leaving[list(first)] = np.add.reduceat(gpus, list(first)) if first else 0
    return leaving


class Charges(Mapping[QueueName, Charge]):
    """What is charged, by queue, to some of the holders; added up when it is first asked for."""

    def __init__(self, allocations: AllocationTable, of: Mask) -> None:
        self._holdings, self._of = allocations, of
        self._known: dict[QueueName, Charge] = {}

    def __getitem__(self, queue: QueueName) -> Charge:
        """To those of one queue."""
        known = self._known.get(queue)
        if known is None:
            known = self._known[queue] = self._added_up(queue)
        return known

    def _added_up(self, queue: QueueName) -> Charge:
        own = self._holdings.own[queue]
        total = self._holdings.charge[own][self._of[own]].sum(axis=0).tolist()
        return {gpu_type: milli for gpu_type, milli in zip(self._holdings.gpu_types, total, strict=True) if milli}

    def __iter__(self) -> Iterator[QueueName]:
        """The queues of which some hold anything."""
        return (queue for queue, own in self._holdings.own.items() if self._of[own].any())

    def __len__(self) -> int:
        """Of how many queues."""
        return sum(1 for _ in self)


class RemovedHolders:
    """Some holders leave, and come back one by one. `gone`: they, and what can't be without them."""

    def __init__(self, allocations: AllocationTable, holders: Ints) -> None:
        self._holdings, base = allocations, allocations.base
        asked = np.zeros(len(allocations.holders), dtype=bool)
        asked[holders] = True
        self._reasons = asked.astype(np.int64) + (asked[base] & (base != np.arange(len(base))))
        self.gone: Mask = self._reasons > 0

    @property
    def charges(self) -> Charges:
        """What those are charged who are gone now."""
        return Charges(self._holdings, self.gone)

    def come_back(self, number: int) -> list[int]:
        """A holder stays after all, and so does what would have left for its sake alone; returns who does."""
        return self._count(number, -1)

    def leave_again(self, number: int) -> list[int]:
        """It can't be spared; returns who leaves."""
        return self._count(number, 1)

    def _count(self, number: int, sign: int) -> list[int]:
        changed = list[int]()
        for part in self._holdings.leaving_with(number):
            self._reasons[part] += sign
            gone = bool(self._reasons[part])
            if gone != self.gone[part]:
                self.gone[part] = gone
                changed.append(part)
        return changed
