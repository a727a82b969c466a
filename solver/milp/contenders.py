"""The candidates among which a program chooses: where many wait, most can't come to count in an entitled layer.

What is left of guarantees, and what is free, is asked for many times over then, and the first candidates have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import GpuType
from solver.model.workload import JobName
from solver.policy.tree import QuotaLine
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import Inside, QuotaHeadroom, Shares

ALL_MAX = 500
"""Of so few likenesses all contend."""

GUARANTEE_TIMES = 2
"""The contenders of a queue ask for so many times what is left of its guarantee."""

FREE_TIMES = 4
"""All contenders ask for so many times the free GPUs of a type."""


def contenders(
    candidates: Sequence[StartCandidate], started: Collection[JobName], shares: Shares, capacity: FreeCapacity
) -> tuple[StartCandidate, ...]:
    """The first in the order of the round that ask for some times what there is for them. `started`: by greedy; they stay.

    Jobs of strict queues stay, too: a job behind one that is left out could not be kept in line.
    """
    if len({candidate.likeness for candidate in candidates}) <= ALL_MAX:
        return tuple(candidates)
    contest = _Contest(QuotaHeadroom(shares).entitled, _free_milli(capacity, candidates))
    return tuple(c for c in candidates if contest.enters(c) or c.strict or c.job.name in started)


@dataclass(frozen=True, slots=True)
class _Contest:
    """What was asked for so far, of each queue's guarantee and of each type's free GPUs (milli-GPU)."""

    entitled: Inside
    free: Mapping[GpuType, int]
    of_guarantee: Counter[QuotaLine] = field(default_factory=Counter)
    of_free: Counter[GpuType] = field(default_factory=Counter)

    def enters(self, candidate: StartCandidate) -> bool:
        """Whether there is something left for a candidate of what it may count with."""
        queue, parts = candidate.job.spec.queue, dict[QuotaLine, int]()
        for option in candidate.options:
            for gpu_type, milli in option.charge.items():
                line = QuotaLine(queue, gpu_type)
                parts[line] = max(parts.get(line, 0), min(milli, self._left(line)))
        open_lines = [line for line, part in parts.items() if part and self._is_open(line)]
        self.of_guarantee.update(parts)
        self.of_free.update({line.gpu_type: parts[line] for line in open_lines})
        return bool(open_lines)

    def _left(self, line: QuotaLine) -> int:
        return min(self.entitled.left(each) for each in self.entitled.tree.lines(*line))

    def _is_open(self, line: QuotaLine) -> bool:
        asks_for_too_much = self.of_guarantee[line] >= GUARANTEE_TIMES * self._left(line)
        return not asks_for_too_much and self.of_free[line.gpu_type] < FREE_TIMES * self.free.get(line.gpu_type, 0)


def _free_milli(capacity: FreeCapacity, candidates: Iterable[StartCandidate]) -> dict[GpuType, int]:
    """By type what is free for them, in parts or as a whole."""
    shapes = {shape for candidate in candidates for option in candidate.options for shape in option.shapes}
    free = capacity.milli_free(tuple(shapes)).clip(min=0)
    return {known: int(free[capacity.type_of_node == number].sum()) for number, known in enumerate(capacity.gpu_types)}
