"""Alerts over HTTP and on the command line: how webhooks stand, samples, and who may send one."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from reconciler.alerts.policy import AlertPolicy, Webhook
from reconciler.api.server import ApiServer
from reconciler.cli.main import run
from reconciler.client import ApiError, Client, NotAuthorisedError
from reconciler.documents.operations import Operations
from reconciler.model.webhook_delivery import DeliveryResult, DeliveryState
from solver.model.workload import QueueName
from tests.reconciler.alerts.receiver import Receiver, receiving
from tests.reconciler.api.conftest import NOW, TOKEN, Site
from tests.reconciler.api.people import client_of, serving

SECRET_PATH = "https://hooks.example.com/services/T0/B0/hunter2"
OPS = AlertPolicy(
    "ops", (Webhook("chat", SECRET_PATH, format="chat"), Webhook("hook", url_file="url"), Webhook("new", SECRET_PATH))
)
QUIET = AlertPolicy("quiet", (Webhook("hook", SECRET_PATH),), enabled=False)


def standings(site: Site) -> None:
    site.operations = Operations(alerts=(OPS, QUIET))
    chat = DeliveryState("ops/chat", 4, "t").after(5, DeliveryResult(), NOW, 0.5).gave_up(6)
    hook = DeliveryState("ops/hook", 4, "t").after(5, DeliveryResult("it answered 500"), NOW, 0.5)
    for standing in (chat, hook):
        site.store.alerts.begin(site.epoch(), standing)


def test_webhooks_are_listed_as_they_stand_without_what_may_be_secret(site: Site, client: Client) -> None:
    standings(site)
    views = client.alerts.webhooks().items
    assert [(f"{view.policy}/{view.webhook}", view.to, view.state) for view in views] == [
        ("ops/chat", "hooks.example.com", "answers"),
        ("ops/hook", "file url", "failing"),
        ("ops/new", "hooks.example.com", "new"),
        ("quiet/hook", "hooks.example.com", "disabled"),
    ]
    assert (views[0].delivered, views[0].given_up, views[0].answered_at) == (1, 1, NOW)
    assert (views[1].failing_since, views[1].not_before, views[1].problem) == (NOW, NOW.after(1_000), "it answered 500")
    assert "hunter2" not in repr(views)


def test_the_status_says_who_does_not_answer(site: Site, client: Client) -> None:
    assert [condition.type for condition in client.status().conditions] == ["Ready"]
    standings(site)
    condition = client.status().conditions[-1]
    assert (condition.type, condition.status, condition.reason) == ("AlertsDelivered", False, "webhook-silent")
    assert condition.message == f"webhook ops/hook has not answered since {NOW}: it answered 500"
    gone = DeliveryState("ops/hook", 5, "t", given_up=2).after(
        6, DeliveryResult("it answered 410", gone=True), NOW, 0.5
    )
    site.store.alerts.keep(site.epoch(), gone)
    message = client.status().conditions[-1].message
    assert message == "webhook ops/hook wants no more messages, 2 events were given up"
    site.store.alerts.forget(site.epoch(), "ops/hook")
    assert client.status().conditions[-1].status


def test_a_sample_goes_to_each_webhook_and_changes_nothing(site: Site, client: Client) -> None:
    with receiving() as good, receiving() as bad:
        bad.statuses = [500]
        site.operations = Operations(alerts=(_two(good, bad),))
        results = client.alerts.send_sample("two").items
    assert [(result.webhook, result.problem) for result in results] == [("good", ""), ("bad", "it answered 500")]
    assert good.got[0].json["type"] == "dev.quorate.alert.sample"
    assert good.got[0].json["data"]["cause"] == "alice asked for a sample; nothing has happened"
    assert "sample" in bad.got[0].json["text"]
    assert site.store.alerts.webhooks() == ()
    with pytest.raises(ApiError, match=r"There is no AlertPolicy of that name\. Did you mean two"):
        client.alerts.send_sample("tow")


def _two(good: Receiver, bad: Receiver) -> AlertPolicy:
    return AlertPolicy("two", (Webhook("good", good.url), Webhook("bad", bad.url, format="chat")))


def test_samples_are_for_operators_of_the_policys_queues(site: Site) -> None:
    nowhere = (Webhook("hook", url_file="none"),)
    site.operations = Operations(
        alerts=(AlertPolicy("all", nowhere), AlertPolicy("team", nowhere, queues=(QueueName("team"),)))
    )
    allowed = set()
    with serving(site) as server:
        for who in ("viewer", "mate", "operator", "lead", "admin", "alice"):
            for policy in ("all", "team"):
                with client_of(server, who) as client, suppress(NotAuthorisedError):
                    client.alerts.send_sample(policy)
                    allowed.add((who, policy))
    everywhere = {(who, policy) for who in ("operator", "admin", "alice") for policy in ("all", "team")}
    assert allowed == everywhere | {("lead", "team")}


def test_the_command_line(
    site: Site, server: ApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUORATE_SERVER", server.url)
    monkeypatch.setenv("QUORATE_TOKEN", TOKEN)
    assert run(["alerts"]) == 0
    assert "no webhooks" in capsys.readouterr().out
    standings(site)
    assert run(["alerts"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["WEBHOOK", "FORMAT", "TO", "STATE"]
    assert f"it answered 500 (since {NOW})" in lines[2]
    assert run(["status"]) == 0
    assert f"webhook ops/hook has not answered since {NOW}" in capsys.readouterr().out.splitlines()[-1]
    assert run(["alerts", "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["items"]) == 4
    with receiving() as good, receiving() as bad:
        bad.statuses = [500]
        site.operations = Operations(alerts=(_two(good, bad),))
        assert run(["alerts", "test", "two"]) == 1
        assert capsys.readouterr().out.splitlines() == ["two/good: it took the sample", "two/bad: it answered 500"]
        assert run(["alerts", "test", "two", "-o", "json"]) == 0
        assert [each["problem"] for each in json.loads(capsys.readouterr().out)["items"]] == ["", ""]
