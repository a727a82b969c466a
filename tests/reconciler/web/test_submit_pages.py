"""Jobs are submitted by form or as YAML by those who may, and what is refused comes back with what was typed."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import httpx2
import pytest

from reconciler.access.policy import AccessPolicy, RoleBinding
from reconciler.api.job_routes import BODY_BYTES_MAX
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import Unstartable
from reconciler.protocols.store_errors import StoreUnreachableError
from reconciler.web import submit_pages
from solver.model.quantities import Duration, MilliGpu
from solver.model.workload import JobName, QueueName
from tests.reconciler.api.conftest import H100, NOW, spec
from tests.reconciler.web.conftest import Console

EVIL = "<img src=x onerror=alert(1)>"
FORM = {
    "way": "form",
    "key": "console-one",
    "name": "training",
    "queue": "team",
    "class": "",
    "kind": "gang",
    "gpus": "2",
    "gpu-type": "H100",
    "tasks": "2",
    "cpu": "4",
    "memory": "16Gi",
    "time-limit": "12h",
    "image": "",
    "command": "python train.py --name 'a b'",
}
YAML = """apiVersion: quorate.dev/v1
kind: Job
metadata:
  name: training
spec:
  queue: team
  taskGroups:
    - name: worker
      replicas: 1
      shape:
        gpus: 1
  command: ["true"]
