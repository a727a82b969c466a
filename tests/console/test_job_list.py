"""Jobs are sorted, narrowed down and paged through in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from solver.model.workload import JobName
from tests.console.conftest import Browser
from tests.reconciler.api.conftest import TOKEN, spec
from tests.reconciler.web.conftest import Console

pytestmark = pytest.mark.console


@pytest.fixture
def many(console: Console) -> None:
    for number in range(120):
        name = f"train-{number}" if number % 2 else f"serve-{number}"
        console.site.store.jobs.submit(JobName(name), spec(1 + number % 4), "ada", console.clock.now(), f"k-{number}")


def names(browser: Browser) -> list[str]:
    return [str(text) for text in browser.page.locator("tbody th").all_text_contents()]


@pytest.mark.usefixtures("many")
def test_the_biggest_of_those_with_a_word_page_by_page(browser: Browser) -> None:
    browser.open("/jobs")
    browser.sign_in(TOKEN)
    browser.page.get_by_label("Name has").fill("TRAIN")
    browser.page.get_by_label("Order").select_option("biggest")
    browser.press("Show")
    assert "60 jobs match" in str(browser.page.locator("#count").text_content())
    first = names(browser)
    browser.picture("jobs-sorted")
    with browser.page.expect_navigation():
        browser.page.get_by_role("link", name="Next page").click()
    second = names(browser)
    assert (len(first), len(second)) == (50, 10)
    assert first[0] == "train-119"
    assert set(first + second) == {f"train-{number}" for number in range(1, 120, 2)}
    with browser.page.expect_navigation():
        browser.page.get_by_role("link", name="suspended").click()
    assert names(browser) == []
    assert browser.page.get_by_label("Name has").input_value() == "TRAIN"


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_everybody_can_find_a_job(browser: Browser, scheme: str, width: int) -> None:
    """By the rules of axe-core; and nothing is to be scrolled for sideways."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 800})
    browser.open("/jobs?sort=waiting")
    browser.sign_in(TOKEN)
    found = axe.run(browser.page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
