"""What is done by hand in the console: as the API would do it, by those who may, and nothing typed is lost when it is refused."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import httpx2
import msgspec
import pytest

from reconciler.access.policy import AccessPolicy, BreakGlass, RoleBinding
from reconciler.model.health_record import HealthFinding, NodeHealth, PartHealth
from reconciler.model.intervention_record import Intervention, Subject
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.store_errors import StoreFullError
from reconciler.store.interventions import SqlInterventions
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, QueueName
from solver.policy.ordering import Ordering, Turns
from solver.policy.policy import Queue, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, TOKEN, spec
from tests.reconciler.web.conftest import Console
from tests.reconciler.web.tables import cells

WHY = "fan 3 is broken, ticket 4711"
EVIL = "<img src=x onerror=alert(1)>'\"&amp;"
HOUR_MS = 3_600_000
FORMS = (
    ("/nodes/n1", ("cordon", "uncordon")),
    ("/queues/team", ("hold", "release")),
    ("/jobs/waits", ("hold", "release", "boost", "unboost")),
)


@pytest.fixture
def owner(console: Console) -> Iterator[httpx2.Client]:
    """May do everything; there is a job of eve's that waits."""
    submit(console, "waits")
    with console.browser() as browser:
        browser.headers["origin"] = console.url
        yield browser


def submit(console: Console, name: str, user: str = "eve") -> None:
    console.site.store.jobs.submit(JobName(name), spec(5), user, console.clock.now(), f"key-of-{name}")


def in_force(console: Console) -> list[tuple[str, str, str, str]]:
    found = console.site.store.interventions.in_force()
    return [(each.kind, str(each.subject), each.author, each.reason) for each in found]


@pytest.mark.parametrize(
    ("place", "begin", "end", "kind", "subject"),
    [
        ("/nodes/n1", "cordon", "uncordon", "cordon", "node n1"),
        ("/queues/team", "hold", "release", "hold", "queue team"),
        ("/jobs/waits", "hold", "release", "hold", "job waits"),
        ("/jobs/waits", "boost", "unboost", "boost", "job waits"),
    ],
)
def test_what_is_done_is_in_force_and_on_record_until_it_is_ended(
    console: Console, owner: httpx2.Client, place: str, begin: str, end: str, kind: str, subject: str
) -> None:
    form = owner.get(f"{place}/{begin}").text
    assert f'<form method="post" action="{place}/{begin}"' in form
    back = "/queues" if place.startswith("/queues") else place
    done = owner.post(f"{place}/{begin}", data={"reason": f"  {WHY}\n", "until": "90m"})
    assert (done.status_code, done.headers["location"]) == (303, back)
    assert in_force(console) == [(kind, subject, "alice", WHY)]
    (kept,) = console.site.store.interventions.in_force()
    assert kept.until - kept.at == 90 * 60_000
    assert console.site.woken == 1
    assert WHY in html.unescape(owner.get(f"{place}/{end}").text)
    over = owner.post(f"{place}/{end}", data={})
    assert (over.status_code, over.headers["location"]) == (303, back)
    assert in_force(console) == []
    assert console.site.woken == 2
    name = subject.split()[1]
    kinds = [event.kind for event in console.site.store.history.events(name) if event.actor == "alice"]
    assert len(kinds) == 2


def test_a_form_that_is_sent_twice_does_once_what_it_says(console: Console, owner: httpx2.Client) -> None:
    for _ in range(2):
        assert owner.post("/nodes/n1/cordon", data={"reason": WHY, "until": "4h"}).status_code == 303
    assert len(console.site.store.interventions.newest()) == 1
    assert [event.kind for event in console.site.store.history.events("n1")] == ["cordoned"]
    for _ in range(2):
        assert owner.post("/nodes/n1/uncordon", data={}).status_code == 303
    assert [event.kind for event in console.site.store.history.events("n1")] == ["cordoned", "uncordoned"]


