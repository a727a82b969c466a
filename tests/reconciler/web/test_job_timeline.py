"""A job over time: its states follow each other without a gap, and each attempt says what it held, where, and why no longer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.model.clock import VirtualClock
from reconciler.model.job_record import JobOutcome, JobState
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import Claim
from reconciler.web.job_timeline import span_words
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration
from solver.model.workload import JobName, TaskPlacement
from tests.reconciler.api.conftest import H100, NOW, Site, spec
from tests.reconciler.web.conftest import Console, serving_console
from tests.reconciler.web.tables import cells
from tests.reconciler.web.test_cluster_summary import task

HOUR = 3_600_000
NAME = JobName("train")


def told(site: Site, at: int, state: JobState, cause: str = "") -> None:
    site.store.history.record_event(Event(NOW.after(at), state, NAME, cause, "loop", state))


@pytest.fixture
def evicted(site: Site, tmp_path: Path) -> Iterator[Console]:
    """It ran for half an hour on two nodes, was evicted for `urgent`, and runs again since an hour, on one."""
    site.store.jobs.submit(NAME, spec(2), "ada", NOW, "key")
    told(site, 0, "queued")
    other = TaskPlacement("worker", 1, NodeName("n2"), (DeviceId("n2/0"),))
    site.bind(NAME, task("n1", 0), other)
    told(site, 60_000, "running", "all tasks run")
    # What leaves it as it is does not begin anything.
    told(site, 120_000, "running", "a terminal")
    stop = Intent("stop", NAME, 1, NOW, NOW.after(HOUR), beneficiary=JobName("urgent"), purpose="evict")
    site.store.ledger.ask(site.epoch(), stop)
    told(site, HOUR // 2 - 60_000, "evicting", "for urgent")
    site.store.ledger.release(site.epoch(), NAME, 1, NOW.after(HOUR // 2))
    told(site, HOUR // 2, "queued", "nothing of attempt 1 runs")
    services = replace(site.services(), clock=VirtualClock(NOW.after(HOUR)))
    with serving_console(site, tmp_path, services=services) as running:
        yield running


def test_attempts_say_what_they_held_where_and_why_no_longer(evicted: Console) -> None:
    with evicted.browser() as browser:
        text = browser.get("/jobs/train").text
    assert cells(text, "Table of attempts") == [
        ["1", str(NOW), str(NOW.after(HOUR // 2)), "30 min 0 s", "2", "n1, n2", "evicted for urgent"]
    ]
    assert '<a href="/nodes/n2">n2</a>' in text
    assert text.count('class="j-held"') == 1


def test_states_follow_each_other_without_a_gap(evicted: Console) -> None:
    with evicted.browser() as browser:
        rows = cells(browser.get("/jobs/train").text, "Table of states")
    assert [(row[0], row[3], row[4]) for row in rows] == [
        ("queued", "30 min 0 s", "nothing of attempt 1 runs"),
        ("evicting", "1 min 0 s", "for urgent"),
        ("running", "28 min 0 s", "all tasks run"),
        ("queued", "1 min 0 s", ""),
    ]
    assert [row[1] for row in rows[:-1]] == [row[2] for row in rows[1:]]
    assert (rows[-1][1], rows[0][2]) == (str(NOW), "")


def test_one_that_ended_ends(site: Site, console: Console) -> None:
    site.store.jobs.submit(NAME, spec(), "ada", NOW, "key")
    told(site, 0, "queued")
    site.store.jobs.finish(site.epoch(), NAME, JobOutcome("cancelled", NOW.after(HOUR)))
    told(site, HOUR, "cancelled", "it was asked for")
    with console.browser() as browser:
        text = browser.get("/jobs/train").text
    rows = cells(text, "Table of states")
    assert [row[:4] for row in rows] == [
        ["cancelled", str(NOW.after(HOUR)), "", ""],
        ["queued", str(NOW), str(NOW.after(HOUR)), "1 h 0 min"],
    ]
    # It ended long ago: the picture ends with it.
    assert 'class="j-wait" x="0.0%" y="2" width="100.0%"' in text
    assert 'class="j-ahead"' not in text


def test_what_no_event_says_is_not_on_record(site: Site, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.web.job_pages.EVENTS", 1)
    site.store.jobs.submit(NAME, spec(), "ada", NOW, "key")
    told(site, 60_000, "running")
    told(site, 2 * 60_000, "queued")
    with console.browser() as browser:
        text = browser.get("/jobs/train").text
    assert [row[0] for row in cells(text, "Table of states")] == ["queued", "not on record"]
    assert "What is before the newest events and placements is not shown." in text


def test_how_long_it_may_still_run_has_half_of_the_picture_at_most(site: Site, tmp_path: Path) -> None:
    site.store.jobs.submit(NAME, spec(), "ada", NOW, "key")
    claim = Claim(NAME, 1, (task("n1", 0),), NOW, time_limit=Duration(100 * HOUR), gpu_types=(("worker", H100),))
    site.store.ledger.claim(site.epoch(), claim, Intent("start", NAME, 1, NOW, NOW.after(1_000), claim.tasks))
    site.store.ledger.confirm_running_all(site.epoch(), [(NAME, 1, NOW)])
    services = replace(site.services(), clock=VirtualClock(NOW.after(HOUR)))
    with serving_console(site, tmp_path, services=services) as console, console.browser() as browser:
        text = browser.get("/jobs/train").text
    assert 'class="j-ahead" x="50.0%" y="3" width="50.0%"' in text
    assert "runs for 4 d 3 h more at most" in text


@pytest.mark.parametrize(
    ("span", "words"),
    [(-5, "0 s"), (59_999, "59 s"), (60_000, "1 min 0 s"), (HOUR, "1 h 0 min"), (25 * HOUR, "1 d 1 h")],
)
def test_spans_in_words(span: int, words: str) -> None:
    assert span_words(span) == words
