"""Rounds, what changed between them, and their replay, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from solver.model.cluster import DeviceId, NodeName
from solver.model.workload import JobName, TaskPlacement
from tests.console.conftest import Browser
from tests.reconciler.api.conftest import TOKEN, spec
from tests.reconciler.web.conftest import Console

pytestmark = pytest.mark.console


@pytest.fixture
def two(console: Console) -> None:
    """Rounds on record: between them jobs came and one began."""

    def submit(name: str, gpus: int, replicas: int = 1) -> None:
        console.site.store.jobs.submit(
            JobName(name), spec(gpus, replicas), "ada", console.clock.now(), f"key-of-{name}"
        )

    submit("first", 4)
    submit("waits", 4, replicas=2)
    console.site.record_round()
    console.site.bind("first", TaskPlacement("worker", 0, NodeName("n1"), tuple(DeviceId(f"n1/{n}") for n in range(4))))
    for number in range(3):
        submit(f"small-{number}", 1)
    submit("never", 7)
    console.site.record_round()


@pytest.mark.usefixtures("two")
def test_from_a_round_to_what_changed_and_any_two(browser: Browser) -> None:
    browser.open("/rounds/2")
    browser.sign_in(TOKEN)
    assert "What changed against round 1" in str(browser.page.locator("#changed").text_content())
    browser.picture("round-changes")
    browser.page.get_by_role("textbox", name="Against round").fill("2")
    browser.press("Compare")
    assert "All jobs stand as they did" in str(browser.page.locator("section:has(#changed)").text_content())
    browser.open("/rounds/2..1")
    assert browser.page.locator("h3:has-text('Gone')").count() == 1
    browser.page.get_by_role("link", name="The other way round").click()
    browser.page.wait_for_url("**/rounds/1..2")
    assert browser.page.locator("h3:has-text('Came')").count() == 1


@pytest.mark.usefixtures("two")
def test_a_round_is_decided_again_and_said_to_be_the_same(browser: Browser) -> None:
    browser.open("/rounds/2")
    browser.sign_in(TOKEN)
    browser.press("Decide it again")
    browser.page.wait_for_selector("#replayed[data-state=same]", timeout=60_000)
    assert "The same plan, byte for byte" in str(browser.page.locator("#replayed").text_content())
    browser.picture("round-replay")


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_everybody_can_use_them(browser: Browser, scheme: str, width: int) -> None:
    """By the rules of axe-core; and nothing is to be scrolled for sideways."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 800})
    browser.open("/rounds/2")
    browser.sign_in(TOKEN)
    for path in ("/rounds/2", "/rounds/1..2"):
        browser.open(path)
        found = axe.run(browser.page).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == [], path
        assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
