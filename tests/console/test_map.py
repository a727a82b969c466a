"""The map of the cluster, looked at, pointed at and walked through by keys."""

from __future__ import annotations

import re
from typing import Any

import pytest

from solver.model.cluster import DeviceId, NodeName
from solver.model.workload import JobName, TaskPlacement
from tests.console.conftest import Browser
from tests.reconciler.api.conftest import TOKEN, spec
from tests.reconciler.web.conftest import Console

pytestmark = pytest.mark.console


@pytest.fixture
def mapped(browser: Browser) -> Browser:
    browser.open("/")
    browser.sign_in(TOKEN)
    browser.page.wait_for_selector("#map[data-drawn]")
    return browser


def legend(browser: Browser) -> dict[str, str]:
    """What each colour counts."""
    items = browser.page.locator("#legend button")
    return {
        str(item.locator(".name").text_content()): str(item.locator("small").text_content())
        for item in (items.nth(number) for number in range(items.count()))
    }


def begin(console: Console, name: str, *gpus: int) -> None:
    devices = tuple(DeviceId(f"n1/{gpu}") for gpu in gpus)
    console.site.store.jobs.submit(JobName(name), spec(), "ada", console.clock.now(), f"key-of-{name}")
    console.site.bind(name, TaskPlacement("worker", 0, NodeName("n1"), devices))


def test_what_begins_is_seen_without_loading_the_page_again(mapped: Browser, console: Console) -> None:
    assert legend(mapped) == {"free": "8"}
    begin(console, "runs", 0, 1)
    mapped.page.wait_for_selector("#legend button[data-kind=c1]", timeout=30_000)
    assert legend(mapped) == {"team": "2", "free": "6"}


def test_the_keyboard_goes_from_rack_to_rack_and_the_address_says_where(mapped: Browser, console: Console) -> None:
    canvas: Any = mapped.page.locator("#map")
    canvas.focus()
    mapped.page.keyboard.press("ArrowRight")
    first = str(mapped.page.locator("#said").text_content())
    assert re.match(r"Rack \S+ of .*: \d+ GPUs, 0 held, \d+ free, 0 not usable\.", first)
    mapped.page.keyboard.press("Enter")
    mapped.page.wait_for_url("**/#rack=*")
    there = mapped.page.url
    mapped.page.keyboard.press("Escape")
    mapped.page.wait_for_url(mapped.url + "/")
    mapped.page.goto("about:blank")
    mapped.page.goto(there)
    mapped.page.wait_for_selector("#map[data-drawn]")
    mapped.page.wait_for_url(there)
    assert str(mapped.page.locator("#said").text_content()) == first


def test_pointing_at_a_gpu_says_what_is_so_there(mapped: Browser, console: Console) -> None:
    begin(console, "runs", 0, 1, 2, 3)
    mapped.page.wait_for_selector("#legend button[data-kind=c1]", timeout=30_000)
    box = mapped.page.locator("#map").bounding_box()
    told = set[str]()
    for across in range(1, 60):
        mapped.page.mouse.move(box["x"] + box["width"] * across / 60, box["y"] + box["height"] / 2)
        told.add(str(mapped.page.locator("#tip").text_content()))
    assert any("runs of ada" in text and "team" in text for text in told)
    assert any("held by no job" in text for text in told)


def test_a_colour_that_is_pressed_is_seen_alone(mapped: Browser) -> None:
    button: Any = mapped.page.locator("#legend button").first
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"


def test_every_way_to_colour_counts_every_gpu(mapped: Browser, console: Console) -> None:
    begin(console, "runs", 0, 1)
    mapped.page.wait_for_selector("#legend button[data-kind=c1]", timeout=30_000)
    for choice in ("class", "type", "state", "job", "queue"):
        mapped.page.get_by_label("Colour by").select_option(choice)
        told = legend(mapped)
        assert sum(map(float, told.values())) == 8, (choice, told)


def test_a_map_that_can_not_be_fetched_is_told(browser: Browser) -> None:
    browser.page.route("**/map.json", lambda route: route.abort())
    browser.open("/")
    browser.sign_in(TOKEN)
    browser.page.wait_for_selector("#as-of:has-text('not up to date')")
    browser.troubles.clear()
