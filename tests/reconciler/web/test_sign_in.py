"""A browser is let in for a token, stays so by a cookie, and is let out at once when either is over."""

from __future__ import annotations

from http.cookies import SimpleCookie
from pathlib import Path

import pytest

from reconciler.access.policy import AccessPolicy, RoleBinding
from reconciler.api.guard import SESSION_COOKIE
from solver.model.quantities import Duration
from tests.reconciler.api.conftest import TOKEN
from tests.reconciler.web.conftest import Console, cookie_of

VIEWERS = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",)),))
DAY = Duration(24 * 3_600_000)


def test_who_is_not_signed_in_is_led_to_the_form_and_back(console: Console) -> None:
    with console.stranger() as browser:
        turned = browser.get("/queues?x=1")
        assert (turned.status_code, turned.headers["location"]) == (303, "/sign-in?next=%2Fqueues%3Fx%3D1")
        form = browser.get(turned.headers["location"])
        assert '<input type="hidden" name="next" value="/queues?x=1">' in form.text
        signed = console.sign_in(browser, TOKEN, "/queues?x=1")
        assert (signed.status_code, signed.headers["location"]) == (303, "/queues?x=1")
        browser.headers["cookie"] = cookie_of(signed)
        assert "alice" in browser.get("/queues").text


def test_the_cookie_is_for_this_host_over_https_and_no_script(console: Console) -> None:
    with console.stranger() as browser:
        cookie = SimpleCookie(console.sign_in(browser, TOKEN).headers["set-cookie"])[SESSION_COOKIE]
    assert (cookie["secure"], cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, True, "lax", "/")
    assert (cookie["domain"], cookie["max-age"]) == ("", str(24 * 3_600))
    assert TOKEN not in cookie.value
    (kept,) = console.site.store.sessions.all()
    assert cookie.value not in kept.secret_hash
    assert TOKEN not in kept.proof_hash


def test_a_wrong_token_lets_nobody_in(console: Console) -> None:
    with console.stranger() as browser:
        for token in ("", "wrong", "<script>alert(1)</script>", "x" * 10_000):
            refused = console.sign_in(browser, token)
            assert refused.status_code == 401
            assert "This token is no good here" in refused.text
            assert "set-cookie" not in refused.headers
            assert "<script>alert" not in refused.text
    assert console.site.store.sessions.all() == ()


@pytest.mark.parametrize(
    "elsewhere", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\r\nx: y", "/sign-out", ""]
)
def test_nobody_is_led_to_another_site(console: Console, elsewhere: str) -> None:
    with console.stranger() as browser:
        assert console.sign_in(browser, TOKEN, elsewhere).headers["location"] == "/"


def test_a_form_of_another_site_or_of_none_signs_nobody_in_or_out(console: Console) -> None:
    with console.browser() as browser:
        for path in ("/sign-in", "/sign-out"):
            for headers in ({"origin": "https://evil.example"}, {}):
                refused = browser.post(path, data={"token": TOKEN}, headers=headers)
                assert refused.status_code == 403
                assert "set-cookie" not in refused.headers
        assert browser.get("/").status_code == 200


def test_what_is_no_form_is_told_as_a_page(console: Console) -> None:
    with console.stranger() as browser:
        as_json = browser.post("/sign-in", json={"token": TOKEN}, headers={"origin": console.url})
        too_long = browser.post("/sign-in", data={"token": "x" * 30_000}, headers={"origin": console.url})
    assert (as_json.status_code, too_long.status_code) == (422, 413)
    for refused in (as_json, too_long):
        assert refused.headers["content-type"].startswith("text/html")


def test_signing_out_ends_the_session_everywhere(console: Console) -> None:
    with console.browser() as browser:
        out = browser.post("/sign-out", headers={"origin": console.url})
        assert (out.status_code, out.headers["location"]) == (303, "/sign-in")
        assert "Max-Age=0" in out.headers["set-cookie"]
        again = browser.get("/")
        assert again.headers["location"] == "/sign-in?next=%2F&over=1"
        assert "Your session is over" in browser.get(again.headers["location"]).text
    assert console.site.store.sessions.all() == ()


def test_a_session_lasts_a_day(console: Console) -> None:
    with console.browser() as browser:
        console.clock.advance(DAY - 1)
        assert browser.get("/").status_code == 200
        console.clock.advance(1)
        assert browser.get("/").status_code == 303


def test_a_session_ends_with_the_line_of_its_token(console: Console) -> None:
    console.site.access = VIEWERS
    with console.browser(console.adas) as browser:
        assert browser.get("/").status_code == 200
        rewrite(console.tokens, console.tokens.read_text().replace(" ada", " eve"))
        # Eve has no role: it is the line that says whose token this is.
        assert browser.get("/").status_code == 403
        rewrite(console.tokens, "# nobody\n")
        assert browser.get("/").status_code == 303


def test_roles_are_asked_of_the_policy_each_time(console: Console) -> None:
    console.site.access = VIEWERS
    with console.browser(console.adas) as browser:
        assert browser.get("/queues").status_code == 200
        console.site.access = AccessPolicy()
        refused = browser.get("/queues")
    assert refused.status_code == 403
    assert "ada has no role here that sees the cluster." in refused.text


def test_the_api_takes_the_cookie_and_what_changes_anything_has_to_come_from_a_page_of_this_server(
    console: Console,
) -> None:
    with console.browser() as browser:
        assert browser.get("/v1/whoami").json()["user"] == "alice"
        path, asked = "/v1/nodes/n1/cordon", {"reason": "a test", "until": "1h"}
        assert browser.put(path, json=asked).json()["code"] == "origin-missing"
        elsewhere = browser.put(path, json=asked, headers={"origin": "https://evil.example"})
        assert elsewhere.json()["code"] == "origin-not-allowed"
        assert browser.put(path, json=asked, headers={"origin": console.url}).is_success
        # A token that is sent beside counts, and no session.
        assert browser.get("/v1/whoami", headers={"authorization": "Bearer wrong"}).status_code == 401


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