@pytest.mark.parametrize(
    ("reason", "until", "wrong"),
    [
        ("", "4h", {"reason"}),
        (" \n ", "4h", {"reason"}),
        ("x" * 501, "4h", {"reason"}),
        (WHY, "tomorrow", {"until"}),
        (WHY, "25h", {"until"}),
        (WHY, "2020-01-01T00:00:00Z", {"until"}),
        ("", "-1h", {"reason", "until"}),
        (EVIL, EVIL, {"until"}),
    ],
)
def test_a_refused_form_comes_back_as_it_was_typed_with_what_is_wrong_beside_each_field(
    console: Console, owner: httpx2.Client, reason: str, until: str, wrong: set[str]
) -> None:
    refused = owner.post("/queues/team/hold", data={"reason": reason, "until": until})
    assert refused.status_code == 422
    typed = dict(re.findall(r'name="(\w+)" value="([^"]*)"', refused.text))
    assert {name: html.unescape(value) for name, value in typed.items()} == {"reason": reason, "until": until.strip()}
    assert set(re.findall(r'<p class="problem" id="(\w+)-problem" role="alert">[^<]+', refused.text)) == wrong
    for field in ("reason", "until"):
        (tag,) = re.findall(rf'<input id="{field}"[^>]*>', refused.text)
        assert ('aria-invalid="true"' in tag, f"{field}-problem" in tag) == (field in wrong, field in wrong)
    assert EVIL not in refused.text
    assert in_force(console) == []
    assert console.site.woken == 0


def test_nothing_typed_is_lost_while_the_store_is_full(
    console: Console, owner: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object, __: Intervention) -> Intervention:
        raise StoreFullError("no space is left")

    with monkeypatch.context() as patched:
        patched.setattr(SqlInterventions, "begin", full)
        refused = owner.post("/nodes/n1/cordon", data={"reason": WHY, "until": "3h"})
    assert refused.status_code == 503
    assert "no space is left" in refused.text
    assert re.findall(r'name="\w+" value="([^"]*)"', refused.text) == [WHY, "3h"]


def test_how_long_it_may_last_is_what_the_access_policy_says(console: Console, owner: httpx2.Client) -> None:
    console.site.access = AccessPolicy(break_glass=BreakGlass(Duration(HOUR_MS)))
    assert 'name="until" value="1h"' in owner.get("/nodes/n1/cordon").text
    assert "at most 1h" in html.unescape(owner.post("/nodes/n1/cordon", data={"reason": WHY, "until": "61m"}).text)
    assert owner.post("/nodes/n1/cordon", data={"reason": WHY, "until": ""}).status_code == 303


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/nodes/n11/cordon", 404, "Did you mean n1?"),
        ("/nodes/n11/uncordon", 404, "Did you mean n1?"),
        ("/queues/taem/hold", 404, "Did you mean team?"),
        ("/jobs/wiats/hold", 404, "Did you mean waits?"),
        ("/racks/cordon?rack=r1", 404, "There is no rack r1."),
        ("/racks/cordon", 404, "There is no rack ."),
        ("/racks/cordon?rack=no+rack", 404, "There is no rack no rack."),
    ],
)
def test_what_there_is_not_is_told_with_the_nearest_name(
    owner: httpx2.Client, path: str, status: int, says: str
) -> None:
    refused = owner.post(path, data={"reason": WHY, "until": "4h"})
    text = html.unescape(refused.text)
    assert says in text
    assert refused.status_code == status
    if "/uncordon" not in path:
        assert owner.get(path).status_code == status


def test_a_job_that_has_ended_or_takes_turns_is_told_of_and_offers_nothing(
    console: Console, owner: httpx2.Client
) -> None:
    console.site.policy = policy_of((Queue(QueueName("team"), ordering=Ordering(turns=Turns())),))
    assert offered(owner.get("/jobs/waits").text) == ["hold"]
    boosted = owner.post("/jobs/waits/boost", data={"reason": WHY, "until": ""})
    assert (boosted.status_code, "take turns" in boosted.text, WHY in boosted.text) == (422, True, True)
    console.site.store.jobs.finish(console.site.epoch(), JobName("waits"), JobOutcome("failed", NOW, 1, "no", 1))
    assert owner.post("/jobs/waits/hold", data={"reason": WHY, "until": ""}).status_code == 422
    assert offered(owner.get("/jobs/waits").text) == []
    assert in_force(console) == []


def offered(text: str) -> list[str]:
    """The deeds that a page leads to."""
    return re.findall(r'<a class="button" href="/(?:jobs|nodes|queues)/[^/"]+/(\w+)"', text)


ROLES = {
    "viewer": RoleBinding("viewer", ("user:ada",)),
    "submitter": RoleBinding("submitter", ("user:ada",)),
    "operator of team": RoleBinding("operator", ("user:ada",), (QueueName("team"),)),
    "operator": RoleBinding("operator", ("user:ada",)),
    "admin of other": RoleBinding("admin", ("user:ada",), (QueueName("other"),)),
}


