"""Tasks that find a MIG instance on a node: counted anew only where its GPUs are others than the last time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from solver.capacity.mig_gpus import MigGpu, MigRule, most_besides, tasks_on
from solver.model.cluster import DeviceId
from solver.model.mig_table import MigProfile


class Counted(NamedTuple):
    """Tasks on a node as it is, and how many more each of its GPUs takes that gains by being changed."""

    as_it_is: int
    gains: tuple[int, ...]


NONE = Counted(0, ())


class InstanceCounts:
    """What was counted last of each node and profile. Rooms share it: what a node has is never changed in place, but replaced."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, bool], tuple[Sequence[MigGpu], Sequence[DeviceId] | None, Counted]] = {}

    def of(
        self,
        node: int,
        rule: MigRule,
        profile: MigProfile,
        gpus: Sequence[MigGpu],
        whole: Sequence[DeviceId] | None,
    ) -> Counted:
        """Of a node with these GPUs in MIG mode and these devices free as a whole; None: no GPU may be changed."""
        key = (node, profile.name, whole is None)
        known = self._known.get(key)
        if known is None or known[0] is not gpus or known[1] is not whole:
            known = self._known[key] = (gpus, whole, _count(rule, profile, gpus, whole))
        return known[2]


def _count(rule: MigRule, profile: MigProfile, gpus: Sequence[MigGpu], whole: Sequence[DeviceId] | None) -> Counted:
    tasks = [tasks_on(rule, gpu.before, gpu.held, profile) for gpu in gpus]
    as_it_is = sum(now for now, _ in tasks)
    if whole is None:
        return Counted(as_it_is, ())
    gains = [then - now for now, then in tasks if then > now]
    if rule.changes:
        gains += [most_besides(rule, (), profile)] * len(whole)
    return Counted(as_it_is, tuple(gain for gain in gains if gain))
