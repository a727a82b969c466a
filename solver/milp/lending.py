"""The rows that keep free what queues do not lend (quota/lending).

A queue that keeps back `u` weighs u + x, where x ≥ 0 and u + x ≥ what is used and kept back below it; any other weighs just
that. The roots together weigh at most what there is of the type, or what they weigh already. A queue that uses all that it
keeps back, whoever leaves, needs no column, nor one that can't use more. Columns are counted from what holds now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.milp.builder import ProgramBuilder, summed
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import QueueName
from solver.policy.tree import QuotaLine
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares

Sum = tuple[int, list[tuple[int, float]]]
"""What a line weighs: milli-GPU in any case, and GPUs by column."""


class ChargedColumn(NamedTuple):
    """What a queue is charged more for each of a column; less than nothing where it says who leaves."""

    queue: QueueName
    charge: Charge
    column: int


@dataclass(slots=True)
class LendingRows:
    """`taken`: what a round has given already. `columns`: x of each line that has one."""

    builder: ProgramBuilder
    shares: Shares
    taken: Mapping[QuotaLine, int] = field(default_factory=dict)
    columns: dict[QuotaLine, int] = field(default_factory=dict)
    _charged: dict[QuotaLine, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def state(self, charged: Iterable[ChargedColumn]) -> None:
        """Write them for every type of which anything is kept back."""
        before = QuotaHeadroom(self.shares, dict(self.taken)).weights
        for queue, charge, column in charged if before.total else ():
            for gpu_type, milli in charge.items():
                self._charged[QuotaLine(queue, gpu_type)].append((column, milli / MILLI_PER_GPU))
        for gpu_type, weight in before.total.items():
            roots = [QuotaLine(root.name, gpu_type) for root in self.shares.tree.children.get(None, ())]
            sure, terms = self._together(roots)
            most = max(before.lending.capacity.get(gpu_type, 0), weight)
            self.builder.at_most(summed(terms), (most - sure) / MILLI_PER_GPU)

    def point(self, starts: Iterable[tuple[QueueName, Charge]]) -> dict[int, float]:
        """The values of the columns once these have started."""
        weights = QuotaHeadroom(self.shares).weights
        for queue, charge in starts:
            weights.take(queue, charge)
        above = {line: weights.below[line] - weights.lending.kept[line] for line in self.columns}
        return {column: max(0, above[line]) / MILLI_PER_GPU for line, column in self.columns.items()}

    def _together(self, lines: Sequence[QuotaLine]) -> Sum:
        parts = [self._weight(line) for line in lines]
        return sum(sure for sure, _ in parts), [term for _, terms in parts for term in terms]

    def _weight(self, line: QuotaLine) -> Sum:
        children = [QuotaLine(child.name, line.gpu_type) for child in self.shares.tree.children.get(line.queue, ())]
        below, terms = self._together(children)
        below += self._used(line) - sum(map(self._used, children))
        terms = [*terms, *self._charged.get(line, ())]
        kept = self.shares.lending.kept.get(line, 0)
        spare = (kept - below) / MILLI_PER_GPU
        amounts = [factor * self.builder.most(column) for column, factor in terms]
        if spare <= sum(amount for amount in amounts if amount < 0):
            return below, terms
        above = sum(amount for amount in amounts if amount > 0) - spare
        if above <= 0:
            return kept, []
        # It weighs what it does now and what `column` adds; or less, as far as it uses more than it keeps back.
        column = self.columns[line] = self.builder.column(above, integer=False)
        weighed = [(column, 1.0)] if spare >= 0 else [(column, 1.0), (self.builder.column(-spare, integer=False), -1.0)]
        self.builder.at_most(summed([*terms, *((one, -factor) for one, factor in weighed)]), max(0.0, spare))
        return max(kept, below), weighed

    def _used(self, line: QuotaLine) -> int:
        return self.shares.used.get(line, 0) + self.taken.get(line, 0)
