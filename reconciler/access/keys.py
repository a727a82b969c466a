"""The public keys of an identity provider: fetched when they are first needed, kept, and fetched again when a key is unknown."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

import httpx2
import jwt

from reconciler.access.policy import OidcIssuer
from reconciler.model.clock import Clock
from reconciler.model.urls import is_safe_url

KEPT_S: Final = 3600.0
"""A key that the issuer has withdrawn is believed this much longer at most."""

AGAIN_AFTER_S: Final = 60.0
"""Tokens with made-up key ids make us ask the issuer no more often than this."""

_TIMEOUT_S: Final = 5.0
_BYTES_MAX: Final = 1_000_000
_SIGNING: Final = {"RSA": "RS256", "EC": "ES256"}
"""The one algorithm that each kind of key is used with: a token does not choose."""


class IssuerUnreachableError(Exception):
    """The issuer's keys can't be had now: it can't be said whether a token is good."""


class UnknownKeyError(Exception):
    """The issuer has no key of that id."""


@dataclass
class IssuerKeys:
    """Keys of one issuer. Threads may share it; they wait while one of them asks."""

    issuer: OidcIssuer
    clock: Clock
    _keys: dict[str, jwt.PyJWK] = field(default_factory=dict, init=False)
    _asked_s: float = field(default=-math.inf, init=False)
    _fetched_s: float = field(default=-math.inf, init=False)
    _failure: str = field(default="", init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def key(self, kid: str) -> jwt.PyJWK:
        """The key of that id. Raises UnknownKeyError, IssuerUnreachableError."""
        with self._lock:
            now_s = self.clock.monotonic_s()
            if now_s - self._fetched_s > KEPT_S:
                self._keys = {}
            if now_s - self._asked_s > AGAIN_AFTER_S and (kid not in self._keys or self._failure):
                self._ask(now_s)
            if kid in self._keys:
                return self._keys[kid]
            if self._failure:
                raise IssuerUnreachableError(self._failure)
            raise UnknownKeyError(kid)

    def _ask(self, now_s: float) -> None:
        """Keys that were fetched within the hour stay good while the issuer does not answer."""
        self._asked_s = now_s
        try:
            self._keys, self._failure = _fetched(self.issuer), ""
            self._fetched_s = now_s
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, jwt.PyJWTError) as error:
            self._failure = f"The identity provider {self.issuer.issuer} can't be asked for its keys ({error})."


def _fetched(issuer: OidcIssuer) -> dict[str, jwt.PyJWK]:
    """Raises httpx2.HTTPError and ValueError."""
    with httpx2.Client(timeout=_TIMEOUT_S, follow_redirects=False) as http:
        url = issuer.jwks_url
        if not url:
            found = _document(http, f"{issuer.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != issuer.issuer:
                raise ValueError(f"its discovery document is of another issuer, {str(found.get('issuer'))[:200]!r}")
            url = str(found.get("jwks_uri", ""))
        if not is_safe_url(url):
            raise ValueError(f"its keys are at {url[:200]!r}, which is no https URL")
        keys = _document(http, url).get("keys")
    if not isinstance(keys, list):
        raise ValueError("it answers without keys")  # noqa: TRY004  (of the issuer, not of ours)
    return {key["kid"]: jwt.PyJWK(key, _SIGNING[key["kty"]]) for key in keys if _is_usable(key)}


def _document(http: httpx2.Client, url: str) -> dict[str, Any]:
    with http.stream("GET", url) as response:
        response.raise_for_status()
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > _BYTES_MAX:
                raise ValueError(f"its answer has more than {_BYTES_MAX} bytes")
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError("its answer is no JSON object")  # noqa: TRY004  (of the issuer, not of ours)
    return document


def _is_usable(key: object) -> bool:
    """A key for signatures of a kind that is taken: RS256, or ES256 with its curve. Others may lie beside it."""
    return (
        isinstance(key, dict)
        and isinstance(key.get("kid"), str)
        and key.get("use", "sig") == "sig"
        and key.get("kty") in _SIGNING
        and key.get("alg", _SIGNING[key["kty"]]) == _SIGNING[key["kty"]]
        and (key["kty"] == "RSA" or key.get("crv") == "P-256")
    )
