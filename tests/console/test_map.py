"""The map of the cluster, looked at, pointed at and walked through by keys."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from reconciler.web.cluster_map import ClusterMap, Suspects, map_of
from reconciler.web.cluster_summary import ClusterSummary
from solver.model.cluster import DeviceId, Gpu, GpuType, MigInstance, NodeName
from solver.model.document import encode
from solver.model.inflight import InFlight, Intent, Reservation, declared_holder
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobName, MigSlot, TaskPlacement
from tests.console.conftest import Browser
from tests.reconciler.api.conftest import POLICY, TOKEN, spec
from tests.reconciler.web.conftest import Console
from tests.reconciler.web.test_cluster_map import job
from tests.reconciler.web.test_cluster_summary import node, task

pytestmark = pytest.mark.console
EVIL = "<img src=x onerror=alert(1)>"


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


def put(browser: Browser, columns: ClusterMap) -> None:
    """In place of the map that the server has; the page stays with it."""
    headers = {"ETag": '"put"', "content-type": "application/json"}
    body = encode(columns).decode()
    browser.page.route("**/map.json", lambda route: route.fulfill(status=200, body=body, headers=headers))
    browser.page.get_by_role("button", name="Pause").click()


def shown(browser: Browser, path: str) -> None:
    """The map of a page that has just been loaded."""
    browser.page.goto("about:blank")
    browser.page.goto(browser.url + path)
    browser.page.wait_for_selector("#map[data-drawn]")


def text(browser: Browser, selector: str) -> str:
    return str(browser.page.locator(selector).text_content())


def test_a_job_is_found_from_its_page_and_from_the_address(mapped: Browser, console: Console) -> None:
    begin(console, "runs", 0, 1)
    mapped.open("/jobs/runs")
    mapped.follow("link", "On the map")
    assert mapped.page.url == f"{mapped.url}/?job=runs"
    mapped.page.wait_for_selector("#map[data-found='2']")
    assert text(mapped, "#found").startswith("runs of ada, team: 2 GPUs held on 1 node of ")
    mapped.follow("link", "Open runs")
    assert mapped.page.url == f"{mapped.url}/jobs/runs"


def test_a_job_is_found_by_a_part_of_its_name(mapped: Browser, console: Console) -> None:
    begin(console, "trains-a", 0, 1)
    begin(console, "trains-b", 2)
    mapped.page.wait_for_selector("#legend button[data-kind=c1]:has-text('3')", timeout=30_000)
    field: Any = mapped.page.get_by_label("Find a job")
    for typed, told, found in (
        ("NS-B", "trains-b of ada, team: 1 GPU held on 1 node of ", "1"),
        ("trains", "2 jobs of the map have trains in their names: trains-a, trains-b", ""),
        (EVIL, f"No job called {EVIL} holds GPUs of the map, and none are kept for one.", ""),
    ):
        field.fill(typed)
        field.press("Enter")
        mapped.page.wait_for_selector(f"#map[data-found='{found}']")
        assert text(mapped, "#found").startswith(told)
    # What was looked for is in the address, and can be sent.
    there = mapped.page.url
    shown(mapped, there.removeprefix(mapped.url))
    assert mapped.page.get_by_label("Find a job").input_value() == EVIL


def test_a_job_of_the_legend_is_seen_alone_and_the_address_says_so(mapped: Browser, console: Console) -> None:
    begin(console, "runs", 0, 1)
    mapped.page.wait_for_selector("#legend button[data-kind=c1]", timeout=30_000)
    mapped.page.get_by_label("Colour by").select_option("job")
    button: Any = mapped.page.locator("#legend button:has-text('runs')")
    button.click()
    assert (button.get_attribute("aria-pressed"), mapped.page.url) == ("true", f"{mapped.url}/?by=job&job=runs")
    button.click()
    assert (button.get_attribute("aria-pressed"), mapped.page.url) == ("false", f"{mapped.url}/?by=job")
    assert text(mapped, "#found") == ""


def test_keys_go_from_gpu_to_gpu_in_a_rack_and_say_what_is_so_there(mapped: Browser, console: Console) -> None:
    begin(console, "runs", 0, 1)
    mapped.page.wait_for_selector("#legend button[data-kind=c1]", timeout=30_000)
    mapped.page.locator("#map").focus()
    for key in ("ArrowRight", "Enter", "ArrowRight"):
        mapped.page.keyboard.press(key)
    first = text(mapped, "#said")
    assert re.match(r"n1, GPU 0 · .* · runs of ada · team · about to run\. Open n1 Open runs", first), first
    for _ in range(2):
        mapped.page.keyboard.press("ArrowRight")
    assert re.match(r"n1, GPU 2 · .* · held by no job\. Open n1", text(mapped, "#said"))
    mapped.page.keyboard.press("Escape")
    assert text(mapped, "#said").startswith("Rack ")
    assert "#rack=" in mapped.page.url
    mapped.page.keyboard.press("Escape")
    mapped.page.wait_for_url(mapped.url + "/")


COUNTED = """async (columns) => {
  const { read } = await import("/static/map-layout.js");
  const { Kinds, useOf } = await import("/static/map-kinds.js");
  const world = read(JSON.parse(columns));
  return ["queue", "job", "class", "type", "state"].map((choice) => {
    const kinds = new Kinds(world, choice);
    return world.racks.map((name, rack) => {
      const use = { held: 0, free: 0, unusable: 0 };
      for (const [kind, milli] of kinds.ofRack[rack]) use[useOf(kind)] += milli;
      return [name, use.held, use.free, use.unusable];
    });
  });
}"""


def mixed() -> tuple[Snapshot, Suspects]:
    """Racks with all that there is: shares and instances on open and closed nodes, held and not, kept, leaving, not well."""
    quarters = (MigInstance("2g.12gb", 0), MigInstance("1g.6gb", 3))
    cut = node("cut", "r1", island="left")
    cut = msgspec.structs.replace(
        cut,
        gpu_type=GpuType("A30-24GB"),
        gpus=(msgspec.structs.replace(cut.gpus[0], instances=quarters), *cut.gpus[1:]),
    )
    ill = node("ill", "r1", island="left")
    ill = msgspec.structs.replace(ill, gpus=tuple(msgspec.structs.replace(gpu, healthy=False) for gpu in ill.gpus))
    nodes = (cut, ill, node("shut", "r2", cordoned=True), node("lost", "r2", ready=False), node("well", "r2"))
    slot = MigSlot(DeviceId("cut/0"), quarters[1], MilliGpu(250))
    jobs = (
        job("in-quarter", TaskPlacement("worker", 0, NodeName("cut"), mig=slot)),
        job("on-ill", task("ill", 0)),
        job("part-of-ill", task("ill", 1, share=MilliGpu(400))),
        job("on-shut", task("shut", 0), task("shut", 1, share=MilliGpu(300))),
        job("in-part", task("well", 0, share=MilliGpu(125))),
        job("leaves", task("well", 1)),
        msgspec.structs.replace(job("waits"), phase="pending"),
    )
    hour = Instant(3_600_000)
    in_flight = InFlight(
        intents=(
            Intent("nominate", JobName("waits"), 1, Instant(0), hour, (task("well", 1, 2),)),
            Intent("stop", JobName("leaves"), 1, Instant(0), hour, purpose="evict"),
        ),
        reservations=(Reservation(declared_holder("course"), (task("cut", 3),), hour),),
    )
    return snapshot_of(Instant(0), nodes, jobs, in_flight), {(NodeName("well"), "well/3")}


def test_the_map_counts_as_the_tables_do_whatever_it_is_coloured_by(mapped: Browser) -> None:
    snapshot, suspects = mixed()
    columns = map_of(snapshot, POLICY, suspects)
    by_rack = {of.name: [of.held, of.free, of.unusable] for of in ClusterSummary.of(snapshot).racks}
    for racks in mapped.page.evaluate(COUNTED, encode(columns).decode()):
        assert {name: use for name, *use in racks} == by_rack


def test_what_is_free_but_of_no_use_has_colours_of_its_own(mapped: Browser) -> None:
    put(mapped, map_of(mixed()[0], POLICY, mixed()[1]))
    shown(mapped, "/?by=state")
    assert legend(mapped) == {
        # The quarter, what is on nodes that are closed or not well, and a share.
        "held": f"{0.25 + 1 + 0.4 + 1.3 + 0.125:g}",
        "held, leaves": "1",
        "promised": "1",
        "reserved": "1",
        "free": "2",
        "free in parts": f"{0.5 + 0.875:g}",
        "left over": "0.25",
        "free, suspect": "1",
        "closed to new jobs": f"{2.7 + 4:g}",
        "not well": f"{0.6 + 2:g}",
    }
    button: Any = mapped.page.locator("#legend button[data-kind=rest]")
    button.focus()
    mapped.page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"


def test_a_gpu_says_what_is_kept_on_it_and_what_its_instances_are(mapped: Browser) -> None:
    put(mapped, map_of(mixed()[0], POLICY, mixed()[1]))
    shown(mapped, "/#rack=r1")
    mapped.page.locator("#map").focus()
    said = set[str]()
    for key in ("ArrowRight",) * 4 + ("ArrowLeft",):
        mapped.page.keyboard.press(key)
        said.add(text(mapped, "#said"))
    for told in (
        "island left · 2g.12gb (0.5): held by no job · 1g.6gb (0.25): in-quarter of ada, team, about to run · ",
        " · 0.25 of it: left over by its instances",
        "reserved by the Reservation course, from ",
    ):
        assert any(told in each for each in said), (told, said)


@pytest.mark.parametrize("name", [EVIL, "{{ 7 * 7 }}"])
def test_names_on_the_map_stay_names(mapped: Browser, name: str) -> None:
    """A dialog, an image that is asked for or a script that is refused would end this test."""
    runs = msgspec.structs.replace(job(name, task(name, 0)), user=name)
    columns = map_of(snapshot_of(Instant(0), (node(name, name, block=name, island=name),), (runs,)), POLICY)
    put(mapped, msgspec.structs.replace(columns, queues=(name,) * len(columns.queues)))
    shown(mapped, f"/?by=job&job={quote(name)}#rack={quote(name)}")
    assert legend(mapped)[name] == "1"
    assert text(mapped, "#found").startswith(f"{name} of {name}, {name}: 1 GPU held on 1 node of {name} / {name}.")
    mapped.page.locator("#map").focus()
    mapped.page.keyboard.press("ArrowRight")
    assert f"{name}, GPU 0 · " in text(mapped, "#said")


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_everybody_can_use_the_map(mapped: Browser, scheme: str, width: int) -> None:
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    put(mapped, map_of(mixed()[0], POLICY, mixed()[1]))
    mapped.page.emulate_media(color_scheme=scheme)
    mapped.page.set_viewport_size({"width": width, "height": 900})
    for path in ("/?by=state&job=on-shut#rack=r2", "/?by=job"):
        shown(mapped, path)
        mapped.picture(f"map-{'state' if 'state' in path else 'job'}-{width}")
        found = axe.run(mapped.page).response["violations"]
        assert [(each["id"], [one["html"] for one in each["nodes"]]) for each in found] == []
        assert mapped.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


DRAWS = """
globalThis.draws = {};
for (const name of ["fillRect", "drawImage", "strokeRect", "stroke", "fill", "fillText"]) {
  const real = CanvasRenderingContext2D.prototype[name];
  CanvasRenderingContext2D.prototype[name] = function (...given) {
    globalThis.draws[name] = (globalThis.draws[name] ?? 0) + 1;
    return real.apply(this, given);
  };
}
"""
FRAME = """(press) => new Promise((resolve) => {
  globalThis.draws = {};
  document.getElementById(press).click();
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(globalThis.draws)));
})"""


def large() -> ClusterMap:
    """100,000 GPUs in 391 racks of islands of four nodes, all but a few of them held by jobs of 16."""
    gpus = tuple(range(8))
    nodes = tuple(
        msgspec.structs.replace(
            node(f"n{n}", f"r{n // 32}", block=f"b{n // 512}", island=f"i{n // 4}"),
            gpus=tuple(Gpu(DeviceId(f"n{n}/{gpu}"), gpu) for gpu in gpus),
        )
        for n in range(12_500)
    )
    jobs = tuple(job(f"j{n}", task(f"n{n}", *gpus), task(f"n{n + 1}", *gpus)) for n in range(0, 12_400, 2))
    return map_of(snapshot_of(Instant(0), nodes, jobs), POLICY)


def test_what_is_drawn_of_100_000_gpus_depends_on_what_is_in_sight(mapped: Browser) -> None:
    put(mapped, large())
    mapped.page.add_init_script(DRAWS)
    mapped.page.set_viewport_size({"width": 360, "height": 700})
    shown(mapped, "/?by=queue")
    far = mapped.page.evaluate(FRAME, "zoom-fit")
    # Bars: of each rack the kinds in it, and the names of blocks.
    assert (far.get("drawImage", 0), sum(far.values()) <= 900) == (0, True), far
    shown(mapped, "/?by=job")
    jobs = mapped.page.evaluate(FRAME, "zoom-fit")
    assert (jobs["drawImage"], sum(jobs.values()) <= 60) == (1, True), jobs
    mapped.page.set_viewport_size({"width": 1280, "height": 900})
    shown(mapped, "/?by=job")
    middle = mapped.page.evaluate(FRAME, "zoom-fit")
    assert (middle["drawImage"], sum(middle.values()) <= 60) == (1, True), middle
    shown(mapped, "/?by=job#rack=r200")
    near = mapped.page.evaluate(FRAME, "zoom-in")
    assert (near.get("drawImage", 0), sum(near.values()) <= 2_500) == (0, True), near


def test_a_map_that_can_not_be_fetched_is_told(browser: Browser) -> None:
    browser.page.route("**/map.json", lambda route: route.abort())
    browser.open("/")
    browser.sign_in(TOKEN)
    browser.page.wait_for_selector("#as-of:has-text('not up to date')")
    browser.troubles.clear()
