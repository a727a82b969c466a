"""Takes the passes of a cluster of pods: when its objects change, when it is woken, and at a steady poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Final

from reconciler.control.runner import INTERRUPTIONS, LoopStatus, Pace, status_after
from reconciler.kubernetes.client.refusals import KubernetesError
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.control.plane import PodPlane
from reconciler.kubernetes.control.pod_site import PodSite, one_pass
from reconciler.kubernetes.control.quietness import PodQuietness
from reconciler.kubernetes.control.sight import NOTHING_SEEN, Sight
from reconciler.kubernetes.control.watch_status import followed_in
from reconciler.model.clock import Clock
from reconciler.model.watch_status import FollowedKind
from reconciler.protocols.ledger import NotLeaderError
from reconciler.protocols.store_errors import StoreUnusableError

PACE: Final = Pace(debounce_s=0.05, apart_s=0.1, poll_s=2.0)
"""A gang's pods come one by one: what is looked at too early is a gang that is not whole, and costs little."""


class PodRunner:
    """Call `run` in a thread of its own; `wake`, `stop`, `status`, `sight` and `followed` from any.

    `connect` gives the plane with everything that works beside the passes: watches, the election, what is told.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[PodPlane]],
        clock: Clock,
        report: Callable[[LoopStatus], None] = lambda _: None,
        pace: Pace = PACE,
    ) -> None:
        self.status = LoopStatus()
        self.sight: Sight = NOTHING_SEEN
        self._connect = connect
        self._clock = clock
        self._report = report
        self._pace = pace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._woken = asyncio.Event()
        self._mirror: ClusterCache | None = None

    def followed(self) -> tuple[FollowedKind, ...]:
        """How far each kind of its objects is followed; none before it has begun."""
        return followed_in(self._mirror) if self._mirror else ()

    def wake(self) -> None:
        """Something happened that a pass should see soon: a commit, a word by hand."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended meanwhile
                self._loop.call_soon_threadsafe(self._woken.set)

    def stop(self) -> None:
        """Let `run` return after the pass that is under way."""
        self._stopping = True
        self.wake()

    def run(self) -> None:
        """Take passes until stopped, then give leadership up. Raises KubernetesError, StoreUnusableError: a person has to act."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._connect() as plane:
            self._mirror, quietness = plane.mirror, PodQuietness(plane)
            async for is_woken in self._due(plane):
                before, self.status = self.status, await self._one_pass(plane, quietness, is_woken=is_woken)
                if self.status is not before:
                    self._report(self.status)
        self.status = replace(self.status, condition="ended", message="")

    async def _due(self, plane: PodPlane) -> AsyncIterator[bool]:
        """Once for each pass that is to be taken: whether something has woken it."""
        last_s = last_woken_s = float("-inf")
        woken_s: float | None = self._clock.monotonic_s()
        while not self._stopping:
            now_s = self._clock.monotonic_s()
            if self._is_news(plane) and woken_s is None:
                woken_s = now_s
            due_s = self._pace.next_pass_s(last_s, last_woken_s, woken_s)
            if now_s >= due_s:
                last_s, is_woken = now_s, woken_s is not None
                if woken_s is not None:
                    last_woken_s, woken_s = now_s, None
                yield is_woken
            else:
                await self._rest(plane, due_s - now_s)

    def _is_news(self, plane: PodPlane) -> bool:
        """Whether something is new since this was asked last: a pass that begins now sees it."""
        events = self._woken, plane.mirror.changed
        news = any(event.is_set() for event in events)
        for event in events:
            event.clear()
        return news

    async def _rest(self, plane: PodPlane, rest_s: float) -> None:
        """For so long, or until something is new."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._woken, plane.mirror.changed)]
        await asyncio.wait(waiting, timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()

    def _rests(self, plane: PodPlane, quietness: PodQuietness) -> bool:
        """Whether it leads on, and nothing is new: then the last pass says all that another one would."""
        last = self.status.last
        if last is None or self.status.condition not in ("leading", "observing"):
            return False
        return PodSite(plane).lead() == last.epoch and quietness.holds()

    async def _one_pass(self, plane: PodPlane, quietness: PodQuietness, *, is_woken: bool) -> LoopStatus:
        try:
            if not is_woken and self._rests(plane, quietness):
                return self.status
            quietness.begin()
            done, self.sight = await one_pass(plane)
            quietness.end(done, self.sight)
        except NotLeaderError as other:
            plane.mirror.cluster()  # so that the next leader needs no seconds for what has changed since
            return replace(self.status, condition="standing-by", message=str(other))
        except INTERRUPTIONS as error:
            return status_after(self.status, error)
        except KubernetesError as error:
            return replace(self.status, condition="backend-unreachable", message=str(error))
        except StoreUnusableError as error:
            self.status = replace(self.status, condition="store-unusable", message=str(error))
            raise
        return LoopStatus("leading" if plane.hands else "observing", done.fault, done)
