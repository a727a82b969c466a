"""What the API server holds of everything that rounds need, kept by watches, and what it means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from reconciler.backends.kubernetes.followed import Followed, Heard, Seams, Standing
from reconciler.backends.kubernetes.objects.cluster import Cluster
from reconciler.backends.kubernetes.objects.controllers import CONTROLLERS
from reconciler.backends.kubernetes.objects.disruption import Budget, PriorityClass
from reconciler.backends.kubernetes.objects.podgroups import GROUPS
from reconciler.backends.kubernetes.objects.wire import Node, Pod
from reconciler.backends.kubernetes.objects.world import World
from reconciler.backends.kubernetes.objects.written import Kind
from reconciler.backends.kubernetes.resource import NODES, PODS, Resource
from reconciler.backends.kubernetes.watching import Change

T = TypeVar("T")
M = TypeVar("M")

BUDGETS = Resource("policy/v1", "poddisruptionbudgets")
PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses")


class Mirror:
    """All objects that matter, as the server has them.

    Nodes, pods, PriorityClasses and PodDisruptionBudgets are needed. PodGroups and the controllers whose pods are understood are
    read where they are installed and may be read. Further kinds are registered by `watch`, before `run`.
    """

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self._world = World()
        self._followed: list[Followed[Any]] = []
        self.changed = asyncio.Event()
        """Something that rounds could go by is not as it was; to be cleared by who waits for it."""
        self.nodes = self.watch((NODES,), Node, self._all(self._world.node), needed=True)
        self.pods = self.watch((PODS,), Pod, self._all(self._world.pod), needed=True)
        self.priority_classes = self.watch((PRIORITY_CLASSES,), PriorityClass, needed=True)
        self.budgets = self.watch((BUDGETS,), Budget, needed=True)
        for group in GROUPS:
            self._watch_meaning(group, self._world.group)
        for controller in CONTROLLERS:
            self._watch_meaning(controller, self._world.controller)

    def watch(
        self,
        resources: Sequence[Resource],
        kind: type[T],
        heard: Heard[T] | None = None,
        *,
        needed: bool = False,
    ) -> Followed[T]:
        """Follow one more kind, decoded as `kind`; `resources` are its names, the newest first.

        `heard` is told of each change before `changed` is set. See `Followed` for what `needed` means.
        """

        def told(changes: Sequence[Change[T]]) -> None:
            if heard:
                heard(changes)
            if changes:
                self.changed.set()

        followed = Followed(self._seams, resources, kind, told, needed=needed)
        self._followed.append(followed)
        return followed

    async def run(self) -> None:
        """Follow everything until cancelled. Raises KubernetesError where something that is needed can't be read: a person acts."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for followed in self._followed:
                    tasks.create_task(followed.run())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def ready(self) -> None:
        """Return once everything was read that is there."""
        for followed in self._followed:
            await followed.settled.wait()

    def cluster(self) -> Cluster:
        """What it all means now."""
        return self._world.cluster()

    def standing(self) -> tuple[Standing, ...]:
        """How far each kind is followed."""
        return tuple(followed.standing() for followed in self._followed)

    @staticmethod
    def _all(take: Callable[[T | None, T | None], None]) -> Heard[T]:
        def told(changes: Sequence[Change[T]]) -> None:
            for change in changes:
                take(change.before, change.after)

        return told

    def _watch_meaning(self, kind: Kind[Any, M], take: Callable[[M | None, M | None], None]) -> None:
        def told(changes: Sequence[Change[Any]]) -> None:
            for _, before, after in changes:
                take(kind.read(before) if before else None, kind.read(after) if after else None)

        self.watch(kind.resources, kind.written, told)
