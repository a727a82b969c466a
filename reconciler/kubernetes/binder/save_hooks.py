"""Asks pods by their own hooks to save their work, for as long as they have: by HTTP at the pod's own address, or by a command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.pace import Sleep
from reconciler.kubernetes.client.pod_exec import ExecFailedError, execute
from reconciler.kubernetes.client.refusals import KubernetesError
from reconciler.kubernetes.objects.saves import Hook, HttpHook, main_container
from reconciler.kubernetes.objects.wire import Pod
from reconciler.model.clock import Clock
from reconciler.protocols.ledger import NotLeaderError
from solver.model.quantities import Instant

Address = IPv4Address | IPv6Address

RETRY_S: Final = 5.0
"""Between a hook that failed and the next try."""
CONNECT_S: Final = 5.0
AT_ONCE_MAX: Final = 512
"""Connections to hooks at once: a save may take minutes, and all pods of a gang are to begin together."""

_FAILURES = (
    aiohttp.ClientError,
    OSError,
    TimeoutError,
    ValueError,
    ExecFailedError,
    KubernetesError,
    NotLeaderError,
)


def is_pod_address(address: Address) -> bool:
    """Whether a pod can have it: not this machine, a neighbour of it (such as a cloud's metadata service), or many at once."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return is_pod_address(address.ipv4_mapped)
    return not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)


def hook_url(pod: Pod, hook: HttpHook, may_be: Callable[[Address], bool] = is_pod_address) -> str:
    """Where a pod's hook is. Of the pod's own words only the port and the path count; raises ValueError: it has no address yet."""
    address = ip_address(pod.status.pod_ip)
    if not may_be(address):
        raise ValueError(f"{address} is no address of a pod")
    host = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
    return f"http://{host}:{hook.port}{hook.path}"


class Hooks:
    """Calls hooks beside the passes; used as an async context manager. It may forget: a pod without an answer is asked again."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        log: FilteringBoundLogger,
        sleep: Sleep = asyncio.sleep,
        may_be: Callable[[Address], bool] = is_pod_address,
    ) -> None:
        self._api = api
        self._clock = clock
        self._log = log
        self._sleep = sleep
        self._may_be = may_be
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._open = AsyncExitStack()
        self._errors: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        self._session = await self._open.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=AT_ONCE_MAX, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._open.aclose()

    def call(self, pod: Pod, hook: Hook, until: Instant, saved: Callable[[], Awaitable[None]]) -> None:
        """Begins to ask, unless that goes on or was answered already; once it has answered with 2xx, or ended with 0, `saved`."""
        uid = pod.metadata.uid
        if uid not in self._calls:
            self._calls[uid] = asyncio.create_task(self._asked(pod, hook, until, saved))
            self._calls[uid].add_done_callback(lambda done: self._over(uid, done))

    def forget(self, uid: str) -> str:
        """The pod's answer is not waited for any more; returns why there was none yet, as far as one was tried for."""
        if call := self._calls.pop(uid, None):
            call.cancel()
        return self._errors.pop(uid, "")

    def forget_others(self, uids: Collection[str]) -> None:
        """Only the answers of these pods are waited for."""
        for uid in {*self._calls, *self._errors}.difference(uids):
            self.forget(uid)

    def _over(self, uid: str, call: asyncio.Task[None]) -> None:
        if not call.cancelled() and (error := call.exception()):
            self._log.error("checkpoint-hook-broken", pod=uid, error=repr(error))

    async def _asked(self, pod: Pod, hook: Hook, until: Instant, saved: Callable[[], Awaitable[None]]) -> None:
        for deed in (lambda: self._once(pod, hook, until), saved):
            while not await self._done(pod, deed):
                if self._clock.now() >= until:
                    return
                await self._sleep(RETRY_S)
        self._errors.pop(pod.metadata.uid, None)

    async def _done(self, pod: Pod, deed: Callable[[], Awaitable[None]]) -> bool:
        try:
            await deed()
        except _FAILURES as error:
            self._errors[pod.metadata.uid] = str(error) or type(error).__name__
            self._log.warning("checkpoint-hook", pod=pod.key, error=self._errors[pod.metadata.uid])
            return False
        return True

    async def _once(self, pod: Pod, hook: Hook, until: Instant) -> None:
        async with asyncio.timeout((until - self._clock.now()) / 1000):
            if isinstance(hook, HttpHook):
                await self._posted(pod, hook, until)
            else:
                await execute(self._api, pod.key, main_container(pod), hook.command)

    async def _posted(self, pod: Pod, hook: HttpHook, until: Instant) -> None:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        body = msgspec.json.encode({"by": str(until)})
        # Nothing that it answers is read, and it leads nowhere else.
        async with self._session.post(
            hook_url(pod, hook, self._may_be), data=body, headers={"Content-Type": "application/json"},
            timeout=limits, allow_redirects=False,
        ) as response:  # fmt: skip
            if not 200 <= response.status < 300:
                raise ValueError(f"its hook answers {response.status}")
