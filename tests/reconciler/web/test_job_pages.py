"""Jobs are found, page by page, and each says why it is where it is, to those who may know."""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec
import pytest
from sqlalchemy import event

from reconciler.access.policy import AccessPolicy, RoleBinding
from reconciler.model.checkpoint_record import CheckpointRecord
from reconciler.model.job_record import JobOutcome
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, QueueName, TaskGroup, TaskPlacement, Together, TopologyRequest
from tests.reconciler.api.conftest import spec
from tests.reconciler.web.conftest import Console


def submit(console: Console, name: str, gpus: int = 1, user: str = "ada", queue: str = "team") -> None:
    asked = spec(gpus, queue=queue, command=("python", "secret.py"))
    console.site.store.jobs.submit(JobName(name), asked, user, console.clock.now(), f"key-of-{name}")


def listed(text: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/jobs/[^"]+">([^<]+)', text)


def test_the_newest_jobs_page_by_page(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.web.job_pages.PAGE", 2)
    for name in ("one", "two", "three", "four", "five"):
        submit(console, name)
    seen = []
    with console.browser() as browser:
        path = "/jobs?user=ada"
        while path:
            text = browser.get(path).text
            seen.append(listed(text))
            found = re.search(r'<a href="([^"]+)" rel="next">', text)
            path = html.unescape(found[1]) if found else ""
            assert not path or "user=ada" in path
    assert seen == [["five", "four"], ["three", "two"], ["one"]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("queue=other", ["elses"]),
        ("queue=org", ["elses", "waits", "runs"]),
        ("state=queued", ["elses", "waits"]),
        ("state=&queue=&user=&prefix=", ["elses", "waits", "runs"]),
        ("user=eve", ["elses"]),
        ("prefix=ru", ["runs"]),
    ],
)
def test_they_can_be_narrowed_down(console: Console, query: str, names: list[str]) -> None:
    submit(console, "runs")
    console.site.bind("runs", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"),)))
    submit(console, "waits")
    submit(console, "elses", user="eve", queue="other")
    with console.browser() as browser:
        assert listed(browser.get(f"/jobs?{query}").text) == names


def test_they_are_sorted_narrowed_down_and_counted(console: Console) -> None:
    submit(console, "over")
    submit(console, "waits")
    submit(console, "runs", 2)
    submit(console, "large", 4)
    jobs, epoch = console.site.store.jobs, console.site.epoch()
    jobs.finish(epoch, JobName("over"), JobOutcome("succeeded", console.clock.now(), 0, ""))
    console.site.bind("runs", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"), DeviceId("n1/1"))))
    expected = {
        "sort=biggest": (["large", "runs", "waits"], "3 jobs match"),
        "sort=waiting": (["waits", "large"], "2 jobs match"),
        "text=A": (["large", "waits"], "2 jobs match"),
        "gpuType=H100": (["large", "runs", "waits"], "3 jobs match"),
        "gpuType=A100&class=": (["large", "runs", "waits"], "3 jobs match"),
        "class=strange": ([], "0 jobs match"),
        "state=queued": (["large", "waits"], "At most 2 jobs match"),
        "state=starting": (["runs"], "At most 1 job matches"),
        "state=succeeded": (["over"], "1 job matches"),
        "ended=1": (["large", "runs", "waits", "over"], "4 jobs match"),
        "ended=0": (["large", "runs", "waits"], "3 jobs match"),
    }
    with console.browser() as browser:
        found = {query: sorted_and_counted(browser.get(f"/jobs?{query}").text) for query in expected}
    assert found == expected


def sorted_and_counted(text: str) -> tuple[list[str], str]:
    """The jobs of a page, and how many it says there are."""
    told = re.search(r'id="count">(.*?)[.]', text)
    assert told is not None
    return listed(text), re.sub(r"<[^>]+>", "", told[1])


def test_more_than_are_counted_are_told_so(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.api.job_reader.COUNTED_MAX", 2)
    for name in ("one", "two", "three"):
        submit(console, name)
    with console.browser() as browser:
        assert 'id="count">More than <b>2</b> jobs match.' in browser.get("/jobs").text


@pytest.mark.parametrize("order", ["biggest", "waiting"])
def test_pages_keep_their_order_and_what_was_asked_for(
    console: Console, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr("reconciler.web.job_pages.PAGE", 2)
    for number, gpus in enumerate((1, 3, 2, 3, 1)):
        submit(console, f"job-{number}", gpus)
    submit(console, "other", 4)
    seen = list[str]()
    with console.browser() as browser:
        path = f"/jobs?text=job&sort={order}"
        while path:
            text = browser.get(path).text
            seen += listed(text)
            found = re.search(r'<a href="([^"]+)" rel="next">', text)
            path = html.unescape(found[1]) if found else ""
            assert not path or ("text=job" in path and f"sort={order}" in path)
    biggest = ["job-3", "job-1", "job-2", "job-4", "job-0"]
    assert seen == (biggest if order == "biggest" else [f"job-{number}" for number in range(5)])


def test_what_others_may_not_see_is_not_counted(console: Console) -> None:
    console.site.access = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",), (QueueName("other"),)),))
    for name, user, queue in (("theirs", "eve", "team"), ("own", "ada", "team"), ("there", "eve", "other")):
        submit(console, name, user=user, queue=queue)
    with console.browser(console.adas) as browser:
        text = browser.get("/jobs").text
    assert listed(text) == ["there", "own"]
    assert 'id="count"><b>2</b> jobs match.' in text


@pytest.mark.parametrize(
    "query",
    [
        "",
        "sort=biggest",
        "sort=waiting",
        "ended=1",
        "ended=1&sort=biggest",
        "sort=biggest&queue=team",
        "sort=biggest&gpuType=H100&text=a",
    ],
)
def test_a_page_reads_one_page_by_an_index_and_sorts_nothing(
    console: Console, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Of SQLite; statements are as many for few jobs as for many."""
    monkeypatch.setattr("reconciler.web.job_pages.PAGE", 3)
    # The snapshot of this site is read from the store, job by job; that of a server is at hand.
    monkeypatch.setattr("reconciler.web.job_pages.gpu_types_of", lambda _: ["H100"])
    engine, counts, plans = console.site.store.database.engine, list[int](), list[str]()

    def explain(connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.startswith("EXPLAIN"):
            counts[-1] += 1
            if "FROM jobs" in statement and "LIMIT" in statement:
                rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
                plans.extend(str(row[-1]) for row in rows)

    with console.browser() as browser:
        for many in (8, 40):
            for number in range(many):
                submit(console, f"a-{many}-{number}", 1 + number % 4)
            browser.get("/queues")
            counts.append(0)
            event.listen(engine, "before_cursor_execute", explain)
            assert len(listed(browser.get(f"/jobs?{query}").text)) == 3
            event.remove(engine, "before_cursor_execute", explain)
    assert counts[0] == counts[1]
    assert plans
    assert not [step for step in plans if "TEMP B-TREE" in step]
    if query == "sort=biggest":
        assert any("USING INDEX live_jobs_by_size (ended_at=?)" in step for step in plans)


def test_what_no_job_is_like_and_what_can_not_be_asked_for_is_told(console: Console) -> None:
    with console.browser() as browser:
        assert "No job that you may see is like that." in browser.get("/jobs").text
        for query in ("state=unheard-of", "cursor=nonsense"):
            refused = browser.get(f"/jobs?{query}")
            assert refused.status_code in (400, 422)
            assert refused.headers["content-type"].startswith("text/html")


def test_a_job_that_waits_says_why_and_what_would_help(console: Console) -> None:
    submit(console, "large", 5)
    with console.browser() as browser:
        text = html.unescape(browser.get("/jobs/large").text)
    assert "Why it is where it is" in text
    assert re.search(r'<ul class="words"><li>[^<]+', text)


def test_a_job_that_holds_something_says_where(console: Console) -> None:
    submit(console, "runs", 2)
    console.site.bind("runs", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"), DeviceId("n1/1"))))
    with console.browser() as browser:
        text = browser.get("/jobs/runs").text
    assert "worker/0" in text
    assert "n1/0, n1/1" in text


def test_units_of_its_groups_are_told_and_what_it_has_of_them(console: Console) -> None:
    groups = (TaskGroup("prefill", 3, Shape(gpus=2)), TaskGroup("decode", 3, Shape(gpus=1)))
    together = (Together(("prefill", "decode"), "rack", units=3, min_units=1),)
    asked = msgspec.structs.replace(spec(), task_groups=groups, topology=TopologyRequest(together=together))
    console.site.store.jobs.submit(JobName("pairs"), asked, "ada", console.clock.now(), "key-of-pairs")
    one = TaskPlacement("prefill", 0, NodeName("n1"), (DeviceId("n1/0"), DeviceId("n1/1")))
    console.site.bind("pairs", one, TaskPlacement("decode", 0, NodeName("n1"), (DeviceId("n1/2"),)))
    with console.browser() as browser:
        page, table = browser.get("/jobs/pairs").text, browser.get("/jobs").text
    assert "prefill and decode are in 3 units, of which 1 is needed to start, each in one rack." in page
    assert "<td>1 to 3</td>" in page
    assert "<td>3/9</td><td>2/6</td>" in table


def test_where_its_tasks_are_is_pictured_with_the_same_in_words(console: Console) -> None:
    submit(console, "runs", 2)
    console.site.bind("runs", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"), DeviceId("n1/1"))))
    with console.browser() as browser:
        _, _, text = browser.get("/jobs/runs").text.partition('class="places-map"')
    assert re.findall(r"<g><title>([^<]+)</title>", text) == ["n1: 2 of 4 GPUs", "n2: nothing"]
    assert text.count('<rect class="b-held"') == 1
    assert 'height="7.0"' in text


def test_what_it_saved_is_for_those_who_may_read_it(console: Console) -> None:
    console.site.access = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",)),))
    submit(console, "saves", user="eve")
    key = JobName("saves"), 1, 1_500
    saved = CheckpointRecord(*key, "default", "file:///secret", 4, Memory(2**30), "sha256:ab", console.clock.now())
    console.site.store.checkpoints.record(console.site.epoch(), saved)
    with console.browser() as owner, console.browser(console.adas) as viewer:
        seen = owner.get("/jobs/saves").text
        assert "Checkpoints" not in viewer.get("/jobs/saves").text
    assert re.search(r'<th scope="row">1,500</th><td>1</td>.*<td class="wide">published</td><td>1Gi</td>', seen)


def test_a_job_that_is_not_there_is_told_with_the_names_that_are(console: Console) -> None:
    submit(console, "training")
    with console.browser() as browser:
        refused = browser.get("/jobs/trainig")
    assert refused.status_code == 404
    assert "training" in html.unescape(refused.text)


def test_jobs_of_other_queues_are_for_those_who_may_see_them(console: Console) -> None:
    roles = (RoleBinding("viewer", ("user:ada",), (QueueName("other"),)),)
    console.site.access = AccessPolicy(roles=roles)
    submit(console, "theirs", user="eve")
    submit(console, "ours", user="eve", queue="other")
    with console.browser(console.adas) as browser:
        assert listed(browser.get("/jobs").text) == ["ours"]
        assert browser.get("/jobs/theirs").status_code == 403


def test_commands_are_on_no_page(console: Console) -> None:
    submit(console, "job")
    with console.browser() as browser:
        assert "secret.py" not in browser.get("/jobs/job").text + browser.get("/jobs").text


def offered(text: str) -> list[str]:
    return re.findall(r'<form method="post" action="/jobs/[^/]+/(\w+)">', text)


def test_what_may_be_asked_of_a_job_is_offered_to_those_who_may_ask_it(console: Console) -> None:
    roles = (RoleBinding("viewer", ("user:ada",)),)
    console.site.access = AccessPolicy(roles=roles)
    submit(console, "waits", user="eve")
    submit(console, "runs", user="eve")
    console.site.bind("runs", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"),)))
    with console.browser() as owner, console.browser(console.adas) as viewer:
        assert offered(owner.get("/jobs/waits").text) == ["suspend", "cancel"]
        assert offered(owner.get("/jobs/runs").text) == ["suspend", "requeue", "cancel"]
        assert offered(viewer.get("/jobs/runs").text) == []
        assert viewer.post("/jobs/runs/cancel", headers={"origin": console.url}).status_code == 403


def test_what_is_asked_is_on_record_with_who_asked(console: Console) -> None:
    submit(console, "waits")
    with console.browser() as browser:
        for verb, after in (("suspend", ["resume", "cancel"]), ("resume", ["suspend", "cancel"]), ("cancel", [])):
            asked = browser.post(f"/jobs/waits/{verb}", headers={"origin": console.url})
            assert (asked.status_code, asked.headers["location"]) == (303, "/jobs/waits")
            text = browser.get("/jobs/waits").text
            assert offered(text) == after
            assert f"{verb}-asked" in text
    assert console.site.store.jobs.job(JobName("waits")).cancel_requested_by == "alice"
    assert console.site.woken == 3


def test_nothing_is_asked_of_a_job_by_another_site_or_by_a_link(console: Console) -> None:
    submit(console, "waits")
    with console.browser() as browser:
        for headers in ({}, {"origin": "https://evil.example"}):
            assert browser.post("/jobs/waits/cancel", headers=headers).status_code == 403
        assert browser.get("/jobs/waits/cancel").status_code == 405
        assert browser.post("/jobs/waits/delete", headers={"origin": console.url}).status_code == 422
    assert not console.site.store.jobs.job(JobName("waits")).cancel_requested_by


def test_the_last_lines_of_a_task_are_text_whatever_it_writes(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.web.job_pages.LINES", 2)
    submit(console, "runs")
    console.site.bind("runs", TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"),)))
    console.site.logs["runs", 1, "worker", 0] = b"first\nsecond <b>\n\x1b[31m<script>alert(1)</script>\xff\n"
    with console.browser() as browser:
        text = browser.get("/jobs/runs/logs").text
        assert "first" not in text
        assert "second &lt;b&gt;\n\x1b[31m&lt;script&gt;alert(1)&lt;/script&gt;\N{REPLACEMENT CHARACTER}" in text
        for strange in ("task=worker/7", "task=../../etc/0", "attempt=9"):
            assert "There is no such log" in browser.get(f"/jobs/runs/logs?{strange}").text


def test_logs_are_for_those_who_may_read_them(console: Console) -> None:
    console.site.access = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",)),))
    submit(console, "runs", user="eve")
    with console.browser() as owner, console.browser(console.adas) as viewer:
        assert "has not started yet" in owner.get("/jobs/runs/logs").text
        assert viewer.get("/jobs/runs").status_code == 200
        assert viewer.get("/jobs/runs/logs").status_code == 403
