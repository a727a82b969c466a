"""The Workloads of Kueue that Quorate admits, while they, and the pods that are made for them, come and go.

Pods stand for a Workload's until its own are there: then those are the gang, and have its place in line. So nothing that is
admitted is given away in the moments between. Pure: it is told what changes, and tells it a world of objects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.controllers import Controller
from reconciler.kubernetes.objects.membership import GangKey, makers_of
from reconciler.kubernetes.objects.wire import Pod
from reconciler.kubernetes.objects.workloads import Workload, stand_ins
from solver.model.workload import JobName

Key = tuple[str, str]


class GangWorld(Protocol):
    """What is told of pods that stand for others, and of gangs that are admitted as a whole."""

    def pod(self, before: Pod | None, after: Pod | None) -> bool:
        """A pod; whether it makes a difference."""

    def admitted(self, key: GangKey, since: str | None) -> bool:
        """The pods of this gang are admitted together, and wait since then; None: not any more. Whether it makes a difference."""


class SuspendedJob(NamedTuple):
    """A Workload. `runs_as`: the job that its pods are once they are there; `waits_as`: the one that it is before."""

    workload: Workload
    runs_as: JobName
    waits_as: JobName


class SuspendedJobs:
    """Told of Workloads, pods and what makes them that came (`before` None), changed, and went (`after` None).

    `pods`: is told of pods; `gangs`: of gangs.
    """

    def __init__(self, pods: PodTeller, gangs: GangWorld) -> None:
        self._tell_pod = pods
        self._gangs = gangs
        self._workloads: dict[Key, Workload] = {}
        self._told: dict[Key, dict[Key, Pod]] = {}
        self._of: dict[GangKey, set[Key]] = defaultdict(set)
        self._there: dict[GangKey, dict[Key, bool]] = defaultdict(dict)
        """The pods of each gang, and whether they hold nodes."""
        self._in_turn: set[GangKey] = set()
        """What makes its pods in turn."""

    def __iter__(self) -> Iterator[SuspendedJob]:
        """Those of Quorate that may be admitted, in no order."""
        for one in self._workloads.values():
            if one.made_by:
                waits_as = GangKey(one.metadata.namespace, "kueue", one.metadata.name).job
                yield SuspendedJob(one, one.made_by.job, waits_as)

    def find(self, namespace: str, name: str) -> Workload | None:
        """One of Quorate's."""
        return self._workloads.get((namespace, name))

    def workload(self, before: Workload | None, after: Workload | None) -> bool:
        """A Workload."""
        for known in (before, after):
            if known and known.is_ours:
                self._workloads.pop(known.key, None)
                if known.made_by:
                    self._of[known.made_by].discard(known.key)
        if after and after.is_ours:
            self._workloads[after.key] = after
            if after.made_by:
                self._of[after.made_by].add(after.key)
        told = [self._admitted(known.made_by) for known in (before, after) if known and known.made_by]
        known = after or before
        return (known is not None and self._tell(known.key)) or any(told)

    def pod(self, before: Pod | None, after: Pod | None) -> bool:
        """A pod that is there."""
        makers: set[GangKey] = set()
        for known in (before, after):
            if known and known.spec.scheduler_name == names.SCHEDULER:
                makers.update(makers_of(known.metadata))
        for maker in makers:
            there = self._there[maker]
            if before:
                there.pop(before.key, None)
            if after and not after.metadata.deletion_timestamp and maker in makers_of(after.metadata):
                there[after.key] = after.holds
            if not there:
                del self._there[maker]
        touched = {key for maker in makers for key in self._of.get(maker, ())}
        told = [self._tell(key) for key in sorted(touched)]
        return any(told)

    def controller(self, before: Controller | None, after: Controller | None) -> bool:
        """An object that makes pods."""
        for known in (before, after):
            if known:
                self._in_turn.discard(_key(known))
        if after and after.stages:
            self._in_turn.add(_key(after))
        touched = {key for known in (before, after) if known for key in self._of.get(_key(known), ())}
        told = [self._tell(key) for key in sorted(touched)]
        return any(told)

    def _admitted(self, maker: GangKey) -> bool:
        since = sorted(self._workloads[key].metadata.creation_timestamp or "" for key in self._of.get(maker, ()))
        return self._gangs.admitted(maker, since[0] if since else None)

    def _tell(self, key: Key) -> bool:
        before = self._told.pop(key, {})
        workload = self._workloads.get(key)
        after = stand_ins(workload) if workload and not self._has_pods(workload) else {}
        if after:
            self._told[key] = after
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        told = [self._tell_pod.pod(before.get(name), after.get(name)) for name in changed]
        return any(told)

    def _has_pods(self, workload: Workload) -> bool:
        """Its own pods are there, as many as are admitted, or some run. Of what is made in turn the first are enough."""
        if workload.made_by is None or not workload.is_reserved:
            return False
        there: Mapping[Key, bool] = self._there.get(workload.made_by, {})
        wanted = 1 if workload.made_by in self._in_turn else len(stand_ins(workload))
        return any(there.values()) or len(there) >= wanted


class PodTeller(Protocol):
    """What is told of pods that stand for others."""

    def pod(self, before: Pod | None, after: Pod | None) -> bool:
        """A pod; whether it makes a difference."""


def _key(controller: Controller) -> GangKey:
    return GangKey(controller.namespace, controller.source, controller.name)
