"""A browser signs in at an identity provider; and what others would make of the way there and back leads nowhere."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import msgspec
import pytest

from reconciler.access.code_flow import FLOW_MAX
from reconciler.access.oidc import LEEWAY_S
from reconciler.access.policy import AccessPolicy, IdentitySettings, RoleBinding
from reconciler.api.guard import SESSION_COOKIE
from reconciler.web.sign_in import FLOW_COOKIE
from solver.model.quantities import Duration
from tests.reconciler.access.provider import CLIENT, SECRET, Page, Provider, provider_serving
from tests.reconciler.web.conftest import Console
from tests.reconciler.web.visitor import Visitor

VIEWERS = (RoleBinding("viewer", ("group:vision",)),)


@pytest.fixture
def provider(console: Console) -> Iterator[Provider]:
    with provider_serving() as running:
        running.register(f"{console.url}/sign-in/callback/{running.place}")
        trust(console, running)
        # Its tokens are of now.
        console.clock.advance(time.time_ns() // 1_000_000 - console.clock.now())
        yield running


def trust(console: Console, *providers: Provider, **changes: Any) -> None:
    listed = tuple(each.entry(**changes) for each in providers)
    console.site.access = AccessPolicy(IdentitySettings(listed), roles=VIEWERS)


@pytest.fixture
def visitor(console: Console) -> Visitor:
    return Visitor(console.url)


def refusal(answer: httpx2.Response, status: int, code: str) -> str:
    """A page that says why, and signs nobody in."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), answer.text
    assert f"<code>{code}</code>" in answer.text
    assert f"{SESSION_COOKIE}=" not in answer.headers.get("set-cookie", "")
    return answer.text


def changed(url: str, **changes: str | None) -> str:
    """With other parameters."""
    base, _, query = url.partition("?")
    given = {**dict(parse_qsl(query)), **changes}
    return str(httpx2.URL(base, params={name: value for name, value in given.items() if value is not None}))


def asked_of(leads: httpx2.Response) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(leads.headers["location"]).query))


def test_a_user_signs_in_and_lands_where_they_wanted(console: Console, visitor: Visitor, provider: Provider) -> None:
    turned = visitor.get("/queues?x=1")
    form = visitor.get(turned.headers["location"])
    (link,) = re.findall(r'<a href="(/sign-in/with/[^"]+)">Sign in at ([^<]+)<', form.text)
    assert link == (f"/sign-in/with/{provider.place}?next=%2Fqueues%3Fx%3D1", provider.place)
    to_there = visitor.get(link[0])
    landed = visitor.get(visitor.answers(visitor.get(to_there.headers["location"]), provider))
    assert (landed.status_code, landed.headers["location"]) == (303, "/queues?x=1")
    assert "ada" in visitor.get("/queues?x=1").text
    # What was sent, and in which form (OpenID Connect Core 1.0, section 3.1.2.1; RFC 7636, section 4.3).
    asked = asked_of(to_there)
    assert set(asked) == {
        "realm", "response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge",
        "code_challenge_method",
    }  # fmt: skip
    assert (asked["realm"], asked["scope"]) == ("lab", "openid profile groups")
    assert provider.at.refused == []
    assert provider.at.exchanged == provider.at.discovered - 1 == provider.asked == 1


@pytest.mark.parametrize("alg", ["RS256", "ES256"])
@pytest.mark.parametrize("ways", [None, ["client_secret_basic"], ["client_secret_post"]])
def test_a_client_with_a_secret_shows_it_in_the_way_that_the_provider_takes(
    console: Console, visitor: Visitor, provider: Provider, tmp_path: Path, alg: str, ways: list[str] | None
) -> None:
    provider.at.clients[CLIENT].secret, provider.at.alg = SECRET, alg
    provider.at.metadata = {} if ways is None else {"token_endpoint_auth_methods_supported": ways}
    console.secrets[provider.url] = tmp_path / "client"
    write(console.secrets[provider.url], SECRET)
    assert visitor.signs_in(provider).headers["location"] == "/"
    assert visitor.get("/").status_code == 200