@pytest.mark.parametrize(
    ("role", "nodes", "team", "job", "boost"),
    [
        ("viewer", False, False, False, False),
        ("submitter", False, False, False, False),
        ("operator of team", False, True, True, True),
        ("operator", True, True, True, True),
        ("admin of other", False, False, False, False),
    ],
)
def test_each_role_is_offered_what_it_may_do_and_no_other_may_do_it(
    console: Console, role: str, *, nodes: bool, team: bool, job: bool, boost: bool
) -> None:
    submit(console, "waits")
    console.site.access = AccessPolicy(roles=(ROLES[role],))
    may = {"cordon": nodes, "uncordon": nodes}
    with console.browser(console.adas) as browser:
        browser.headers["origin"] = console.url
        assert ("cordon" in offered(browser.get("/nodes/n1").text)) == nodes
        assert ("/queues/team/hold" in browser.get("/queues").text) == team
        if role != "admin of other":
            wanted = [verb for verb, allowed in (("hold", job), ("boost", boost)) if allowed]
            assert offered(browser.get("/jobs/waits").text) == wanted
        for place, deeds in FORMS:
            for deed in deeds:
                allowed = may.get(deed, team if "queues" in place else boost if "boost" in deed else job)
                asked = browser.post(f"{place}/{deed}", data={"reason": WHY, "until": "1h"})
                assert asked.status_code == (303 if allowed else 403), f"{place}/{deed}"
                assert browser.get(f"{place}/{deed}").status_code == (200 if allowed else 403)
        assert browser.get("/racks/cordon").status_code == (404 if nodes else 403)
        assert browser.get("/interventions").status_code == 200


def test_one_may_hold_a_job_of_ones_own_and_not_boost_it(console: Console) -> None:
    submit(console, "mine", "ada")
    console.site.access = AccessPolicy(roles=(ROLES["viewer"],))
    with console.browser(console.adas) as browser:
        assert offered(browser.get("/jobs/mine").text) == ["hold"]
        done = browser.post("/jobs/mine/hold", data={"reason": WHY}, headers={"origin": console.url})
        assert done.status_code == 303
        assert offered(browser.get("/jobs/mine").text) == ["release"]
        assert "/jobs/mine/release" in browser.get("/interventions").text


@pytest.mark.parametrize("path", [f"{place}/{deed}" for place, deeds in FORMS for deed in deeds])
def test_nothing_is_done_by_another_site_or_by_a_link(console: Console, path: str) -> None:
    submit(console, "waits")
    with console.browser() as browser:
        for headers in ({}, {"origin": "https://evil.example"}, {"origin": "null"}):
            refused = browser.post(path, data={"reason": WHY, "until": "1h"}, headers=headers)
            assert (refused.status_code, "origin" in refused.text) == (403, True)
        before = console.site.store.history.newest_event()
        assert browser.get(path, params={"reason": WHY, "until": "1h"}).status_code == 200
    assert in_force(console) == []
    assert console.site.store.history.newest_event() == before


@pytest.mark.parametrize("path", [f"{place}/{deed}" for place, deeds in FORMS for deed in deeds])
def test_a_form_names_its_origin_though_no_cookie_comes_with_it(console: Console, path: str) -> None:
    """The guard asks it of cookies alone; a server that lets everybody in has none."""
    submit(console, "waits")
    with console.stranger() as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
        refused = client.post(path, data={"reason": WHY, "until": "1h"})
        assert (refused.status_code, "origin-missing" in refused.text) == (403, True)


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"reason": "x"}', "application/json", 422),
        (b"a=1&" * 11, "application/x-www-form-urlencoded", 422),
        (b"reason=" + b"x" * 20_000, "application/x-www-form-urlencoded", 413),
        (b"\xff\xfe%zz=%ff", "application/x-www-form-urlencoded", 422),
    ],
)
def test_what_is_no_form_is_refused(
    console: Console, owner: httpx2.Client, content: bytes, kind: str, status: int
) -> None:
    refused = owner.post("/nodes/n1/cordon", content=content, headers={"content-type": kind})
    assert refused.status_code == status
    assert in_force(console) == []