"""


def send(browser: httpx2.Client, console: Console, **fields: str) -> httpx2.Response:
    return browser.post("/jobs/new", data=fields, headers={"origin": console.url})


def by_form(browser: httpx2.Client, console: Console, **fields: str) -> httpx2.Response:
    return send(browser, console, **{**FORM, "verb": "submit", **fields})


def by_yaml(browser: httpx2.Client, console: Console, document: str, verb: str = "submit") -> httpx2.Response:
    return send(browser, console, way="yaml", key="console-one", verb=verb, document=document)


def jobs_of(console: Console) -> dict[str, JobRecord]:
    return {record.name: record for record in console.site.store.jobs.live_jobs()}


def test_a_form_is_the_job_that_it_describes(console: Console) -> None:
    with console.browser() as browser:
        sent = by_form(browser, console)
        assert (sent.status_code, sent.headers["location"]) == (303, "/jobs/training")
        assert browser.get("/jobs/training").status_code == 200
    (record,) = jobs_of(console).values()
    (group,) = record.spec.task_groups
    assert (record.user, record.spec.queue, record.spec.time_limit) == ("alice", "team", Duration(12 * 3_600_000))
    assert (group.replicas, group.shape.gpus, group.shape.gpu_types) == (2, 2, (H100,))
    assert record.spec.command == ("python", "train.py", "--name", "a b")
    (event,) = console.site.store.history.events("training")
    assert (event.kind, event.actor) == ("submitted", "alice")
    assert console.site.woken == 1


def test_sending_it_twice_is_sending_it_once_and_another_job_needs_another_name(console: Console) -> None:
    with console.browser() as browser:
        for _ in range(2):
            assert by_form(browser, console).headers["location"] == "/jobs/training"
        changed = by_form(browser, console, gpus="3")
        assert changed.status_code == 409
        assert "a job training exists already" in changed.text
        assert 'value="3"' in changed.text
    assert len(console.site.store.history.events("training")) == 1
    assert jobs_of(console)["training"].spec.gpus == MilliGpu.gpus(4)


def marked(text: str) -> dict[str, str]:
    found = re.findall(r'<small class="problem" id="wrong-([\w-]+)-1">([^<]*)', html.unescape(text))
    return dict(found)


@pytest.mark.parametrize(
    ("field", "typed", "message"),
    [
        ("name", "", "this is missing"),
        ("name", "Not A Name", "metadata.name"),
        ("queue", "", "this is missing"),
        ("tasks", "many", "whole number"),
        ("tasks", "", "this is missing"),
        ("gpus", "-1", "gpus"),
        ("time-limit", "soon", "timeLimit"),
        ("memory", "lots", "memory"),
        ("command", "", "this is missing"),
        ("command", "python 'train", "command"),
        ("kind", "strange", "type"),
    ],
)
def test_what_is_wrong_stands_at_its_field(console: Console, field: str, typed: str, message: str) -> None:
    with console.browser() as browser:
        refused = by_form(browser, console, **{field: typed})
    assert refused.status_code in (422, 403)
    if field == "queue":
        assert "may not submit to queue" in refused.text or message in marked(refused.text)["queue"]
        return
    assert message in marked(refused.text)[field], marked(refused.text)
    assert f'aria-describedby="wrong-{field}-1' in refused.text
    assert not jobs_of(console)


def test_a_refused_form_comes_back_with_what_was_typed_as_text(console: Console) -> None:
    with console.browser() as browser:
        refused = by_form(browser, console, name=EVIL, memory='"><script>', image=EVIL, command=f"echo {EVIL}")
    assert refused.status_code == 422
    assert "<img" not in refused.text
    assert '"><script>' not in refused.text
    assert refused.text.count("&lt;img src=x onerror=alert(1)&gt;") >= 3


def test_a_wrong_document_says_the_lines_and_comes_back(console: Console) -> None:
    wrong = YAML.replace("replicas: 1", "replicas: many").replace("kind: Job", f"kind: Job # {EVIL}")
    with console.browser() as browser:
        refused = by_yaml(browser, console, wrong.replace("\n", "\r\n"))
    assert refused.status_code == 422
    text = html.unescape(refused.text)
    assert re.search(r'data-line="9">Line 9</button> column 17: .*whole number', text)
    assert "<code>replicas: many</code>" in refused.text
    assert wrong in text
    assert "<img" not in refused.text


@pytest.mark.parametrize("document", ["", "a: [", "- 1", "kind: Queue", "x: &a [*a]", YAML + "---\n" + YAML])
def test_what_is_no_job_is_told(console: Console, document: str) -> None:
    with console.browser() as browser:
        refused = by_yaml(browser, console, document)
    assert refused.status_code == 422
    assert 'role="alert"' in refused.text
    assert "data-line=" in refused.text


def test_an_array_and_a_pipeline_are_whole(console: Console) -> None:
    array = YAML.replace("spec:\n", "spec:\n  array: {indices: 0-2}\n", 1)
    with console.browser() as browser:
        sent = by_yaml(browser, console, array)
        assert (sent.status_code, sent.headers["location"]) == (303, "/jobs?group=training")
        assert by_yaml(browser, console, array).status_code == 303
        console.site.store.jobs.submit(JobName("training-more"), spec(), "alice", NOW, "")
        listed = browser.get(sent.headers["location"]).text
    assert [name in listed for name in ("training-0", "training-1", "training-2", "training-more")] == [True] * 3 + [
        False
    ]
    assert len(jobs_of(console)) == 4
    assert console.site.store.jobs.group(JobName("training")).user == "alice"


def test_a_trial_says_what_would_happen_and_keeps_nothing(console: Console) -> None:
    with console.browser() as browser:
        starts = by_form(browser, console, verb="try")
        never = by_form(browser, console, verb="try", tasks="9")
        queued = by_yaml(browser, console, YAML, verb="try")
    assert starts.status_code == never.status_code == queued.status_code == 200
    assert "would start now" in starts.text
    assert re.search(r'<td class="wide text">n\d', starts.text)
    assert "could never run" in never.text
    assert "may never hold more than 6" in html.unescape(never.text)
    assert "would start now" in queued.text
    assert not jobs_of(console)
    assert console.site.woken == 0
    assert 'value="training"' in starts.text


def test_what_could_never_run_is_refused_with_what_would_fit(console: Console) -> None:
    with console.browser() as browser:
        refused = by_form(browser, console, tasks="9")
    assert refused.status_code == 422
    assert "training could never run" in refused.text
    assert not jobs_of(console)


def test_what_could_not_begin_and_a_store_that_is_away_come_back_with_what_was_typed(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.site.lacks = Unstartable("no-account", "there is no account", "Make one.")
    with console.browser() as browser:
        refused = by_form(browser, console)
        console.site.lacks = None

        def away(_: object) -> None:
            raise StoreUnreachableError("it does not answer")

        monkeypatch.setattr(console.site.store.jobs, "submit_each", away)
        later = by_form(browser, console)
    assert (refused.status_code, later.status_code) == (422, 503)
    assert "could not begin: there is no account" in refused.text
    assert "it does not answer" in later.text
    for text in (refused.text, later.text):
        assert 'value="16Gi"' in text
        assert 'value="console-one"' in text


def test_a_form_becomes_yaml(console: Console) -> None:
    with console.browser() as browser:
        shown = by_form(browser, console, verb="yaml")
        assert 'name="way" value="yaml"' in shown.text
        area = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", shown.text, re.DOTALL)
        assert area is not None
        document = html.unescape(area[1])
        assert by_yaml(browser, console, document).status_code == 303
        # The same document by another way is the same job.
        assert by_form(browser, console).status_code == 303
    assert len(jobs_of(console)) == 1


def test_only_queues_that_take_jobs_from_the_user_are_offered(console: Console) -> None:
    console.site.access = AccessPolicy(
        roles=(RoleBinding("viewer", ("user:ada",)), RoleBinding("submitter", ("user:ada",), (QueueName("other"),)))
    )
    with console.browser() as owner, console.browser(console.adas) as browser:
        assert re.findall(r"<option(?: selected)?>(team|other|org)</option>", owner.get("/jobs/new").text) == [
            "other",
            "team",
        ]
        text = browser.get("/jobs/new").text
        assert re.findall(r"<option(?: selected)?>(team|other|org)</option>", text) == ["other"]
        assert "/jobs/new" in browser.get("/jobs").text
        refused = by_form(browser, console)
        assert refused.status_code == 403
        assert "ada may not submit to queue team" in refused.text
        assert by_yaml(browser, console, YAML).status_code == by_yaml(browser, console, YAML, "try").status_code == 403
        assert by_form(browser, console, queue="other").status_code == 303
    assert [record.user for record in jobs_of(console).values()] == ["ada"]


def test_nothing_is_parsed_for_those_who_may_submit_nowhere(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    console.site.access = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",)),))
    monkeypatch.setattr(submit_pages, "_typed", lambda _: pytest.fail("it was parsed"))
    with console.browser(console.adas) as browser:
        assert "/jobs/new" not in browser.get("/jobs").text
        assert browser.get("/jobs/new").status_code == 403
        refused = by_yaml(browser, console, YAML)
    assert refused.status_code == 403
    assert "ada may submit to no queue" in refused.text


def test_other_sites_and_links_submit_nothing_and_bodies_have_an_end(console: Console) -> None:
    fields = urlencode({**FORM, "verb": "submit"})
    with console.browser() as browser:
        for headers in ({}, {"origin": "https://evil.example"}):
            assert browser.post("/jobs/new", content=fields, headers=headers).status_code == 403
        assert browser.get(f"/jobs/new?{fields}").status_code == 200
        large = by_yaml(browser, console, "#" * (BODY_BYTES_MAX + 1))
        assert large.status_code == 413
        assert large.headers["content-type"].startswith("text/html")
        many = browser.post("/jobs/new", content="a=1&" * 1_000, headers={"origin": console.url})
        assert many.status_code == 422
    assert not jobs_of(console)


def test_a_job_of_the_name_of_the_page_has_a_page_of_its_own(console: Console) -> None:
    with console.browser() as browser:
        assert by_form(browser, console, name="new").headers["location"] == "/jobs/new/"
        assert "<h1>new</h1>" in browser.get("/jobs/new/").text
        assert 'href="/jobs/new/"' in browser.get("/jobs/new").text
        assert 'href="/jobs/new/"' in browser.get("/jobs").text


def test_a_key_of_another_user_finds_no_job_of_theirs(console: Console) -> None:
    console.site.access = AccessPolicy(roles=(RoleBinding("submitter", ("user:ada",), (QueueName("other"),)),))
    console.site.store.jobs.submit(JobName("training"), spec(), "eve", console.clock.now(), "key")
    with console.browser(console.adas) as browser:
        refused = by_form(browser, console, queue="other")
    assert refused.status_code == 409
