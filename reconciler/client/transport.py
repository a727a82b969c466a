"""HTTP to one server: errors sorted by what must be done, and what may be repeated repeated a few times."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

import httpx2
import msgspec

from reconciler.api.payloads import ApiProblem
from solver.model.document import decode

DEFAULT_PORT: Final = 7717
DEFAULT_SERVER: Final = f"http://127.0.0.1:{DEFAULT_PORT}"
SERVER_VARIABLE: Final = "QUORATE_SERVER"
"""Of the environment, which names the server."""

_TIMEOUT_S = 30.0
_NO_TLS: Final = "WRONG_VERSION_NUMBER"
"""What OpenSSL says where another protocol answers."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")

_PAUSES_S: Final = (0.1, 0.4)
"""Between tries of a call that may be repeated."""

_BROKEN: Final = (httpx2.ConnectError, httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""The connection failed. Not a server that takes long: asking it again would make it take longer."""

Params = Mapping[str, str | int | list[str]]


class ServerUnreachableError(Exception):
    """No server answers there."""


class ApiError(Exception):
    """The server refused; `problem` says why and what to do, with reasons and problems one by one."""

    def __init__(self, status: int, problem: ApiProblem) -> None:
        super().__init__(f"{problem.detail} {problem.fix}".strip())
        self.status = status
        self.problem = problem


class NotAuthorisedError(ApiError):
    """The token is missing or wrong, or does not allow this."""


class SilentError(Exception):
    """Nothing came on a stream for as long as was to be waited."""


class Transport:
    """Calls one server. Raises ServerUnreachableError, NotAuthorisedError or ApiError.

    `variable`: of the environment, which names the server; "": none does.
    """

    def __init__(self, server: str, token: str | None, variable: str = "") -> None:
        self.server = server.rstrip("/")
        self.token = token
        self._variable = variable
        url = _parsed(self.server, variable)
        self._http = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_TIMEOUT_S,
            # A proxy of the environment can't reach our own machine.
            trust_env=url.host not in LOOPBACK,
            # Reading every certificate of the machine takes longer than a call; without TLS they are not looked at.
            verify=url.scheme == "https",
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        content: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        repeatable: bool = True,
        silence_s: float = _TIMEOUT_S,
    ) -> bytes:
        """The body of the answer. A repeatable call is made again, three times in all, while the connection fails.

        `silence_s`: so long the answer may take to begin.
        """
        answered = self.answer(method, path, params, content, headers, repeatable=repeatable, silence_s=silence_s)
        return answered.content

    def answer(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        content: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        repeatable: bool = True,
        silence_s: float = _TIMEOUT_S,
    ) -> httpx2.Response:
        """The same, with its headers."""
        pauses = iter(_PAUSES_S if repeatable else ())
        patience = httpx2.Timeout(_TIMEOUT_S, read=silence_s)
        while True:
            try:
                response = self._http.request(
                    method, path, params=params, content=content, headers=headers, timeout=patience
                )
            except httpx2.TransportError as error:
                pause_s = next(pauses, None) if isinstance(error, _BROKEN) else None
                if pause_s is None:
                    raise self.unreachable(error) from error
                time.sleep(pause_s)
                continue
            if response.is_success:
                return response
            raise error_of(response.status_code, response.content, str(response.url))

    def says_yes(self, path: str) -> bool:
        """What a probe answers."""
        try:
            self.call("GET", path)
        except ApiError as error:
            if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
                return False
            raise
        return True

    @contextmanager
    def lines(self, path: str, params: Params, headers: dict[str, str], silence_s: float) -> Iterator[Iterator[str]]:
        """The lines of an answer as they come. Raises SilentError where none comes for so long."""
        try:
            with self._http.stream(
                "GET", path, params=params, headers=headers, timeout=httpx2.Timeout(_TIMEOUT_S, read=silence_s)
            ) as response:
                if not response.is_success:
                    response.read()
                    raise error_of(response.status_code, response.content, str(response.url))
                yield response.iter_lines()
        except httpx2.ReadTimeout as error:
            raise SilentError from error
        except httpx2.TransportError as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: Exception) -> ServerUnreachableError:
        """What to raise where no server answers."""
        if _NO_TLS in str(error):
            return ServerUnreachableError(
                f"{self.server}: it speaks no TLS. Write http{self.server.removeprefix('https')}"
            )
        whence = f"{self._variable} names it: change that, s" if self._variable else "S"
        fix = f"{whence}tart it with `quorate run`, or name another with --server"
        return ServerUnreachableError(f"{self.server}: no answer ({error}). {fix}")


def _parsed(server: str, variable: str) -> httpx2.URL:
    named = f"{variable}={server}" if variable else server
    try:
        url = httpx2.URL(server)
    except httpx2.InvalidURL as error:
        raise ServerUnreachableError(f"{named}: not a URL ({error}). Write it like {DEFAULT_SERVER}") from error
    if url.scheme not in ("http", "https") or not url.host:
        like = DEFAULT_SERVER if "://" in server or not server[:1].isalnum() else f"http://{server}"
        raise ServerUnreachableError(f"{named}: not an http or https URL. Write it like {like}")
    return url


def error_of(status: int, content: bytes, url: str) -> ApiError:
    """What a server refused with."""
    try:
        problem = decode(content, ApiProblem)
    except msgspec.MsgspecError:
        problem = ApiProblem(
            code="not-quorate",
            detail=f"{url} answered {status} in words that are not Quorate's.",
            fix="Check the server's URL.",
        )
    kind = NotAuthorisedError if status in (401, 403) else ApiError
    return kind(status, problem)
