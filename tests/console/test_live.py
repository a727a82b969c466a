"""Pages follow what happens, all tabs of a browser by one stream; and say it where they can't."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.api import views
from reconciler.api.stream_seats import StreamSeat, StreamSeats
from reconciler.model.job_record import JobOutcome
from reconciler.model.task_log import GapNotice
from reconciler.protocols.history import Event
from reconciler.web import live_routes, live_stream
from reconciler.web.cluster_map import ClusterMap, map_of
from reconciler.web.map_change import map_change
from solver.model.cluster import DeviceId, GpuType, MigInstance, NodeName
from solver.model.document import encode
from solver.model.inflight import InFlight, Intent, Reservation
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import JobName, TaskPlacement
from tests.console.conftest import Browser
from tests.reconciler.api.conftest import NOW, POLICY, TOKEN, Site, spec
from tests.reconciler.web.conftest import Console, serving_console
from tests.reconciler.web.test_cluster_map import job
from tests.reconciler.web.test_cluster_summary import node, task
from tests.reconciler.web.test_live import Passes

pytestmark = pytest.mark.console
WAIT_MS = 60_000
LIVE = "html[data-fare=live]"


class Streams:
    """How many were asked for, and how many are open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.seats: StreamSeats
        real = StreamSeats.take

        def take(seats: StreamSeats, user: str) -> StreamSeat:
            self.asked += 1
            self.seats = seats
            return real(seats, user)

        monkeypatch.setattr(StreamSeats, "take", take)

    @property
    def open(self) -> int:
        return self.seats.taken


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    return Streams(monkeypatch)


@pytest.fixture
def passes(site: Site) -> Passes:
    return Passes(site)


@pytest.fixture
def console(
    site: Site, passes: Passes, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Console]:
    """Its passes are taken by hand; how it fares is looked at with each look. `streams` counts."""
    assert not streams.asked
    monkeypatch.setattr(live_stream, "STANDING_EVERY_S", 0.0)
    plain = site.services()
    services = replace(plain, snapshot=passes.last, status=lambda: passes.status(plain.status()))
    with serving_console(site, tmp_path, services=services) as served:
        yield served


def submit(console: Console, name: str, gpus: int = 1) -> None:
    console.site.store.jobs.submit(JobName(name), spec(gpus), "ada", NOW, f"key-of-{name}")
    tell(console, name)


def tell(console: Console, subject: str, kind: str = "submitted") -> None:
    console.site.store.history.record_event(Event(NOW, kind, subject, "", "loop"))


def bind(console: Console, passes: Passes, name: str, *gpus: int) -> None:
    devices = tuple(DeviceId(f"n1/{gpu}") for gpu in gpus)
    console.site.bind(name, TaskPlacement("worker", 0, NodeName("n1"), devices))
    passes.take()


def another(browser: Browser, path: str) -> Browser:
    """A tab of the same browser."""
    tab = Browser(browser.page.context.new_page(), browser.url)
    tab.troubles = browser.troubles
    tab.page.goto(browser.url + path)
    return tab


def opened(browser: Browser, path: str) -> None:
    browser.page.goto(browser.url + path)
    browser.page.get_by_label("Token").fill(TOKEN)
    browser.page.get_by_role("button", name="Sign in").click()
    browser.page.wait_for_selector(LIVE, timeout=WAIT_MS)


def seen(browser: Browser, selector: str) -> None:
    browser.page.wait_for_selector(selector, timeout=WAIT_MS)


def test_all_tabs_have_one_stream_and_the_next_one_takes_over(
    browser: Browser, console: Console, streams: Streams
) -> None:
    opened(browser, "/jobs")
    tabs = [another(browser, "/jobs") for _ in range(7)]
    for tab in tabs:
        seen(tab, LIVE)
    assert (streams.asked, streams.open) == (1, 1)
    submit(console, "first")
    for tab in (browser, *tabs):
        seen(tab, "tbody a:text-is('first')")
    browser.page.close()
    submit(console, "second")
    for tab in tabs:
        seen(tab, "tbody a:text-is('second')")
    assert (streams.asked, streams.open) == (2, 1)


