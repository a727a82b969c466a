"""A console behind a proxy with TLS: how browsers find it, and that no cookie is given where they would not keep it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from reconciler.access.policy import AccessPolicy, IdentitySettings, OidcIssuer
from tests.reconciler.access.provider import CLIENT, Provider, provider_serving
from tests.reconciler.api.conftest import TOKEN, Site
from tests.reconciler.web.conftest import Console, serving_console

OUTSIDE = "https://quorate.example"
NAME = "quorate.example"


@pytest.fixture
def provider(site: Site) -> Iterator[Provider]:
    with provider_serving() as running:
        issuer = OidcIssuer(running.url, "quorate", client_id=CLIENT)
        site.access = AccessPolicy(IdentitySettings((issuer,)))
        yield running


@pytest.fixture
def behind(site: Site, tmp_path: Path) -> Iterator[Console]:
    with serving_console(site, tmp_path, OUTSIDE, [NAME]) as running:
        yield running


def posted(console: Console, **headers: str) -> httpx2.Response:
    with console.stranger() as browser:
        return browser.post("/sign-in", data={"token": TOKEN}, headers=headers)


def test_providers_lead_back_to_the_address_from_outside(behind: Console, provider: Provider) -> None:
    place = provider.place
    # Through a tunnel, too: the provider knows one address alone.
    for host in (NAME, urlsplit(behind.url).netloc):
        with behind.stranger() as browser:
            page = browser.get("/sign-in?next=/jobs", headers={"host": host})
            assert f'<a href="{OUTSIDE}/sign-in/with/{place}?next=%2Fjobs">' in page.text
            leads = browser.get(f"/sign-in/with/{place}", headers={"host": host})
        asked = dict(parse_qsl(urlsplit(leads.headers["location"]).query))
        assert asked["redirect_uri"] == f"{OUTSIDE}/sign-in/callback/{place}"


@pytest.mark.parametrize("host", [NAME, ""])
def test_a_token_is_taken_from_a_page_that_came_over_https(behind: Console, host: str) -> None:
    """Also where the proxy names this server by its own address."""
    signed = posted(behind, origin=OUTSIDE, host=host or urlsplit(behind.url).netloc)
    assert signed.status_code == 303
    assert "Secure" in signed.headers["set-cookie"]


def test_other_origins_stay_refused(behind: Console) -> None:
    here = urlsplit(behind.url).netloc
    for origin, host in (
        ("http://quorate.example", here),
        ("https://evil.example", NAME),
        (f"{OUTSIDE}.evil.example", here),
    ):
        refused = posted(behind, origin=origin, host=host)
        assert refused.status_code == 403
        assert "<code>origin-not-allowed</code>" in refused.text


def test_no_cookie_is_given_over_plain_http_from_another_machine(site: Site, behind: Console, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with serving_console(site, tmp_path / "other", hosts=[NAME]) as bare:
        for console in (behind, bare):
            refused = posted(console, origin="http://quorate.example", host=NAME)
            assert refused.status_code == 403
            assert "set-cookie" not in refused.headers
            assert "This page came over plain HTTP, and so did your token" in refused.text
            assert "<code>cookie-needs-https</code>" in refused.text
    assert site.store.sessions.all() == ()


def test_without_an_address_from_outside_providers_are_for_this_machine(
    site: Site, tmp_path: Path, provider: Provider
) -> None:
    place = provider.place
    with serving_console(site, tmp_path, hosts=[NAME]) as console, console.stranger() as browser:
        page = browser.get("/sign-in", headers={"host": NAME})
        assert "/sign-in/with/" not in page.text
        assert "quorate run --external-url https://HOST" in page.text
        refused = browser.get(f"/sign-in/with/{place}", headers={"host": NAME})
        assert refused.status_code == 403
        assert "<code>external-url-missing</code>" in refused.text
        assert "set-cookie" not in refused.headers
        assert f'<a href="/sign-in/with/{place}">' in browser.get("/sign-in").text