def test_neither_token_nor_secret_lies_in_the_store_or_in_an_address(
    console: Console, visitor: Visitor, provider: Provider
) -> None:
    to_there = visitor.get(f"/sign-in/with/{provider.place}?next=/jobs/secret-project")
    cookie = SimpleCookie(to_there.headers["set-cookie"])[FLOW_COOKIE]
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"]) == (True, True, "lax")
    assert (cookie["path"], cookie["domain"], cookie["max-age"]) == ("/", "", "600")
    # The provider learns nothing of where the user goes.
    assert "secret-project" not in to_there.headers["location"]
    assert cookie.value not in to_there.headers["location"]
    back = visitor.answers(visitor.get(to_there.headers["location"]), provider)
    landed = visitor.get(back)
    assert landed.headers["location"] == "/jobs/secret-project"
    (kept,) = console.site.store.sessions.all()
    ((code, grant),) = provider.at.grants.items()
    held = (visitor.cookies[SESSION_COOKIE], code, grant.nonce, "an access token", provider.id_token(grant))
    assert all(secret not in str(kept) for secret in held)
    assert (kept.user, kept.groups, kept.proof) == ("ada", ("vision",), "issuer")
    assert FLOW_COOKIE not in visitor.cookies


def test_a_session_ends_with_its_id_token(console: Console, visitor: Visitor, provider: Provider) -> None:
    provider.at.claims = {"exp": int(time.time()) + 300}
    visitor.signs_in(provider)
    (kept,) = console.site.store.sessions.all()
    assert kept.until == (provider.at.claims["exp"] + LEEWAY_S) * 1000
    console.clock.advance(kept.until - console.clock.now() - 1)
    assert visitor.get("/").status_code == 200
    console.clock.advance(1)
    assert visitor.get("/").headers["location"] == "/sign-in?next=%2F&over=1"


@pytest.mark.parametrize(
    ("asked", "expires_s", "lasts"),
    [("8h", 300, "8h"), ("10m", 7_200, "10m"), ("48h", 300, "24h"), (None, 200_000, "24h")],
)
def test_a_session_lasts_as_the_policy_says_and_a_day_at_most(
    console: Console, visitor: Visitor, provider: Provider, asked: str | None, expires_s: int, lasts: str
) -> None:
    trust(console, provider, session_duration=Duration.parse(asked) if asked else None)
    provider.at.claims = {"exp": int(time.time()) + expires_s}
    visitor.signs_in(provider)
    (kept,) = console.site.store.sessions.all()
    assert kept.until - kept.at == Duration.parse(lasts)


@pytest.mark.parametrize(
    "changes",
    [None, {"client_id": "another"}, {"client_id": ""}, {"user_claim": "sub"}, {"audience": "another"}],
    ids=str,
)
def test_a_session_ends_at_once_when_its_issuer_or_client_is_gone(
    console: Console, visitor: Visitor, provider: Provider, changes: dict[str, str] | None
) -> None:
    visitor.signs_in(provider)
    assert visitor.get("/").status_code == 200
    if changes is None:
        trust(console)
    else:
        trust(console, provider, **changes)
    assert visitor.get("/").headers["location"] == "/sign-in?next=%2F&over=1"


def test_a_user_without_a_role_is_told_so(console: Console, visitor: Visitor, provider: Provider) -> None:
    assert console.site.access is not None
    console.site.access = msgspec.structs.replace(console.site.access, roles=())
    assert visitor.signs_in(provider).status_code == 303
    refused = visitor.get("/")
    assert refused.status_code == 403
    assert "ada has no role here that sees the cluster." in refused.text


def test_signing_out_ends_the_session_here(console: Console, visitor: Visitor, provider: Provider) -> None:
    visitor.signs_in(provider)
    assert visitor.post("/sign-out", {}).status_code == 303
    assert SESSION_COOKIE not in visitor.cookies
    assert console.site.store.sessions.all() == ()


def test_what_the_user_refused_is_told_and_can_be_tried_again(visitor: Visitor, provider: Provider) -> None:
    back = visitor.answers(visitor.to_provider(provider, "/rounds"), provider, "no")
    told = refusal(visitor.get(back), 403, "not-let-in")
    assert "You, or the identity provider, refused the sign-in: access_denied." in told
    # Whoever sends users here may write what he likes beside the code.
    assert "555-1234" not in told
    assert f"/sign-in/with/{provider.place}?next=%2Frounds" in told
    assert FLOW_COOKIE not in visitor.cookies


@pytest.mark.parametrize("error", ["<script>alert(1)</script>", "x" * 200, ""])
def test_an_error_that_is_no_code_is_not_repeated(visitor: Visitor, provider: Provider, error: str) -> None:
    back = visitor.answers(visitor.to_provider(provider), provider, "no")
    assert "it does not say why" in refusal(visitor.get(changed(back, error=error)), 403, "not-let-in")