def test_a_map_that_is_opened_later_has_the_stream_begin_anew_with_it(
    browser: Browser, console: Console, passes: Passes, streams: Streams
) -> None:
    opened(browser, "/jobs")
    map_tab = another(browser, "/")
    seen(map_tab, "#map[data-drawn]")
    seen(map_tab, LIVE)
    submit(console, "runs")
    bind(console, passes, "runs", 0, 1)
    seen(map_tab, "#legend button[data-kind=c1]")
    assert (streams.asked, streams.open) == (2, 1)


def test_only_the_gpus_that_changed_are_sent_and_coloured(browser: Browser, console: Console, passes: Passes) -> None:
    submit(console, "there")
    bind(console, passes, "there", 3)
    opened(browser, "/")
    seen(browser, "#map[data-drawn]")
    whole = list[str]()
    browser.page.on("response", lambda answer: whole.append(answer.url) if answer.status == 200 else None)
    before = browser.page.locator("*").count()
    seen(browser, "main[data-updates='1']")
    whole.clear()
    submit(console, "runs")
    bind(console, passes, "runs", 0, 1)
    seen(browser, "#map[data-coloured='2']")
    seen(browser, "#legend button:has-text('team3')")
    assert not [url for url in whole if "map.json" in url]
    assert browser.page.locator("*").count() == before


def jobs_shown(browser: Browser) -> list[str]:
    return [str(text) for text in browser.page.locator("tbody a").all_text_contents()]


def test_a_job_appears_without_loading_the_page_and_nothing_else_moves(browser: Browser, console: Console) -> None:
    for number in range(40):
        submit(console, f"job-{number:02d}")
    opened(browser, "/jobs")
    seen(browser, "main[data-updates='1']")
    loads = list[str]()
    browser.page.on("framenavigated", lambda frame: loads.append(frame.url))
    browser.page.get_by_label("Name has").fill("typing")
    browser.page.get_by_role("link", name="job-20").focus()
    browser.page.evaluate("scrollTo(0, 200)")
    scrolled = browser.page.evaluate("scrollY")
    submit(console, "new")
    seen(browser, "tbody a:text-is('new')")
    assert jobs_shown(browser)[:2] == ["new", "job-39"]
    assert browser.page.evaluate("document.activeElement.textContent") == "job-20"
    assert browser.page.get_by_label("Name has").input_value() == "typing"
    assert browser.page.evaluate("scrollY") == scrolled
    assert loads == []


def test_a_row_that_goes_leaves_the_focus_near(browser: Browser, console: Console) -> None:
    submit(console, "first")
    submit(console, "second")
    opened(browser, "/jobs?state=queued")
    seen(browser, "main[data-updates='1']")
    browser.page.get_by_role("link", name="first").focus()
    console.site.store.jobs.finish(console.site.epoch(), JobName("first"), JobOutcome("cancelled", NOW))
    tell(console, "first", "cancelled")
    browser.page.wait_for_selector("tbody a:text-is('first')", state="detached", timeout=WAIT_MS)
    assert browser.page.evaluate("document.activeElement.id") == "main"


def test_what_is_paused_stays_as_it_is(browser: Browser, console: Console) -> None:
    opened(browser, "/jobs")
    other = another(browser, "/jobs")
    seen(other, "main[data-updates='1']")
    other.page.get_by_role("button", name="Pause").click()
    # All tabs are paused: it is the user that wants to read.
    seen(browser, "html[data-fare=paused]")
    submit(console, "new")
    seen(other, "#live:has-text('Paused. There are changes.')")
    assert jobs_shown(other) == []
    other.picture("paused")
    other.page.get_by_role("button", name="Pause").click()
    seen(other, "tbody a:text-is('new')")
    seen(browser, "tbody a:text-is('new')")


