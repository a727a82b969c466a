"""Does what unfinished starts need: binds what is missing, deletes what is given up, takes away journals that are done with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Container, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from reconciler.backend import StaleEpochError
from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.binding import Binder, Leads, PodOutcome, still
from reconciler.backends.kubernetes.leader import Leadership
from reconciler.backends.kubernetes.objects import names
from reconciler.backends.kubernetes.objects.wire import Pod
from reconciler.backends.kubernetes.refusals import ConflictError, KubernetesError, NotFoundError
from reconciler.backends.kubernetes.resource import PODS
from reconciler.backends.kubernetes.unfinished import (
    ROLL_FORWARD_S,
    Again,
    BoundPod,
    Release,
    Unfinished,
    Unreadable,
    Whole,
    mark_of,
    unfinished,
)
from reconciler.clock import Clock
from reconciler.store.protocols import NotLeaderError


class Finished(NamedTuple):
    """What a pass has done: bindings sent again with what became of them, and starts that were given up, with why.

    `unreadable`: pods whose journal can't be read. A person acts.
    """

    again: tuple[tuple[Again, tuple[PodOutcome, ...]], ...]
    released: tuple[Release, ...]
    unreadable: tuple[Unreadable, ...]


class Finisher:
    """For every pass. What could not be written is looked at again in the next one."""

    def __init__(
        self,
        api: Api,
        leads: Leads,
        binder: Binder,
        clock: Clock,
        log: FilteringBoundLogger,
        roll_forward_s: float = ROLL_FORWARD_S,
    ) -> None:
        self._api = api
        self._leads = leads
        self._binder = binder
        self._clock = clock
        self._log = log
        self._roll_forward_s = roll_forward_s

    async def finish(self, pods: Collection[Pod], nodes: Container[str]) -> Finished:
        """All pods and the names of all nodes, as the watches show them."""
        binder = self._binder
        found = unfinished(pods, self._clock.now(), nodes, binder.remembered, binder.underway, self._roll_forward_s)
        async with asyncio.TaskGroup() as work:
            again = work.create_task(binder.send_again(found.again))
            for release in found.release:
                work.create_task(self._released(release))
            for whole in found.whole:
                work.create_task(self._closed(whole))
        self._forget(found)
        return Finished(tuple(zip(found.again, again.result(), strict=True)), found.release, found.unreadable)

    def _forget(self, found: Unfinished) -> None:
        self._binder.forget([*found.nothing, *(whole.start for whole in found.whole)])

    async def _released(self, release: Release) -> None:
        """First the mark on each, so that whoever leads next goes on; only then is any of them deleted."""
        mark = {names.RELEASE: mark_of(release)}
        if await _all_done(self._noted(pod, mark) for pod in release.pods if pod.uid not in release.marked):
            await _all_done(self._deleted(pod) for pod in release.pods)

    async def _closed(self, whole: Whole) -> None:
        await self._noted(whole.pod, {names.GANG_PLAN: None})

    async def _noted(self, pod: BoundPod, annotations: Mapping[str, str | None]) -> bool:
        def patch(lead: Leadership) -> Awaitable[Any]:
            body = {"metadata": {"uid": pod.uid, "annotations": {**annotations, **lead.stamp}}}
            return self._api.patch(PODS.path(pod.namespace, pod.name), body, still(self._leads, lead))

        return await self._written(pod, patch)

    async def _deleted(self, pod: BoundPod) -> bool:
        def delete(lead: Leadership) -> Awaitable[Any]:
            body = {"preconditions": {"uid": pod.uid}}
            return self._api.delete(PODS.path(pod.namespace, pod.name), body, still(self._leads, lead))

        return await self._written(pod, delete)

    async def _written(self, pod: BoundPod, write: Callable[[Leadership], Awaitable[Any]]) -> bool:
        """False: it may not have been done; the next pass sees whether it was."""
        try:
            await write(self._leads())
        except (ConflictError, NotFoundError):
            return True  # this pod is no more, and nothing of it is left to do
        except (KubernetesError, NotLeaderError, StaleEpochError) as error:
            self._log.warning("unfinished-gang-not-written", pod=pod.name, namespace=pod.namespace, error=str(error))
            return False
        return True


async def _all_done(deeds: Iterable[Coroutine[Any, Any, bool]]) -> bool:
    return all(await asyncio.gather(*deeds))
