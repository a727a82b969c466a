"""One kind of object, followed for as long as the process lives, also where the server does not have it, or keeps it from us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import Generic, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import Change, Informer, Key
from reconciler.kubernetes.client.pace import Sleep
from reconciler.kubernetes.client.refusals import KubernetesError, NotFoundError, RefusedError, UnreadableError
from reconciler.kubernetes.objects.resource import Resource
from reconciler.model.clock import Clock
from solver.model.quantities import Instant

T = TypeVar("T")
Told = Callable[[Sequence[Change[T]]], None]

AGAIN_S = 300.0
"""After so long, or down to half of it, a kind is looked for again that was not there, or that we may not read."""
NEEDED_AGAIN_S = 10.0
"""As that, for a kind that was there before and is refused: an API server that has just begun refuses what it will allow."""


@dataclass(frozen=True, slots=True)
class WatchContext:
    """What following needs of the world. `sleep` rests for so many seconds."""

    api: Api
    clock: Clock
    chance: Random
    log: FilteringBoundLogger
    sleep: Sleep = asyncio.sleep


class WatchState(NamedTuple):
    """How far a kind is followed.

    `listed_at`: when all of it was read last, None: never. `silent_s`: for how long the server has said nothing of it, None: it
    never has; more than three minutes say that what is known is old. `breaks`: how often the watch had to be taken up again.
    `problem`: why it is not followed, "" where it is. `absent`: because the server does not have it.
    """

    resource: Resource
    needed: bool
    objects: int
    listed_at: Instant | None
    revision: str
    silent_s: float | None
    breaks: int
    problem: str
    absent: bool = False


class KindWatch(Generic[T]):
    """All objects of a kind, decoded as `kind`, and `told` of each change of them.

    `resources`: the names under which a server may know the kind, the newest first. `needed`: without it nothing can be decided,
    so that `run` raises where it can't be read from the start. A kind that is not needed has no objects where it can't be read,
    but for AGAIN_S after it was. `shared`: see Informer.
    """

    def __init__(
        self,
        context: WatchContext,
        resources: Sequence[Resource],
        kind: type[T],
        told: Told[T],
        *,
        needed: bool,
        shared: Callable[[T], T] = lambda value: value,
    ) -> None:
        self._context = context
        self._resources = tuple(resources)
        self._kind = kind
        self._shared = shared
        self._told = told
        self._needed = needed
        self._resource, self._watched = self._fresh(self._resources[0])
        self._lists = 0
        self._listed_at: Instant | None = None
        self._heard_s: float | None = None
        self._breaks = 0
        self._problem = ""
        self._absent = False
        self._refused_s: float | None = None
        """Since when it is refused, having been followed."""
        self.settled = asyncio.Event()
        """All of it was read once, or is known not to be there."""

    def get(self, key: Key) -> T | None:
        """The object of that name."""
        return self._watched.get(key)

    def items(self) -> Iterator[tuple[Key, T]]:
        """All objects, in no order; not to be kept over an `await`."""
        return self._watched.items()

    def standing(self) -> WatchState:
        """How far it is followed."""
        silent_s = None if self._heard_s is None else self._context.clock.monotonic_s() - self._heard_s
        watched = self._watched
        return WatchState(
            resource=self._resource,
            needed=self._needed,
            objects=len(watched),
            listed_at=self._listed_at,
            revision=watched.revision,
            silent_s=silent_s,
            breaks=self._breaks + watched.breaks,
            problem=self._problem,
            absent=self._absent,
        )

    async def run(self) -> None:
        """Follow it for ever. Raises KubernetesError where it is needed and was never there to be read: a person has to act."""
        while True:
            refused = await self._until_refused()
            if self._needed and self._listed_at is None:
                raise refused
            stays = self._stays(refused)
            self._say(refused, stays=stays)
            self.settled.set()
            again_s = NEEDED_AGAIN_S if stays else AGAIN_S
            await self._context.sleep(again_s * (1 - self._context.chance.random() / 2))

    async def _until_refused(self) -> KubernetesError:
        """Follow it under the first name that the server knows; why that came to an end."""
        refusals: list[KubernetesError] = []
        known = (self._resource,) if self._watched.lists else ()
        for resource in dict.fromkeys((*known, *self._resources)):
            try:
                await self._follow(resource)
            except NotFoundError as absent:
                refusals.append(absent)
            except (RefusedError, UnreadableError) as refused:
                refusals.append(refused)
                if self._watched.lists:
                    break  # it is there, under this name
        # A kind that we may not read may be there or not: to say that it is not would be less.
        return next((one for one in refusals if not isinstance(one, NotFoundError)), refusals[0])

    async def _follow(self, resource: Resource) -> None:
        if resource != self._resource:
            self._forget()
            self._resource, self._watched = self._fresh(resource)
        async with aclosing(self._watched.changes()) as batches:
            async for changes in batches:
                if self._watched.lists != self._lists:
                    self._lists, self._listed_at = self._watched.lists, self._context.clock.now()
                self._problem, self._absent, self._refused_s = "", False, None
                self._told(changes)
                self.settled.set()

    def _stays(self, refused: KubernetesError) -> bool:
        """Whether it is as it was known last: what is needed, and for a while what was followed and is there, but refused.

        A token that has run out, or a server that has just begun, is no reason to take devices and sizes of gangs for gone.
        """
        if self._needed or isinstance(refused, NotFoundError) or not self._watched.lists:
            return self._needed
        now_s = self._context.clock.monotonic_s()
        self._refused_s = now_s if self._refused_s is None else self._refused_s
        return now_s - self._refused_s < AGAIN_S

    def _say(self, refused: KubernetesError, *, stays: bool) -> None:
        """Once for each problem. What does not stay is as if it were not there."""
        if not stays:
            self._forget()
        self._absent = isinstance(refused, NotFoundError)
        if self._problem != str(refused):
            self._problem = str(refused)
            tell = self._context.log.debug if self._absent else self._context.log.warning
            tell(
                "kind-not-followed", resource=self._resource.plural, version=self._resource.version, error=str(refused)
            )

    def _forget(self) -> None:
        gone = [Change(key, value, None) for key, value in self._watched.items()]
        self._breaks += self._watched.breaks
        self._resource, self._watched = self._fresh(self._resource)
        self._lists = 0
        if gone:
            self._told(gone)

    def _fresh(self, resource: Resource) -> tuple[Resource, Informer[T]]:
        context = self._context
        of_world = context.chance, context.log, context.sleep
        watched = Informer(context.api, resource, self._kind, *of_world, self._heard, self._shared)
        return resource, watched

    def _heard(self) -> None:
        self._heard_s = self._context.clock.monotonic_s()