def test_what_a_user_is_about_to_press_does_not_move(browser: Browser, console: Console) -> None:
    submit(console, "waits", 5)
    opened(browser, "/jobs/waits")
    seen(browser, "main[data-updates='1']")
    browser.page.get_by_text("Cancel…").click()
    tell(console, "waits", "looked-at")
    seen(browser, "#live:has-text('Changes wait until you are done here.')")
    assert browser.page.locator("td:has-text('looked-at')").count() == 0
    browser.page.get_by_text("Cancel…").click()
    browser.page.mouse.move(0, 0)
    seen(browser, "td:has-text('looked-at')")


@pytest.mark.parametrize("path", ["/queues", "/rounds", "/"])
def test_a_page_follows_the_passes(browser: Browser, console: Console, passes: Passes, path: str) -> None:
    opened(browser, path)
    seen(browser, "main[data-updates='1']")
    submit(console, "runs")
    console.site.record_round()
    bind(console, passes, "runs", 0)
    seen(
        browser, {"/queues": "td:text-is('1')", "/rounds": "tbody a:text-is('1')", "/": ".figures b:text-is('7')"}[path]
    )


def test_signing_out_is_told_to_the_other_tabs(browser: Browser, console: Console) -> None:
    opened(browser, "/queues")
    other = another(browser, "/jobs?state=queued")
    third = another(browser, "/queues")
    seen(other, LIVE)
    seen(third, LIVE)
    browser.press("Sign out")
    seen(third, "html[data-fare=over]")
    seen(other, "html[data-fare=over]")
    assert "Your session is over" in str(other.page.locator("#live").text_content())
    other.picture("signed-out-elsewhere")
    other.page.get_by_role("link", name="Sign in").click()
    other.page.get_by_label("Token").fill(TOKEN)
    other.page.get_by_role("button", name="Sign in").click()
    other.page.wait_for_url("**/jobs?state=queued")
    seen(other, LIVE)
    # None that is signed out keeps the stream from the others, and all go on with the new session.
    seen(third, LIVE)
    browser.troubles[:] = [told for told in browser.troubles if "401" not in told]


def test_a_server_that_stops_is_told_and_followed_again(
    browser: Browser, console: Console, passes: Passes, tmp_path: Path
) -> None:
    opened(browser, "/jobs")
    seen(browser, "main[data-updates='1']")
    port = int(console.url.rpartition(":")[2])
    console.server.close()
    seen(browser, "html[data-fare=lost]")
    assert str(browser.page.locator("#live").text_content()).startswith("Not up to date: ")
    browser.picture("server-stopped")
    submit(console, "meanwhile")
    services = replace(console.site.services(), snapshot=passes.last)
    with serving_console(console.site, tmp_path, services=services, port=port):
        seen(browser, LIVE)
        assert browser.page.locator("#live").text_content() == "Live: the server was started again."
        seen(browser, "tbody a:text-is('meanwhile')")
        browser.page.context.close()
    browser.troubles.clear()


def test_a_server_that_stands_by_says_so(browser: Browser, console: Console, passes: Passes) -> None:
    opened(browser, "/jobs")
    passes.stand_by()
    seen(browser, "#live:has-text('This server stands by: another one leads.')")
    passes.lead()
    seen(browser, "#live:text-is('Live')")


def test_one_stream_too_many_is_told(browser: Browser, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_routes, "PER_USER_MAX", 0)
    browser.page.goto(browser.url + "/jobs")
    browser.sign_in(TOKEN)
    seen(browser, "#live:has-text('0 browsers of alice follow already. Close one of them. Trying again.')")
    monkeypatch.setattr(live_routes, "PER_USER_MAX", 1)
    seen(browser, LIVE)
    browser.troubles.clear()


class Log:
    """What a task writes, with gaps."""

    def __init__(self, console: Console, name: str) -> None:
        self.of, self.name = console.site.logs, name

    def write(self, text: bytes, attempt: int = 1) -> None:
        key = self.name, attempt, "worker", 0
        self.of[key] = self.of.get(key, b"") + text