def test_the_way_back_is_for_the_browser_that_went(console: Console, visitor: Visitor, provider: Provider) -> None:
    """Login CSRF (RFC 6749, section 10.12): a victim opens the link with which an attacker would sign in."""
    attackers = visitor.answers(visitor.to_provider(provider), provider)
    victim = Visitor(console.url)
    assert "No sign-in is under way" in refusal(victim.get(attackers), 400, "sign-in-unknown")
    # Nor where the victim is signing in at the time; and that goes on.
    form = victim.to_provider(provider)
    assert "This is not the sign-in" in refusal(victim.get(attackers), 400, "sign-in-unknown")
    assert victim.get(victim.answers(form, provider)).status_code == 303
    assert provider.at.exchanged == 1


@pytest.mark.parametrize("state", ["forged", "", None, "é"])
def test_a_forged_state_is_refused(visitor: Visitor, provider: Provider, state: str | None) -> None:
    back = visitor.answers(visitor.to_provider(provider), provider)
    refusal(visitor.get(changed(back, state=state)), 400, "sign-in-unknown")
    assert provider.at.exchanged == 0


def test_a_cookie_that_was_changed_is_no_sign_in(visitor: Visitor, provider: Provider) -> None:
    back = visitor.answers(visitor.to_provider(provider), provider)
    said = json.loads(base64.urlsafe_b64decode(visitor.cookies[FLOW_COOKIE] + "=="))
    for forged in ({"wanted": "//evil.example"}, {"until": "2099-01-01T00:00:00Z"}, {"issuer": "https://evil.example"}):
        assert set(forged) <= set(said)
        text = json.dumps(said | forged).encode()
        visitor.cookies[FLOW_COOKIE] = base64.urlsafe_b64encode(text).rstrip(b"=").decode()
        refusal(visitor.get(back), 400, "sign-in-unknown")
    for rubbish in ("x", "eyJ9", "x" * 5_000, "%00"):
        visitor.cookies[FLOW_COOKIE] = rubbish
        refusal(visitor.get(back), 400, "sign-in-unknown")
    assert provider.at.exchanged == 0


def test_a_sign_in_takes_ten_minutes_at_most(console: Console, visitor: Visitor, provider: Provider) -> None:
    in_time, late = Visitor(console.url), visitor
    ways = [each.answers(each.to_provider(provider), provider) for each in (in_time, late)]
    console.clock.advance(FLOW_MAX - 1)
    assert in_time.get(ways[0]).status_code == 303
    console.clock.advance(1)
    refusal(late.get(ways[1]), 400, "sign-in-over")
    assert provider.at.exchanged == 1


def test_a_code_counts_once(visitor: Visitor, provider: Provider) -> None:
    back = visitor.answers(visitor.to_provider(provider), provider)
    before = dict(visitor.cookies)
    assert visitor.get(back).status_code == 303
    refusal(visitor.get(back), 400, "sign-in-unknown")
    # One that kept the cookie, too.
    visitor.cookies = before
    refusal(visitor.get(back), 400, "code-refused")
    assert provider.at.refused == ["invalid_grant: code reused"]


def test_a_code_of_another_browser_is_of_no_use(console: Console, visitor: Visitor, provider: Provider) -> None:
    """Code injection (RFC 9700, section 4.5): the provider finds that the verifier is of another challenge."""
    victim = Visitor(console.url)
    stolen = dict(parse_qsl(urlsplit(victim.answers(victim.to_provider(provider), provider)).query))["code"]
    back = visitor.answers(visitor.to_provider(provider), provider)
    refusal(visitor.get(changed(back, code=stolen)), 400, "code-refused")
    assert provider.at.refused == ["invalid_grant: code_verifier"]


def test_a_provider_that_answers_for_another_is_not_believed(
    console: Console, visitor: Visitor, provider: Provider
) -> None:
    """Mixed up (RFC 9700, section 4.4; RFC 9207): the code of one would be shown to the other."""
    with provider_serving() as other:
        other.register(f"{console.url}/sign-in/callback/{other.place}")
        trust(console, provider, other)
        # Begun at one, and back on the way of the other.
        back = visitor.answers(visitor.to_provider(provider), provider)
        crossed = back.replace(f"/callback/{provider.place}", f"/callback/{other.place}")
        refusal(visitor.get(crossed), 400, "sign-in-mixed-up")
        # On the way of one, in the name of the other; or in none, where it says that it always names itself.
        for iss in (other.url, None, "", provider.url + "/"):
            back = visitor.answers(visitor.to_provider(provider), provider)
            refusal(visitor.get(changed(back, iss=iss)), 400, "sign-in-mixed-up")
        assert (provider.at.exchanged, other.at.exchanged) == (0, 0)
        other.at.names_itself = False
        assert visitor.signs_in(other).status_code == 303


