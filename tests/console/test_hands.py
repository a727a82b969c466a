"""What is out of order is found, and what is done about it by hand is done and undone, in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.health_record import HealthFinding, NodeHealth, PartHealth
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, TaskPlacement
from tests.console.conftest import Browser
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, TOKEN, spec
from tests.reconciler.web.conftest import Console

pytestmark = pytest.mark.console

EVIL = "<img src=x onerror=alert(1)>"
WHY = "fan 3 is broken, ticket 4711"


@pytest.fixture
def busy(browser: Browser, console: Console) -> Browser:
    """Signed in: n1 runs a job and half of another, a GPU of n2 is drained, and a job waits."""
    jobs, gpu = console.site.store.jobs, "n2/3"
    for name in ("runs", "shares", "waits"):
        jobs.submit(JobName(name), spec(2 if name == "runs" else 1), "ada", console.clock.now(), name)
    both = DeviceId("n1/0"), DeviceId("n1/1")
    console.site.bind("runs", TaskPlacement("worker", 0, NodeName("n1"), both))
    half = TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/2"),), MilliGpu(500), "time-slicing")
    console.site.bind("shares", half)
    finding = HealthFinding("xid-drain", gpu, "", NOW, NOW, "XID 79", int(NOW), confirmed=True)
    sick = NodeHealth(NodeName("n2"), (finding,), (PartHealth(gpu, "drained", NOW, "XID 79"),))
    console.site.store.health.keep(console.site.epoch(), (sick,))
    console.site.sighted = BackendReports({node.name: node for node in NODES}, {})
    browser.open("/")
    browser.sign_in(TOKEN)
    return browser


def texts(browser: Browser, selector: str) -> list[str]:
    return [str(text).strip() for text in browser.page.locator(selector).all_text_contents()]


def legend(browser: Browser) -> dict[str, str]:
    browser.page.wait_for_selector("#map[data-drawn]")
    return dict(zip(texts(browser, "#legend .name"), texts(browser, "#legend small"), strict=True))


def test_a_node_is_cordoned_from_its_page_and_is_seen_closed_until_it_is_not(busy: Browser) -> None:
    assert "closed to new jobs" not in legend(busy)
    busy.open("/nodes")
    busy.follow("link", "n1", exact=True)
    busy.follow("link", "Cordon…")
    assert busy.page.evaluate("document.activeElement.id") == "reason"
    busy.page.get_by_label("Reason").fill(WHY)
    busy.picture("cordon")
    busy.press("Cordon node n1")
    assert busy.page.url.endswith("/nodes/n1")
    assert any(WHY in text for text in texts(busy, ".words li"))
    busy.picture("node")
    busy.open("/")
    # What is left beside the half that a job holds is closed as well as the GPU that no job holds.
    assert legend(busy)["closed to new jobs"] == "1.5"
    busy.follow("link", "Health")
    assert "n1" in texts(busy, "#of-nodes ~ .scroll tbody th")
    busy.picture("health")
    busy.follow("link", "By hand")
    busy.picture("interventions")
    busy.follow("link", "End… cordon of n1")
    busy.press("Uncordon node n1")
    assert texts(busy, "#state ~ p") == ["It is well, and takes work."]
    busy.open("/")
    assert "closed to new jobs" not in legend(busy)


def test_a_queue_is_held_from_the_tree_and_released(busy: Browser, console: Console) -> None:
    busy.open("/queues")
    busy.follow("link", "Hold… team")
    busy.page.get_by_label("Reason").fill(EVIL)
    busy.press("Hold queue team")
    assert any(EVIL in text for text in texts(busy, "tbody th"))
    busy.picture("queues-held")
    busy.open("/jobs/waits")
    (said,) = (each for each in texts(busy, "li") if "queue team is held by alice until" in each)
    assert said.endswith(EVIL)
    assert str(_until(console)) in [at.get_attribute("datetime") for at in busy.page.locator("li time").all()]
    busy.open("/queues")
    busy.follow("link", "Release… team")
    busy.press("Release queue team")
    assert not console.site.store.interventions.in_force()


def _until(console: Console) -> object:
    return console.site.store.interventions.in_force()[0].until


def test_a_job_is_boosted_and_what_was_refused_is_still_there(busy: Browser, console: Console) -> None:
    busy.open("/jobs/waits")
    busy.follow("link", "Boost…")
    busy.page.get_by_label("Reason").fill(EVIL)
    busy.page.get_by_label("Until").fill("tomorrow")
    busy.press("Boost job waits")
    assert busy.page.get_by_label("Reason").input_value() == EVIL
    assert busy.page.get_by_label("Until").input_value() == "tomorrow"
    assert "'tomorrow' is neither a span nor a time." in texts(busy, "#until-problem")[0]
    assert busy.page.evaluate("document.activeElement.id") == "until"
    busy.picture("refused")
    # Chromium itself notes each answer that is a refusal.
    assert all("422" in told for told in busy.troubles)
    busy.troubles.clear()
    busy.page.get_by_label("Until").fill("2h")
    busy.page.keyboard.press("Enter")
    busy.page.wait_for_url("**/jobs/waits")
    busy.page.wait_for_selector("text=End its boost…")
    assert console.site.store.interventions.in_force()[0].reason == EVIL


def test_a_click_on_the_map_leads_to_the_node(busy: Browser) -> None:
    legend(busy)
    box = busy.page.locator("#map").bounding_box()
    link: Any = busy.page.locator("#tip a").first
    for across in range(1, 60):
        busy.page.mouse.click(box["x"] + box["width"] * across / 60, box["y"] + box["height"] / 2)
        if link.count():
            break
    name = str(link.text_content()).removeprefix("Open ")
    with busy.page.expect_navigation():
        link.click()
    busy.settle()
    assert texts(busy, "h1") == [name]
    busy.open("/")
    legend(busy)
    busy.page.locator("#map").focus()
    busy.page.keyboard.press("ArrowRight")
    busy.follow("link", "Its nodes")
    assert texts(busy, "h1") == ["Nodes"] or texts(busy, "h1") == ["n1"]


PATHS = (
    "/health",
    "/nodes",
    "/nodes?state=out+of+order",
    "/nodes/n1",
    "/nodes/n2",
    "/interventions",
    "/nodes/n1/cordon",
    "/nodes/n2/uncordon",
    "/queues/team/hold",
    "/jobs/waits/boost",
    "/jobs/waits",
    "/queues",
)


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 360), ("dark", 1280), ("light", 2560)])
def test_everybody_can_use_it(busy: Browser, scheme: str, width: int) -> None:
    """By the rules of axe-core; and nothing is to be scrolled for sideways."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    busy.open("/queues/team/hold")
    busy.page.get_by_label("Reason").fill(EVIL)
    busy.press("Hold queue team")
    busy.page.emulate_media(color_scheme=scheme)
    busy.page.set_viewport_size({"width": width, "height": 800})
    for path in PATHS:
        busy.open(path)
        found = axe.run(busy.page).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == [], path
        assert busy.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        if path in ("/health", "/nodes/n1") and width in (360, 1280):
            busy.picture(f"hands{path.replace('/', '-')}-{scheme}-{width}")
