"""How many pods a gang needs that was told to be larger, or smaller, while it runs.

A gang that runs is not short of pods because people, or an autoscaler, ask for more: what comes joins it when there is room, and
the rest goes on. So each pod says, from its binding on, with how many it was bound, and a gang that runs needs as many as the
least of its pods says. Where less is asked for, that is written on them: what comes later joins the smaller gang.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.wire import Pod

_WRITTEN = re.compile(r"(\d{1,9})/(\d{1,9})")


class GangNeeds(NamedTuple):
    """How many pods of a role, and of its whole gang, have to be there."""

    of_role: int
    of_gang: int

    def __str__(self) -> str:
        return f"{self.of_role}/{self.of_gang}"

    def least(self, other: GangNeeds) -> GangNeeds:
        """The lesser of both, each for itself."""
        return GangNeeds(min(self.of_role, other.of_role), min(self.of_gang, other.of_gang))


def needs_on(pod: Pod) -> GangNeeds | None:
    """With how many a pod was bound; None: it is not, or says nothing that can be read."""
    found = _WRITTEN.fullmatch(pod.metadata.annotations.get(names.NEEDS, "")) if pod.holds else None
    return GangNeeds(max(1, int(found[1])), max(1, int(found[2]))) if found else None


def least_of_gang(said: int | None, pods: Iterable[Pod]) -> int | None:
    """How many pods a gang needs of which `said` are asked for now; None: nothing says it."""
    if said is None:
        return None
    return min([said, *(known.of_gang for pod in pods if (known := needs_on(pod)))])
