"""Which requests are let in: a bearer token, and for browsers a Host and an Origin that are this server's own."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from reconciler.access.caller import Caller
from reconciler.access.oidc import BadTokenError
from reconciler.access.secret_file import OwnTokens, is_among
from reconciler.access.session_keeper import SessionOverError
from reconciler.access.tokens import hash_of
from reconciler.api.problems import RequestRefusedError
from reconciler.api.rules import ANSWERED_BY_ADDRESS, route_of, rule_of

SESSION_COOKIE: Final = "__Host-quorate"
"""Browsers take a cookie of such a name only for this host and all its paths, and over HTTPS or from this machine
(RFC 6265bis, section 4.1.3.2)."""

_SAFE: Final = frozenset({"GET", "HEAD"})

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class InsecureBindingError(Exception):
    """The server was asked to listen to the network without authentication."""


# FastAPI hashes what it depends on; a guard is itself, whatever it holds.
@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A FastAPI dependency, of WebSockets too.

    `token` None: every client that reaches the server may ask (loopback only, and asked for by name).
    It may be what says which tokens count now.
    `user` holds it: the owner of the file it lies in, who may do everything. `hosts` are the names this server
    answers to. `origin` is how browsers find it from outside, `https://HOST`; "": nothing but `hosts` is known.
    `identify` says which user has any other token, or raises BadTokenError; None: there are no others.
    `session` says for which user a browser speaks that sends a secret in the cookie SESSION_COOKIE, or raises SessionOverError;
    None: there is no console.
    """

    token: OwnTokens | None
    user: str
    hosts: frozenset[str] = LOOPBACK_NAMES
    identify: Callable[[str], Caller] | None = None
    session: Callable[[str], Caller] | None = None
    origin: str = ""

    async def __call__(self, request: HTTPConnection) -> None:
        """Let the request pass, with the caller in its state.

        Raises RequestRefusedError, IssuerUnreachableError, TokenFileError.
        """
        if {"content-length", "transfer-encoding"} <= set(request.headers.keys()):
            told = "A body has either a Content-Length or a Transfer-Encoding."
            raise RequestRefusedError(400, "ambiguous-length", told, "Send one of them (RFC 9112, section 6.1).")
        # A probe is answered while every thread waits for a store or an identity provider.
        if rule_of(request) == "open":
            return
        self._check_names(request)
        if rule_of(request) == "stranger":
            return
        caller = self._known(request)
        if caller is None:
            # Files are read for it, and an identity provider may be asked.
            caller = await run_in_threadpool(self._identified, request)
        request.state.caller, request.state.user = caller, caller.user

    def _known(self, request: HTTPConnection) -> Caller | None:
        """Of a request that needs no identity, or has this server's own token; None: of another."""
        if rule_of(request) == "signed":
            return Caller("webhook")
        owner = Caller(self.user, owner=True)
        if self.token is None:
            return owner
        given = bearer_of(request)
        return owner if given and is_among(given, self.token) else None

    def _check_names(self, request: HTTPConnection) -> None:
        """A page of another site can make a browser call us (DNS rebinding); it can't forge these two headers."""
        host = request.headers.get("host", "")
        name = _split(f"//{host}").hostname or ""
        if name not in self.hosts and not (route_of(request) in ANSWERED_BY_ADDRESS and _is_address(name)):
            fix = f"Use one of {', '.join(sorted(self.hosts))}, or add the name with --allow-host."
            raise RequestRefusedError(403, "host-not-allowed", "This server does not answer to that host name.", fix)
        origin = request.headers.get("origin")
        # A proxy may give us another Host than the browser knows.
        if origin is not None and origin != self.origin and _split(origin).netloc != host:
            raise RequestRefusedError(403, "origin-not-allowed", "Pages of other sites may not call this server.")

    def _identified(self, request: HTTPConnection) -> Caller:
        given, why = bearer_of(request), "A valid bearer token is missing."
        secret = request.cookies.get(SESSION_COOKIE, "")
        if secret and "authorization" not in request.headers and self.session is not None:
            return self._by_cookie(request, secret, self.session)
        if given and self.identify is not None:
            try:
                return self.identify(given)
            except BadTokenError as error:
                why = f"Not authenticated: {error}."
        fix = (
            "Set QUORATE_TOKEN, or run as the user that owns the server's token file, "
            "and set QUORATE_STATE where that lies in another folder than the usual one."
        )
        raise RequestRefusedError(401, "not-authenticated", why, fix)

    @staticmethod
    def _by_cookie(request: HTTPConnection, secret: str, session: Callable[[str], Caller]) -> Caller:
        """A browser sends its cookie whoever made it ask: what changes anything has to come from a page of ours, and says so."""
        if request.scope.get("method") not in _SAFE and "origin" not in request.headers:
            raise RequestRefusedError(
                403, "origin-missing", "A request with a session's cookie has to name its Origin."
            )
        try:
            caller = session(secret)
        except SessionOverError as error:
            raise RequestRefusedError(401, "session-over", f"{_sentence(error)}.", "Sign in again.") from error
        # An answer that goes on and on asks again whether it still counts.
        request.state.session = hash_of(secret)
        return caller


def _sentence(error: Exception) -> str:
    told = str(error)
    return told[:1].upper() + told[1:]


def bearer_of(request: HTTPConnection) -> str:
    """The token of a request; "" where it has none."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given if scheme.lower() == "bearer" else ""


def check_binding(host: str, guard: Guard) -> None:
    """Raises InsecureBindingError for an address beyond loopback without authentication."""
    if guard.token is None and not is_loopback(host):
        raise InsecureBindingError(
            f"refusing to listen on {host} without authentication: any host on the network could run commands here. "
            "Leave out --insecure-no-auth, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether an address or name reaches this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _split(url: str) -> SplitResult:
    """Of what is no URL: nothing."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
