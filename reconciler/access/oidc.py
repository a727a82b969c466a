"""Tokens of identity providers (OpenID Connect): their users, if their signature, issuer, audience and time are right."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Final

import jwt

from reconciler.access.caller import Caller
from reconciler.access.keys import IssuerKeys, UnknownKeyError
from reconciler.access.policy import IdentitySettings, OidcIssuer
from reconciler.access.tokens import is_principal
from reconciler.model.clock import Clock
from solver.model.quantities import Instant

LEEWAY_S: Final = 60
"""By so much the clocks of issuer and server may differ."""

_BYTES_MAX: Final = 16_384
_ALGORITHMS: Final = ("RS256", "ES256")
"""Never none, nor HS256: its key would be public."""


class BadTokenError(Exception):
    """The token proves nothing; the message says why, and nothing that is secret."""


@dataclass
class OidcVerifier:
    """Verifies tokens under the identity rules handed in; keeps the keys of issuers between calls."""

    clock: Clock
    _keys: dict[OidcIssuer, IssuerKeys] = field(default_factory=dict, init=False)

    def caller(self, token: str, identity: IdentitySettings) -> Caller:
        """The caller that the token belongs to. Raises BadTokenError, IssuerUnreachableError."""
        return self.proven(token, identity)[0]

    def proven(self, token: str, identity: IdentitySettings) -> tuple[Caller, OidcIssuer]:
        """The caller of a bearer token, and the issuer that counts for it. Raises as `caller`."""
        stated, kid = _unverified(token)
        issuers = [known for known in identity.oidc if known.issuer == stated.get("iss")]
        for issuer in issuers:
            if issuer.audience in _audiences(stated):
                return _caller(self._claims(token, kid, issuer, issuer.audience), issuer), issuer
        raise BadTokenError("the token is of another issuer or for another audience")

    def signed_in(self, id_token: str, client: OidcIssuer, nonce: str) -> Caller:
        """The user that an ID token is about which was asked for with a nonce (OpenID Connect Core 1.0, section 3.1.3.7).

        Raises BadTokenError, IssuerUnreachableError.
        """
        _, kid = _unverified(id_token)
        claims = self._claims(id_token, kid, client, client.client_id, "sub", "iat", "nonce")
        audiences = _audiences(claims)
        if not {client.client_id, client.audience}.issuperset(map(str, audiences)):
            raise BadTokenError("the token is also for others")
        # Who it was issued to has to be stated where it is for several, and has to be us wherever it is.
        if claims.get("azp", client.client_id if len(audiences) == 1 else None) != client.client_id:
            raise BadTokenError("the token was issued to another client")
        if not secrets.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
            raise BadTokenError("the token was asked for by another browser")
        return _caller(claims, client)

    def _claims(self, token: str, kid: str, issuer: OidcIssuer, audience: str, *required: str) -> dict[str, Any]:
        # Any thread may find that a key ring is missing; all of them then use the one that stays.
        keys = self._keys.setdefault(issuer, IssuerKeys(issuer, self.clock))
        try:
            key = keys.key(kid)
        except UnknownKeyError as error:
            raise BadTokenError("the token is signed with a key that its issuer does not have") from error
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=issuer.issuer,
                audience=audience,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", *required]},
            )
        except jwt.PyJWTError as error:
            raise BadTokenError(f"the token is not valid: {error}") from error


def _unverified(token: str) -> tuple[dict[str, Any], str]:
    """What the token says of itself, to find out which key would prove it; nothing of it is believed yet."""
    if len(token) > _BYTES_MAX:
        raise BadTokenError("the token is too long")
    try:
        header = jwt.get_unverified_header(token)
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError) as error:
        raise BadTokenError("the token can't be read") from error
    kid = header.get("kid")
    if header.get("alg") not in _ALGORITHMS or not isinstance(kid, str):
        raise BadTokenError("the token is not signed with RS256 or ES256 and a key that it names")
    return claims, kid


def _audiences(claims: dict[str, Any]) -> list[object]:
    stated = claims.get("aud")
    return stated if isinstance(stated, list) else [stated]


def _caller(claims: dict[str, Any], issuer: OidcIssuer) -> Caller:
    user = claims.get(issuer.user_claim)
    if not is_principal(user):
        raise BadTokenError(f"the token's claim {issuer.user_claim} is no user name")
    if issuer.user_claim == "email" and claims.get("email_verified") is False:
        raise BadTokenError("the token says that its e-mail address is not verified")
    groups = claims.get(issuer.groups_claim, []) if issuer.groups_claim else []
    if not isinstance(groups, list):
        raise BadTokenError(f"the token's claim {issuer.groups_claim} is no list of groups")
    named = frozenset(group for group in groups if is_principal(group))
    return Caller(str(user), named, until=Instant((int(claims["exp"]) + LEEWAY_S) * 1000))
