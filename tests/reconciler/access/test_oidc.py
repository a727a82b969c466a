"""Tokens of an identity provider: who gets in, who does not, and what happens when its keys change or it is away."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from reconciler.access.authenticator import Authenticator
from reconciler.access.caller import Caller
from reconciler.access.discovery import AGAIN_AFTER_S, KEPT_S, IssuerUnreachableError
from reconciler.access.oidc import LEEWAY_S, BadTokenError, OidcVerifier
from reconciler.access.policy import AccessPolicy, IdentitySettings, OidcIssuer
from solver.model.quantities import Instant
from tests.reconciler.access.issuer import AUDIENCE, FakeClock, Issuer, serving


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving() as running:
        yield running


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def verifier(clock: FakeClock) -> OidcVerifier:
    return OidcVerifier(clock)


def identity(issuer: Issuer, **changes: str) -> IdentitySettings:
    fields = {"issuer": issuer.url, "audience": AUDIENCE, "groups_claim": "groups"} | changes
    return IdentitySettings((OidcIssuer(**fields),))  # type: ignore[arg-type]


def part(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def test_a_good_token_says_who_and_which_groups(issuer: Issuer, verifier: OidcVerifier) -> None:
    now = time.time()
    expires = Instant((int(now) + 600 + LEEWAY_S) * 1000)
    expected = Caller("ada", frozenset({"vision"}), until=expires)
    assert verifier.caller(issuer.token(now), identity(issuer)) == expected
    issuer.add_ec("two")
    fresh = OidcVerifier(FakeClock())
    assert fresh.caller(issuer.token(now, "two", "ES256"), identity(issuer)) == expected
    listed = issuer.token(now, aud=["x", AUDIENCE], groups=["vision", "not a name", 3])
    assert verifier.caller(listed, identity(issuer)).groups == {"vision"}
    assert verifier.caller(issuer.token(now), identity(issuer, groups_claim="")).groups == frozenset()
    assert verifier.caller(issuer.token(now, sub="s1"), identity(issuer, user_claim="sub")).user == "s1"


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "another"}, {"aud": None}, {"iss": "https://evil.example"}, {"iss": None}, {"exp": None},
        {"exp": -LEEWAY_S - 30}, {"nbf": LEEWAY_S + 600}, {"preferred_username": None},
        {"preferred_username": "a b"}, {"preferred_username": ["ada"]}, {"groups": "vision"},
    ],
)  # fmt: skip
def test_a_token_with_wrong_claims_is_refused(issuer: Issuer, verifier: OidcVerifier, changes: dict[str, Any]) -> None:
    """Numbers are seconds from when the test runs, which may be long after it was collected."""
    now_s = int(time.time())
    wrong: dict[str, Any] = {
        name: now_s + claim if isinstance(claim, int) else claim for name, claim in changes.items()
    }
    with pytest.raises(BadTokenError):
        verifier.caller(issuer.token(now_s, **wrong), identity(issuer))


def test_clocks_may_differ_a_little(issuer: Issuer, verifier: OidcVerifier) -> None:
    late = issuer.token(time.time(), exp=int(time.time()) - 1)
    assert verifier.caller(late, identity(issuer)).user == "ada"


def test_an_address_that_is_not_verified_is_refused(issuer: Issuer, verifier: OidcVerifier) -> None:
    mail = {"email": "ada@example.com"}
    rules = identity(issuer, user_claim="email")
    assert verifier.caller(issuer.token(time.time(), **mail, email_verified=True), rules).user == "ada@example.com"
    with pytest.raises(BadTokenError, match="not verified"):
        verifier.caller(issuer.token(time.time(), **mail, email_verified=False), rules)


def test_forged_tokens_are_refused(issuer: Issuer, verifier: OidcVerifier) -> None:
    header, claims, signature = issuer.token(time.time()).split(".")
    public = issuer.keys["one"].public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )  # fmt: skip
    known = json.loads(base64.urlsafe_b64decode(claims + "=="))
    as_none = f"{part({'alg': 'none', 'kid': 'one'})}.{claims}."
    by_hand = f"{part({'alg': 'HS256', 'kid': 'one'})}.{claims}"
    hs = f"{by_hand}.{base64.urlsafe_b64encode(_hmac(public, by_hand)).rstrip(b'=').decode()}"
    admin = f"{header}.{part(known | {'preferred_username': 'root'})}.{signature}"
    stranger = Issuer(issuer.url)
    forged = [
        as_none, hs, admin, stranger.token(time.time()), f"{header}.{claims}.", f"{header}.{claims}.AAAA",
        f"{part({'alg': 'RS256'})}.{claims}.{signature}", f"{part({'alg': 'RS256', 'kid': ['one']})}.{claims}.{signature}",
        f"{part({'alg': 'RS512', 'kid': 'one'})}.{claims}.{signature}", "..", "a.b.c", "é.é.é", "x" * 20_000,
        jwt.encode(known, "k" * 40, algorithm="HS256", headers={"kid": "one"}),
    ]  # fmt: skip
    for token in forged:
        with pytest.raises(BadTokenError):
            verifier.caller(token, identity(issuer))
    assert verifier.caller(issuer.token(time.time()), identity(issuer)).user == "ada"


@pytest.mark.parametrize("kid", ["../../keys", "/etc/passwd", "http://evil.example/keys", "one' OR 1=1", ""])
def test_a_key_id_is_a_name_and_nothing_else(issuer: Issuer, verifier: OidcVerifier, kid: str) -> None:
    issuer.keys[kid] = Issuer(issuer.url).keys["one"]
    token = issuer.token(time.time(), kid)
    del issuer.keys[kid]
    with pytest.raises(BadTokenError, match="a key that its issuer does not have"):
        verifier.caller(token, identity(issuer))


def test_keys_are_kept_and_asked_for_again_when_one_is_unknown(
    issuer: Issuer, verifier: OidcVerifier, clock: FakeClock
) -> None:
    for _ in range(3):
        verifier.caller(issuer.token(time.time()), identity(issuer))
    assert issuer.asked == 1
    issuer.add_rsa("new")
    token = issuer.token(time.time(), "new")
    for _ in range(3):
        with pytest.raises(BadTokenError):
            verifier.caller(token, identity(issuer))
    assert issuer.asked == 1
    clock.s += AGAIN_AFTER_S + 1
    assert verifier.caller(token, identity(issuer)).user == "ada"
    assert issuer.asked == 2


def test_a_key_that_is_withdrawn_is_believed_no_longer_than_an_hour(
    issuer: Issuer, verifier: OidcVerifier, clock: FakeClock
) -> None:
    old = issuer.token(time.time())
    verifier.caller(old, identity(issuer))
    del issuer.keys["one"]
    issuer.add_rsa("two")
    clock.s += KEPT_S + 1
    with pytest.raises(BadTokenError, match="a key that its issuer does not have"):
        verifier.caller(old, identity(issuer))


def test_an_issuer_that_is_away_is_not_the_callers_fault(
    issuer: Issuer, verifier: OidcVerifier, clock: FakeClock
) -> None:
    issuer.down = True
    token = issuer.token(time.time())
    for _ in range(2):
        with pytest.raises(IssuerUnreachableError, match="can't be asked for its keys"):
            verifier.caller(token, identity(issuer))
    issuer.down = False
    clock.s += AGAIN_AFTER_S + 1
    assert verifier.caller(token, identity(issuer)).user == "ada"
    # Within the hour what is known goes on being good.
    issuer.down = True
    clock.s += KEPT_S / 2
    assert verifier.caller(token, identity(issuer)).user == "ada"
    # Nor does asking in vain make it good for longer.
    strange = issuer.token(time.time())
    issuer.keys["strange"] = issuer.keys["one"]
    with pytest.raises(IssuerUnreachableError):
        verifier.caller(issuer.token(time.time(), "strange"), identity(issuer))
    clock.s += KEPT_S / 2 + AGAIN_AFTER_S
    with pytest.raises(IssuerUnreachableError):
        verifier.caller(strange, identity(issuer))


def test_a_discovery_document_of_another_issuer_is_not_believed(issuer: Issuer, verifier: OidcVerifier) -> None:
    issuer.says_issuer = "https://evil.example"
    with pytest.raises(IssuerUnreachableError, match="of another issuer"):
        verifier.caller(issuer.token(time.time()), identity(issuer))
    named = identity(issuer, jwks_url=f"{issuer.url}/keys")
    assert verifier.caller(issuer.token(time.time()), named).user == "ada"


def test_the_policy_in_force_says_which_issuers_count(issuer: Issuer, clock: FakeClock) -> None:
    policies = [AccessPolicy(identity=identity(issuer))]
    authenticate = Authenticator(lambda: policies[0] if policies else None, OidcVerifier(clock))
    token = issuer.token(time.time())
    assert authenticate(token).user == "ada"
    policies.clear()
    with pytest.raises(BadTokenError, match="no user has this token"):
        authenticate(token)


def _hmac(key: bytes, text: str) -> bytes:
    import hashlib
    import hmac

    return hmac.new(key, text.encode(), hashlib.sha256).digest()
