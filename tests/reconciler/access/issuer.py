"""An OpenID Connect issuer for tests: keys that are really served over HTTP, and tokens that they sign."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from solver.model.quantities import Instant

AUDIENCE = "quorate"


class FakeClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.s = 0.0

    def now(self) -> Instant:
        return Instant(int(self.s * 1000))

    def monotonic_s(self) -> float:
        return self.s


_NUMBERS = cycle(range(8))


@cache
def _rsa_key(_: int) -> rsa.RSAPrivateKey:
    """Made once for all tests; those of one test differ, as it needs fewer than eight."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Issuer:
    """Serves its discovery document and keys; `asked` counts how often for keys. `down` makes it fail."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey] = {}
        self.asked = 0
        self.down = False
        self.says_issuer = url
        self.add_rsa("one")

    def add_rsa(self, kid: str) -> None:
        self.keys[kid] = _rsa_key(next(_NUMBERS))

    def add_ec(self, kid: str) -> None:
        self.keys[kid] = ec.generate_private_key(ec.SECP256R1())

    def jwks(self) -> dict[str, Any]:
        return {"keys": [{**self._jwk(key), "kid": kid, "use": "sig"} for kid, key in self.keys.items()]}

    def token(self, now_s: float, kid: str = "one", alg: str = "RS256", **changes: Any) -> str:
        claims = {
            "iss": self.url, "aud": AUDIENCE, "exp": int(now_s) + 600, "preferred_username": "ada", "groups": ["vision"],
        } | changes  # fmt: skip
        kept = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(kept, self.keys[kid], algorithm=alg, headers={"kid": kid})

    def answer(self, path: str) -> dict[str, Any] | None:
        if self.down:
            return None
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.says_issuer, "jwks_uri": f"{self.url}/keys"}
        self.asked += path == "/keys"
        return self.jwks() if path == "/keys" else None

    @staticmethod
    def _jwk(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> dict[str, Any]:
        if isinstance(key, rsa.RSAPrivateKey):
            return RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return ECAlgorithm.to_jwk(key.public_key(), as_dict=True)


@contextmanager
def serving() -> Iterator[Issuer]:
    """An issuer on loopback."""
    issuer: list[Issuer] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            document = issuer[0].answer(self.path)
            self.send_response(200 if document is not None else 500)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its own name)
            """Silence."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.append(Issuer(f"http://127.0.0.1:{server.server_address[1]}"))
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield issuer[0]
        server.shutdown()
        thread.join()
