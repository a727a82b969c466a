"""What is left of guarantees or fair shares as others leave, for a program that leaves open which jobs do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from solver.model.quantities import MILLI_PER_GPU
from solver.policy.tree import QuotaLine
from solver.quota.entitlement import Shares


@dataclass(slots=True)
class Loosening:
    """What is left of nested lines as others leave: linear in the columns `leaving`, and never less than it can be.

    What is left, the limit less min(limit, use), is convex in the use: it lies below the straight line between what it is if
    no job leaves and if all do.
    """

    shares: Shares
    limits: Mapping[QuotaLine, int]
    leaving: Mapping[QuotaLine, tuple[int, int]]
    _known: dict[QuotaLine, tuple[int, int, list[tuple[int, float]]]] = field(default_factory=dict)

    def left(self, line: QuotaLine) -> tuple[float, list[tuple[int, float]]]:
        """GPUs that are left if no job leaves, and what each column of leaving ones adds."""
        limit = self.limits.get(line, 0)
        now, _, terms = self._inside(line)
        return (limit - now) / MILLI_PER_GPU, terms

    def most(self, line: QuotaLine) -> int:
        """Milli-GPU that are left if all leave."""
        return self.limits.get(line, 0) - self._inside(line)[1]

    def _inside(self, line: QuotaLine) -> tuple[int, int, list[tuple[int, float]]]:
        """Of the use inside the line: now, once all have left, and GPUs by which each column lowers it."""
        if line not in self._known:
            below = [self._inside(child) for child in self.shares.tree.lines_below(line)]
            if below:
                now, least = sum(known[0] for known in below), sum(known[1] for known in below)
                terms = [term for known in below for term in known[2]]
            else:
                now = self.shares.used.get(line, 0)
                column, milli = self.leaving.get(line, (0, 0))
                least, terms = now - milli, [(column, 1.0)] if milli else []
            limit = self.limits.get(line, 0)
            inside, inside_least = min(limit, now), min(limit, least)
            part = (inside - inside_least) / (now - least) if now > least else 0.0
            self._known[line] = inside, inside_least, [(column, factor * part) for column, factor in terms if part]
        return self._known[line]
