"""One POST to a receiver that may be slow, wrong or hostile: bounded in time, following nothing, reading no body."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Final

import httpx2

from reconciler.model.webhook_delivery import DeliveryResult
from solver.model.quantities import Duration, Instant

TIMEOUT_S: Final = 10.0
"""For all of it, from the look-up of the name to the status line."""

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_GONE: Final = 410
_SECONDS_DIGITS_MAX: Final = 9
_FAILURES: Final[dict[type[BaseException], str]] = {
    ssl.SSLCertVerificationError: "its certificate is not trusted here",
    ssl.SSLError: "no TLS is spoken there",
    socket.gaierror: "its host is not known",
    ConnectionRefusedError: "nothing listens there",
}


async def post(url: str, headers: Mapping[str, str], body: bytes, now: Instant) -> DeliveryResult:
    """What came of it. No problem is ever said in the receiver's words: they would reach our log."""
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            _http(httpx2.URL(url)) as http,
            http.stream("POST", url, headers=headers, content=body) as response,
        ):
            return _judged(response, now)
    except (TimeoutError, httpx2.TimeoutException):
        return DeliveryResult(f"no answer within {TIMEOUT_S:.0f} s")
    except httpx2.InvalidURL:
        return DeliveryResult("its URL can't be used")
    except httpx2.HTTPError as error:
        return DeliveryResult(f"the connection failed ({_why(error)})")


def _why(error: BaseException) -> str:
    """The kind of what was behind it, in words of ours."""
    behind: BaseException | None = error
    while behind is not None:
        for kind, words in _FAILURES.items():
            if isinstance(behind, kind):
                return words
        behind = behind.__cause__ or behind.__context__
    return type(error).__name__


def _http(url: httpx2.URL) -> httpx2.AsyncClient:
    # A proxy of the environment can't reach our own machine.
    return httpx2.AsyncClient(
        verify=_trusted(), timeout=TIMEOUT_S, follow_redirects=False, trust_env=url.host not in _LOOPBACK
    )


@cache
def _trusted() -> ssl.SSLContext:
    """The system's certificate authorities, read once."""
    return ssl.create_default_context()


def _judged(response: httpx2.Response, now: Instant) -> DeliveryResult:
    status = response.status_code
    if response.is_success:
        return DeliveryResult()
    problem = f"it answered {status}"
    if response.is_redirect:
        problem += ", and redirects are not followed"
    return DeliveryResult(problem, retry_after(response.headers.get("retry-after", ""), now), gone=status == _GONE)


def retry_after(written: str, now: Instant) -> Duration:
    """The rest that a Retry-After header asks for, in seconds or until a date (RFC 9110, 10.2.3); 0 where it says nothing."""
    if written.isascii() and written.isdecimal():
        return Duration(int(written[:_SECONDS_DIGITS_MAX]) * 1_000)
    try:
        until = parsedate_to_datetime(written)
        at = until if until.tzinfo else until.replace(tzinfo=UTC)
        return Duration(max(0, round(at.timestamp() * 1_000) - now))
    except (ValueError, OverflowError):
        return Duration(0)
