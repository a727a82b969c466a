"""One page says what is out of order: figures first, then each thing with since when and why."""

from __future__ import annotations

import html
import re

import msgspec
import pytest

from reconciler.access.policy import AccessPolicy, RoleBinding
from reconciler.alerts.policy import AlertPolicy, Webhook
from reconciler.api.payloads import LEADING
from reconciler.api.problems import NotReadyError
from reconciler.documents.operations import Operations
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.git_status import PolicyCondition
from reconciler.model.health_record import HealthFinding, NodeHealth, PartHealth
from reconciler.model.webhook_delivery import DeliveryResult, DeliveryState
from reconciler.protocols.agents import Invitation
from reconciler.protocols.history import Event
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, spec
from tests.reconciler.web.conftest import Console
from tests.reconciler.web.tables import cells

FINDING = HealthFinding("xid-drain", "n1/2", "", NOW, NOW, "XID 79", int(NOW), confirmed=True)
DRAINED = PartHealth("n1/2", "drained", NOW, "XID 79", NOW.after(9_000))
SICK = NodeHealth(NodeName("n1"), (FINDING,), (DRAINED,))
OPS = AlertPolicy("ops", (Webhook("chat", "https://hooks.example.com/secret"),), ("node-drained", "failed"))


def figures(text: str) -> str:
    (found,) = re.findall(r'<p class="figures">(.*?)</p>', text, re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", found)).split())


def seen(console: Console) -> None:
    console.site.sighted = BackendReports({node.name: node for node in NODES}, {})


def test_where_all_is_well_it_says_so(console: Console) -> None:
    seen(console)
    with console.browser() as browser:
        text = browser.get("/health").text
    assert figures(text).startswith(
        "All conditions are in order. 0 of 2 nodes closed, 0 with something against them. 0 of 8 GPUs take no new job,"
    )
    for said in ("Nothing speaks against any node.", "Nothing speaks against any GPU by itself.", "no webhook is told"):
        assert said in text


def test_what_is_out_of_order_is_counted_and_told_with_its_reason(console: Console) -> None:
    seen(console)
    console.site.store.health.keep(console.site.epoch(), (SICK,))
    stalled = PolicyCondition("Stalled", True, "BadDocument", "queue.yaml:3: no such queue")
    ready = PolicyCondition("Ready", False, "BadDocument", "queue.yaml:3: no such queue")
    leading = PolicyCondition(LEADING, True, "", "")  # type: ignore[arg-type]  # the site has no other way to say it
    console.site.told = msgspec.structs.replace(console.site.told, conditions=(ready, stalled, leading))
    with console.browser() as browser:
        browser.post("/nodes/n2/cordon", data={"reason": "fan 3", "until": "2h"}, headers={"origin": console.url})
        text = browser.get("/health").text
    (cordon,) = console.site.store.interventions.in_force()
    assert figures(text).startswith(
        "2 of 3 conditions out of order. 1 of 2 nodes closed, 1 with something against them. 5 of 8 GPUs take no new job, "
        "1 of them by themselves."
    )
    assert [(row[0], row[1], row[2]) for row in cells(text, "Table of conditions")] == [
        ("Ready", "no", "out of order"),
        ("Stalled", "yes", "out of order"),
        (LEADING, "yes", "in order"),
    ]
    assert cells(text, "Table of nodes that are out of order") == [
        ["n2", "no rack", "cordoned", "fan 3", "alice", str(cordon.at), str(cordon.until)]
    ]
    assert cells(text, "Table of GPUs that are out of order") == [
        ["n1/2", "n1", "drained", "XID 79", "health", str(NOW), str(NOW.after(9_000))]
    ]
    assert 'href="/nodes/n1"' in text


def test_before_a_pass_has_looked_at_nodes_the_rest_is_told(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_ready(*_: object, **__: object) -> Snapshot:
        raise NotReadyError("no round has been decided yet")

    monkeypatch.setattr("tests.reconciler.api.conftest.snapshot_of", not_ready)
    with console.browser() as browser:
        health = browser.get("/health")
        assert (health.status_code, "No pass has looked at the nodes yet." in health.text) == (200, True)
        assert browser.get("/nodes").status_code == 503


def test_alerts_say_what_was_told_to_whom_and_whether_it_is_still_so(console: Console) -> None:
    console.site.operations = Operations(alerts=(OPS,))
    history = console.site.store.history
    console.site.store.jobs.submit(JobName("theirs"), spec(), "eve", NOW, "key")
    history.record_event(Event(NOW, "node-drained", "n1", "GPU n1/2: XID 79", "loop"))
    history.record_event(Event(NOW.after(1_000), "failed", "theirs", "exit code 1\nhunter2", "loop"))
    history.record_event(Event(NOW.after(2_000), "node-drained", "n2", "eth0 is down", "loop"))
    history.record_event(Event(NOW.after(3_000), "node-well", "n1", "GPU n1/2: nothing speaks against it", "loop"))
    standing = DeliveryState("ops/chat", 0, "t").after(2, DeliveryResult(), NOW, 0.5)
    console.site.store.alerts.begin(
        console.site.epoch(), standing.after(3, DeliveryResult("it answered 500"), NOW, 0.5)
    )
    with console.browser() as browser:
        text = browser.get("/health").text
    assert cells(text, "Table of alerts") == [
        [str(NOW.after(2_000)), "node-drained", "n2", "eth0 is down", "in force", "ops/chat: not yet: it answered 500"],
        [str(NOW.after(1_000)), "failed", "theirs", "exit code 1", "", "ops/chat: told"],
        [str(NOW), "node-drained", "n1", "GPU n1/2: XID 79", f"over since {NOW.after(3_000)}", "ops/chat: told"],
    ]
    assert cells(text, "Table of webhooks")[0][:3] == ["ops/chat", "hooks.example.com", "failing"]
    assert "AlertsDelivered" in [row[0] for row in cells(text, "Table of conditions") if row[2] == "out of order"]
    assert "hunter2" not in text
    assert "secret" not in text


def test_an_alert_is_over_with_what_made_it(console: Console) -> None:
    """A policy need not want to be told that a node is well again."""
    console.site.operations = Operations(alerts=(msgspec.structs.replace(OPS, on=("node-drained", "node-well")),))
    for second, (kind, cause) in enumerate((("node-drained", "XID 79"), ("node-well", "nothing speaks against it"))):
        console.site.store.history.record_event(Event(NOW.after(second * 1_000), kind, "n1", cause, "loop"))
    with console.browser() as browser:
        rows = cells(browser.get("/health").text, "Table of alerts")
    assert [(row[1], row[4]) for row in rows] == [
        ("node-well", ""),
        ("node-drained", f"over since {NOW.after(1_000)}"),
    ]


def test_alerts_of_jobs_are_for_those_who_may_see_them(console: Console) -> None:
    console.site.operations = Operations(alerts=(OPS,))
    console.site.access = AccessPolicy(roles=(RoleBinding("viewer", ("user:ada",), (QueueName("other"),)),))
    for name, queue in (("theirs", "team"), ("ours", "other")):
        console.site.store.jobs.submit(JobName(name), spec(queue=queue), "eve", NOW, name)
        console.site.store.history.record_event(Event(NOW, "failed", name, f"{name} failed", "loop"))
    with console.browser(console.adas) as browser:
        text = browser.get("/health").text
    assert [row[2] for row in cells(text, "Table of alerts")] == ["ours"]
    assert "theirs" not in text


def test_agents_are_counted_and_those_that_are_not_well_are_named(console: Console) -> None:
    agents, far = console.site.agents.agents, Instant(2_000_000_000_000)
    for name in ("n1", "n2", "n3"):
        agents.invite(Invitation(f"hash-{name}", NodeName(name), "ada", NOW, far))
    agents.join("hash-n1", NodeName("n1"), "key", NOW, far)
    agents.join("hash-n2", NodeName("n2"), "key", NOW, NOW.after(1_000))
    with console.browser() as browser:
        text = browser.get("/health").text
    assert [(row[0], row[1]) for row in cells(text, "Table of agents")] == [("n2", "expired"), ("n3", "invited")]
    assert "<b>1</b> joined" in text


def test_only_so_many_rows_are_sent_and_the_rest_are_counted(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.web.health_pages.ROWS_MAX", 1)
    lost = tuple(msgspec.structs.replace(node, ready=False) for node in NODES)
    monkeypatch.setattr("tests.reconciler.api.conftest.NODES", lost)
    with console.browser() as browser:
        text = browser.get("/health").text
    assert [row[3] for row in cells(text, "Table of nodes that are out of order")] == ["nothing is heard of it"]
    assert "The first 1 of 2." in text
    assert "2 of 2 nodes closed" in figures(text)


def test_the_cluster_page_leads_to_health_and_tells_of_webhooks_only_if_they_are_silent(console: Console) -> None:
    console.site.operations = Operations(alerts=(OPS,))
    answers = DeliveryState("ops/chat", 0, "t").after(1, DeliveryResult(), NOW, 0.5)
    console.site.store.alerts.begin(console.site.epoch(), answers)
    with console.browser() as browser:
        assert "AlertsDelivered" not in browser.get("/").text
        console.site.store.alerts.keep(
            console.site.epoch(), answers.after(2, DeliveryResult("it answered 500"), NOW, 0.5)
        )
        text = browser.get("/").text
        assert "<b>AlertsDelivered</b> (no): webhook ops/chat has not answered" in text
        assert '<a href="/health">Out of order</a>' in text
