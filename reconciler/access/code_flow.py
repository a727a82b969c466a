"""Signing in at an identity provider: the authorization code flow of OpenID Connect with PKCE.

A browser is sent to the provider with a `state`, a `nonce` and a code challenge. All three are hashes of one cookie, which has a
secret of 32 random bytes and what else the way back needs. So this server keeps nothing of a sign-in under way, any server of a
store may finish it, and none of it can be changed or taken to another browser (RFC 9700, section 2.1.1 and 4.7; OpenID Connect
Core 1.0, section 15.5.2). Each provider leads back to an address of its own, and may name itself (RFC 9700, section 4.4.2).
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, quote_plus, urlencode

import httpx2
import msgspec

from reconciler.access.authenticator import Authenticator
from reconciler.access.caller import Caller
from reconciler.access.client_secrets import ClientSecrets
from reconciler.access.discovery import UNANSWERED, IssuerUnreachableError, KnownProvider, ask, asking
from reconciler.access.oidc import BadTokenError
from reconciler.access.policy import OidcIssuer
from reconciler.model.clock import Clock
from solver.model.document import Document, decode, encode
from solver.model.quantities import Duration, Instant

FLOW_MAX: Final = Duration(10 * 60_000)
"""From the link until the user is back."""

_SECRET_BYTES: Final = 32
_COOKIE_MAX: Final = 4_000
"""Browsers keep no more of one (RFC 6265, section 6.1)."""
_WANTED_MAX: Final = 1_000
_ERROR: Final = re.compile("[A-Za-z0-9_.-]{1,60}")

Refusal = Literal[
    "unknown-issuer",
    "sign-in-unknown",
    "sign-in-over",
    "sign-in-mixed-up",
    "not-let-in",
    "answer-incomplete",
    "code-refused",
    "client-refused",
    "token-refused",
]
"""Why a user is not signed in. client-refused: the server's operator has to do something about it."""


class SignInRefusedError(Exception):
    """The user is not signed in. The message says why, in a sentence, and nothing that is secret."""

    def __init__(self, code: Refusal, message: str) -> None:
        super().__init__(message)
        self.code = code


class PendingSignIn(Document, frozen=True):
    """A sign-in under way, as it lies in the cookie. `wanted`: the page to which the user goes then."""

    issuer: str
    client_id: str
    redirect_uri: str
    wanted: str
    until: Instant
    secret: str


class SignedIn(NamedTuple):
    """A user, the issuer that says so, and the page that was wanted."""

    caller: Caller
    issuer: OidcIssuer
    wanted: str


