"""Who holds what, as arrays: in the order of the quota tree, so that holders of a queue and all below it are neighbours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.rules.entitlement import Charge
from solver.rules.tree import QueueTree
from solver.rules.victims import Holder
from solver.world.cluster import GpuType
from solver.world.masks import Mask
from solver.world.parts import owner_of
from solver.world.workload import JobName, QueueName

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Holdings:
    """All holders by number, and per holder and GPU type what it is charged (`charge`, milli-GPU), and whether at all (`has`).

    `base`: what a holder can't be without; of a gang's part that is the gang's, of all others they themselves. `of_gang`: all
    that a gang holds, whatever part of it; `gang`: by holder which of these is its own; `whole`: the same by what a gang can't be
    without, which stands first. `own` and `below`: the holders of a queue, and these with all further down.
    """

    holders: tuple[Holder, ...]
    gpu_types: tuple[GpuType, ...]
    charge: Ints
    has: npt.NDArray[np.bool_]
    base: Ints
    gang: Ints
    of_gang: Mapping[JobName, Sequence[int]]
    whole: Mapping[int, Sequence[int]]
    own: Mapping[QueueName, slice]
    below: Mapping[QueueName, slice]

    @classmethod
    def of(cls, holders: Iterable[Holder], tree: QueueTree) -> Holdings:
        """These holders; those of queues that do not exist stand last."""
        of_queue: dict[QueueName, list[Holder]] = {}
        for holder in holders:
            of_queue.setdefault(holder.job.spec.queue, []).append(holder)
        ordered, own, below = list[Holder](), dict[QueueName, slice](), dict[QueueName, slice]()

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
        of_gang: dict[JobName, list[int]] = {}
        gangs = [owner_of(holder.job.name) for holder in ordered]
        for place, gang in enumerate(gangs):
            of_gang.setdefault(gang, []).append(place)
        number = {holder.job.name: place for place, holder in enumerate(ordered)}
        base = [number.get(gang, place) for place, gang in enumerate(gangs)]
        in_order = {gang: place for place, gang in enumerate(of_gang)}
        whole = {
            number[gang]: (number[gang], *(part for part in parts if part != number[gang]))
            for gang, parts in of_gang.items()
            if len(parts) > 1 and gang in number
        }
        return cls(
            tuple(ordered),
            *_charges(ordered),
            np.array(base, dtype=np.int64),
            np.array([in_order[gang] for gang in gangs], dtype=np.int64),
            of_gang,
            whole,
            own,
            below,
        )

    @property
    def gpus(self) -> Ints:
        """Milli-GPU of all types, by holder."""
        total: Ints = self.charge.sum(axis=1)
        return total

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


def _charges(holders: Sequence[Holder]) -> tuple[tuple[GpuType, ...], Ints, Mask]:
    """The types that holders are charged for, how much of each, and whether at all."""
    types = tuple(sorted({gpu_type for holder in holders for gpu_type in holder.charge}))
    column = {gpu_type: number for number, gpu_type in enumerate(types)}
    entries = [
        (place, column[gpu_type], milli)
        for place, holder in enumerate(holders)
        for gpu_type, milli in holder.charge.items()
    ]
    rows, columns, millis = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    charge, has = np.zeros((len(holders), len(types)), dtype=np.int64), np.zeros((len(holders), len(types)), dtype=bool)
    charge[rows, columns], has[rows, columns] = millis, True
    return types, charge, has


class Charges(Mapping[QueueName, Charge]):
    """What is charged, by queue, to some of the holders; added up when it is first asked for."""

    def __init__(self, holdings: Holdings, of: Mask) -> None:
        self._holdings, self._of = holdings, of
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


class Leaving:
    """Some holders leave, and come back one by one. `gone`: they, and what can't be without them."""

    def __init__(self, holdings: Holdings, holders: Ints) -> None:
        self._holdings, base = holdings, holdings.base
        asked = np.zeros(len(holdings.holders), dtype=bool)
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
