"""The caller of a bearer token: of the token file, or of an identity provider that the AccessPolicy names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.access.caller import Caller
from reconciler.access.oidc import BadTokenError, OidcVerifier
from reconciler.access.policy import AccessPolicy, IdentitySettings, OidcIssuer
from reconciler.access.tokens import UserTokenFile


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Asks each in turn. `access` is the policy in force; None where there is none. `tokens` None: no token file."""

    access: Callable[[], AccessPolicy | None]
    verifier: OidcVerifier
    tokens: UserTokenFile | None = None

    @property
    def by_file(self) -> bool:
        """Whether tokens of the token file count under the policy in force."""
        return self.tokens is not None and self.identity.tokens == "file"

    @property
    def identity(self) -> IdentitySettings:
        """How callers prove their identity under the policy in force."""
        return (self.access() or AccessPolicy()).identity

    def __call__(self, token: str) -> Caller:
        """The caller that the token belongs to. Raises BadTokenError, IssuerUnreachableError, TokenFileError."""
        return self.proven(token)[0]

    def proven(self, token: str) -> tuple[Caller, OidcIssuer | None]:
        """The same, and the issuer of the token; None: it is of the token file. Raises likewise."""
        identity = self.identity
        if self.tokens is not None and self.by_file:
            known = self.tokens.caller(token)
            if known is not None:
                return known, None
        # Two dots make a JWT; what has none is a token of ours that no user has.
        if not identity.oidc or token.count(".") != 2:
            raise BadTokenError("no user has this token")
        return self.verifier.proven(token, identity)
