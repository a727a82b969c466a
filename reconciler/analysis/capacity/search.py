"""How many more nodes meet a target: doubled until one number does, then halved between that and the most that misses it.

More nodes need not always shorten a wait (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969). What is found is a
number that meets the target while one less misses it. Both have been tried; what lies further below need not have been.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.analysis.capacity.target import JudgedWait


@dataclass(frozen=True, slots=True)
class SmallestNumber:
    """Which number of nodes, up to `most`, is to be tried next. It goes by `tried` alone, so an interrupted search can go on."""

    tried: Mapping[int, JudgedWait]
    most: int

    @property
    def next(self) -> int | None:
        """The number to try now; None: it is over."""
        missed, met = self.missed, self.met
        if missed is None:
            return None if met == 0 else 0
        if met is None:
            return None if missed >= self.most else min(max(1, 2 * missed), self.most)
        return (missed + met) // 2 if met - missed > 1 else None

    @property
    def met(self) -> int | None:
        """The fewest that meet the target."""
        return min((number for number, found in self.tried.items() if found.is_met), default=None)

    @property
    def missed(self) -> int | None:
        """The most below these that do not."""
        met = self.met
        missed = (number for number, found in self.tried.items() if not found.is_met)
        return max((number for number in missed if met is None or number < met), default=None)
