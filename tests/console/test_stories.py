"""What people do with the console, done in a real browser."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, QueueName
from solver.policy.policy import Queue, Quota, policy_of
from tests.console.conftest import Browser
from tests.reconciler.api.conftest import H100, TOKEN, spec
from tests.reconciler.web.conftest import Console

pytestmark = pytest.mark.console

EVIL = ("<img src=x onerror=alert(1)>", "<svg onload=alert(2)>", "'\"><script>alert(3)</script>", "{{ 7 * 7 }}")
PAGES = ("/", "/queues", "/jobs", "/jobs/waits", "/jobs/waits/logs", "/rounds", "/rounds/1", "/policy", "/sign-in")


def texts(browser: Browser, selector: str) -> list[str]:
    return [str(text) for text in browser.page.locator(selector).all_text_contents()]


def test_a_stranger_is_led_to_signing_in_and_back_to_what_was_wanted(browser: Browser) -> None:
    browser.open("/queues")
    assert browser.page.url.endswith("/sign-in?next=%2Fqueues")
    assert not browser.page.locator("#insecure").is_visible()
    browser.picture("sign-in")
    browser.sign_in(TOKEN)
    assert browser.page.url.endswith("/queues")
    assert texts(browser, "tbody th") == ["org", "other", "team"]
    browser.picture("queues")
    browser.page.get_by_role("link", name="Cluster").click()
    browser.page.wait_for_url("**/")
    assert texts(browser, "nav a[aria-current]") == ["Cluster"]
    browser.picture("cluster")
    browser.press("Sign out")
    browser.open("/")
    assert "/sign-in" in browser.page.url


def test_a_wrong_token_is_told(browser: Browser) -> None:
    browser.open("/")
    browser.sign_in("wrong")
    assert (
        browser.page.get_by_role("alert").first.text_content() == "This token is no good here: no user has this token."
    )
    # Chromium itself notes each answer that is a refusal.
    assert all("401" in told for told in browser.troubles)
    browser.troubles.clear()


def test_no_script_sees_the_cookie(browser: Browser) -> None:
    browser.open("/")
    browser.sign_in(TOKEN)
    (cookie,) = browser.page.context.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Lax")
    assert browser.page.evaluate("document.cookie") == ""


def test_a_session_that_ended_meanwhile_leads_back_after_signing_in_again(browser: Browser, console: Console) -> None:
    browser.open("/queues")
    browser.sign_in(TOKEN)
    for session in console.site.store.sessions.all():
        console.site.store.sessions.end(session.secret_hash)
    browser.page.reload()
    assert "Your session is over" in texts(browser, "[role=alert]")[0]
    browser.sign_in(TOKEN)
    assert browser.page.url.endswith("/queues")


@pytest.mark.parametrize("name", EVIL)
def test_a_name_stays_a_name(browser: Browser, console: Console, name: str) -> None:
    """A dialog, an image that is asked for or a script that is refused would end this test."""
    console.site.policy = policy_of((Queue(QueueName(name), None, (Quota(H100, guaranteed=MilliGpu.gpus(4)),)),))
    told = msgspec.structs.replace(console.site.told.conditions[0], message=name, status=False)
    console.site.told = msgspec.structs.replace(console.site.told, conditions=(told,))
    browser.open("/queues")
    browser.sign_in(TOKEN)
    assert texts(browser, "tbody th") == [name]
    browser.open("/")
    assert any(name in text for text in texts(browser, "li"))


def test_from_the_list_to_a_job_that_waits_and_why(browser: Browser, console: Console) -> None:
    for name, gpus in (("waits", 5), ("other", 1)):
        console.site.store.jobs.submit(JobName(name), spec(gpus), "ada", console.clock.now(), f"key-of-{name}")
    browser.open("/jobs")
    browser.sign_in(TOKEN)
    browser.page.get_by_label("Name has").fill("wa")
    browser.press("Show")
    assert texts(browser, "tbody th") == ["waits"]
    browser.picture("jobs")
    browser.page.get_by_role("link", name="waits").click()
    browser.page.wait_for_url("**/jobs/waits")
    browser.page.wait_for_selector(".words li")
    assert texts(browser, "h1") == ["waits"]
    browser.picture("job")


def test_a_job_is_cancelled_once_that_was_confirmed(browser: Browser, console: Console) -> None:
    console.site.store.jobs.submit(JobName("waits"), spec(5), "ada", console.clock.now(), "key")
    browser.open("/jobs/waits")
    browser.sign_in(TOKEN)
    browser.page.get_by_text("Cancel…").click()
    assert not console.site.store.jobs.job(JobName("waits")).cancel_requested_by
    browser.press("Cancel waits")
    browser.page.wait_for_selector("td:has-text('cancel-asked')")
    assert console.site.store.jobs.job(JobName("waits")).cancel_requested_by == "alice"


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 360), ("dark", 1280), ("light", 2560)])
def test_everybody_can_use_it(browser: Browser, console: Console, scheme: str, width: int) -> None:
    """By the rules of axe-core; and nothing is to be scrolled for sideways."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    console.site.store.jobs.submit(JobName("waits"), spec(5), "ada", console.clock.now(), "key")
    console.site.record_round()
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 800})
    browser.open("/")
    browser.sign_in(TOKEN)
    for path in PAGES:
        browser.open(path)
        found = axe.run(browser.page).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == [], path
        assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path


def test_the_keyboard_reaches_the_content_first(browser: Browser) -> None:
    browser.open("/")
    browser.sign_in(TOKEN)
    browser.page.keyboard.press("Tab")
    assert browser.page.evaluate("document.activeElement.textContent") == "To the content"


def test_a_theme_that_was_chosen_stays(browser: Browser) -> None:
    browser.open("/")
    browser.sign_in(TOKEN)
    browser.page.get_by_label("Theme").select_option("dark")
    browser.open("/queues")
    assert browser.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_page_asks_for_little(browser: Browser) -> None:
    browser.open("/")
    browser.sign_in(TOKEN)
    asked = list[str]()
    browser.page.on("request", lambda request: asked.append(request.url))
    browser.open("/queues")
    assert len(asked) <= 10
    assert all(url.startswith(browser.url) for url in asked)
    assert browser.page.evaluate("document.querySelectorAll('*').length") < 3_000


def test_moments_are_told_in_the_time_zone_of_the_browser(chromium: Any, console: Console) -> None:
    console.site.store.jobs.submit(JobName("waits"), spec(), "ada", console.clock.now(), "key")
    context = chromium.new_context(timezone_id="Asia/Kolkata", locale="en-GB")
    browser = Browser(context.new_page(), console.url)
    browser.open("/jobs/waits")
    browser.sign_in(TOKEN)
    moment: Any = browser.page.locator(".figures time").first
    written = str(console.clock.now())
    assert (moment.get_attribute("title"), moment.get_attribute("datetime")) == (written, written)
    assert "5:30:00" in str(moment.text_content())
    assert browser.page.locator("#zone").text_content() == "Times are in Asia/Calcutta; point at one for UTC."
    moment.evaluate("element => { element.textContent = '2026-01-02T20:00:00Z'; }")
    browser.page.wait_for_function("element => element.textContent.includes('01:30:00')", arg=moment.element_handle())
    assert browser.troubles == []
    context.close()
