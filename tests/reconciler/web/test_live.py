"""What changes is told to all that look, worked out once for all of them; and a stream ends, with a reason, when it has to."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import httpx2
import msgspec
import pytest
from sqlalchemy import event

from reconciler.access.policy import AccessPolicy, RoleBinding
from reconciler.api import event_stream
from reconciler.api.event_stream import EventFeed
from reconciler.api.payloads import LEADING, Condition, Status
from reconciler.api.problems import NotReadyError
from reconciler.protocols.history import Event
from reconciler.protocols.store_errors import StoreUnreachableError
from reconciler.store.history import SqlHistory
from reconciler.web import live_routes, live_stream, map_change
from reconciler.web.cluster_map import map_of
from reconciler.web.latest_map import LatestMap
from reconciler.web.live_stream import CHANGES_KEPT, LiveFeed
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName, TaskPlacement
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec
from tests.reconciler.web.conftest import Console, serving_console
from tests.reconciler.web.test_sign_in import rewrite

DAY = Duration(24 * 3_600_000)
Message = tuple[str, dict[str, Any]]


class Passes:
    """A loop that takes a pass when it is told to."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._last: Snapshot | None = site.snapshot()
        self.asked = Counter[str]()
        self.leading = Condition(LEADING, status=True, reason="leading")

    def take(self) -> None:
        self._last = self._site.snapshot()

    def stand_by(self) -> None:
        self._last = None
        self.leading = Condition(LEADING, status=False, reason="standing-by", message="another one leads")

    def lead(self) -> None:
        self.leading = Condition(LEADING, status=True, reason="leading")
        self.take()

    def status(self, of: Status) -> Status:
        return msgspec.structs.replace(of, conditions=(*of.conditions, self.leading))

    def last(self) -> Snapshot:
        if self._last is None:
            raise NotReadyError("The loop has not decided a round yet: another one leads.")
        return self._last

    def queue_uses(self) -> Any:
        self.asked["queue_uses"] += 1
        return ()


@pytest.fixture
def passes(site: Site) -> Passes:
    return Passes(site)


