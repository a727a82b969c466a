"""Signing in at an identity provider, done in a real browser. The provider is another site: `localhost` is none of 127.0.0.1's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from reconciler.access.policy import AccessPolicy, IdentitySettings, RoleBinding
from tests.console.conftest import Browser
from tests.reconciler.access.provider import Provider, provider_serving
from tests.reconciler.api.conftest import Site
from tests.reconciler.web.conftest import Console, serving_console

pytestmark = pytest.mark.console


@pytest.fixture
def provider(console: Console) -> Iterator[Provider]:
    with provider_serving("localhost") as running:
        running.register(f"{console.url}/sign-in/callback/{running.place}")
        issuers = IdentitySettings((running.entry(),))
        console.site.access = AccessPolicy(issuers, roles=(RoleBinding("viewer", ("group:vision",)),))
        console.clock.advance(time.time_ns() // 1_000_000 - console.clock.now())
        yield running


def test_signing_in_on_the_providers_page_leads_to_the_wanted_page(browser: Browser, provider: Provider) -> None:
    browser.open("/queues")
    browser.picture("sign-in-providers")
    browser.follow("link", f"Sign in at {provider.place}")
    assert browser.page.url.startswith(f"{provider.url}/authorize?")
    browser.follow("button", "Go on")
    assert browser.page.url == f"{browser.url}/queues"
    assert browser.page.locator(".session span").text_content() == "ada"
    assert [cookie["name"] for cookie in browser.page.context.cookies(browser.url)] == ["__Host-quorate"]
    browser.press("Sign out")
    browser.open("/queues")
    assert "/sign-in" in browser.page.url


def test_a_user_that_changes_their_mind_is_told_and_may_try_again(browser: Browser, provider: Provider) -> None:
    browser.open("/rounds")
    browser.follow("link", f"Sign in at {provider.place}")
    browser.follow("button", "Cancel")
    assert browser.page.get_by_role("alert").first.text_content() == (
        "You, or the identity provider, refused the sign-in: access_denied."
    )
    browser.picture("sign-in-refused")
    browser.follow("link", f"Sign in at {provider.place}")
    browser.follow("button", "Go on")
    assert browser.page.url == f"{browser.url}/rounds"
    # Chromium itself notes each answer that is a refusal.
    assert all("403" in told for told in browser.troubles)
    browser.troubles.clear()


def test_back_and_again_signs_nobody_in_twice(browser: Browser, console: Console, provider: Provider) -> None:
    browser.open("/queues")
    browser.follow("link", f"Sign in at {provider.place}")
    browser.follow("button", "Go on")
    browser.page.go_back()
    assert len(console.site.store.sessions.all()) == provider.at.exchanged == 1


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_everybody_can_use_it(browser: Browser, provider: Provider, scheme: str, width: int) -> None:
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 800})
    for path in ("/sign-in", f"/sign-in/callback/{provider.place}?state=x&code=y"):
        browser.open(path)
        found = axe.run(browser.page).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == [], path
        assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        browser.picture(f"sign-in-{path.count('callback')}-{scheme}-{width}")
    assert all("400" in told for told in browser.troubles)
    browser.troubles.clear()


def test_over_plain_http_from_elsewhere_no_token_is_asked_for(site: Site, tmp_path: Path, chromium: Any) -> None:
    with serving_console(site, tmp_path, hosts=["quorate.example"]) as console:
        context = chromium.new_context()
        browser = Browser(context.new_page(), f"http://quorate.example:{urlsplit(console.url).port}")
        browser.open("/sign-in")
        assert browser.page.get_by_text("Browsers keep the cookie of a session only over HTTPS").is_visible()
        assert not browser.page.get_by_label("Token").is_visible()
        browser.picture("sign-in-insecure")
        context.close()
        # Chromium itself says what it does not trust.
        assert all("untrustworthy" in told for told in browser.troubles)