def test_each_provider_has_a_way_back_of_its_own(console: Console, visitor: Visitor, provider: Provider) -> None:
    """RFC 9700, section 4.4.2.2: what counts where neither says its name."""
    with provider_serving() as other:
        provider.at.names_itself = other.at.names_itself = False
        trust(console, provider, other)
        back = visitor.answers(visitor.to_provider(provider), provider)
        crossed = back.replace(f"/callback/{provider.place}", f"/callback/{other.place}")
        refusal(visitor.get(crossed), 400, "sign-in-mixed-up")
        assert (provider.at.exchanged, other.at.exchanged) == (0, 0)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another"}, {"aud": [CLIENT, "another"]}, {"aud": "quorate"}, {"aud": None}, {"azp": "another"},
        {"aud": [CLIENT, "quorate"]}, {"aud": [CLIENT, "another"], "azp": CLIENT},
        {"iss": "https://evil.example"}, {"nonce": "another"}, {"nonce": None},
        {"nonce": ["x"]}, {"exp": 1}, {"exp": None}, {"iat": None}, {"sub": None}, {"preferred_username": None},
        {"preferred_username": "a b"}, {"groups": "vision"},
    ],
    ids=str,
)  # fmt: skip
def test_an_id_token_that_is_not_for_this_sign_in_is_refused(
    console: Console, visitor: Visitor, provider: Provider, claims: dict[str, Any]
) -> None:
    """OpenID Connect Core 1.0, section 3.1.3.7."""
    provider.at.claims = claims
    refusal(visitor.signs_in(provider), 403, "token-refused")
    assert console.site.store.sessions.all() == ()


def test_an_id_token_may_also_be_for_this_api(visitor: Visitor, provider: Provider) -> None:
    provider.at.claims = {"aud": [CLIENT, "quorate"], "azp": CLIENT}
    assert visitor.signs_in(provider).status_code == 303


def test_an_id_token_is_no_bearer_token(console: Console, visitor: Visitor, provider: Provider) -> None:
    """It is for the client; what is for the API has its audience."""
    visitor.signs_in(provider)
    (grant,) = provider.at.grants.values()
    with console.stranger() as api:
        whoami = api.get("/v1/whoami", headers={"authorization": f"Bearer {provider.id_token(grant)}"})
    assert whoami.status_code == 401


@pytest.mark.parametrize("alg", ["none", "HS256"])
def test_an_id_token_that_is_not_signed_by_a_key_of_the_issuer_is_refused(
    visitor: Visitor, provider: Provider, alg: str
) -> None:
    back = visitor.answers(visitor.to_provider(provider), provider)
    (grant,) = provider.at.grants.values()
    _, claims, signature = provider.id_token(grant).split(".")
    header = base64.urlsafe_b64encode(json.dumps({"alg": alg, "kid": "one"}).encode()).rstrip(b"=").decode()
    provider.at.altered = {"id_token": f"{header}.{claims}.{'' if alg == 'none' else signature}"}
    refusal(visitor.get(back), 403, "token-refused")


@pytest.mark.parametrize("token", [None, 3, {"a": 1}])
def test_an_answer_without_an_id_token_is_refused(visitor: Visitor, provider: Provider, token: object) -> None:
    provider.at.altered = {"id_token": token}
    refusal(visitor.signs_in(provider), 502, "answer-incomplete")


def test_an_answer_without_a_code_or_with_two_is_refused(visitor: Visitor, provider: Provider) -> None:
    back = visitor.answers(visitor.to_provider(provider), provider)
    twice = visitor.get(f"{back}&code=another")
    assert (twice.status_code, twice.headers["content-type"]) == (400, "text/html; charset=utf-8")
    refusal(visitor.get(changed(back, code=None)), 502, "answer-incomplete")
    assert provider.at.exchanged == 0


@pytest.mark.parametrize("written", ["wrong", ""])
def test_a_wrong_secret_is_for_the_operator_to_mend(
    console: Console, visitor: Visitor, provider: Provider, tmp_path: Path, written: str
) -> None:
    provider.at.clients[CLIENT].secret = SECRET
    if written:
        console.secrets[provider.url] = tmp_path / "client"
        write(console.secrets[provider.url], written)
    told = refusal(visitor.signs_in(provider), 502, "client-refused")
    assert "does not take this server for its client: invalid_client" in told
    assert "wrong" not in told


