"""Leader election: processes take one Lease in turn, so that at most one of them writes at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.pace import Sleep
from reconciler.kubernetes.client.refusals import (
    ConflictError,
    KubernetesError,
    NotFoundError,
    TooManyRequestsError,
    UnreachableError,
)
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import LEASES
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import NotLeaderError
from solver.model.quantities import Instant

T = TypeVar("T")

NAMESPACE = "quorate-system"
LEASE = "quorate"
HOLDER_MAX = 96
"""Characters: a field manager, which has the holder in it, may have 128."""


class NoNamespaceError(KubernetesError):
    """There is no namespace for the Lease: a person has to make it."""


class Leadership(NamedTuple):
    """`epoch` rises with every new holder. No write may be sent after `until_s` of the monotonic clock: the lease ends later."""

    holder: str
    epoch: Epoch
    until_s: float

    @property
    def stamp(self) -> dict[str, str]:
        """The annotations that the fence asks of a Binding, an Eviction, and of a pod or claim that is written."""
        return {names.LEADER: self.holder, names.EPOCH: str(self.epoch)}

    @property
    def field_manager(self) -> str:
        """What the fence asks of a write to `resourceclaims/status`, which can't change annotations: `?fieldManager=`."""
        return f"quorate/{self.epoch}/{self.holder}"


class Timing(NamedTuple):
    """Seconds. `margin_s`: how long before the lease ends the last write may be sent. Raises ValueError by `checked`.

    `settle_s`: a new holder writes nothing for so long, so that the API servers' fences have seen that it is the holder.
    """

    lease_s: int = 15
    renew_every_s: float = 2.0
    margin_s: float = 5.0
    settle_s: float = 1.0

    @property
    def writes_s(self) -> float:
        """For how long after a renewal was sent writes may be."""
        return self.lease_s - self.margin_s

    def checked(self) -> Timing:
        """The same, if a holder can renew in time."""
        if min(self.renew_every_s, self.margin_s) <= 0 or self.renew_every_s + self.settle_s >= self.writes_s:
            raise ValueError(
                f"{self}: renewals have to come more often than every {self.writes_s} s, lease less margin"
            )
        return self


class _Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str = ""
    resource_version: str = ""


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()


