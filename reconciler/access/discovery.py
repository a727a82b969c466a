"""What an identity provider says of itself, and how it is asked over HTTP: within limits of time and size."""

from __future__ import annotations

import json
import math
import ssl
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any, Final, NamedTuple

import httpx2

from reconciler.access.policy import OidcIssuer
from reconciler.model.clock import Clock
from reconciler.model.urls import is_safe_url

KEPT_S: Final = 3600.0
"""What an issuer has changed since is believed this much longer at most."""

AGAIN_AFTER_S: Final = 60.0
"""An issuer is asked no more often than this, whatever tokens and browsers make us want to know."""

ANSWER_S: Final = 10.0
"""For all of an answer."""

_STEP_S: Final = 5.0
"""For a connection, and for each piece of an answer."""

_BYTES_MAX: Final = 1_000_000

UNANSWERED: Final = (httpx2.HTTPError, httpx2.InvalidURL, ValueError)
"""What asking an issuer fails with."""


class IssuerUnreachableError(Exception):
    """The issuer can't be asked now: it can't be said whether a token is good."""


class ProviderMetadata(NamedTuple):
    """What of a discovery document is used (OpenID Connect Discovery 1.0, section 3). An address that it does not state is "".

    `names_itself`: its answers to browsers have `iss` (RFC 9207, section 3). `takes_basic`: secrets of clients come in a header.
    """

    jwks_url: str
    authorization_endpoint: str
    token_endpoint: str
    names_itself: bool
    takes_basic: bool


class Answer(NamedTuple):
    """Of an issuer: a status of HTTP, and a JSON object; {} for what is none."""

    status: int
    document: dict[str, Any]


def asking() -> httpx2.Client:
    """A client that goes nowhere but where it is told."""
    return httpx2.Client(verify=_trusted(), timeout=_STEP_S, follow_redirects=False)


@cache
def _trusted() -> ssl.SSLContext:
    """The certificate authorities of this machine, read once: that takes longer than an answer."""
    return httpx2.create_ssl_context()


def ask(http: httpx2.Client, clock: Clock, url: str, form: dict[str, str] | None = None, **more: Any) -> Answer:
    """GET, or POST of a form. Raises httpx2.HTTPError, httpx2.InvalidURL, ValueError."""
    until_s = clock.monotonic_s() + ANSWER_S
    headers = {"Accept": "application/json"}
    with http.stream("GET" if form is None else "POST", url, data=form, headers=headers, **more) as response:
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > _BYTES_MAX:
                raise ValueError(f"its answer has more than {_BYTES_MAX} bytes")
            if clock.monotonic_s() > until_s:
                raise ValueError(f"its answer takes more than {ANSWER_S:.0f} s")
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    return Answer(response.status_code, document if isinstance(document, dict) else {})


def document_at(http: httpx2.Client, clock: Clock, url: str) -> dict[str, Any]:
    """The JSON object that is there. Raises httpx2.HTTPError, httpx2.InvalidURL, ValueError."""
    status, document = ask(http, clock, url)
    if status != httpx2.codes.OK:
        raise ValueError(f"it answers {status}")
    if not document:
        raise ValueError("its answer is no JSON object")
    return document


def metadata_of(http: httpx2.Client, clock: Clock, issuer: OidcIssuer) -> ProviderMetadata:
    """Its discovery document, if it is its own (section 4.3). Raises httpx2.HTTPError, httpx2.InvalidURL, ValueError."""
    found = document_at(http, clock, f"{issuer.issuer.rstrip('/')}/.well-known/openid-configuration")
    if found.get("issuer") != issuer.issuer:
        raise ValueError(f"its discovery document is of another issuer, {str(found.get('issuer'))[:200]!r}")
    ways = found.get("token_endpoint_auth_methods_supported")
    return ProviderMetadata(
        str(found.get("jwks_uri", "")),
        str(found.get("authorization_endpoint", "")),
        str(found.get("token_endpoint", "")),
        found.get("authorization_response_iss_parameter_supported") is True,
        # What it is where nothing is stated.
        not isinstance(ways, list) or "client_secret_basic" in ways,
    )


@dataclass
class KnownProvider:
    """The endpoints of one issuer, kept. Threads may share it; they wait while one of them asks."""

    issuer: OidcIssuer
    clock: Clock
    _found: ProviderMetadata | None = field(default=None, init=False)
    _fetched_s: float = field(default=-math.inf, init=False)
    _asked_s: float = field(default=-math.inf, init=False)
    _failure: str = field(default="", init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def metadata(self) -> ProviderMetadata:
        """With both endpoints of the code flow. Raises IssuerUnreachableError."""
        with self._lock:
            now_s = self.clock.monotonic_s()
            if now_s - self._fetched_s > KEPT_S and now_s - self._asked_s > AGAIN_AFTER_S:
                self._ask(now_s)
            if self._found is None:
                raise IssuerUnreachableError(self._failure)
            return self._found

    def _ask(self, now_s: float) -> None:
        self._found, self._asked_s = None, now_s
        try:
            with asking() as http:
                found = metadata_of(http, self.clock, self.issuer)
            for url in (found.authorization_endpoint, found.token_endpoint):
                if not is_safe_url(url):
                    raise ValueError(f"an endpoint of it is at {url[:200]!r}, which is no https URL")
        except UNANSWERED as error:
            self._failure = f"The identity provider {self.issuer.issuer} can't be asked ({error})."
        else:
            self._found, self._fetched_s = found, now_s
