"""Does what unfinished starts need: binds what is missing, deletes what is given up, takes away journals that are done with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.binder.binding import TRIES_MAX, Binder, Leads, PodOutcome, still
from reconciler.kubernetes.binder.partial_starts import (
    ROLL_FORWARD_S,
    Again,
    BindableNodes,
    BoundPod,
    PartialStart,
    ReleasePods,
    Unreadable,
    Whole,
    mark_of,
    partial_start,
)
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import ConflictError, KubernetesError, NotFoundError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.pod_view import PodView
from reconciler.kubernetes.objects.resource import PODS
from reconciler.model.clock import Clock
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.ledger import NotLeaderError

NOT_WRITTEN: Final = (KubernetesError, NotLeaderError, StaleEpochError)


class RecoveryOutcome(NamedTuple):
    """What a pass has done: bindings sent again with what became of them, and starts that were given up, with why.

    `unreadable`: pods whose journal can't be read. A person acts.
    """

    again: tuple[tuple[Again, tuple[PodOutcome, ...]], ...]
    released: tuple[ReleasePods, ...]
    unreadable: tuple[Unreadable, ...]


class StartRecovery:
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

    async def finish(self, pods: PodView, ground: BindableNodes) -> RecoveryOutcome:
        """All pods, and where they may be, as the watches show them."""
        binder = self._binder
        found = partial_start(pods, self._clock.now(), ground, binder.remembered, binder.underway, self._roll_forward_s)
        async with asyncio.TaskGroup() as work:
            again = work.create_task(binder.send_again(found.again))
            for release in found.release:
                work.create_task(self._released(release))
            for whole in found.whole:
                work.create_task(self._closed(whole))
        self._forget(found)
        return RecoveryOutcome(tuple(zip(found.again, again.result(), strict=True)), found.release, found.unreadable)

    def _forget(self, found: PartialStart) -> None:
        self._binder.forget([*found.nothing, *(whole.start for whole in found.whole)])

    async def _released(self, release: ReleasePods) -> None:
        """First the mark on each, so that the next leader goes on; only then is any of them deleted."""
        mark = {names.RELEASE: mark_of(release)}
        versions = await asyncio.gather(
            *(self._noted(pod, {} if pod.uid in release.marked else mark) for pod in release.pods)
        )
        if None not in versions:
            await asyncio.gather(*(self._deleted(*one) for one in zip(release.pods, versions, strict=True)))

    async def _closed(self, whole: Whole) -> None:
        await self._noted(whole.pod, {names.GANG_PLAN: None})

    async def _noted(self, pod: BoundPod, annotations: Mapping[str, str | None]) -> str | None:
        """Its resourceVersion with these and our stamp. "": it is no more; None: perhaps not written, as the next pass sees."""
        try:
            lead = self._leads()
            body = {"metadata": {"uid": pod.uid, "annotations": {**annotations, **lead.stamp}}}
            answer = await self._api.patch(PODS.path(pod.namespace, pod.name), body, still(self._leads, lead))
        except (ConflictError, NotFoundError):
            return ""
        except NOT_WRITTEN as error:
            self._log.warning("unfinished-gang-not-written", pod=pod.name, namespace=pod.namespace, error=str(error))
            return None
        return str(answer["metadata"]["resourceVersion"])

    async def _deleted(self, pod: BoundPod, version: str | None) -> None:
        """Only as we have written it. A DELETE can't name its sender: the fence goes by the stamp on the pod, which is ours.

        One that others have written to since is stamped again, a few times; then the next pass does.
        """
        for _ in range(TRIES_MAX):
            if not version:
                break
            try:
                lead = self._leads()
                body = {"preconditions": {"uid": pod.uid, "resourceVersion": version}}
                await self._api.delete(PODS.path(pod.namespace, pod.name), body, still(self._leads, lead))
                break
            except ConflictError:
                version = await self._noted(pod, {})
            except NotFoundError:
                break
            except NOT_WRITTEN as error:
                self._log.warning(
                    "unfinished-gang-not-deleted", pod=pod.name, namespace=pod.namespace, error=str(error)
                )
                break