def test_a_rack_is_cordoned_node_by_node_until_one_time(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    racked = tuple(msgspec.structs.replace(node, rack="r1", block="b1") for node in NODES)
    monkeypatch.setattr("tests.reconciler.api.conftest.NODES", racked)
    with console.browser() as browser:
        browser.headers["origin"] = console.url
        listed = browser.get("/nodes", params={"rack": "b1 / r1"}).text
        assert "/racks/cordon?rack=b1%20/%20r1" in listed
        assert "/racks/cordon" not in browser.get("/nodes").text
        path = "/racks/cordon?rack=b1%20/%20r1"
        assert "all of rack b1 / r1: 2 nodes" in browser.get(path).text
        empty = browser.post(path, data={"reason": "", "until": "4h"})
        assert (empty.status_code, 'action="/racks/cordon?rack=b1%20/%20r1"' in empty.text) == (422, True)
        for _ in range(2):
            done = browser.post(path, data={"reason": WHY, "until": "4h"})
            assert (done.status_code, done.headers["location"]) == (303, "/nodes?rack=b1+%2F+r1")
        found = console.site.store.interventions.newest()
        assert {each.subject.name for each in found} == {"n1", "n2"}
        assert len(found) == 2
        assert len({each.until for each in found}) == 1
        assert browser.post("/racks/uncordon?rack=b1%20/%20r1", data={}).status_code == 303
    assert in_force(console) == []


def test_what_is_over_by_the_clock_is_not_in_force_though_no_pass_has_ended_it(
    console: Console, owner: httpx2.Client
) -> None:
    old = Intervention("hold", Subject("queue", "team"), "bob", "of long ago", Instant(0), Instant(HOUR_MS))
    console.site.store.interventions.begin(old)
    text = owner.get("/interventions").text
    assert "Nothing is." in text
    (row,) = cells(text, "Table of what is over")
    assert row[:4] == ["hold", "queue team", "of long ago", "bob"]
    assert row[-2:] == ["1970-01-01T01:00:00Z", "its time is over"]
    assert "held by bob" not in owner.get("/queues").text
    assert "of long ago" not in owner.get("/queues/team/hold").text


def test_what_is_in_force_says_what_follows_and_leads_to_ending_it(console: Console, owner: httpx2.Client) -> None:
    owner.post("/nodes/n1/cordon", data={"reason": EVIL, "until": "1h"})
    owner.post("/queues/team/hold", data={"reason": WHY, "until": "1h"})
    owner.post("/jobs/waits/boost", data={"reason": WHY, "until": "1h"})
    assert f"held by alice: {WHY}" in owner.get("/queues").text
    text = owner.get("/interventions").text
    rows = cells(text, "Table of what is in force")
    assert [(row[0], *row[2:5]) for row in rows] == [
        ("cordon", "node n1", EVIL, "alice"),
        ("hold", "queue team", WHY, "alice"),
        ("boost", "job waits", WHY, "alice"),
    ]
    assert "No new job begins there." in rows[0][7]
    assert EVIL not in text
    ends = re.findall(r'<a class="button" href="([^"]+)">End', text)
    assert ends == ["/nodes/n1/uncordon", "/queues/team/release", "/jobs/waits/unboost"]
    for path in ends:
        assert owner.post(path, data={}).status_code == 303
    over = cells(owner.get("/interventions").text, "Table of what is over")
    assert [row[-1] for row in over] == ["ended by alice"] * 3
    assert "held by alice" not in owner.get("/queues").text


def test_what_was_done_is_told_page_by_page(
    console: Console, owner: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.web.intervention_pages.PAGE", 2)
    for number in range(5):
        owner.post("/nodes/n1/cordon", data={"reason": f"number {number}", "until": "1h"})
    owner.post("/nodes/n1/uncordon", data={})
    seen, path = list[str](), "/interventions"
    while path:
        text = owner.get(path).text
        seen += [row[2] for row in cells(text, "Table of what is over")]
        found = re.search(r'<a href="([^"]+)" rel="next">', text)
        path = html.unescape(found[1]) if found else ""
    assert seen == [f"number {number}" for number in (4, 3, 2, 1, 0)]


def test_of_jobs_there_are_those_that_one_may_see(console: Console, owner: httpx2.Client) -> None:
    owner.post("/jobs/waits/hold", data={"reason": "a secret plan", "until": "1h"})
    console.site.access = AccessPolicy(roles=(ROLES["admin of other"],))
    with console.browser(console.adas) as browser:
        text = browser.get("/interventions").text
        assert "a secret plan" not in text
        assert "<b>0</b> in force" in text


def test_what_health_checks_have_closed_is_in_force_and_ended_by_a_person(
    console: Console, owner: httpx2.Client
) -> None:
    finding = HealthFinding("xid-drain", "", "", NOW, NOW, "XID 79", int(NOW), confirmed=True)
    sick = NodeHealth(NodeName("n1"), (finding,), (PartHealth("", "drained", NOW, "XID 79"),))
    console.site.store.health.keep(console.site.epoch(), (sick,))
    (row,) = cells(owner.get("/interventions").text, "Table of what is in force")
    assert row[2:5] == ["node n1", "XID 79", "health"]
    assert row[6] == "a person ends it"
    assert "XID 79" in owner.get("/nodes/n1/uncordon").text
    assert owner.post("/nodes/n1/uncordon", data={}).status_code == 303
    assert console.site.store.health.all()[0].forgiven_at is not None
    assert [event.kind for event in console.site.store.history.events("n1")] == ["uncordoned"]
