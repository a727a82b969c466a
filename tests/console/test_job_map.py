"""A job's own picture of racks, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from solver.model.cluster import DeviceId, NodeName
from solver.model.workload import JobName, TaskPlacement
from tests.console.conftest import Browser
from tests.reconciler.api.conftest import TOKEN, spec
from tests.reconciler.web.conftest import Console

pytestmark = pytest.mark.console


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_everybody_can_see_where_a_job_is(browser: Browser, console: Console, scheme: str, width: int) -> None:
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    console.site.store.jobs.submit(JobName("runs"), spec(2), "ada", console.clock.now(), "key")
    gpus = DeviceId("n1/0"), DeviceId("n1/1")
    console.site.bind("runs", TaskPlacement("worker", 0, NodeName("n1"), gpus))
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 800})
    browser.open("/jobs/runs")
    browser.sign_in(TOKEN)
    assert browser.page.locator(".places-map").is_visible()
    browser.picture("job-map")
    found = axe.run(browser.page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
