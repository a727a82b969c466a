"""The users of a queue that they share, in a real browser: on a narrow window too, and as everybody can read them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.conftest import Browser
from tests.console.test_stories import texts
from tests.reconciler.api.conftest import TOKEN
from tests.reconciler.web.conftest import Console
from tests.reconciler.web.test_queue_use_pages import shared

__all__ = ["shared"]

pytestmark = pytest.mark.console


@pytest.fixture
def console(shared: Console) -> Console:
    """The one that the browser is before."""
    return shared


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_users_stand_on_the_page_of_their_queue(browser: Browser, scheme: str, width: int) -> None:
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 800})
    browser.open("/queues")
    browser.sign_in(TOKEN)
    browser.follow("link", "team H100 over time")
    assert texts(browser, "section[aria-labelledby=users] tbody th") == ["ada", "bob"]
    assert texts(browser, "section[aria-labelledby=users] tbody td")[:5] == ["H100", "2", "2", "2", "0"]
    assert "did you mean bob?" in texts(browser, "section[aria-labelledby=users] .problem")[0]
    found = axe.run(browser.page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    browser.page.locator("#users").scroll_into_view_if_needed()
    browser.picture(f"queue-users-{scheme}")
