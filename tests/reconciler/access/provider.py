"""An identity provider for tests: people sign in there in a browser, over real HTTP, and it refuses what real ones refuse.

RFC 6749 (sections 3.1, 4.1, 5), RFC 7636 (S256 alone, and never without), RFC 9207, OpenID Connect Core 1.0 (section 3.1).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa

from reconciler.access.policy import OidcIssuer
from tests.reconciler.access.issuer import Issuer

CLIENT: Final = "quorate-console"
SECRET: Final = "a secret: +/%&="
"""With all that has to be written otherwise in a form."""


class Page(NamedTuple):
    """An answer of HTTP."""

    status: int
    body: str
    kind: str = "text/html; charset=utf-8"
    location: str = ""


@dataclass
class Registration:
    """A client as it was registered. `secret` "": a public one."""

    redirect_uris: set[str]
    secret: str = ""


@dataclass
class Grant:
    """What a code was given out for."""

    client: str
    redirect_uri: str
    challenge: str
    nonce: str
    scopes: tuple[str, ...]
    user: str
    used: bool = False


@dataclass
class ProviderState:
    """What a test sets and sees. `claims` change those of ID tokens (None: left out), and `altered` what it answers to a code."""

    clients: dict[str, Registration] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    altered: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    names_itself: bool = True
    alg: str = "RS256"
    token_status: int = 0
    token_padding: int = 0
    refused: list[str] = field(default_factory=list)
    exchanged: int = 0
    discovered: int = 0


class Provider(Issuer):
    """Runs at `url`; `at` has what a test sets and sees."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.at = ProviderState()
        self.add_ec("two")

    @property
    def place(self) -> str:
        """As the console's addresses name it."""
        return self.url.removeprefix("http://")

    def entry(self, **changes: Any) -> OidcIssuer:
        """Of an AccessPolicy that has the console's client at it."""
        scopes = ("profile", "groups")
        usual = OidcIssuer(self.url, "quorate", groups_claim="groups", client_id=CLIENT, scopes=scopes)
        return msgspec.structs.replace(usual, **changes)

    def add_rsa(self, kid: str) -> None:
        """The same one each time: making it takes longer than all that is tested with it."""
        self.keys[kid] = _rsa_key(kid)

    def register(self, redirect_uri: str, client: str = CLIENT, secret: str = "") -> None:
        """As its operator does by hand."""
        self.at.clients.setdefault(client, Registration(set(), secret)).redirect_uris.add(redirect_uri)

    def answer(self, path: str) -> dict[str, Any] | None:
        """Discovery, and the keys."""
        found = super().answer(path)
        if found is None or not path.startswith("/.well-known/"):
            return found
        self.at.discovered += 1
        return {
            **found,
            "authorization_endpoint": f"{self.url}/authorize?realm=lab",
            "token_endpoint": f"{self.url}/token",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": self.at.names_itself,
        } | self.at.metadata

    def authorize(self, asked: Mapping[str, str]) -> Page:
        """The page to sign in on. A stranger's redirect_uri is not gone to (RFC 6749, section 4.1.2.1)."""
        known = self.at.clients.get(asked.get("client_id", ""))
        if known is None or asked.get("redirect_uri") not in known.redirect_uris:
            self.at.refused.append("redirect_uri")
            return Page(400, "<h1>This client, or where it leads back to, is not registered</h1>")
        if asked.get("response_type") != "code" or "openid" not in asked.get("scope", "").split():
            return self._back(asked, error="invalid_request")
        if asked.get("code_challenge_method") != "S256" or len(asked.get("code_challenge", "")) != 43:
            return self._back(asked, error="invalid_request")
        fields = "".join(
            f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
            for name, value in asked.items()
        )
        return Page(
            200,
            f'<!doctype html><html lang="en"><title>The lab</title><link rel="icon" href="data:,">'
            f'<h1>The lab</h1><form method="post" action="/authorize">{fields}'
            '<label>User <input name="user" value="ada"></label> <button name="said" value="yes">Go on</button> '
            '<button name="said" value="no">Cancel</button></form>',
        )

    def decide(self, said: Mapping[str, str]) -> Page:
        """What the user pressed."""
        checked = self.authorize(said)
        if checked.status != 200:
            return checked
        if said.get("said") != "yes":
            return self._back(said, error="access_denied", error_description="<b>call 555-1234</b>")
        code = secrets.token_urlsafe(16)
        self.at.grants[code] = Grant(
            said["client_id"],
            said["redirect_uri"],
            said["code_challenge"],
            said.get("nonce", ""),
            tuple(said["scope"].split()),
            said["user"],
        )
        return self._back(said, code=code)

    def exchange(self, form: Mapping[str, str], authorization: str) -> Page:
        """Tokens for a code (RFC 6749, section 4.1.3 and 5)."""
        self.at.exchanged += 1
        if self.at.token_status:
            return Page(self.at.token_status, "<h1>Out of order</h1>")
        client, secret = form.get("client_id", ""), form.get("client_secret", "")
        if authorization:
            client, secret = self._basic(authorization)
        known = self.at.clients.get(client)
        if known is None or known.secret != secret:
            return self._no(401, "invalid_client", client)
        grant = self.at.grants.get(form.get("code", ""))
        if form.get("grant_type") != "authorization_code":
            return self._no(400, "unsupported_grant_type", form.get("grant_type", ""))
        if grant is None or grant.client != client:
            return self._no(400, "invalid_grant", "code")
        if grant.used:
            return self._no(400, "invalid_grant", "code reused")
        grant.used = True
        if grant.redirect_uri != form.get("redirect_uri"):
            return self._no(400, "invalid_grant", "redirect_uri")
        verifier = form.get("code_verifier", "")
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        if not 43 <= len(verifier) <= 128 or digest != grant.challenge:
            return self._no(400, "invalid_grant", "code_verifier")
        answer = {
            "access_token": "an access token",
            "token_type": "Bearer",
            "expires_in": 300,
            "id_token": self.id_token(grant),
        }
        padding = {"padding": "x" * self.at.token_padding} if self.at.token_padding else {}
        return Page(200, json.dumps(answer | padding | self.at.altered), "application/json")

    def id_token(self, grant: Grant) -> str:
        """About the user that signed in (OpenID Connect Core 1.0, section 2)."""
        now_s = time.time()
        claims = {
            "sub": f"id-of-{grant.user}",
            "aud": grant.client,
            "iat": int(now_s),
            "nonce": grant.nonce,
            "preferred_username": grant.user if "profile" in grant.scopes else None,
            "groups": ["vision"] if "groups" in grant.scopes else None,
        } | self.at.claims
        return self.token(now_s, "one" if self.at.alg == "RS256" else "two", self.at.alg, **claims)

    def _back(self, asked: Mapping[str, str], **said: str) -> Page:
        """To the client, by the browser."""
        state = {"state": asked["state"]} if "state" in asked else {}
        own = {"iss": self.url} if self.at.names_itself else {}
        return Page(303, "", location=f"{asked['redirect_uri']}?{urlencode(said | state | own)}")

    def _no(self, status: int, error: str, why: str) -> Page:
        self.at.refused.append(f"{error}: {why}")
        return Page(status, json.dumps({"error": error, "error_description": why}), "application/json")

    @staticmethod
    def _basic(authorization: str) -> tuple[str, str]:
        """RFC 6749, section 2.3.1."""
        client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return unquote_plus(client), unquote_plus(secret)


@cache
def _rsa_key(_: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@contextmanager
def provider_serving(host: str = "127.0.0.1") -> Iterator[Provider]:
    """A provider on loopback, under that name."""
    running: list[Provider] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/authorize":
                self._send(running[0].authorize(dict(parse_qsl(parts.query, keep_blank_values=True))))
                return
            document = running[0].answer(parts.path)
            self._send(Page(200 if document is not None else 500, json.dumps(document), "application/json"))

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"])).decode()
            form = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True))
            token = self.path == "/token"
            authorization = self.headers.get("authorization", "")
            self._send(running[0].exchange(form, authorization) if token else running[0].decide(form))

        def _send(self, page: Page) -> None:
            body = page.body.encode()
            self.send_response(page.status)
            self.send_header("content-type", page.kind)
            self.send_header("content-length", str(len(body)))
            if page.location:
                self.send_header("location", page.location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its own name)
            """Silence."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running.append(Provider(f"http://{host}:{server.server_address[1]}"))
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield running[0]
        server.shutdown()
        thread.join()
