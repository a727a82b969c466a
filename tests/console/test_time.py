"""Time is dragged through, gone through by keys and links, and looked at by everybody, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from reconciler.model.clock import VirtualClock
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import Claim
from solver.model.inflight import InFlight, Intent, Reservation
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Waits
from tests.console.conftest import Browser
from tests.reconciler.api.conftest import H100, NOW, TOKEN, Site, spec
from tests.reconciler.web.conftest import Console, serving_console
from tests.reconciler.web.test_time_pages import node, task

pytestmark = pytest.mark.console

HOUR = 3_600_000
LATER = NOW.after(HOUR)
EVIL = "<img src=x onerror=alert(1)>"
WAIT_MS = 60_000
PAGES = ("/time", "/time?by=queue", "/queues/org?from=1h+ago", "/jobs/resnet-2")


def holds(site: Site, name: str, since: int, hours: int, *tasks: Any, queue: str = "team") -> None:
    at = NOW.after(since)
    site.store.jobs.submit(JobName(name), spec(queue=queue), "ada", NOW.after(-5 * HOUR), f"key-{name}")
    claim = Claim(JobName(name), 1, tasks, at, time_limit=Duration(hours * HOUR), gpu_types=(("worker", H100),))
    site.store.ledger.claim(site.epoch(), claim, Intent("start", JobName(name), 1, at, at, tasks))


@pytest.fixture
def console(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """Twelve nodes, of which jobs of two queues hold some; one is reserved for a job that waits, another one could start."""
    names = [f"n{number}" for number in range(1, 12)]
    nodes = tuple(node(name, f"r{at // 4}") for at, name in enumerate(names))
    monkeypatch.setattr("tests.reconciler.api.conftest.NODES", (*nodes, node(EVIL, EVIL)))
    for at, name in enumerate(names[:8]):
        holds(site, f"resnet-{at}", (at - 6) * HOUR // 2, 4 + at, task(name, 0, 1, 2))
        holds(site, f"notebook-{at}", -at * HOUR // 4, 1 + at, task(name, 3), queue="other")
    for at in (0, 3, 5):
        site.store.ledger.release(site.epoch(), JobName(f"resnet-{at}"), 1, NOW.after(HOUR // 2))
    for name in ("waits", "next", EVIL):
        site.store.jobs.submit(JobName(name), spec(2), "ada", NOW, f"key-{name}")
    site.store.history.record_event(Event(NOW, "queued", "resnet-2", "", "loop", "queued"))

    def snapshot() -> Snapshot:
        seen = site.snapshot()
        claims = {claim.job: claim for claim in site.store.ledger.claims()}
        jobs = [
            msgspec.structs.replace(job, started_at=claims[job.name].since, time_limit=claims[job.name].time_limit)
            if job.name in claims
            else job
            for job in seen.jobs
        ]
        kept = Reservation(JobName("waits"), (task("n10", 0, 1),), LATER.after(HOUR))
        return msgspec.structs.replace(seen, time=LATER, jobs=tuple(jobs), in_flight=InFlight(reservations=(kept,)))

    verdicts = (
        Waits(JobName("next"), QueueName("team"), (), EarliestStart(LATER.after(2 * HOUR))),
        Waits(JobName(EVIL), QueueName("team"), (), EarliestStart(LATER.after(3 * HOUR), by_history=True)),
    )
    services = replace(site.services(), clock=VirtualClock(LATER), snapshot=snapshot, verdicts=lambda: verdicts)
    with serving_console(site, tmp_path, services=services) as running:
        yield running


def window(browser: Browser) -> tuple[Instant, Instant]:
    """From when to when the picture is."""
    picture = browser.page.locator("#gantt")
    return Instant.parse(picture.get_attribute("data-from")), Instant.parse(picture.get_attribute("data-to"))


def moved_from(browser: Browser, before: tuple[Instant, Instant]) -> tuple[Instant, Instant]:
    """The window once it is another."""
    browser.page.wait_for_selector(f"#gantt:not([data-from='{before[0]}'])", timeout=WAIT_MS)
    return window(browser)


@pytest.fixture
def picture(browser: Browser) -> Browser:
    browser.open("/time?from=12h+ago&to=in+12h")
    browser.sign_in(TOKEN)
    # It is to be the same page throughout.
    browser.page.evaluate("() => { window.unchanged = true; }")
    return browser


def drag(browser: Browser, by: float) -> float:
    """Along the picture, by a part of its width; the width in pixels."""
    cell: Any = browser.page.locator("#gantt td.when").first
    box = cell.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    browser.page.mouse.move(x, y)
    browser.page.mouse.down()
    browser.page.mouse.move(x + by * box["width"] / 2, y, steps=4)
    assert browser.page.locator("#gantt .moves").first.get_attribute("transform")
    browser.page.mouse.move(x + by * box["width"], y, steps=4)
    browser.page.mouse.up()
    return float(box["width"])


def test_it_is_dragged_into_the_past_and_back(picture: Browser) -> None:
    before = window(picture)
    drag(picture, 0.25)
    after = moved_from(picture, before)
    # A quarter of a day, to the minute and to the pixel.
    assert abs((before[0] - after[0]) - 6 * HOUR) <= 10 * 60_000
    assert after[1] - after[0] == before[1] - before[0]
    asked = parse_qs(urlsplit(picture.page.url).query)
    assert (Instant.parse(asked["from"][0].replace("Z", ":00Z")), picture.page.get_by_label("From").input_value()) == (
        after[0],
        asked["from"][0],
    )
    assert not picture.page.locator("#gantt .moves[transform]").count()
    picture.page.go_back()
    assert moved_from(picture, after) == before
    picture.page.go_forward()
    assert moved_from(picture, before) == after
    assert picture.page.evaluate("window.unchanged")


def test_a_drag_is_no_click_on_a_job_and_a_click_is(picture: Browser) -> None:
    before = window(picture)
    bar: Any = picture.page.locator("#gantt a[href='/jobs/resnet-2'] rect").first
    box = bar.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    picture.page.mouse.move(x, y)
    picture.page.mouse.down()
    picture.page.mouse.move(x + 40, y, steps=3)
    picture.page.mouse.up()
    moved_from(picture, before)
    assert "/time?" in picture.page.url
    picture.page.locator("#gantt a[href='/jobs/resnet-2'] rect").first.click()
    picture.page.wait_for_url("**/jobs/resnet-2")


def test_keys_go_earlier_and_later_and_zoom_and_keep_the_focus(picture: Browser) -> None:
    picture.page.locator("#gantt").focus()
    start = at = window(picture)
    for key, begins, length in (
        ("ArrowLeft", -6, 24),
        ("ArrowRight", 0, 24),
        ("+", 6, 12),
        ("-", 0, 24),
    ):
        picture.page.keyboard.press(key)
        at = moved_from(picture, at)
        assert ((at[0] - start[0]) / HOUR, (at[1] - at[0]) / HOUR) == (begins, length), key
    assert picture.page.evaluate("document.activeElement.id") == "gantt"
    assert "11/14/2023" in str(picture.page.locator("#said").text_content())
    assert picture.page.evaluate("window.unchanged")


def test_links_go_earlier_later_and_back_to_now(picture: Browser) -> None:
    before = window(picture)
    picture.follow("link", "Earlier")
    assert before[0] - window(picture)[0] == 12 * HOUR
    picture.follow("link", "Later")
    picture.follow("link", "1 week")
    picture.follow("link", "Now", exact=True)
    assert re.search(r"from=84h\+ago&to=in\+84h", picture.page.url)


def test_marks_are_in_the_time_zone_of_the_browser(chromium: Any, console: Console) -> None:
    context = chromium.new_context(timezone_id="Asia/Kolkata", locale="en-GB")
    browser = Browser(context.new_page(), console.url)
    browser.open("/time?from=2023-11-14T20:00Z&to=2023-11-15T02:00Z")
    browser.sign_in(TOKEN)
    marks = browser.page.locator("#gantt text.t-label").all_text_contents()
    assert marks[0] == "01:30"
    assert browser.troubles == []
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280), ("light", 1280), ("dark", 360)])
def test_everybody_can_see_time(browser: Browser, scheme: str, width: int) -> None:
    """By the rules of axe-core, with the tables open; and nothing is to be scrolled for sideways."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 800})
    browser.open("/")
    browser.sign_in(TOKEN)
    for path in PAGES:
        browser.open(path)
        name = re.sub(r"\W+", "-", path.partition("?from")[0].strip("/"))
        browser.picture(f"{name}-{scheme}-{width}")
        for details in browser.page.locator("main details:not(.verbs details)").all():
            details.evaluate("element => { element.open = true; }")
        found = axe.run(browser.page).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == [], path
        assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        assert browser.page.evaluate("document.querySelectorAll('*').length") < 3_000, path


def test_names_stay_names(browser: Browser) -> None:
    """A dialog, an image that is asked for or a script that is refused would end this test."""
    browser.open("/time?rack=<img src=x onerror=alert(1)>")
    browser.sign_in(TOKEN)
    assert browser.page.locator("#gantt tbody th a").all_text_contents() == [EVIL]
    browser.open("/time?by=queue")
    browser.page.locator("summary").click()
    assert EVIL in browser.page.locator("section table tbody td a").all_text_contents()
