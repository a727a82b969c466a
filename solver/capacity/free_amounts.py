"""What is free beside GPUs on each node, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from solver.model.amounts import unsaid
from solver.model.arrays import Ints, Mask


class FreeAmounts(dict[str, Ints]):
    """By name an array with a place for each node: CPU (milli-cores) and memory (bytes), then what else any node has or task takes.

    What no node says anything of is there once it is asked for. Nodes that are not open have nothing.
    """

    def __init__(self, open_nodes: Mask, there: Mapping[str, Ints]) -> None:
        super().__init__({name: amounts * open_nodes for name, amounts in there.items()})
        self._open = open_nodes

    def __missing__(self, name: str) -> Ints:
        free: Ints = self._open * unsaid(name)
        self[name] = free
        return free

    def copy(self) -> Self:
        """An independent one."""
        made = type(self)(self._open, {})
        made.update((name, free.copy()) for name, free in self.items())
        return made

    def at(self, node: int) -> list[int]:
        """What one node has, in the order of the names."""
        return [int(free[node]) for free in self.values()]

    def put_back(self, node: int, before: Sequence[int]) -> None:
        """A node has what `at` said of it. Names that came since were asked for, and nobody held any."""
        for place, (name, free) in enumerate(self.items()):
            free[node] = before[place] if place < len(before) else unsaid(name) * self._open[node]

    def empty(self, nodes: Sequence[int], there: Mapping[str, Ints]) -> None:
        """Nobody holds anything of these nodes. `there`: what all nodes have."""
        for name, free in self.items():
            free[nodes] = (there[name][nodes] if name in there else unsaid(name)) * self._open[nodes]

    def take(self, node: int, amounts: Iterable[tuple[str, int]], times: int) -> None:
        """So many take this; less than 0: it is given back."""
        for name, amount in amounts:
            self[name][node] -= amount * times

    def covers(self, amounts: Mapping[str, int]) -> Mask:
        """Which nodes have so much left."""
        able = self._open
        for name, amount in amounts.items():
            able = able & (self[name] >= amount)
        return able
