"""Jobs are found, page by page, and each says why it is where it is, to those who may know."""

from __future__ import annotations

import html
import re

import pytest

from reconciler.access.policy import AccessPolicy, RoleBinding
from solver.model.cluster import DeviceId, NodeName
from solver.model.workload import JobName, QueueName, TaskPlacement
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
