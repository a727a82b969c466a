"""A way to the API server on which things go wrong: requests are lost, refused and answered late, watches break, lists are old.

It speaks TLS with a certificate of the cluster's authority, and to the server as the user that it is given. Who asks is known
by the bearer token: the name of a process. Nobody's request is ever done twice.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import yarl
from aiohttp import web

from hack.kubernetes.certificates import LOOPBACK
from hack.kubernetes.cluster import Cluster
from hack.kubernetes.faults.certified import contexts
from hack.kubernetes.faults.profile import HONEST, OF_ALL, OF_BINDINGS, OF_LISTS, OF_WATCHES, Draw, Drawn, Profile
from reconciler.kubernetes.client.connections import Sockets

LISTED: Final = ("/api/v1/pods", "/api/v1/nodes")
"""Of these it keeps what they were, to say it again later."""
LISTED_EVERY_S: Final = 0.3
OLDEST_LISTS: Final = 10
REFUSALS: Final = {"conflict": 409, "busy": 429, "broken": 500, "unavailable": 503}
REASONS: Final = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
GARBAGE: Final = b'<html><body>502 Bad Gateway</body></html>\n{"kind": "Pod", "metad\n'
_NO_LIMITS = aiohttp.ClientTimeout(total=None)


class _Lost(Exception):  # noqa: N818  (not an error: nobody is told)
    """The connection breaks off, and there is no answer."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, read whole."""

    who: str
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.target

    @property
    def is_list(self) -> bool:
        return self.method == "GET" and self.path in LISTED and "continue=" not in self.target

    @property
    def is_binding(self) -> bool:
        return self.path.endswith("/binding")

    def __str__(self) -> str:
        return f"{self.who} {self.method} {self.path}"


