"""Preemptors for whom no room could be made: none of their like is tried again before something has opened that they could use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from solver.model.cluster import GpuType
from solver.queueing.demand import StartCandidate
from solver.quota.vacated import Tier

Alike = tuple[int, Tier, bool, bool, bool, tuple[int, int]]
"""The same for preemptors of one sub-layer who can have the same: likeness, tier, whether a guarantee may pass over what protects
others, and over PodDisruptionBudgets, whether they have waited for as long as they have to, and their seniority in their queue."""


@dataclass(slots=True)
class Unserved:
    """Those of one sub-layer, which is gone through again while somebody is promised something.

    Room and lawful victims only become fewer, but where somebody is asked to leave, or no longer stands in line before others.
    """

    _passed: set[Alike] = field(default_factory=set)
    _failed: dict[Alike, int] = field(default_factory=dict)
    _opened: Counter[GpuType | None] = field(default_factory=Counter)

    def begin(self) -> None:
        """Another sub-layer comes."""
        self._failed.clear()

    def begin_again(self) -> None:
        """Its preemptors are gone through from the first on."""
        self._passed.clear()

    def open(self, gpu_types: Iterable[GpuType | None]) -> None:
        """Somebody was asked to leave GPUs of these types; None: anybody may have become able."""
        self._opened.update(gpu_types)

    def fails_again(self, candidate: StartCandidate, alike: Alike) -> bool:
        """Whether one of its like failed in this pass, or before, with nothing opened to it since."""
        if alike not in self._passed and self._failed.get(alike) == self._opened_to(candidate):
            self._passed.add(alike)
        return alike in self._passed

    def add(self, candidate: StartCandidate, alike: Alike, *, was_refused: bool) -> None:
        """It failed. `was_refused`: for the harm that it would have done, which may be less, or fairer, the next time."""
        self._passed.add(alike)
        if not was_refused:
            self._failed[alike] = self._opened_to(candidate)

    def _opened_to(self, candidate: StartCandidate) -> int:
        types = {gpu_type for option in candidate.options for gpu_type in option.gpu_types}
        return self._opened.total() if None in types else sum(self._opened[of] for of in (*types, None))
