"""A job is submitted in a real browser, by form and as YAML, with an error first."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.model.job_record import JobRecord
from solver.model.workload import JobName
from tests.console.conftest import Browser
from tests.reconciler.api.conftest import TOKEN
from tests.reconciler.web.conftest import Console

pytestmark = pytest.mark.console


def job(console: Console, name: str) -> JobRecord:
    return console.site.store.jobs.job(JobName(name))


def forget_refusals(browser: Browser) -> None:
    """Chromium itself notes each answer that is a refusal."""
    assert browser.troubles
    assert all("422" in told for told in browser.troubles)
    browser.troubles.clear()


def test_by_form_with_an_error_first(browser: Browser, console: Console) -> None:
    browser.open("/jobs")
    browser.sign_in(TOKEN)
    browser.page.get_by_role("link", name="Submit a job").click()
    browser.page.get_by_label("Name").fill("training")
    browser.page.get_by_label("Queue").select_option("team")
    browser.page.get_by_label("Time limit").fill("soon")
    browser.page.get_by_label("Command").fill("python train.py")
    browser.press("Submit")
    wrong: Any = browser.page.locator("[aria-invalid=true]")
    assert wrong.get_attribute("name") == "time-limit"
    assert browser.page.get_by_role("alert").is_visible()
    forget_refusals(browser)
    browser.picture("submit-refused")
    wrong.fill("2h")
    browser.press("Try")
    assert "would start now" in str(browser.page.locator("section:has(#tried)").text_content())
    browser.picture("submit-tried")
    browser.press("Submit")
    assert browser.page.url.endswith("/jobs/training")
    assert job(console, "training").spec.command == ("python", "train.py")
    browser.open("/jobs")
    assert browser.page.locator("tbody th").count() == 1


def test_as_yaml_with_an_error_first(browser: Browser, console: Console) -> None:
    browser.open("/jobs/new?by=yaml&queue=team")
    browser.sign_in(TOKEN)
    area: Any = browser.page.locator("#document")
    right = area.input_value()
    area.fill(right.replace("replicas: 2", "replicas: many"))
    browser.press("Submit")
    browser.page.get_by_role("button", name="Line 9").click()
    chosen = "const t = document.getElementById('document'); t.value.slice(t.selectionStart, t.selectionEnd)"
    assert browser.page.evaluate(f"() => {{ {chosen.replace('; ', '; return ', 1)} }}").strip() == "replicas: many"
    forget_refusals(browser)
    browser.picture("submit-yaml")
    area.fill(right.replace("gpus: 4", "gpus: 3"))
    browser.press("Submit")
    assert browser.page.url.endswith("/jobs/training")
    assert job(console, "training").spec.task_groups[0].replicas == 2


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_everybody_can_submit(browser: Browser, scheme: str, width: int) -> None:
    """By the rules of axe-core, refused or not; and nothing is to be scrolled for sideways."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 800})
    browser.open("/jobs/new")
    browser.sign_in(TOKEN)
    for path in ("/jobs/new", "/jobs/new?by=yaml"):
        browser.open(path)
        for button in ("Try", "Submit"):
            if path.endswith("yaml"):
                browser.page.locator("#document").fill("kind: Job\n" * 3 + "<img src=x onerror=alert(1)>" * 9)
            browser.press(button)
            found = axe.run(browser.page).response["violations"]
            assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == [], path
            assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
    forget_refusals(browser)