class FaultyProxy:
    """Honest until `profile` says otherwise. `befell` counts what went wrong, `asked` all requests.

    `cut_off`: names of processes that reach nothing, and hear nothing, while they are in it; `deaf`: that only hear nothing.
    """

    def __init__(self, cluster: Cluster, user: str, groups: tuple[str, ...] = ()) -> None:
        self._cluster = cluster
        self._server_tls, self._client_tls = contexts(cluster, user, groups)
        self._lists: dict[str, deque[bytes]] = {path: deque(maxlen=OLDEST_LISTS) for path in LISTED}
        self._late: set[asyncio.Task[Any]] = set()
        self._handling: set[asyncio.Task[Any]] = set()
        self._remembers = asyncio.Event()
        self._draw = Draw(0, 0.0)
        self.profile = HONEST
        self.on_binding: Callable[[str], object] = lambda _: None
        """Told the name of each process that binds, before that is passed on."""
        self.cut_off: set[str] = set()
        self.deaf: set[str] = set()
        self._blind_until_s: dict[str, float] = {}
        self.befell: Counter[str] = Counter()
        self.asked = 0
        self.url = ""

    def worsen(self, profile: Profile, seed: int, longest_s: float) -> None:
        """From now on faults befall requests; none of them lasts longer than `longest_s`."""
        self._draw = Draw(seed, longest_s)
        self.profile = profile

    def mend(self) -> None:
        """From now on it is honest. What was held back is passed on at once; what was lost stays lost."""
        self.profile = HONEST
        self.cut_off.clear()
        self.deaf.clear()

    async def remembers(self) -> None:
        """Return once it has old lists to tell."""
        await self._remembers.wait()

    async def settled(self) -> None:
        """Return once what was to arrive late has."""
        await asyncio.gather(*self._late)

    def kubeconfig(self, name: str) -> Path:
        """How the process of this name gets to the server through this proxy."""
        content = json.loads(self._cluster.kubeconfig("nobody").read_text())
        content["clusters"][0]["cluster"]["server"] = self.url
        content["users"][0]["user"] = {"token": name}
        file = self._cluster.folder / f"faulty-{name}.kubeconfig"
        file.write_text(json.dumps(content))
        return file

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """On a port of loopback within the block."""
        loop = asyncio.get_running_loop()
        # What a process has sent is on its way, also when that is killed: nothing is taken back (`handler_cancellation`).
        handling = web.Server(self._handled)
        sockets = Sockets()
        connector = aiohttp.TCPConnector(ssl=self._client_tls, limit=0, socket_factory=sockets)
        # Answers are passed on as they come, to who did not ask for compressed ones.
        plain = {"Accept-Encoding": "identity"}
        async with aiohttp.ClientSession(
            connector=connector, headers=plain, auto_decompress=False, timeout=_NO_LIMITS
        ) as self._session:
            server = await loop.create_server(handling, LOOPBACK, 0, ssl=self._server_tls)
            self.url = f"https://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
            remembering = asyncio.create_task(self._remember())
            try:
                yield
            finally:
                await self.settled()
                server.close()
                for task in (remembering, *self._handling):
                    task.cancel()
                await asyncio.gather(remembering, *self._handling, return_exceptions=True)
                await _broken_off(handling)
                await connector.close()
                await sockets.ended()

    async def _remember(self) -> None:
        """What lists are now, for those who are to be told later."""
        while True:
            for path, kept in self._lists.items():
                with suppress(aiohttp.ClientError):  # it is asked again soon
                    answer = await self._forwarded(_Asked("proxy", "GET", f"{path}?limit=1000", {}, b""))
                    if answer.status == 200 and isinstance(answer.body, bytes):
                        kept.append(answer.body)
            if all(self._lists.values()):
                self._remembers.set()
            await asyncio.sleep(LISTED_EVERY_S)

    async def _handled(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.create_task(self._handled_alone(request))
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)
        return await task

    async def _handled_alone(self, request: web.BaseRequest) -> web.StreamResponse:
        who = request.headers.get("Authorization", "").removeprefix("Bearer ")
        headers = {key: request.headers[key] for key in ("Accept", "Content-Type") if key in request.headers}
        asked = _Asked(who, request.method, request.raw_path, headers, await request.read())
        self.asked += 1
        if asked.is_binding:
            self.on_binding(who)
        try:
            self._refuse_if_cut_off(asked)
            return await (self._watched(request, asked) if asked.is_watch else self._answered(asked))
        except (_Lost, aiohttp.ClientError, ConnectionError):
            if request.transport:
                request.transport.abort()
            return web.Response(status=502)  # into a connection that is no more

    def _refuse_if_cut_off(self, asked: _Asked) -> None:
        if asked.who in self.cut_off:
            self.befell["cut-off"] += 1
            raise _Lost

    async def _answered(self, asked: _Asked) -> web.Response:
        of_this = OF_LISTS if asked.is_list else OF_BINDINGS if asked.is_binding else ()
        among = (*of_this, *OF_ALL)
        drawn = self._draw(self.profile, among, str(asked))
        if drawn is None:
            return await self._forwarded(asked)
        self.befell[drawn.fault] += 1
        return await self._gone_wrong(asked, drawn)

    async def _gone_wrong(self, asked: _Asked, drawn: Drawn) -> web.Response:
        match drawn.fault:
            case "delay":
                await self._held_up(drawn.seconds)
                return await self._forwarded(asked)
            case "blind-binding":
                await self._held_up(drawn.seconds)
                self._blind_until_s[asked.who] = asyncio.get_running_loop().time() + drawn.seconds
                return await self._forwarded(asked)
            case "drop-after":
                await self._forwarded(asked)
                raise _Lost
            case "late" | "late-binding":
                self._forward_later(asked, drawn.seconds)
                raise _Lost
            case "garbage":
                await self._forwarded(asked)
                return web.Response(body=GARBAGE, content_type="text/html")
            case "stale" if kept := self._lists[asked.path]:
                return web.Response(body=kept[0], content_type="application/json")
            case "conflict" | "busy" | "broken" | "unavailable":
                return _refused(REFUSALS[drawn.fault])
            case _:
                raise _Lost

    def _forward_later(self, asked: _Asked, after_s: float) -> None:
        async def later() -> None:
            await self._held_up(after_s)
            await self._forwarded(asked)

        task = asyncio.create_task(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _held_up(self, longest_s: float) -> None:
        """For so long, or until everything is honest again."""
        until_s = asyncio.get_running_loop().time() + longest_s
        while self.profile != HONEST and (left_s := until_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(0.05, left_s))

    async def _forwarded(self, asked: _Asked) -> web.Response:
        async with self._sent(asked) as answer:
            body = await answer.read()
        headers = {key: answer.headers[key] for key in ("Content-Type", "Retry-After") if key in answer.headers}
        return web.Response(status=answer.status, body=body, headers=headers)

    async def _watched(self, request: web.BaseRequest, asked: _Asked) -> web.StreamResponse:
        async with self._sent(asked) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
            await response.prepare(request)
            async for block in answer.content.iter_any():
                await response.write(await self._passed(asked, block))
        return response

    async def _passed(self, asked: _Asked, block: bytes) -> bytes:
        """What comes of a block of a watch. Raises _Lost."""
        while self._is_deaf(asked.who):
            await asyncio.sleep(0.05)
        drawn = self._draw(self.profile, OF_WATCHES, str(asked))
        if drawn is None:
            return block
        self.befell[drawn.fault] += 1
        if drawn.fault == "watch-cut":
            raise _Lost
        if drawn.fault == "watch-garbage":
            return GARBAGE
        await self._held_up(drawn.seconds)
        return block

    def _is_deaf(self, who: str) -> bool:
        if self.profile == HONEST:
            return False
        is_blind = asyncio.get_running_loop().time() < self._blind_until_s.get(who, 0.0)
        return is_blind or who in self.cut_off | self.deaf

    def _sent(self, asked: _Asked) -> aiohttp.client._RequestContextManager:
        url = yarl.URL(self._cluster.server + asked.target, encoded=True)
        return self._session.request(asked.method, url, headers=asked.headers, data=asked.body or None)


async def _broken_off(handling: web.Server) -> None:
    """Every connection is gone: a polite end of TLS waits for whoever is at the other end, who may be gone already."""
    for connection in handling.connections:
        if connection.transport:
            connection.transport.abort()
    await handling.shutdown(timeout=0.1)
    for _ in range(2):  # the socket goes a turn of the event loop after its TLS
        await asyncio.sleep(0)


def _refused(code: int) -> web.Response:
    """As an API server says it; after a 429 at once again, so that a test is not long."""
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": REASONS[code], "code": code}
    text = {**said, "message": "a fault of the test"}
    headers = {"Retry-After": "0"} if code == 429 else {}
    return web.json_response(text, status=code, headers=headers)