class Election:
    """One candidate. `holder` is told apart from every other process that ever was one, also from this one's predecessor.

    `api` is a session of its own: a renewal must not wait for its turn behind thousands of bindings. Others' clocks are
    not trusted: a holder is gone once its record has not changed for its whole duration by the watcher's clock.
    `leads` is called each time it begins to lead.
    """

    def __init__(
        self,
        api: Api,
        holder: str,
        clock: Clock,
        log: FilteringBoundLogger,
        timing: Timing = Timing(),  # noqa: B008  # immutable
        path: str = LEASES.path(NAMESPACE, LEASE),
        sleep: Sleep = asyncio.sleep,
        leads: Callable[[], object] = lambda: None,
    ) -> None:
        if not 0 < len(holder) <= HOLDER_MAX:
            raise ValueError(f"{holder!r}: the name of a holder has 1 to {HOLDER_MAX} characters")
        self._api = api
        self._holder = holder
        self._clock = clock
        self._log = log
        self._timing = timing.checked()
        self._path = path
        self._sleep = sleep
        self._begins = leads
        self._seen: _Spec | None = None
        self._seen_s = 0.0
        self._epoch: Epoch | None = None
        """Ours, from when the Lease was taken until another has it."""
        self._version = ""
        """The resourceVersion under which we hold it; empty where that has to be looked at first."""
        self._led: Leadership | None = None
        self._leads = asyncio.Event()
        self._was_there = False
        """The Lease was read or written once: what is refused later may be given again."""

    def leadership(self) -> Leadership:
        """What may be written under until its `until_s`; NotLeaderError where it does not lead now."""
        if self._led and self._clock.monotonic_s() < self._led.until_s:
            return self._led
        seen = self._seen or _Spec()
        left_s = max(0.0, self._seen_s + self._duration_s(seen) - self._clock.monotonic_s())
        raise NotLeaderError(seen.holder_identity or "nobody", Instant(int(self._clock.now()) + int(left_s * 1000)))

    async def elected(self) -> Leadership:
        """Waits until it leads."""
        while True:
            await self._leads.wait()
            try:
                return self.leadership()
            except NotLeaderError:
                await self._sleep(self._timing.renew_every_s)

    async def run(self) -> None:
        """Takes the Lease when it is free, renews it, and gives it up when it is cancelled; for ever.

        Raises KubernetesError where it could never be read or made: a person has to act.
        """
        try:
            while True:
                await self._attempted()
                await self._sleep(self._timing.renew_every_s)
        finally:
            await self._resigned()

    async def _attempted(self) -> None:
        try:
            await (self._stood() if self._epoch is None else self._renewed(self._epoch))
        except (UnreachableError, TooManyRequestsError, TimeoutError) as silent:
            self._version = ""
            self._log.warning("lease-not-asked", error=str(silent) or type(silent).__name__)
        except (ConflictError, NotFoundError):
            # Another was faster, or has touched it: what is there now is looked at the next time.
            self._version = ""
        except KubernetesError as refused:
            if not self._was_there:
                raise
            # A server that has just begun, or can't ask for this identity, refuses what it will allow: others may lead meanwhile.
            self._version = ""
            self._log.warning("lease-not-asked", error=str(refused))

    async def _stood(self) -> None:
        """As one of those that wait."""
        lease = await self._looked()
        if not self._is_free():
            return
        epoch = Epoch(((self._seen and self._seen.lease_transitions) or 0) + 1)
        sent_s = self._clock.monotonic_s()
        now = _written(self._clock.now())
        spec = _Spec(self._holder, self._timing.lease_s, now, now, int(epoch))
        await self._put(lease, spec)
        self._epoch = epoch
        self._log.info("lease-taken", holder=self._holder, epoch=epoch)
        await self._sleep(self._timing.settle_s)
        self._lead(epoch, sent_s)

    async def _renewed(self, epoch: Epoch) -> None:
        """As the holder."""
        lease = _Lease(_Metadata(resource_version=self._version), self._seen or _Spec())
        if not self._version:
            found = await self._looked()
            if not found or (found.spec.holder_identity, found.spec.lease_transitions) != (self._holder, epoch):
                self._lose()
                return
            lease = found
        sent_s = self._clock.monotonic_s()
        await self._put(lease, msgspec.structs.replace(lease.spec, renew_time=_written(self._clock.now())))
        self._lead(epoch, sent_s)

    def _lead(self, epoch: Epoch, sent_s: float) -> None:
        # From before it was sent: when the server got it is not known here, but not earlier.
        self._led = Leadership(self._holder, epoch, sent_s + self._timing.writes_s)
        if not self._leads.is_set():
            self._leads.set()
            self._begins()

    def _lose(self) -> None:
        self._log.warning("lease-lost", to=(self._seen and self._seen.holder_identity) or "nobody", epoch=self._epoch)
        self._epoch = self._led = None
        self._leads.clear()

    async def _looked(self) -> _Lease | None:
        try:
            lease = await self._asked(self._api.get(self._path, _Lease))
        except NotFoundError:
            return None
        self._was_there = True
        if lease.spec != self._seen:
            self._seen, self._seen_s = lease.spec, self._clock.monotonic_s()
        return lease

    def _is_free(self) -> bool:
        """Whether it is held no more; one that was deleted counts as held by its last holder, for as long as that had it."""
        if self._seen is None or not self._seen.holder_identity:
            return True
        return self._clock.monotonic_s() - self._seen_s >= self._duration_s(self._seen)

    def _duration_s(self, seen: _Spec) -> float:
        return float(seen.lease_duration_seconds or self._timing.lease_s)

    async def _put(self, lease: _Lease | None, spec: _Spec) -> None:
        if lease:
            # A patch, so that others' labels stay; with the resourceVersion, so that of two only one succeeds.
            body = _Lease(_Metadata(resource_version=lease.metadata.resource_version), spec)
            answer = await self._asked(self._api.patch(self._path, body))
        else:
            collection, _, name = self._path.rpartition("/")
            try:
                answer = await self._asked(self._api.create(collection, _Lease(_Metadata(name), spec)))
            except NotFoundError as absent:
                raise NoNamespaceError(str(absent)) from absent
            self._was_there = True
        self._version = answer["metadata"]["resourceVersion"]
        self._seen, self._seen_s = spec, self._clock.monotonic_s()

    async def _asked(self, request: Coroutine[Any, Any, T]) -> T:
        # A connection that hangs is given up while there is time for another try before the writes have to end.
        async with asyncio.timeout(self._timing.writes_s / 3):
            return await request

    async def _resigned(self) -> None:
        """So that the next one need not wait. Nothing is written any more before that is said."""
        epoch, self._epoch, self._led = self._epoch, None, None
        self._leads.clear()
        if epoch is None:
            return
        try:
            lease = await self._looked()
            if lease and (lease.spec.holder_identity, lease.spec.lease_transitions) == (self._holder, epoch):
                free = _Spec("", 1, lease.spec.acquire_time, _written(self._clock.now()), int(epoch))
                await self._put(lease, free)
        except (KubernetesError, TimeoutError) as error:
            self._log.warning("lease-not-resigned", error=str(error) or type(error).__name__)


def _written(now: Instant) -> str:
    """As a MicroTime has to be."""
    return datetime.fromtimestamp(int(now) / 1000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
