"""Lists come in pages: all of it, once, in order, whatever is asked for and however it is cut."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.api.server import ApiServer
from reconciler.client import ApiError, Client
from reconciler.protocols.history import Event
from solver.model.workload import JobName
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec
from tests.reconciler.api.web import WEB


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 100])
def test_jobs_in_pages(client: Client, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("reconciler.api.job_reader._CHUNK", 2)
    names = [f"job-{number}" for number in range(6)]
    for name in names:
        client.submit(JobName(name), spec())
    found, page = [], client.jobs(limit)
    while True:
        found += [view.name for view in page.items]
        assert len(page.items) == limit or not page.next
        if not page.next:
            break
        page = client.jobs(limit, page.next)
    assert found == names[::-1] == [view.name for view in client.all_jobs()]


def test_jobs_that_come_meanwhile_change_no_page_behind(client: Client) -> None:
    for name in ("a", "b", "c"):
        client.submit(JobName(name), spec())
    first = client.jobs(1)
    client.submit(JobName("d"), spec())
    assert [view.name for view in client.jobs(10, first.next).items] == ["b", "a"]


def test_a_page_may_be_short_where_many_are_looked_at(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.api.job_reader.LOOKED_AT_MAX", 2)
    for name in ("wanted-1", "b", "c", "wanted-2"):
        client.submit(JobName(name), spec())
    for name in ("b", "c"):
        client.suspend(name)
    first = client.jobs(10, states=["queued"])
    assert [view.name for view in first.items] == ["wanted-2"]
    assert [view.name for view in client.all_jobs(states=["queued"])] == ["wanted-2", "wanted-1"]


def test_jobs_by_queue_user_state_and_name(site: Site, client: Client) -> None:
    site.store.jobs.submit(JobName("bobs"), spec(queue="other"), "bob", NOW, "")
    client.submit(JobName("array-1"), spec())
    client.submit(JobName("array-2"), spec())
    client.cancel("array-2")

    def names(**asked: str) -> list[str]:
        return [view.name for view in client.jobs(**asked).items]  # type: ignore[arg-type]

    assert names(queue="org") == ["array-2", "array-1", "bobs"]
    assert names(queue="team") == ["array-2", "array-1"]
    assert names(queue="none") == []
    assert names(user="bob") == ["bobs"]
    assert names(prefix="array-") == ["array-2", "array-1"]
    assert [view.name for view in client.jobs(states=["queued"]).items] == [
        view.name for view in client.jobs().items if view.state == "queued"
    ]
    assert len(client.jobs(states=["queued", "running", "stopping", "cancelled"]).items) == 3


def test_events_in_pages(site: Site, client: Client) -> None:
    client.submit(JobName("job"), spec())
    events = [Event(NOW.after(age), "bound", "job", f"cause {age}", "loop") for age in range(5)]
    for event in events:
        site.store.history.record_event(event)
        site.store.history.record_event(msgspec.structs.replace(event, subject="other"))
    found: list[Event] = []
    page = client.events("job", 2)
    while True:
        found = [*page.items, *found]
        if not page.next:
            break
        page = client.events("job", 2, page.next)
    assert found[1:] == events  # the first says that it was submitted


def test_rounds_in_pages(site: Site, client: Client) -> None:
    for _ in range(3):
        site.record_round()
    first = client.rounds(2)
    assert [line.number for line in first.items] == [3, 2]
    assert [line.number for line in client.rounds(2, first.next).items] == [1]
    assert client.rounds(3).next == ""
    assert [line.number for line in client.all_rounds()] == [3, 2, 1]


@pytest.mark.parametrize("cursor", ["!", "é", "YQ", "____", "a" * 399])
def test_a_made_up_cursor_is_refused(client: Client, cursor: str) -> None:
    client.submit(JobName("job"), spec())
    for ask in (
        lambda: client.jobs(1, cursor),
        lambda: client.rounds(1, cursor),
        lambda: client.events("job", 1, cursor),
    ):
        with pytest.raises(ApiError) as refused:
            ask()
        assert (refused.value.status, refused.value.problem.code) == (422, "bad-cursor")


def test_the_next_page_is_linked(server: ApiServer, client: Client) -> None:
    for name in ("a", "b"):
        client.submit(JobName(name), spec())
    headers = {"Authorization": f"Bearer {TOKEN}"}
    response = WEB.get(f"{server.url}/v1/jobs?limit=1&user=alice", headers=headers)
    link = response.links["next"]["url"]
    assert link.startswith("/v1/jobs?limit=1&user=alice&cursor=")
    following = WEB.get(server.url + link, headers=headers)
    assert [item["name"] for item in following.json()["items"]] == ["a"]
    assert "Link" not in following.headers


def test_the_policy_is_sent_once(server: ApiServer) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    whole = WEB.get(f"{server.url}/v1/policy", headers=headers)
    same = WEB.get(f"{server.url}/v1/policy", headers=headers | {"If-None-Match": f'"x", {whole.headers["ETag"]}'})
    other = WEB.get(f"{server.url}/v1/policy", headers=headers | {"If-None-Match": '"x"'})
    assert (whole.status_code, same.status_code, same.content, other.status_code) == (200, 304, b"", 200)
