"""Rounds are listed, and each says what it did, why jobs wait, and how long it took."""

from __future__ import annotations

import html
import re

import pytest

from solver.model.workload import JobName
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
    monkeypatch.setattr("reconciler.web.round_pages.STEPS_MAX", 1)
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
