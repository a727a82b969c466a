"""HTTP to a repository host: bounded in bytes, pages and time; what may be repeated is repeated, as long as the host asks."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from http import HTTPStatus
from typing import Any, Final, TypeVar

import httpx2
import msgspec

from reconciler.alerts.post import retry_after
from reconciler.model.clock import Clock, SystemClock

T = TypeVar("T")

ANSWER_BYTES_MAX: Final = 32 * 2**20
"""Of one answer in JSON: a page of texts that users wrote, each at most about a megabyte."""

PAGE_SIZE: Final = 20
PAGES_MAX: Final = 50
LISTED_MAX: Final = PAGE_SIZE * PAGES_MAX

_TIMEOUT_S: Final = 30.0
"""Between two signs of life of the host."""

_ANSWER_S: Final = 120.0
"""For the whole of one answer, however slowly it comes."""

_PAUSES_S: Final = (1.0, 5.0)
"""Between tries, where the host doesn't say how long to wait."""

_PAUSE_MAX_S: Final = 60.0
"""A host that asks for a longer rest is left alone until the next time this is run."""

_REDIRECTS_MAX: Final = 3
_REPEATABLE: Final = frozenset({"GET", "PUT", "PATCH"})
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

Params = Mapping[str, str | int]


class HostError(Exception):
    """A repository host did not do what was asked. The message names the request, never the token."""

    is_of_host = False
    """Whether another request would most likely end in the same way."""


class HostUnreachableError(HostError):
    """No answer at all, or not a whole one."""

    is_of_host = True


class HostRefusedError(HostError):
    """The host answered with a status that is no success."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        self.is_of_host = status in _BUSY


class HostApi:
    """Calls the API of one repository host, with a token that goes to that host alone.

    `url` is where its API begins. Every method raises HostError.
    """

    def __init__(self, url: str, token: str, clock: Clock | None = None) -> None:
        self._url = httpx2.URL(url.rstrip("/"))
        self._clock = clock or SystemClock()
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {token}", "User-Agent": "quorate"},
            timeout=_TIMEOUT_S,
            follow_redirects=False,
            # A proxy of the environment can't reach our own machine.
            trust_env=self._url.host not in _LOOPBACK,
            verify=ssl.create_default_context() if self._url.scheme == "https" else False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, kind: type[T], params: Params | None = None) -> T:
        """An answer in JSON."""
        return _decoded(self._answer("GET", path, params)[0], kind, path)

    def listed(self, path: str, item: type[T], params: Params | None = None) -> Iterator[T]:
        """All items of a list, page after page, for as long as the host says that there is a next one."""
        for page in range(1, PAGES_MAX + 1):
            raw, links = self._answer("GET", path, {**(params or {}), "page": page})
            yield from _decoded(raw, list[item], path)  # type: ignore[valid-type]
            if "next" not in links:
                return
        raise HostError(f"GET {path}: more than {PAGES_MAX} pages")

    def send(self, method: str, path: str, said: Mapping[str, str]) -> None:
        """A write. One that makes something new is tried again only where the host says that it was not done."""
        self._answer(method, path, content=msgspec.json.encode(said))

    def file(self, path: str, bytes_max: int) -> bytes | None:
        """The first bytes of a file, at most one more than `bytes_max`; None where there is no such file.

        It is followed to where the host keeps files. The token does not go there.
        """
        try:
            return self._answer("GET", path, bytes_max=bytes_max, cut=True)[0]
        except HostRefusedError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def _answer(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        content: bytes = b"",
        bytes_max: int = ANSWER_BYTES_MAX,
        *,
        cut: bool = False,
    ) -> tuple[bytes, Mapping[str | None, Any]]:
        """The body, and the links of its header. Tries again where that does no harm."""
        pauses = iter(_PAUSES_S)
        while True:
            headers = {"Content-Type": "application/json"} if content else {}
            request = self._http.build_request(
                method, f"{self._url}{path}", params=params, content=content or None, headers=headers
            )
            try:
                return self._once(request, path, bytes_max, cut=cut)
            except _AgainError as again:
                pause_s = max(next(pauses, _PAUSE_MAX_S + 1), again.rest_s)
                if pause_s > _PAUSE_MAX_S:
                    raise again.error from again
            time.sleep(pause_s)

    def _once(
        self, request: httpx2.Request, path: str, bytes_max: int, *, cut: bool
    ) -> tuple[bytes, Mapping[str | None, Any]]:
        """One try. Raises HostError, or _AgainError where another try may be made."""
        repeatable = request.method in _REPEATABLE
        asked = f"{request.method} {path}"
        began = self._clock.monotonic_s()
        for _ in range(_REDIRECTS_MAX + 1):
            try:
                response = self._http.send(request, stream=True)
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                lost = HostUnreachableError(f"{asked}: no answer from {self._url.host} ({error})")
                raise (_AgainError(lost) if repeatable else lost) from error
            with closing(response):
                following = response.next_request if cut and response.is_redirect else None
                if following is None:
                    self._raise_for(response, asked, repeatable=repeatable)
                    return self._body(response, asked, began, bytes_max, cut=cut), response.links
            if request.url.scheme == "https" and following.url.scheme != "https":
                raise HostError(f"{asked}: it leads away from https")
            request = following
        raise HostError(f"{asked}: more than {_REDIRECTS_MAX} redirects")

    def _raise_for(self, response: httpx2.Response, asked: str, *, repeatable: bool) -> None:
        if response.is_success:
            return
        status = response.status_code
        refused = HostRefusedError(f"{asked}: {self._url.host} answered {status}", status)
        # 429 says that nothing was done; after an error of the host it isn't known whether a new thing was made.
        if status == HTTPStatus.TOO_MANY_REQUESTS or (repeatable and status in _BUSY):
            rest = retry_after(response.headers.get("retry-after", ""), self._clock.now())
            raise _AgainError(refused, rest / 1_000)
        raise refused

    def _body(self, response: httpx2.Response, asked: str, began: float, bytes_max: int, *, cut: bool) -> bytes:
        body = bytearray()
        try:
            for piece in response.iter_bytes(65_536):
                body += piece
                if len(body) > bytes_max:
                    if cut:
                        return bytes(body[: bytes_max + 1])
                    raise HostError(f"{asked}: the answer has more than {bytes_max} bytes")
                if self._clock.monotonic_s() - began > _ANSWER_S:
                    raise HostUnreachableError(f"{asked}: the answer took longer than {_ANSWER_S:.0f} s")
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise HostUnreachableError(f"{asked}: the answer broke off ({error})") from error
        return bytes(body)


class _AgainError(Exception):
    """It may be tried again, after a rest; `error` is what to raise where it isn't."""

    def __init__(self, error: HostError, rest_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.rest_s = rest_s


def _decoded(raw: bytes, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HostError(f"GET {path}: not what this API is documented to answer ({error})") from error
