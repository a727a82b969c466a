"""A client of the API server: so many requests a second and no more, errors with types, retries only where they are safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from email.utils import parsedate_to_datetime
from random import Random
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import aiohttp
import msgspec

from reconciler.kubernetes.client.connections import Sockets
from reconciler.kubernetes.client.credentials import Credentials
from reconciler.kubernetes.client.pace import RateLimiter, Sleep
from reconciler.kubernetes.client.refusals import (
    CredentialsError,
    QuietWatchError,
    TooManyRequestsError,
    UnreachableError,
    UnreadableError,
    refusal,
)
from solver.model.quantities import Instant

T = TypeVar("T")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Check = Callable[[], object]
"""Called when a request is about to leave, before each try: what it raises is raised, and nothing leaves."""

ToldTime = Callable[[Instant, float], None]
"""Hears what time it is by the server's clock, or was up to so many milliseconds ago."""

TRIES_MAX = 5
BACKOFF_S = 0.2
"""Before the second try, and twice as much before each later one; the jitter takes up to half of it away."""
RETRY_AFTER_MAX_S = 30.0
"""A server that is busy for longer is an error: the caller may have better to do than to wait."""
ANSWER_S = 30.0
"""An answer takes no longer. A list is asked for in pages; 60 s is what an API server gives a request itself."""
CONNECT_S = 10.0
CHECKED_CONNECT_S = 3.0
"""What has to be so when a request leaves is looked at before a connection is made for it: less than the margin of a lease."""
AT_ONCE_MAX = 128
"""Requests at once. More bring nothing: 1,739 bindings/s with 128, 1,585 with 64, on two cores that the server shared."""

_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_LIMITS = aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=CONNECT_S)
_CHECKED_LIMITS = aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=CHECKED_CONNECT_S)
_WEBSOCKET = aiohttp.ClientWSTimeout(ws_close=2.0)


