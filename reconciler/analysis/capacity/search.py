"""How many more nodes meet a target: doubled until it is met, then halved between the most that miss it and the fewest that meet it.

More nodes need not always shorten a wait (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969). What is found is a number that
meets the target while one less misses it, and both have been tried; what lies further below has not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reconciler.analysis.backtest.figures import Figure


@dataclass(frozen=True, slots=True)
class SmallestNumber:
    """Which number of nodes, up to `most`, is to be tried next. It goes by `tried` alone, so it can be interrupted and gone on with."""

    tried: Mapping[int, Figure]
    is_met: Callable[[Figure], bool]
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
        return min((number for number, found in self.tried.items() if self.is_met(found)), default=None)

    @property
    def missed(self) -> int | None:
        """The most below these that do not."""
        met = self.met
        missed = (number for number, found in self.tried.items() if not self.is_met(found))
        return max((number for number in missed if met is None or number < met), default=None)