def test_a_log_is_followed_as_it_is_written(browser: Browser, console: Console, passes: Passes) -> None:
    log = Log(console, "runs")
    submit(console, "runs")
    opened(browser, "/jobs/runs/logs")
    seen(browser, "#log-state:has-text('has not started yet')")
    bind(console, passes, "runs", 0)
    log.write(b"first\n")
    tell(console, "runs", "started")
    seen(browser, "#log:has-text('first')")
    log.write("<img src=x onerror=alert(1)> \N{SNOWMAN}\n".encode()[:-2])
    seen(browser, "#log:has-text('<img src=x onerror=alert(1)>')")
    log.write("\N{SNOWMAN}\n".encode()[-2:])
    seen(browser, "#log:has-text('\N{SNOWMAN}')")
    assert "\N{REPLACEMENT CHARACTER}" not in str(browser.page.locator("#log").text_content())
    for number in range(200):
        log.write(b"line %d\n" % number)
    seen(browser, "#log:has-text('line 199')")
    end = "document.getElementById('log')"
    assert browser.page.evaluate(f"{end}.scrollTop + {end}.clientHeight >= {end}.scrollHeight - 1")
    browser.page.evaluate(f"{end}.scrollTop = 0")
    seen(browser, "#to-end:visible")
    log.write(b"below\n")
    seen(browser, "#log:has-text('below')")
    assert browser.page.evaluate(f"{end}.scrollTop") == 0
    browser.picture("log")
    browser.page.get_by_role("button", name="To the end").click()
    assert browser.page.evaluate(f"{end}.scrollTop > 0")
    browser.page.get_by_label("Read new lines aloud").check()
    assert browser.page.locator("#log").get_attribute("aria-live") == "polite"
    assert browser.page.evaluate(f"{end}.querySelectorAll('*').length") == 1