@pytest.fixture
def served(site: Site, passes: Passes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """Looks are as frequent as they can be."""
    monkeypatch.setattr(event_stream, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(live_stream, "STANDING_EVERY_S", 0.0)
    plain = site.services()
    services = dataclasses.replace(
        plain, snapshot=passes.last, queue_uses=passes.queue_uses, status=lambda: passes.status(plain.status())
    )
    with serving_console(site, tmp_path, services=services) as served:
        yield served


@contextmanager
def stream(browser: httpx2.Client, asked: str = "") -> Iterator[Iterator[Message]]:
    """The messages of one."""
    with browser.stream("GET", f"/live{asked}") as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield messages(answer.iter_lines())


def messages(lines: Iterator[str]) -> Iterator[Message]:
    kind = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def submit(console: Console, name: str, queue: str = "team", user: str = "ada") -> None:
    console.site.store.jobs.submit(JobName(name), spec(queue=queue), user, NOW, f"key-of-{name}")
    tell(console.site, name)


def tell(site: Site, *subjects: str) -> None:
    site.store.history.record_events(Event(NOW, "kind", subject, "cause", "loop") for subject in subjects)


def test_a_pass_and_what_becomes_of_jobs_is_told(served: Console, passes: Passes) -> None:
    with served.browser() as browser, stream(browser) as told:
        kind, start = next(told)
        assert (kind, start["lastPass"]["revision"], start["standing"]["isLeading"]) == ("start", "abc123", True)
        submit(served, "new")
        assert next(told) == ("change", {"jobs": ["new"]})
        passes.take()
        assert next(told) == ("change", {"lastPass": start["lastPass"]})
        tell(served.site, "n1")
        assert next(told) == ("change", {"others": True})


def test_what_is_out_of_order_is_told_when_it_changes(served: Console) -> None:
    ready = served.site.told.conditions[0]
    with served.browser() as browser, stream(browser) as told:
        assert next(told)[1]["standing"]["troubles"] == 0
        for message in ("one", "two"):
            stalled = msgspec.structs.replace(ready, type="Stalled", message=message)
            served.site.told = msgspec.structs.replace(served.site.told, conditions=(ready, stalled))
            assert next(told)[1]["standing"]["troubles"] == 1


def test_a_server_that_stands_by_says_so_until_it_leads(served: Console, passes: Passes) -> None:
    passes.stand_by()
    with served.browser() as browser, stream(browser, "?map=1") as told:
        start = next(told)[1]
        assert start["lastPass"] is None
        assert (start["standing"]["condition"], start["standing"]["isLeading"]) == ("standing-by", False)
        assert start["standing"]["message"] == "another one leads"
        passes.lead()
        seen = dict[str, Any]()
        while not {"lastPass", "standing"} <= seen.keys():
            seen |= next(told)[1]
        assert seen["standing"]["isLeading"]


def test_jobs_are_named_to_those_who_may_see_them(served: Console) -> None:
    served.site.access = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",), (QueueName("other"),)),))
    with (
        served.browser() as owner,
        served.browser(served.adas) as viewer,
        stream(owner) as all_told,
        stream(viewer) as some_told,
    ):
        assert {next(all_told)[0], next(some_told)[0]} == {"start"}
        submit(served, "theirs", "team", "eve")
        assert next(all_told)[1] == {"jobs": ["theirs"]}
        submit(served, "ours", "other", "eve")
        assert next(all_told)[1] == {"jobs": ["ours"]}
        assert next(some_told)[1] == {"jobs": ["ours"]}


def test_many_jobs_are_not_named_one_by_one(served: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_stream, "JOBS_NAMED_MAX", 2)
    for name in "abc":
        served.site.store.jobs.submit(JobName(name), spec(), "ada", NOW, name)
    with served.browser() as browser, stream(browser) as told:
        next(told)
        tell(served.site, "a", "b", "c", "a")
        assert next(told)[1] == {"moreJobs": True}
        tell(served.site, "b", "a", "b")
        assert next(told)[1] == {"jobs": ["a", "b"]}


def test_what_changed_of_the_map_is_sent_to_those_that_want_it(
    served: Console, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(served, "new")
    submit(served, "other")
    with served.browser() as browser, stream(browser, "?map=1") as told, stream(browser) as without:
        next(told), next(without)
        before = browser.get("/map.json").headers["etag"]
        served.site.bind("new", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/1"),)))
        passes.take()
        kinds = [next(told) for _ in range(2)]
        assert [kind for kind, _ in kinds] == ["change", "map"]
        first = browser.get("/map.json").headers["etag"]
        assert (kinds[1][1]["before"], kinds[1][1]["gpu"], kinds[1][1]["after"]) == (before, [1], first)
        with monkeypatch.context() as less:
            less.setattr(map_change, "GPUS_MAX", 0)
            served.site.bind("other", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/2"),)))
            passes.take()
            assert next(told)[0] == "change"
            after = browser.get("/map.json").headers["etag"]
            assert next(told) == ("map", {"after": after})
        submit(served, "more")
        assert next(told)[1] == {"jobs": ["more"]}
        served.site.bind("more", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"),)))
        passes.take()
        assert next(told)[0] == "change"
        change = next(told)[1]
        assert (change["before"], change["gpu"], change["jobs"]["name"]) == (after, [0], ["more"])
        assert change["after"] == browser.get("/map.json").headers["etag"] != first
        assert [next(without)[0] for _ in range(4)] == ["change"] * 4


def test_of_a_map_that_was_not_looked_at_before_it_is_told_which_it_is(served: Console) -> None:
    """A pass may have come between the fetch and the first look."""
    with served.browser() as browser, stream(browser) as without:
        next(without)
        with stream(browser, "?map=1") as told:
            next(told)
            assert next(told) == ("map", {"after": browser.get("/map.json").headers["etag"]})


def ends(told: Iterator[Message]) -> dict[str, Any]:
    """The last message; there is none behind it."""
    *_, (kind, last) = told
    assert kind == "end"
    return last


def test_it_ends_with_the_session_that_is_signed_out(served: Console) -> None:
    with served.browser() as browser, served.browser() as other, stream(browser) as told, stream(other) as goes_on:
        next(told), next(goes_on)
        browser.post("/sign-out", headers={"origin": served.url})
        assert ends(told) == {"reason": "session-over", "message": "you are not signed in any more"}
        tell(served.site, "n1")
        assert next(goes_on)[0] == "change"


def test_it_ends_with_the_day_of_the_session(served: Console) -> None:
    with served.browser() as browser, stream(browser) as told:
        next(told)
        served.clock.advance(DAY)
        assert ends(told)["message"].startswith("your session was good until")


def test_it_ends_with_the_line_of_the_token_and_with_the_role(served: Console) -> None:
    viewers = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",)),))
    served.site.access = viewers
    with served.browser(served.adas) as browser:
        with stream(browser) as told:
            next(told)
            served.site.access = AccessPolicy()
            tell(served.site, "n1")
            assert ends(told)["reason"] == "not-allowed"
        served.site.access = viewers
        with stream(browser) as told:
            next(told)
            rewrite(served.tokens, "# nobody\n")
            assert ends(told)["message"] == "what you signed in with is no longer good"
        assert browser.get("/live").json()["code"] == "session-over"


def test_nobody_follows_without_being_known(served: Console) -> None:
    with served.stranger() as client:
        assert client.get("/live").status_code == 401
        assert client.get("/live", headers={"host": "evil.example"}).status_code == 403
        assert client.get("/live", headers={"origin": "https://evil.example"}).status_code == 403


def test_a_server_stops_with_open_streams_and_says_so(served: Console) -> None:
    with served.browser() as browser, ExitStack() as opened:
        streams = [opened.enter_context(stream(browser)) for _ in range(5)]
        for told in streams:
            next(told)
        closing = Thread(target=served.server.close)
        closing.start()
        assert [ends(told)["reason"] for told in streams] == ["stopping"] * 5
        closing.join(60)
        assert not closing.is_alive()


def test_a_store_that_can_not_be_read_is_told(served: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreUnreachableError("gone")

    with served.browser() as browser:
        with stream(browser) as told:
            next(told)
            with monkeypatch.context() as broken:
                broken.setattr(SqlHistory, "events_since", fail)
                assert ends(told)["reason"] == "store-unusable"
        with stream(browser) as told:
            assert next(told)[0] == "start"


def test_too_many_are_told_and_one_that_leaves_makes_room(served: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_routes, "PER_USER_MAX", 1)
    monkeypatch.setattr(live_routes, "STREAMS_MAX", 2)
    served.site.access = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",)),))
    with served.browser() as browser, served.browser(served.adas) as adas:
        with stream(browser) as told:
            next(told)
            second = browser.get("/live")
            assert (second.status_code, second.json()["code"]) == (429, "too-many-watchers")
            assert second.json()["detail"] == "1 browsers of alice follow already."
            with stream(adas) as other:
                next(other)
                assert adas.get("/live").status_code == 503
        while (again := browser.send(browser.build_request("GET", "/live"), stream=True)).status_code != 200:
            again.close()
        assert next(messages(again.iter_lines()))[0] == "start"
        again.close()


@contextmanager
def counted(site: Site) -> Iterator[Counter[str]]:
    """Statements of the store, by how they begin."""
    found = Counter[str]()

    def count(*given: Any) -> None:
        found[str(given[2]).split()[0]] += 1

    event.listen(site.store.database.engine, "before_cursor_execute", count)
    try:
        yield found
    finally:
        event.remove(site.store.database.engine, "before_cursor_execute", count)


def watched(
    monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str, tally: Counter[str], reached: Callable[[], None]
) -> None:
    """Count the calls of a method."""
    real = getattr(owner, name)

    def call(*given: Any) -> Any:
        tally[name] += 1
        reached()
        return real(*given)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("viewers", [1, 50])
def test_the_store_is_asked_the_same_however_many_look(
    served: Console, passes: Passes, viewers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look is one statement for events; here each look also asks how all fares, and which sessions are over: four more."""
    monkeypatch.setattr(live_routes, "PER_USER_MAX", 50)
    for number in range(20):
        submit(served, f"job-{number}")
    tally, enough = Counter[str](), Flag()
    with ExitStack() as opened:
        streams = []
        for _ in range(viewers):
            browser = opened.enter_context(served.browser())
            streams.append(opened.enter_context(stream(browser, "?map=1")))
            next(streams[-1])
        monkeypatch.setattr("reconciler.web.latest_map.map_of", _tallied(map_of, "map_of", tally))
        monkeypatch.setattr(
            "reconciler.web.live_stream.map_change", _tallied(map_change.map_change, "map_change", tally)
        )
        watched(monkeypatch, LiveFeed, "_look", tally, lambda: enough.set() if tally["_look"] > 20 else None)
        with counted(served.site) as statements:
            assert enough.wait(60)
            looks = tally["_look"]
        assert statements["SELECT"] <= 5 * (looks + 1)
        assert tally["map_of"] == 0
        for number in range(1, 4):
            passes.take()
            for told in streams:
                assert next(told)[0] == "change"
            # The pass is another, what it says of GPUs is not.
            assert (tally["map_of"], tally["map_change"]) == (number, 0)
        served.site.bind("job-0", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/1"),)))
        passes.take()
        for told in streams:
            assert [next(told)[0] for _ in range(2)] == ["change", "map"]
        # What is another is found out once for all.
        assert (tally["map_of"], tally["map_change"]) == (4, 1)
        assert not passes.asked


def _tallied(real: Callable[..., Any], name: str, tally: Counter[str]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        tally[name] += 1
        return real(*given)

    return call


def test_a_stream_without_news_says_that_it_lives(served: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_routes, "KEEP_ALIVE_S", 0.01)
    with served.browser() as browser, browser.stream("GET", "/live") as answer:
        lines = answer.iter_lines()
        assert ": nothing new" in (next(lines) for _ in range(10))


def test_one_that_falls_behind_begins_anew(site: Site) -> None:
    services = site.services()
    feed = LiveFeed(services, LatestMap(services), lambda _: {})
    feed.number = CHANGES_KEPT + 3
    assert feed.after(2) is None
    assert feed.after(3) is not None


def test_streams_and_the_watch_of_the_api_read_events_together(
    served: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = set[int]()
    real = EventFeed.look

    async def look(feed: EventFeed) -> None:
        feeds.add(id(feed))
        await real(feed)

    monkeypatch.setattr(EventFeed, "look", look)
    headers = {"authorization": f"Bearer {TOKEN}"}
    with served.browser() as browser, stream(browser) as told, served.stranger() as client:
        next(told)
        with client.stream("GET", "/v1/watch", headers=headers) as answer:
            other = messages(answer.iter_lines())
            assert next(other)[0] == "start"
            tell(served.site, "n1")
            assert (next(told)[0], next(other)[0]) == ("change", "event")
    assert len(feeds) == 1
