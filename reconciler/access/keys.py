"""The public keys of an identity provider: fetched when they are first needed, kept, and fetched again when a key is unknown."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

import jwt

from reconciler.access.discovery import (
    AGAIN_AFTER_S,
    KEPT_S,
    UNANSWERED,
    IssuerUnreachableError,
    asking,
    document_at,
    metadata_of,
)
from reconciler.access.policy import OidcIssuer
from reconciler.model.clock import Clock
from reconciler.model.urls import is_safe_url

_SIGNING: Final = {"RSA": "RS256", "EC": "ES256"}
"""The one algorithm that each kind of key is used with: a token does not choose."""


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
            self._keys, self._failure = _fetched(self.issuer, self.clock), ""
            self._fetched_s = now_s
        except (*UNANSWERED, jwt.PyJWTError) as error:
            self._failure = f"The identity provider {self.issuer.issuer} can't be asked for its keys ({error})."


def _fetched(issuer: OidcIssuer, clock: Clock) -> dict[str, jwt.PyJWK]:
    """Raises httpx2.HTTPError, httpx2.InvalidURL, ValueError, jwt.PyJWTError."""
    with asking() as http:
        url = issuer.jwks_url or metadata_of(http, clock, issuer).jwks_url
        if not is_safe_url(url):
            raise ValueError(f"its keys are at {url[:200]!r}, which is no https URL")
        keys = document_at(http, clock, url).get("keys")
    if not isinstance(keys, list):
        raise ValueError("it answers without keys")  # noqa: TRY004  (of the issuer, not of ours)
    return {key["kid"]: jwt.PyJWK(key, _SIGNING[key["kty"]]) for key in keys if _is_usable(key)}


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