def test_a_log_goes_on_in_the_next_attempt_and_over_gaps(
    browser: Browser, console: Console, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(console, "runs")
    submit(console, "runs")
    bind(console, passes, "runs", 0)
    log.write(b"first\n")
    opened(browser, "/jobs/runs/logs")
    seen(browser, "#log[data-read='6']")
    plain = Site.read_log

    def read(site: Site, *asked: Any) -> bytes:
        offset = asked[4]
        return GapNotice(b"20 bytes are not kept", 26) if 6 <= offset < 26 else plain(site, *asked)

    monkeypatch.setattr(Site, "read_log", read)
    log.write(b"." * 20 + b"behind the gap\n")
    seen(browser, "#log:has-text('[20 bytes are not kept]')")
    seen(browser, "#log:has-text('behind the gap')")
    monkeypatch.undo()
    monkeypatch.setattr("reconciler.api.job_routes.job_view", _in_attempt(2))
    log.write(b"second life\n", 2)
    tell(console, "runs", "retried")
    seen(browser, "#log:has-text('second life')")
    text = str(browser.page.locator("#log").text_content())
    assert text.index("behind the gap") < text.index("[attempt 2 begins]") < text.index("second life")
    assert browser.page.locator("#attempt").text_content() == "2"


def _in_attempt(attempt: int) -> Any:
    real = views.job_view

    def job_view(*given: Any) -> Any:
        return msgspec.structs.replace(real(*given), attempt=attempt)

    return job_view


def world(chance: random.Random) -> ClusterMap:
    """Nodes with jobs that hold some GPUs whole, others in parts, some of which leave; of some, GPUs are kept for others."""
    jobs, free = [], [(f"n{n}", gpu) for n in range(6) for gpu in range(4)]
    chance.shuffle(free)
    intents = list[Intent]()
    for number in chance.sample(range(12), 8):
        (of, gpu), *free = free
        if chance.random() < 0.3:
            placed = [task(of, gpu, share=MilliGpu(250))]
            jobs.append(job(f"other-{number}", task(of, gpu, share=MilliGpu(500))))
        else:
            placed = [task(of, gpu)]
        jobs.append(job(f"job-{number}", *placed, started_at=Instant(chance.choice((0, 1_000)))))
        if chance.random() < 0.3:
            intents.append(
                Intent("stop", jobs[-1].name, 1, Instant(0), Instant(1), purpose=chance.choice(("evict", "end")))
            )
    for number in chance.sample(range(4), 2):
        jobs.append(msgspec.structs.replace(job(f"waits-{number}"), phase="pending"))
        intents.append(Intent("nominate", jobs[-1].name, 1, Instant(0), Instant(1), (task(*chance.choice(free)),)))
    reserved = Reservation(JobName("gang"), (task(*chance.choice(free)),), Instant(chance.randrange(3) * 1_000))
    in_flight = InFlight(intents=tuple(intents), reservations=(reserved,) if chance.random() < 0.7 else ())
    nodes = [node(f"n{n}", "r", cordoned=chance.random() < 0.2) for n in range(6)]
    cut = chance.choice((None, (), (MigInstance("1g.10gb", 0), MigInstance("3g.40gb", 4))))
    gpus = (*nodes[0].gpus[:3], msgspec.structs.replace(nodes[0].gpus[3], instances=cut))
    nodes[0] = msgspec.structs.replace(nodes[0], gpu_type=GpuType("H100-SXM5-80GB"), gpus=gpus)
    time = Instant(chance.randrange(9) * 1_000)
    return map_of(snapshot_of(time, nodes, jobs, in_flight), POLICY)


AS_IT_WAS_MADE = """async ([first, changes]) => {
  const { read, apply } = await import("/static/map-layout.js");
  const { Kinds } = await import("/static/map-kinds.js");
  const world = read(JSON.parse(first));
  const choices = ["queue", "job", "class", "type", "state"];
  const kinds = choices.map((choice) => new Kinds(world, choice));
  const name = (job) => (job >= 0 ? `${world.jobs.name[job]} ${world.jobs.since[job]} ${world.jobs.waits.has(job)}` : String(job));
  const told = (sums) => [...sums].map(([kind, size]) => [kind[0] === "j" ? name(Number(kind.slice(1))) : kind, size]).sort();
  const said = [];
  for (const change of changes) {
    if (change) {
      const what = JSON.parse(change);
      for (const each of kinds) for (const gpu of what.gpu) each.drop(gpu);
      apply(world, what);
      for (const each of kinds) for (const gpu of what.gpu) each.add(gpu);
    }
    const parts = [...world.parts].flatMap(([gpu, parts]) =>
      parts.map((p) => `${gpu} ${p.start} ${p.size} ${name(p.job)} ${p.profile} ${p.leaves}`));
    said.push([world.time, ...["state", "kept", "leaves"].map((column) => [...world[column]]), parts.sort(),
      ...["held", "keeper"].map((column) => [...world[column]].map(name)),
      kinds.map((each) => [told(each.sums), each.ofRack.map(told)])]);
  }
  return [said, world.jobs.name.length];
}"""


def test_a_map_that_was_brought_up_to_date_is_the_one_that_would_be_fetched(browser: Browser, console: Console) -> None:
    """Over many passes; and numbers of jobs that are gone are used again."""
    chance = random.Random(7)
    maps = [world(chance) for _ in range(60)]
    changes = [""]
    for before, after in pairwise(maps):
        change = map_change(before, after, ("b", "a"))
        assert change is not None
        changes.append(encode(change).decode())
    opened(browser, "/queues")
    said, numbers = browser.page.evaluate(AS_IT_WAS_MADE, [encode(maps[0]).decode(), changes])
    for told, columns in zip(said, maps, strict=True):
        ((fresh,), _) = browser.page.evaluate(AS_IT_WAS_MADE, [encode(columns).decode(), [""]])
        assert told == fresh
    assert numbers <= 30


def test_what_a_quiet_page_costs(browser: Browser, console: Console) -> None:
    """Nothing is asked for while nothing happens, and a job that comes costs the page once."""
    for number in range(50):
        submit(console, f"job-{number:02d}")
    opened(browser, "/jobs")
    seen(browser, "main[data-updates='1']")
    asked = list[str]()
    browser.page.on("request", lambda request: asked.append(request.url))
    nodes = browser.page.locator("*").count()
    submit(console, "new")
    seen(browser, "tbody a:text-is('new')")
    assert [url.removeprefix(browser.url) for url in asked] == ["/jobs"]
    assert browser.page.locator("*").count() <= nodes + 20 < 3_000
