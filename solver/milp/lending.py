"""The rows that keep free what queues do not lend (quota/lending).

A queue that keeps back `u` weighs u + x, where x ≥ 0 and u + x ≥ what is used and kept back below it; any other weighs just
that. The roots together weigh at most what there is of the type, or what they weigh already. A queue that uses all that it
keeps back needs no column, nor one that can't use more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from solver.milp.builder import ProgramBuilder, summed
from solver.milp.ways import DemandColumn
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import QueueName
from solver.policy.tree import QuotaLine
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares

Sum = tuple[int, list[tuple[int, float]]]
"""What a line weighs: milli-GPU in any case, and GPUs by column."""


@dataclass(slots=True)
class LendingRows:
    """`columns`: x of each line that has one."""

    builder: ProgramBuilder
    shares: Shares
    columns: dict[QuotaLine, int] = field(default_factory=dict)
    _started: dict[QuotaLine, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def state(self, demands: Iterable[DemandColumn]) -> None:
        """Write them for every type of which anything is kept back."""
        for demand in demands:
            for gpu_type, milli in demand.charge.items():
                line = QuotaLine(demand.job_class.queue, gpu_type)
                self._started[line].append((demand.column, milli / MILLI_PER_GPU))
        before = QuotaHeadroom(self.shares).weights
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
        used = self.shares.used
        below, terms = self._together(children)
        below += used.get(line, 0) - sum(used.get(child, 0) for child in children)
        terms = [*terms, *self._started.get(line, ())]
        kept = self.shares.lending.kept.get(line, 0)
        if kept <= below:
            return below, terms
        spare = (kept - below) / MILLI_PER_GPU
        above = sum(factor * self.builder.most(column) for column, factor in terms) - spare
        if above <= 0:
            return kept, []
        column = self.columns[line] = self.builder.column(above, integer=False)
        self.builder.at_most(summed([*terms, (column, -1.0)]), spare)
        return kept, [(column, 1.0)]