@dataclass
class CodeFlow:
    """Any thread may ask. It keeps what providers say of themselves."""

    identify: Authenticator
    clock: Clock
    secrets: ClientSecrets = field(default_factory=ClientSecrets)
    _known: dict[OidcIssuer, KnownProvider] = field(default_factory=dict, init=False)

    def issuers(self) -> tuple[OidcIssuer, ...]:
        """Where users can sign in, under the policy in force."""
        return self.identify.identity.clients

    def begin(self, place: str, redirect_uri: str, wanted: str) -> tuple[str, str]:
        """The cookie of a new sign-in, and where the browser goes (OpenID Connect Core 1.0, section 3.1.2.1; RFC 7636, 4.3).

        Raises SignInRefusedError, IssuerUnreachableError.
        """
        client = self._client(place)
        endpoint = self._provider(client).metadata().authorization_endpoint
        cookie = _cookie_of(
            PendingSignIn(
                client.issuer,
                client.client_id,
                redirect_uri,
                wanted if len(wanted) <= _WANTED_MAX else "/",
                self.clock.now().after(FLOW_MAX),
                secrets.token_urlsafe(_SECRET_BYTES),
            )
        )
        asked = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(dict.fromkeys(("openid", *client.scopes))),
            "state": _derived(cookie, "state"),
            "nonce": _derived(cookie, "nonce"),
            "code_challenge": challenge_of(_derived(cookie, "verifier")),
            "code_challenge_method": "S256",
        }
        return cookie, f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked, quote_via=quote)}"

    def finish(self, place: str, cookie: str, answer: Mapping[str, str]) -> SignedIn:
        """The user that came back with this answer of the provider, and this cookie.

        Raises SignInRefusedError, IssuerUnreachableError, ClientSecretError.
        """
        flow = self._flow(cookie, answer.get("state", ""))
        client = self._client(place)
        if (flow.issuer, flow.client_id) != (client.issuer, client.client_id):
            raise SignInRefusedError("sign-in-mixed-up", "Another identity provider answers than was asked.")
        provider = self._provider(client)
        # RFC 9207, section 2.4: of answers with an error, too.
        stated = answer.get("iss")
        if stated != client.issuer and (stated is not None or provider.metadata().names_itself):
            raise SignInRefusedError("sign-in-mixed-up", "The answer is of another identity provider than was asked.")
        if "error" in answer:
            # RFC 6749, section 4.1.2.1. What it says beside the code could be anything, and is not shown.
            raise SignInRefusedError(
                "not-let-in", f"You, or the identity provider, refused the sign-in: {_told(answer['error'])}."
            )
        if not answer.get("code"):
            raise SignInRefusedError("answer-incomplete", "The identity provider's answer has no code.")
        id_token = self._exchanged(provider, flow, answer["code"], _derived(cookie, "verifier"))
        try:
            caller = self.identify.verifier.signed_in(id_token, client, _derived(cookie, "nonce"))
        except BadTokenError as error:
            raise SignInRefusedError(
                "token-refused", f"What the identity provider says can't be taken: {error}."
            ) from error
        return SignedIn(caller, client, flow.wanted)

    def _client(self, place: str) -> OidcIssuer:
        for issuer in self.issuers():
            if issuer.place == place.rstrip("/"):
                return issuer
        raise SignInRefusedError("unknown-issuer", "There is no such identity provider to sign in with any more.")

    def _provider(self, client: OidcIssuer) -> KnownProvider:
        return self._known.setdefault(client, KnownProvider(client, self.clock))

    def _flow(self, cookie: str, state: str) -> PendingSignIn:
        """What began in this browser, if it is that which the answer is to. Raises SignInRefusedError."""
        if not cookie:
            raise SignInRefusedError("sign-in-unknown", "No sign-in is under way in this browser.")
        if not secrets.compare_digest(_derived(cookie, "state").encode(), state.encode()):
            raise SignInRefusedError("sign-in-unknown", "This is not the sign-in that is under way in this browser.")
        flow = _flow_of(cookie)
        if flow is None:
            raise SignInRefusedError("sign-in-unknown", "No sign-in is under way in this browser.")
        if flow.until <= self.clock.now():
            raise SignInRefusedError("sign-in-over", f"A sign-in takes at most {FLOW_MAX}.")
        return flow

    def _exchanged(self, provider: KnownProvider, flow: PendingSignIn, code: str, verifier: str) -> str:
        """The ID token for a code (OpenID Connect Core 1.0, section 3.1.3; RFC 7636, 4.5).

        Raises SignInRefusedError, IssuerUnreachableError, ClientSecretError.
        """
        issuer, metadata = provider.issuer, provider.metadata()
        secret = self.secrets.of(issuer.issuer)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": flow.redirect_uri,
            "client_id": issuer.client_id,
            "code_verifier": verifier,
        }
        more: dict[str, httpx2.BasicAuth] = {}
        if secret and metadata.takes_basic:
            # RFC 6749, section 2.3.1: both are encoded as in a form.
            more["auth"] = httpx2.BasicAuth(quote_plus(issuer.client_id), quote_plus(secret))
        elif secret:
            form["client_secret"] = secret
        try:
            with asking() as http:
                status, document = ask(http, self.clock, metadata.token_endpoint, form, **more)
        except UNANSWERED as error:
            # Its text may quote what was sent.
            told = f"The identity provider {issuer.issuer} does not answer ({type(error).__name__})."
            raise IssuerUnreachableError(told) from None
        return _id_token(issuer, status, document)


def _id_token(issuer: OidcIssuer, status: int, document: dict[str, object]) -> str:
    """Of an answer to a code (RFC 6749, section 5)."""
    if status == httpx2.codes.OK:
        token = document.get("id_token")
        if isinstance(token, str):
            return token
        raise SignInRefusedError("answer-incomplete", "The identity provider's answer has no ID token.")
    if status >= httpx2.codes.INTERNAL_SERVER_ERROR:
        raise IssuerUnreachableError(f"The identity provider {issuer.issuer} answers {status}.")
    error = _told(document.get("error"))
    if error == "invalid_grant":
        raise SignInRefusedError("code-refused", "The identity provider does not take its own code (any more).")
    raise SignInRefusedError(
        "client-refused", f"The identity provider does not take this server for its client: {error}."
    )


def wanted_by(cookie: str) -> str:
    """The page that was wanted when this cookie's sign-in began, which may be over; "" for what is no such cookie."""
    flow = _flow_of(cookie)
    return flow.wanted if flow is not None else ""


def challenge_of(verifier: str) -> str:
    """S256 (RFC 7636, section 4.2)."""
    return _unpadded(hashlib.sha256(verifier.encode()).digest())


def _cookie_of(flow: PendingSignIn) -> str:
    return _unpadded(encode(flow))


def _flow_of(cookie: str) -> PendingSignIn | None:
    """What a cookie says. A browser may send anything."""
    if len(cookie) > _COOKIE_MAX:
        return None
    try:
        return decode(base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4)), PendingSignIn)
    except (ValueError, msgspec.MsgspecError):
        return None


def _derived(cookie: str, purpose: str) -> str:
    """43 characters that say nothing of the cookie, and that nobody makes without it."""
    return _unpadded(hashlib.sha256(f"{purpose} {cookie}".encode()).digest())


def _unpadded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _told(error: object) -> str:
    """An error's code (RFC 6749, section 5.2), as far as it is one."""
    if isinstance(error, str) and _ERROR.fullmatch(error):
        return error
    return "it does not say why"
