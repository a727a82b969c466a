"""From the fleet to the job that holds idle GPUs, in a real browser: in the reader's time, by keyboard, light and dark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.conftest import Browser
from tests.console.test_stories import texts
from tests.reconciler.api.conftest import TOKEN
from tests.reconciler.web.conftest import Console
from tests.reconciler.web.test_gpu_use_pages import busy

__all__ = ["busy"]

pytestmark = pytest.mark.console


@pytest.fixture
def console(busy: Console) -> Console:
    """The one that the browser is before."""
    return busy


def test_from_the_gap_to_the_job_that_holds_idle_gpus(browser: Browser) -> None:
    browser.open("/")
    browser.sign_in(TOKEN)
    browser.follow("link", "Use", exact=True)
    assert texts(browser, "section[aria-labelledby=types] tbody td")[3:5] == ["62 %", "43 %"]
    assert texts(browser, "section[aria-labelledby=holders] tbody th") == ["hoards", "train"]
    browser.picture("use")
    browser.page.get_by_role("link", name="train").focus()
    with browser.page.expect_navigation():
        browser.page.keyboard.press("Enter")
    browser.settle()
    assert "65 % active" in texts(browser, "section[aria-labelledby=used] .figures")[0]
    assert browser.page.locator(".use-picture .use-mean").bounding_box()["width"] > 0
    browser.page.locator("#used").scroll_into_view_if_needed()
    browser.picture("use-job")
    browser.open("/queues/team")
    assert texts(browser, "section[aria-labelledby=budgets] tbody th") == ["team-month"]


def test_times_are_the_readers_own(browser: Browser) -> None:
    browser.open("/use")
    browser.sign_in(TOKEN)
    for path in ("/use", "/jobs/train", "/queues/team"):
        browser.open(path)
        browser.page.wait_for_selector("time[datetime]")
        assert [text for text in texts(browser, "time") if "T" in text and text.endswith("Z")] == [], path
    assert browser.page.locator("section[aria-labelledby=budgets] time").first.get_attribute("datetime")


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_everybody_can_use_it(browser: Browser, scheme: str, width: int) -> None:
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 800})
    browser.open("/use")
    browser.sign_in(TOKEN)
    for path in ("/use", "/jobs/train", "/queues/team"):
        browser.open(path)
        found = axe.run(browser.page).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == [], path
        assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
    if scheme == "dark":
        browser.open("/use")
        browser.picture("use-dark")
