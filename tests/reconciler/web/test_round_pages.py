"""Rounds are listed, and each says what it did, why jobs wait, and how long it took."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from time import monotonic, sleep

import httpx2
import msgspec
import pytest

from reconciler.api.problems import RequestRefusedError
from reconciler.control.replay import Replayed
from reconciler.control.replay_process import ReplayFailedError
from reconciler.protocols.rounds import RoundRecord
from reconciler.web import round_reader
from reconciler.web.replays import Replays
from solver.model.cluster import DeviceId, NodeName
from solver.model.workload import JobName, TaskPlacement
from tests.reconciler.api.conftest import spec
from tests.reconciler.web.conftest import Console


def submit(console: Console, name: str, gpus: int = 1) -> None:
    console.site.store.jobs.submit(JobName(name), spec(gpus), "ada", console.clock.now(), f"key-of-{name}")


def test_the_newest_rounds_page_by_page(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.web.round_pages.PAGE", 2)
    for name in ("one", "two", "three"):
        submit(console, name)
        console.site.record_round()
    with console.browser() as browser:
        first = browser.get("/rounds").text
        found = re.search(r'<a href="([^"]+)" rel="next">', first)
        assert found is not None
        second = browser.get(html.unescape(found[1])).text
    assert re.findall(r'<a href="/rounds/(\d+)">', first) == ["3", "2"]
    assert re.findall(r'<a href="/rounds/(\d+)">', second) == ["1"]


def test_a_round_says_what_it_did_and_why_others_wait(console: Console) -> None:
    submit(console, "starts", 2)
    for name in ("large", "larger"):
        submit(console, name, 5)
    console.site.record_round()
    with console.browser() as browser:
        text = html.unescape(browser.get("/rounds/1").text)
    assert re.search(r'<th scope="row">start</th><td class="wide text">starts: ', text)
    assert re.search(r"<td>2</td><td class=\"wide text\">large: ", text)
    assert "12.5 ms" in text


def test_long_ones_are_cut_and_say_so(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.web.round_reader.STEPS_MAX", 1)
    for name in ("one", "two"):
        submit(console, name)
    console.site.record_round()
    with console.browser() as browser:
        assert "The first 1 of 2 steps." in browser.get("/rounds/1").text


def test_what_is_not_there_is_told(console: Console) -> None:
    with console.browser() as browser:
        assert "No round is on record yet." in browser.get("/rounds").text
        for path in ("/rounds/7", "/rounds/0", "/rounds/x", "/rounds?cursor=x"):
            refused = browser.get(path)
            assert refused.status_code in (400, 404, 422)
            assert refused.headers["content-type"].startswith("text/html")


def test_a_round_says_what_changed_against_the_one_before_and_any_other(console: Console) -> None:
    submit(console, "grows", 2)
    console.site.record_round()
    console.site.bind("grows", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"), DeviceId("n1/1"))))
    submit(console, "large", 5)
    console.site.record_round()
    submit(console, "small", 1)
    console.site.record_round()
    with console.browser() as browser:
        third = html.unescape(browser.get("/rounds/3").text)
        against_first = html.unescape(browser.get("/rounds/3?against=1").text)
        apart = html.unescape(browser.get("/rounds/1..3").text)
        first = browser.get("/rounds/1").text
        assert browser.get("/rounds/3?against=9").status_code == 404
        assert browser.get("/rounds/1..x").status_code == 422
    assert 'What changed against round <a href="/rounds/2">2</a>' in third
    assert changed(third, "Came") == [("not there", "starts", "1", "small")]
    for text in (against_first, apart):
        assert [row[:3] for row in changed(text, "Came")] == [
            ("not there", "inadmissible: never-fits", "1"),
            ("not there", "starts", "1"),
        ]
        assert re.search(r">H100</th><td class=\"wide\">1</td><td>8</td><td>0</td><td>8</td><td>0</td>", text)
        assert re.search(r"<td class=\"wide\">3</td><td>8</td><td>2</td><td>6</td><td>0</td>", text)
    assert "What changed" not in first


def changed(text: str, title: str) -> list[tuple[str, ...]]:
    table = re.search(rf"<h3>{title}</h3>.*?<tbody>(.*?)</tbody>", text, re.DOTALL)
    rows = table[1].split("</tr>")[:-1] if table else []
    return [tuple(re.sub(r"<[^>]+>", "", cell).strip() for cell in re.split(r"</t[hd]>", row)[:-1]) for row in rows]


def test_names_are_text_in_differences(console: Console) -> None:
    evil = "<img src=x onerror=alert(1)>"
    submit(console, "one")
    record = console.site.record_round()
    verdicts = tuple(msgspec.structs.replace(each, job=JobName(evil)) for each in record.plan.verdicts)
    plan = msgspec.structs.replace(record.plan, verdicts=verdicts)
    other = msgspec.structs.replace(record, plan=plan, revision=evil[:12])
    console.site.store.history.record_round(console.site.epoch(), other)
    with console.browser() as browser:
        text = browser.get("/rounds/2").text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "<img" not in text


def test_what_a_round_says_is_read_once_however_many_look(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        submit(console, name)
        console.site.record_round()
    reads, original = list[int](), console.site.store.history.round

    def counted(number: int) -> RoundRecord:
        reads.append(number)
        return original(number)

    monkeypatch.setattr(console.site.store.history, "round", counted)
    with console.browser() as browser:
        for _ in range(3):
            browser.get("/rounds/2")
    assert sorted(reads) == [1, 2, 2]


def test_a_round_that_is_not_whole_yet_is_not_remembered(console: Console) -> None:
    submit(console, "one")
    begun = msgspec.structs.replace(console.site.record_round(), is_whole=False)
    history = console.site.store.history
    number = history.record_round(console.site.epoch(), begun)
    reader = round_reader.RoundReader(history)
    assert not reader.told(number).is_whole
    whole = msgspec.structs.replace(begun, is_whole=True, number=number, phase_ms={"all": 1.0})
    history.conclude_round(console.site.epoch(), whole)
    assert reader.told(number).phase_ms == {"all": 1.0}


def test_layers_are_said_as_sentences(console: Console) -> None:
    submit(console, "starts", 2)
    console.site.record_round()
    with console.browser() as browser:
        text = html.unescape(browser.get("/rounds/1").text)
    assert (
        "Of standard jobs of the highest priority the plan serves 2.1 GPUs that queues are entitled to; no plan can serve more."
        in text
    )


def wait_for(ready: Callable[[], bool]) -> None:
    until = monotonic() + 60
    while not ready():
        assert monotonic() < until, "it did not come about"
        sleep(0.01)


def state_of(browser: httpx2.Client, number: int) -> dict[str, str]:
    found = browser.get(f"/rounds/{number}/replay")
    assert found.status_code == 200
    return dict(found.json())


def test_a_round_is_replayed_and_comes_out_the_same(console: Console) -> None:
    submit(console, "starts", 2)
    console.site.record_round()
    with console.browser() as browser:
        assert state_of(browser, 1) == {"state": "none", "words": ""}
        asked = browser.post("/rounds/1/replay", headers={"origin": console.url})
        assert (asked.status_code, asked.headers["location"]) == (303, "/rounds/1#replay")
        wait_for(lambda: state_of(browser, 1)["state"] != "runs")
        assert state_of(browser, 1)["words"].startswith("The same plan, byte for byte: sha256:")
        assert 'data-state="same">The same plan' in browser.get("/rounds/1").text


def test_a_round_that_comes_out_otherwise_says_where(console: Console) -> None:
    submit(console, "starts", 2)
    record = console.site.record_round()
    altered = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, steps=()))
    console.site.store.history.record_round(console.site.epoch(), altered)
    with console.browser() as browser:
        browser.post("/rounds/2/replay", headers={"origin": console.url})
        wait_for(lambda: state_of(browser, 2)["state"] != "runs")
        assert state_of(browser, 2) == {
            "state": "different",
            "words": "Another plan: plan.steps had 0 entries and has 1 now.",
        }


def test_nothing_is_replayed_by_another_site_or_a_link_or_of_what_is_not_there(console: Console) -> None:
    console.site.record_round()
    with console.browser() as browser:
        for headers in ({}, {"origin": "https://evil.example"}):
            assert browser.post("/rounds/1/replay", headers=headers).status_code == 403
        assert browser.post("/rounds/7/replay", headers={"origin": console.url}).status_code == 404
        assert state_of(browser, 1)["state"] == state_of(browser, 7)["state"] == "none"


@contextmanager
def slow(console: Console, outcome: Replayed | Exception) -> Iterator[tuple[Replays, Event]]:
    """Replays that end when the event is set."""
    end = Event()

    def apart(_: RoundRecord) -> Replayed:
        assert end.wait(60)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    yield Replays(console.site.store.history, apart), end
    end.set()


def test_one_is_replayed_at_a_time(console: Console) -> None:
    for _ in range(2):
        console.site.record_round()
    with slow(console, Replayed(1, True, "", "sha256:x", "", True)) as (replays, end):
        replays.begin(1)
        replays.begin(1)
        with pytest.raises(RequestRefusedError, match="Round 1 is replayed now"):
            replays.begin(2)
        end.set()
        wait_for(lambda: (found := replays.of(1)) is not None and found.state == "same")
        assert "a clock had cut it" in str(replays.of(1))
        replays.begin(2)
        wait_for(lambda: (found := replays.of(2)) is not None and found.state == "same")


def test_a_replay_that_fails_is_told_and_the_next_one_may_begin(console: Console) -> None:
    console.site.record_round()
    with slow(console, ReplayFailedError("it takes longer than 300 s")) as (replays, end):
        end.set()
        for number, words in (
            (1, "It could not be replayed: it takes longer than 300 s."),
            (7, "It is not on record any more."),
        ):
            replays.begin(number)
            wait_for(lambda number=number: (found := replays.of(number)) is not None and found.state == "failed")  # type: ignore[misc]
            assert replays.of(number) == ("failed", words)
