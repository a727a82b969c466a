"""The page of time: nodes or queues in a window that its address names, page by page, for each user what they may see."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import event

from reconciler.access.policy import AccessPolicy, RoleBinding
from reconciler.model.clock import VirtualClock
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, TaskPlacement
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Waits
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, Site, spec
from tests.reconciler.web.conftest import Console, serving_console
from tests.reconciler.web.tables import cells

HOUR = 3_600_000
LATER = NOW.after(HOUR)
TABLE = "Table of what held and will hold GPUs"
EVIL = "<img src=x onerror=alert(1)>"


def node(name: str, rack: str = "r1", gpu_type: str = "H100") -> Node:
    gpus = tuple(msgspec.structs.replace(gpu, id=DeviceId(f"{name}/{gpu.index}")) for gpu in NODES[0].gpus)
    return msgspec.structs.replace(NODES[0], name=NodeName(name), block="b1", rack=rack, gpu_type=gpu_type, gpus=gpus)


def task(of: str, *indices: int) -> TaskPlacement:
    return TaskPlacement("worker", 0, NodeName(of), tuple(DeviceId(f"{of}/{index}") for index in indices))


def submit(site: Site, name: str, *tasks: TaskPlacement, queue: str = "team") -> None:
    site.store.jobs.submit(JobName(name), spec(queue=queue), "eve", NOW, f"key-{name}")
    if tasks:
        site.bind(name, *tasks)


@pytest.fixture
def cluster(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    """An hour ago `runs` began on n1 and `done` on n2, which ended half an hour ago; `waits` could start in an hour."""
    nodes = node("n10", "r10"), node("n1"), node("a100", "r3", "A100"), node("n2", "r2")
    monkeypatch.setattr("tests.reconciler.api.conftest.NODES", nodes)
    submit(site, "runs", task("n1", 0, 1))
    submit(site, "done", task("n2", 0), queue="other")
    site.store.ledger.release(site.epoch(), JobName("done"), 1, NOW.after(HOUR // 2))
    submit(site, "waits")
    limited = Duration(2 * HOUR)

    def snapshot() -> Snapshot:
        seen = site.snapshot()
        jobs = (
            msgspec.structs.replace(job, started_at=NOW, time_limit=limited) if job.placement else job
            for job in seen.jobs
        )
        return msgspec.structs.replace(seen, jobs=tuple(jobs))

    waits = (Waits(JobName("waits"), spec().queue, (), EarliestStart(LATER.after(HOUR))),)
    services = replace(site.services(), clock=VirtualClock(LATER), snapshot=snapshot, verdicts=lambda: waits)
    with serving_console(site, tmp_path, services=services) as running:
        yield running


def test_nodes_with_what_held_their_gpus_and_until_when_it_will(cluster: Console) -> None:
    with cluster.browser() as browser:
        text = browser.get("/time").text
    assert re.findall(r'<tr data-key="(\w+)"><th scope="row"><a href="/nodes/', text) == ["n1", "n2", "a100", "n10"]
    assert cells(text, TABLE) == [
        ["n1", "runs", "runs", "2", "team", "2023-11-14T22:13:20Z", "2023-11-15T00:13:20Z", "its time limit"],
        ["n2", "done", "ran", "1", "other", "2023-11-14T22:13:20Z", "2023-11-14T22:43:20Z", ""],
    ]
    assert '<a class="q-c1" href="/jobs/runs" tabindex="-1">' in text


def test_queues_with_when_jobs_could_start(cluster: Console) -> None:
    with cluster.browser() as browser:
        text = browser.get("/time?by=queue").text
    rows = cells(text, TABLE)
    assert [row[:4] for row in rows] == [
        ["other", "done", "ran", "1"],
        ["team", "runs", "runs", "2"],
        ["team", "waits", "forecast", "1"],
    ]
    assert rows[2][5:] == [
        "2023-11-15T00:13:20Z",
        "",
        "earliest start 2023-11-15T00:13:20Z, if what runs ends at its limit",
    ]
    assert 'class="t-forecast"' in text
    assert "Queues below org" in text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("rack=b1+/+r1", ["n1"]),
        ("rack=r1", ["n1", "n10"]),
        ("type=A100", ["a100"]),
        ("name=10", ["a100", "n10"]),
        ("name=n1", ["n1"]),
        ("name=n1&type=H100&rack=r", ["n1"]),
        ("rack=&type=&name=&queue=&from=&to=", ["n1", "n2", "a100", "n10"]),
        ("name=nothing", []),
    ],
)
def test_nodes_can_be_narrowed_down(cluster: Console, query: str, found: list[str]) -> None:
    with cluster.browser() as browser:
        text = browser.get(f"/time?{query}").text
    assert re.findall(r'<tr data-key="(\w+)"><th scope="row">', text) == found
    assert ("No node is like that." in text) == (not found)


def test_queues_below_one(cluster: Console) -> None:
    with cluster.browser() as browser:
        text = browser.get("/time?by=queue&queue=team").text
        assert [row[1] for row in cells(text, TABLE)] == ["runs", "waits"]
        assert '<a href="/time?by=queue&amp;queue=org">org</a> / team' in text
        assert browser.get("/time?by=queue&queue=gone").status_code == 404


def test_they_come_page_by_page_and_keep_to_what_was_asked_for(
    cluster: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.web.time_pages.NODES_SHOWN", 2)
    monkeypatch.setattr("reconciler.web.time_pages.QUEUES_SHOWN", 1)
    with cluster.browser() as browser:
        for first, pages in (
            ("/time?rack=r&from=3h+ago&to=now", [["n1", "n2"], ["a100", "n10"]]),
            ("/time?by=queue&from=3h+ago&to=now", [["other"], ["team"], ["org"]]),
        ):
            seen, path, text = list[list[str]](), first, ""
            while path:
                text = browser.get(path).text
                seen.append(re.findall(r'<tr data-key="(\w+)"><th scope="row"><a', text))
                link = re.search(r'<a href="([^"]+)" rel="next">', text)
                path = html.unescape(link[1]) if link else ""
                assert not path or "from=3h+ago&to=now" in path
            assert seen == pages
            assert 'rel="prev"' in text
        assert [browser.get(f"/time?{bad}").status_code for bad in ("page=0", "by=job", "from=soon", "to=1900d")] == [
            422
        ] * 4


def test_links_lead_earlier_later_and_to_now(cluster: Console) -> None:
    with cluster.browser() as browser:
        text = browser.get("/time?from=2023-11-14T22:00Z&to=2023-11-14T23:00Z&rack=r2").text
        links = {
            name: html.unescape(at) for name, at in re.findall(r'id="(earlier|around-now|later)" href="([^"]+)"', text)
        }
        assert links == {
            "earlier": "/time?rack=r2&from=2023-11-14T21%3A30Z&to=2023-11-14T22%3A30Z",
            "around-now": "/time?rack=r2&from=30m+ago&to=in+30m",
            "later": "/time?rack=r2&from=2023-11-14T22%3A30Z&to=2023-11-14T23%3A30Z",
        }
        assert [row[1] for row in cells(text, TABLE)] == ["done"]
        long_ago = browser.get("/time?from=2023-11-01&to=2023-11-02").text
        assert "Nothing held GPUs here, and nothing is to." in long_ago


def test_for_a_user_who_may_not_see_a_job_it_has_no_name(cluster: Console) -> None:
    cluster.site.access = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",), (spec(queue="other").queue,)),))
    with cluster.browser(cluster.adas) as browser:
        nodes, queues = browser.get("/time").text, browser.get("/time?by=queue").text
    for text in (nodes, queues):
        assert "/jobs/runs" not in text
        assert ">runs</a>" not in text
        assert "waits" not in cells(text, TABLE)[-1][1]
        assert 'href="/jobs/done"' in text
    assert cells(nodes, TABLE)[0][:3] == ["n1", "another job", "runs"]
    assert [row[1] for row in cells(queues, TABLE)] == ["done", "another job", "another job"]
    assert cells(queues, TABLE)[2][7] == ""


def test_where_jobs_are_pods_it_says_that_no_past_is_kept(cluster: Console, tmp_path: Path) -> None:
    services = replace(cluster.site.services(), clock=VirtualClock(LATER), placements=None)
    (tmp_path / "pods").mkdir()
    with serving_console(cluster.site, tmp_path / "pods", services=services) as console, console.browser() as browser:
        text = browser.get("/time").text
        assert "Where jobs are pods nothing is kept of the past" in text
        assert [row[:2] for row in cells(text, TABLE)] == [["n1", "runs"]]
        assert "nothing is kept of what queues held" in browser.get("/queues/team").text


def test_however_many_look_a_pass_is_looked_at_once(cluster: Console, tmp_path: Path) -> None:
    """Statements of the store, and looks at all nodes: neither grows with those that look."""
    seen, asked, statements = cluster.site.snapshot(), Counter[str](), list[str]()
    services = replace(cluster.site.services(), clock=VirtualClock(LATER), snapshot=lambda: seen)
    placements = services.placements
    assert placements is not None

    class Counted:
        def __getattr__(self, name: str) -> Any:
            asked[name] += 1
            return getattr(placements, name)

    (tmp_path / "more").mkdir()
    services = replace(services, placements=Counted())
    with serving_console(cluster.site, tmp_path / "more", services=services) as console, console.browser() as browser:
        engine = cluster.site.store.database.engine
        pages = "/time", "/time?by=queue", "/queues/team"
        for path in pages:
            assert browser.get(path).status_code == 200
        first = Counter(asked)
        event.listen(engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
        for _ in range(20):
            for path in pages:
                browser.get(path)
    assert (asked, sum(first.values())) == (first, 4)
    assert not [each for each in statements if "placement" in each]


def test_names_are_text_wherever_they_stand(cluster: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.reconciler.api.conftest.NODES", (node(EVIL, EVIL),))
    with cluster.browser() as browser:
        for path in ("/time", f"/time?rack={EVIL}&name={EVIL}&queue=&from=1h+ago&to=now"):
            text = browser.get(path).text
            assert html.escape(EVIL, quote=False) in text
            assert EVIL not in text
