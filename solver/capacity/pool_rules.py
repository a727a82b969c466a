"""How the GPUs of each pool may be partitioned by MIG, and how many of them may be changed in a round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from solver.capacity.mig_gpus import MigRule

UNLIMITED = 1_000_000_000
"""Changes of an hour without a limit."""


class PoolRules(NamedTuple):
    """How the GPUs of each pool may be partitioned, and how many of them may be changed in this round."""

    rules: Mapping[str, MigRule]
    changes_left: Mapping[str, int]

    def unlimited(self) -> PoolRules:
        """The same with any number of changes: what could be, however long it takes."""
        return PoolRules(self.rules, dict.fromkeys(self.rules, UNLIMITED))

    def unchanging(self) -> PoolRules:
        """The same with no change left."""
        return PoolRules(self.rules, dict.fromkeys(self.rules, 0))


NO_RULES = PoolRules({}, {})
