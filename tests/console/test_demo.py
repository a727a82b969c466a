"""The busy cluster that `make demo-console` serves: a real `quorate run` in a real browser."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.conftest import Browser

pytestmark = pytest.mark.console

OVER_TIME = {
    "busy-time": "/time?type=A100-SXM4-80GB&page=3&from=12h+ago&to=in+12h",
    "busy-time-queues": "/time?by=queue&queue=research&from=12h+ago&to=in+12h",
    "busy-queue": "/queues/research?from=12h+ago",
    "busy-job-time": "/jobs/trains-research-language-h200-000",
}
"""Pages of which docs/ has a picture, by its name."""


@pytest.fixture
def busy(chromium: Any) -> Iterator[tuple[Browser, str]]:
    """The browser before it, and the token."""
    command = [sys.executable, "-m", "hack.demo.console", "--for", "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        url, token = (demo.stdout.readline().split()[-1] for _ in range(2))
        context = chromium.new_context(viewport={"width": 1280, "height": 860})
        window = Browser(context.new_page(), url.rstrip("/"))
        yield window, token
        context.close()
        demo.terminate()
    assert window.troubles == []


def test_from_the_map_to_a_job_that_waits_and_the_round_that_said_so(busy: tuple[Browser, str]) -> None:
    browser, token = busy
    browser.open("/")
    browser.sign_in(token)
    browser.page.wait_for_selector("#map[data-drawn]")
    assert re.match(r"4,000 GPUs on 500 nodes: ", str(browser.page.locator(".figures").text_content()))
    browser.picture("busy-cluster")
    browser.page.get_by_role("link", name="Queues").click()
    browser.page.wait_for_selector("text=research-language")
    browser.picture("busy-queues")
    browser.open("/jobs?state=queued&text=trains-research-vision")
    browser.page.locator("tbody th a").first.click()
    browser.page.wait_for_selector(".words li a[href^='/policy/documents/']")
    browser.picture("busy-job")
    browser.page.get_by_role("link", name="Rounds").click()
    browser.page.locator("tbody th a").first.click()
    browser.page.wait_for_selector("#steps")
    browser.picture("busy-round")
    for name, path in OVER_TIME.items():
        browser.open(path)
        browser.picture(name)
    while not browser.page.get_by_text("More H100 for vision").count():
        browser.open("/policy")
    browser.picture("busy-policy")
    browser.page.locator("section[aria-labelledby=held] a").first.click()
    browser.page.wait_for_selector("text=More H100 for vision")
    browser.picture("busy-revision")