def test_a_secret_that_others_can_read_is_not_used(
    console: Console, visitor: Visitor, provider: Provider, tmp_path: Path
) -> None:
    console.secrets[provider.url] = tmp_path / "client"
    console.secrets[provider.url].write_text(SECRET)
    console.secrets[provider.url].chmod(0o644)
    told = refusal(visitor.signs_in(provider), 503, "client-secret-unusable")
    assert str(tmp_path) not in told
    assert provider.at.exchanged == 0


def test_a_redirect_uri_that_is_not_registered_leads_nowhere(visitor: Visitor, provider: Provider) -> None:
    provider.at.clients[CLIENT].redirect_uris = {"https://quorate.example/sign-in/callback"}
    assert visitor.to_provider(provider).status_code == 400
    assert provider.at.refused == ["redirect_uri"]


def test_a_provider_that_is_away_is_told_and_asked_again_a_minute_later(
    console: Console, visitor: Visitor, provider: Provider
) -> None:
    provider.down = True
    for _ in range(2):
        told = refusal(visitor.get(f"/sign-in/with/{provider.place}?next=/rounds"), 503, "issuer-unreachable")
        assert (
            f"The identity provider {provider.url} can&#39;t be asked (it answers 500). Try again in a minute." in told
        )
        assert FLOW_COOKIE not in visitor.cookies
    provider.down = False
    refusal(visitor.get(f"/sign-in/with/{provider.place}"), 503, "issuer-unreachable")
    console.clock.advance(61_000)
    assert visitor.signs_in(provider).status_code == 303


@pytest.mark.parametrize(("status", "padding"), [(500, 0), (503, 0), (0, 1_100_000)])
def test_a_provider_that_breaks_off_is_told(visitor: Visitor, provider: Provider, status: int, padding: int) -> None:
    form = visitor.to_provider(provider)
    provider.at.token_status, provider.at.token_padding = status, padding
    told = refusal(visitor.get(visitor.answers(form, provider)), 503, "issuer-unreachable")
    assert FLOW_COOKIE not in visitor.cookies
    assert "code_verifier" not in told


def test_a_redirect_of_the_token_endpoint_is_not_followed(
    visitor: Visitor, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "exchange", lambda *_: Page(307, "", location=f"{provider.url}/elsewhere"))
    refusal(visitor.signs_in(provider), 502, "client-refused")


@pytest.mark.parametrize(
    "metadata",
    [
        {"authorization_endpoint": "http://id.example/authorize"}, {"token_endpoint": "http://id.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"}, {"token_endpoint": None}, {"issuer": "https://evil.example"},
    ],
    ids=str,
)  # fmt: skip
def test_a_discovery_document_that_leads_astray_is_not_followed(
    visitor: Visitor, provider: Provider, metadata: dict[str, Any]
) -> None:
    provider.at.metadata = metadata
    refusal(visitor.get(f"/sign-in/with/{provider.place}"), 503, "issuer-unreachable")


def test_an_issuer_that_the_policy_does_not_name_is_not_gone_to(
    console: Console, visitor: Visitor, provider: Provider
) -> None:
    refusal(visitor.get("/sign-in/with/evil.example"), 404, "unknown-issuer")
    back = visitor.answers(visitor.to_provider(provider), provider)
    trust(console, provider, client_id="")
    refusal(visitor.get(f"/sign-in/with/{provider.place}"), 404, "unknown-issuer")
    refusal(visitor.get(back), 404, "unknown-issuer")
    assert "/sign-in/with/" not in visitor.get("/sign-in").text


@pytest.mark.parametrize(
    "elsewhere",
    ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/%0d%0ax:y", "/sign-out", "/" + "x" * 1_001],
)
def test_nobody_is_led_to_another_site(visitor: Visitor, provider: Provider, elsewhere: str) -> None:
    assert visitor.signs_in(provider, elsewhere).headers["location"] == "/"


def test_discovery_and_keys_are_asked_for_once_an_hour(console: Console, visitor: Visitor, provider: Provider) -> None:
    for _ in range(3):
        assert visitor.signs_in(provider).status_code == 303
    # One for the endpoints, one for the keys.
    assert (provider.at.discovered, provider.asked) == (2, 1)
    console.clock.advance(3_600_001)
    assert visitor.signs_in(provider).status_code == 303
    assert (provider.at.discovered, provider.asked) == (4, 2)


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