class Api:
    """A session with one API server; used as an async context manager. Methods raise KubernetesError, its start CredentialsError.

    A 429 was not done, so that it is asked again for whatever it was, but for evictions that a budget forbids. Where no
    answer comes, or 5xx, a read is asked again, and what never left; else UnreachableError says that the outcome is unknown.
    A write may wait for its turn for long; what has to be so when it leaves is said by its `check`.
    """

    def __init__(
        self,
        credentials: Credentials,
        pace: RateLimiter,
        chance: Random,
        sleep: Sleep = asyncio.sleep,
        told_time: ToldTime = lambda _, __: None,
    ) -> None:
        self._credentials = credentials
        self._pace = pace
        self._chance = chance
        self._sleep = sleep
        self._told_time = told_time
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._sockets = Sockets()

    async def __aenter__(self) -> Self:
        self._transport = await self._credentials.transport()
        self._session = self._transport.session(self._sockets, _never_again)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._sockets.ended()

    async def get(self, path: str, kind: type[T], parameters: Mapping[str, str] | None = None) -> T:
        """One object, or one page of a list, decoded as `kind`."""
        return _decoded(path, await self._done("GET", path, parameters=parameters), kind)

    async def create(self, path: str, body: object, check: Check | None = None) -> dict[str, Any]:
        """POST. What the server made of it."""
        return _decoded(path, await self._done("POST", path, body, check=check), dict[str, Any])

    async def replace(self, path: str, body: object, check: Check | None = None) -> dict[str, Any]:
        """PUT. ConflictError unless `body` has the newest resourceVersion."""
        return _decoded(path, await self._done("PUT", path, body, check=check), dict[str, Any])

    async def patch(self, path: str, body: object, check: Check | None = None) -> dict[str, Any]:
        """A merge patch (RFC 7396): what it names becomes so, null is taken away, lists are replaced whole."""
        return _decoded(path, await self._done("PATCH", path, body, check=check), dict[str, Any])

    async def patch_entries(self, path: str, body: object, check: Check | None = None) -> dict[str, Any]:
        """Kubernetes' strategic merge patch: of a list such as conditions the entries that it names. Not for custom resources."""
        done = await self._done("PATCH", path, body, check=check, media=_STRATEGIC_PATCH)
        return _decoded(path, done, dict[str, Any])

    async def apply(self, path: str, body: object, manager: str, check: Check | None = None) -> dict[str, Any]:
        """A server-side apply: what `manager` has written and `body` leaves out is taken away; what others did is overruled."""
        owner = {"fieldManager": manager, "force": "true"}
        done = await self._done("PATCH", path, body, owner, check, _APPLY)
        return _decoded(path, done, dict[str, Any])

    async def delete(self, path: str, body: object = None, check: Check | None = None) -> dict[str, Any]:
        """DELETE, with `body` as DeleteOptions."""
        return _decoded(path, await self._done("DELETE", path, body, check=check), dict[str, Any])

    async def stream(self, path: str, parameters: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes]:
        """Whole lines as they come, several at a time, until the server ends it; to be closed by a reader that stops.

        One try. QuietWatchError if nothing comes for `silence_s`.
        """
        request = f"watch {path}"
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        for again in (True, False):
            await self._pace.turn()
            bearer = await self._authorization(request)
            with _as_ours(request):
                async with self._sent("GET", path, parameters, None, limits, bearer) as response:
                    if response.status == 401 and again and await self._credentials.changed_after(bearer):
                        continue
                    if response.status >= 300:
                        after = response.headers.get("Retry-After")
                        raise refusal(request, response.status, await response.read(), after)
                    try:
                        async for lines in _whole_lines(response.content):
                            yield lines
                    except aiohttp.SocketTimeoutError as error:
                        raise QuietWatchError(f"{request}: {_why(error)}") from error
                    finally:
                        # A reader that stops leaves now: a polite end of TLS would go on for a while, and is not waited for.
                        if response.connection and response.connection.transport:
                            response.connection.transport.abort()
                    return

    @asynccontextmanager
    async def channels(
        self, path: str, parameters: Sequence[tuple[str, str]], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A websocket, for as long as the block lasts. One try; what breaks inside the block is KubernetesError too."""
        request = f"websocket {path}"
        with _as_ours(request):
            async with await self._connected(request, path, parameters, protocol) as channels:
                yield channels

    async def _connected(
        self, request: str, path: str, parameters: Sequence[tuple[str, str]], protocol: str
    ) -> aiohttp.ClientWebSocketResponse:
        for again in (True, False):
            await self._pace.turn()
            bearer = await self._authorization(request)
            try:
                return await self._session.ws_connect(
                    self._transport.server + path, params=parameters, protocols=(protocol,), headers=_headers(bearer),
                    server_hostname=self._transport.server_name, proxy=self._transport.proxy, timeout=_WEBSOCKET,
                )  # fmt: skip
            except aiohttp.WSServerHandshakeError as error:
                if error.status != 401 or not again or not await self._credentials.changed_after(bearer):
                    raise refusal(request, error.status, error.message.encode()) from error
        raise AssertionError("the last try returns or raises")

    async def _done(
        self,
        method: Method,
        path: str,
        body: object = None,
        parameters: Mapping[str, str] | None = None,
        check: Check | None = None,
        media: str | None = None,
    ) -> bytes:
        encoded = None if body is None else msgspec.json.encode(body)
        backoff_s = BACKOFF_S
        for tries_left in range(TRIES_MAX - 1, -1, -1):
            try:
                return await self._once(method, path, encoded, parameters, check, media)
            except TooManyRequestsError as busy:
                if busy.budget or busy.retry_after_s > RETRY_AFTER_MAX_S or not tries_left:
                    raise
                rest_s = max(busy.retry_after_s, backoff_s) * (1 + self._chance.random() / 2)
            except UnreachableError as silent:
                if (silent.sent and method != "GET") or self._session.closed or not tries_left:
                    raise
                rest_s = backoff_s * (1 - self._chance.random() / 2)
            backoff_s *= 2
            await self._sleep(rest_s)
        raise AssertionError("the last try returns or raises")

    async def _once(
        self,
        method: Method,
        path: str,
        body: bytes | None,
        parameters: Mapping[str, str] | None,
        check: Check | None,
        media: str | None,
    ) -> bytes:
        request = f"{method} {path}"
        limits = _CHECKED_LIMITS if check else _LIMITS
        for again in (True, False):
            async with self._at_once:
                await self._pace.turn()
                bearer = await self._authorization(request)
                if check:
                    check()
                with _as_ours(request):
                    asked_s = perf_counter()
                    async with self._sent(method, path, parameters, body, limits, bearer, media) as response:
                        answer = await response.read()
                self._hear(response.headers.get("Date", ""), perf_counter() - asked_s)
            # A 401 was not done, whatever it was.
            if response.status == 401 and again and await self._credentials.changed_after(bearer):
                continue
            if response.status >= 300:
                raise refusal(request, response.status, answer, response.headers.get("Retry-After"))
            return answer
        raise AssertionError("the last try returns or raises")

    def _hear(self, date: str, took_s: float) -> None:
        """What time it is there: HTTP tells whole seconds."""
        try:
            at = parsedate_to_datetime(date)
        except ValueError:
            return
        self._told_time(Instant(int(at.timestamp() * 1_000)), took_s * 1_000 + 999)

    def _sent(
        self,
        method: Method,
        path: str,
        parameters: Mapping[str, str] | None,
        body: bytes | None,
        limits: aiohttp.ClientTimeout,
        bearer: str,
        media: str | None = None,
    ) -> aiohttp.client._RequestContextManager:
        if self._session.closed:  # what is still at work then has been told to end
            raise UnreachableError(f"{method} {path}: the session is over", sent=False)
        headers = _headers(bearer)
        if not self._credentials.keeps_connections:
            headers["Connection"] = "close"
        if body is not None:
            headers["Content-Type"] = media or (_MERGE_PATCH if method == "PATCH" else _JSON)
        # A redirect would take the token to wherever it leads.
        return self._session.request(
            method, self._transport.server + path, params=parameters, data=body, headers=headers, timeout=limits,
            allow_redirects=False, server_hostname=self._transport.server_name, proxy=self._transport.proxy,
        )  # fmt: skip

    async def _authorization(self, request: str) -> str:
        try:
            return await self._credentials.authorization()
        except CredentialsError as error:  # it was good when the session began: the machine tries again
            raise UnreachableError(f"{request}: {error}", sent=False) from error


def _headers(bearer: str) -> dict[str, str]:
    return {"Authorization": bearer} if bearer else {}


async def _whole_lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    begun = bytearray()
    # Not readline(): it refuses lines above 128 KiB, and an object may have 1.5 MiB.
    async for block in content.iter_any():
        head, newline, tail = block.rpartition(b"\n")
        if newline:
            yield bytes(begun) + head
            begun.clear()
        begun += tail


async def _never_again(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """aiohttp repeats a PUT or DELETE by itself when a kept connection breaks, uncounted; not an error of another class.

    And it follows where a websocket is sent on to, which can't be turned off otherwise.
    """
    try:
        response = await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise UnreachableError(f"{request.method} {request.url.raw_path}: {_why(error)}") from error
    if "Upgrade" in request.headers and 300 <= response.status < 400:
        raise refusal(f"websocket {request.url.raw_path}", response.status, b"it leads elsewhere")
    return response


@contextmanager
def _as_ours(request: str) -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
        raise UnreachableError(f"{request}: {_why(error)}", sent=False) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise UnreachableError(f"{request}: {_why(error)}") from error


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def _decoded(path: str, answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise UnreadableError(f"{path}: {error}") from error
