"""All objects of one kind, kept as the server has them by a watch, and what changed each time it says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from random import Random
from typing import Generic, NamedTuple, TypeVar

import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.pace import Sleep
from reconciler.kubernetes.client.refusals import (
    GoneError,
    KubernetesError,
    QuietWatchError,
    TooManyRequestsError,
    UnreachableError,
    UnreadableError,
    refusal,
)
from reconciler.kubernetes.objects.resource import Resource

T = TypeVar("T")

PAGE = 1_000
"""Objects of a list that are in memory as JSON at once: some 2 to 5 MB."""
WATCH_S = 300, 600
"""The server ends a watch after a time between these, so that not all come back at once; client-go asks for the same."""
SILENCE_S = 150.0
"""A server sends a bookmark about every minute: after two and a half of silence a connection is taken for dead, and resumed."""
BACKOFF_S = 0.5, 30.0
"""Rest after a watch that broke, doubled up to the second while nothing comes; the jitter takes up to half of it away."""


class Key(NamedTuple):
    """What tells an object from others of its kind at one time; `namespace` is empty for those of the whole cluster."""

    namespace: str
    name: str


class Change(NamedTuple, Generic[T]):
    """`before` is None for what is new, `after` for what is gone. What was made anew under an old name is told as both."""

    key: Key
    before: T | None
    after: T | None


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str
    next_page: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Held(msgspec.Struct, Generic[T], frozen=True, gc=False):
    uid: str
    resource_version: str
    value: T


_METADATA = msgspec.json.Decoder(_Object)
_EVENTS = msgspec.json.Decoder(_Event)


class Informer(Generic[T]):
    """All objects of a resource, decoded as `kind`: a Struct of the fields that are needed takes a fraction of a dict's memory.

    `changes()` keeps it up to date for as long as it is read; one reader at a time. `heard` is called each time that the
    server says something, if only that nothing has changed. `shared` gives an equal object of parts that others have, too.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        kind: type[T],
        chance: Random,
        log: FilteringBoundLogger,
        sleep: Sleep = asyncio.sleep,
        heard: Callable[[], None] = lambda: None,
        shared: Callable[[T], T] = lambda value: value,
    ) -> None:
        self._api = api
        self._heard = heard
        self._shared = shared
        self._resource = resource
        self._values = msgspec.json.Decoder(kind)
        self._chance = chance
        self._log = log
        self._sleep = sleep
        self._held: dict[Key, _Held[T]] = {}
        self._rest_s = BACKOFF_S[0]
        self._newest = 0
        self.revision = ""
        """The resourceVersion that is held; empty where a list is to be read first: that of before can't be gone on from."""
        self.lists = 0
        """How often all of it was read."""
        self.breaks = 0
        """How often the connection broke, or the server had forgotten where it was."""
        self.renewals = 0
        """How often a watch was begun anew because it had been silent for long."""

    def __len__(self) -> int:
        """How many objects are held."""
        return len(self._held)

    def get(self, key: Key) -> T | None:
        """The object of that name."""
        held = self._held.get(key)
        return held.value if held else None

    def items(self) -> Iterator[tuple[Key, T]]:
        """All objects, in no order."""
        return ((key, held.value) for key, held in self._held.items())

    async def changes(self) -> AsyncGenerator[tuple[Change[T], ...]]:
        """First all there is, even if nothing; then what changes, several at a time, for ever.

        A connection that breaks is taken up where it was; where the server has forgotten that, a new list's differences are told.
        Raises NotAllowedError, NotFoundError (the server does not know the kind), UnreadableError: a person has to act. What is
        held stays, and a reader that asks for changes again is told how a new list differs from it.
        """
        while True:
            try:
                if not self.revision:
                    yield await self._listed()
                async with aclosing(self._followed()) as follow:
                    async for told in follow:
                        self._rest_s = BACKOFF_S[0]
                        if told:
                            yield told
            except GoneError as forgotten:
                self._tell("watch-forgotten", forgotten)
                self.revision = ""
            except QuietWatchError as silent:
                # Usual where objects of a kind hardly ever change. Where the server is gone the next try fails, and that is told.
                self.renewals += 1
                self._log.debug(
                    "watch-renewed", resource=self._resource.plural, revision=self.revision, error=str(silent)
                )
                continue
            except (UnreachableError, TooManyRequestsError) as broken:
                self._tell("watch-broken", broken)
            except KubernetesError:
                self.revision = ""
                raise
            await self._rested()

    async def _rested(self) -> None:
        await self._sleep(self._rest_s * (1 - self._chance.random() / 2))
        self._rest_s = min(2 * self._rest_s, BACKOFF_S[1])

    def _tell(self, event: str, error: KubernetesError) -> None:
        self.breaks += 1
        self._log.warning(event, resource=self._resource.plural, revision=self.revision, error=str(error))

    async def _listed(self) -> tuple[Change[T], ...]:
        """The whole list, page by page of one revision, and how it differs from what was held."""
        told: list[Change[T]] = []
        gone = set(self._held)
        found: dict[Key, _Held[T]] = {}
        parameters = {"limit": str(PAGE)}
        while True:
            page = await self._api.get(self._resource.path(), _Page, parameters)
            self._refuse_if_old(page.metadata.resource_version)
            self._heard()
            for item in page.items:
                key, metadata = self._named(item)
                gone.discard(key)
                found[key] = self._compared(key, metadata, item, told)
            if not page.metadata.next_page:
                break
            parameters["continue"] = page.metadata.next_page
        told += [Change(key, self._held[key].value, None) for key in sorted(gone)]
        self._held = found
        self._reached(page.metadata.resource_version)
        self.lists += 1
        return tuple(told)

    def _refuse_if_old(self, revision: str) -> None:
        """A list from an old cache would take back what is known already. resourceVersions of one kind compare (KEP-5504)."""
        if int(revision) < self._newest:
            # For good where etcd was restored from a backup without raising its revisions: then a person restarts this process.
            raise UnreachableError(f"{self._resource.path()}: a list of {revision}, and {self._newest} is known")

    async def _followed(self) -> AsyncGenerator[tuple[Change[T], ...]]:
        low_s, high_s = WATCH_S
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.revision,
            "timeoutSeconds": str(self._chance.randint(low_s, high_s)),
        }
        async with aclosing(self._api.stream(self._resource.path(), parameters, SILENCE_S)) as lines:
            async for block in lines:
                self._heard()
                told: list[Change[T]] = []
                for event in self._read(block):
                    if event.type == "ERROR":
                        yield tuple(told)  # what came before it is held already
                        raise refusal(f"watch {self._resource.path()}", 0, bytes(event.object))
                    self._applied(event, told)
                yield tuple(told)

    def _applied(self, event: _Event, told: list[Change[T]]) -> None:
        key, metadata = self._named(event.object)
        if event.type in ("ADDED", "MODIFIED"):
            self._held[key] = self._compared(key, metadata, event.object, told)
        elif event.type == "DELETED":
            if held := self._held.pop(key, None):
                told.append(Change(key, held.value, None))
        elif event.type != "BOOKMARK":
            raise UnreadableError(f"watch {self._resource.path()}: an event of the unknown type {event.type!r}")
        self._reached(metadata.resource_version)

    def _reached(self, revision: str) -> None:
        self.revision = revision
        self._newest = max(self._newest, int(revision))

    def _compared(self, key: Key, metadata: _Metadata, item: msgspec.Raw, told: list[Change[T]]) -> _Held[T]:
        """What is to be held under this key; what is held is not decoded again."""
        held = self._held.get(key)
        if held and (held.uid, held.resource_version) == (metadata.uid, metadata.resource_version):
            return held
        fresh = _Held(metadata.uid, metadata.resource_version, self._decoded(item))
        if held and held.uid != metadata.uid:
            told += Change(key, held.value, None), Change(key, None, fresh.value)
        else:
            told.append(Change(key, held.value if held else None, fresh.value))
        return fresh

    def _named(self, item: msgspec.Raw) -> tuple[Key, _Metadata]:
        try:
            metadata = _METADATA.decode(item).metadata
        except msgspec.MsgspecError as error:
            raise UnreadableError(f"{self._resource.path()}: {error}") from error
        return Key(metadata.namespace, metadata.name), metadata

    def _decoded(self, item: msgspec.Raw) -> T:
        try:
            return self._shared(self._values.decode(item))
        except msgspec.MsgspecError as error:
            raise UnreadableError(f"{self._resource.path()}: {error}") from error

    def _read(self, block: bytes) -> list[_Event]:
        try:
            return _EVENTS.decode_lines(block)
        except msgspec.MsgspecError as error:
            raise UnreadableError(f"watch {self._resource.path()}: {error}") from error
