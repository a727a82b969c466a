"""AlertPolicy documents: what they become, and what is wrong with them in which place."""

from __future__ import annotations

import pytest

from reconciler.alerts.policy import DEFAULT_KINDS, AlertPolicy, Webhook
from solver.model.quantities import Duration
from solver.model.workload import QueueName
from tests.reconciler.documents.repository import codes, queue, reading

QUEUE = {"policies/q.yaml": queue("team", "{}")}
HOOK = "name: a, url: 'https://x.example/h'"


def alert_policy(spec: str) -> str:
    return f"apiVersion: quorate.dev/v1\nkind: AlertPolicy\nmetadata: {{name: ops}}\nspec: {spec}\n"


def test_an_alert_policy_is_compiled() -> None:
    spec = (
        "{webhooks: [{name: a, urlFile: chat, secretFile: key, format: chat, template: '{job}', headers: {X-One: two}}],"
        " on: [started], queues: [team], users: [ada], giveUpAfter: 1h}"
    )
    webhook = Webhook("a", "", "chat", "key", "chat", "{job}", {"X-One": "two"})
    made = AlertPolicy(
        *("ops", (webhook,), ("started",), (QueueName("team"),), ("ada",), Duration(3_600_000)),
        origin="policies/a.yaml:3",
    )
    assert reading(QUEUE | {"policies/a.yaml": alert_policy(spec)}).checked().operations.alerts == (made,)


def test_without_more_it_tells_what_somebody_may_have_to_act_on() -> None:
    (made,) = reading({"policies/a.yaml": alert_policy(f"{{webhooks: [{{{HOOK}}}]}}")}).checked().operations.alerts
    assert made.on == DEFAULT_KINDS
    assert "started" not in made.on
    assert made.enabled


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("{}", ["missing-field"]),
        ("{webhooks: []}", ["out-of-range"]),
        ("{webhooks: [{name: a}]}", ["one-url"]),
        ("{webhooks: [{" + HOOK + ", urlFile: f}]}", ["one-url"]),
        ("{webhooks: [{" + HOOK + "}, {" + HOOK + "}]}", ["duplicate-webhook"]),
        ("{webhooks: [{name: a, url: 'http://x.example/h'}]}", ["insecure-url"]),
        ("{webhooks: [{name: a, url: 'http://127.0.0.1:8/h'}]}", []),
        ("{webhooks: [{name: a, url: 'ftp://x.example/h'}]}", ["insecure-url"]),
        ("{webhooks: [{name: a, url: 'https://u:p@x.example/h'}]}", ["credentials-in-url"]),
        ("{webhooks: [{name: a, url: 'https://x.example/h?token=1'}]}", ["credentials-in-url"]),
        ("{webhooks: [{name: a, urlFile: ../token}]}", ["malformed"]),
        ("{webhooks: [{name: a, urlFile: .hidden}]}", ["malformed"]),
        ("{webhooks: [{" + HOOK + ", secretFile: /etc/passwd}]}", ["malformed"]),
        ("{webhooks: [{" + HOOK + ", headers: {Authorization: x}}]}", ["credentials-in-header"]),
        ("{webhooks: [{" + HOOK + ", headers: {X-Api-Key: x}}]}", ["credentials-in-header"]),
        ("{webhooks: [{" + HOOK + ", headers: {webhook-ID: x}}]}", ["header-taken"]),
        ("{webhooks: [{" + HOOK + ", headers: {Host: x}}]}", ["header-taken"]),
        ('{webhooks: [{' + HOOK + ', headers: {X-A: "a\\r\\nB: c"}}]}', ["malformed"]),
        ("{webhooks: [{" + HOOK + ", template: '{job}'}]}", ["template-unused"]),
        ("{webhooks: [{" + HOOK + ", format: chat, template: '{jop} {job.__class__}'}]}", ["unknown-field", "unknown-field"]),
        ("{webhooks: [{" + HOOK + "}], on: [exploded]}", ["unknown-value"]),
        ("{webhooks: [{" + HOOK + "}], queues: [taem]}", ["unknown-queue"]),
        ("{webhooks: [{" + HOOK + "}], giveUpAfter: 0s}", ["malformed"]),
    ],
)  # fmt: skip
def test_problems(spec: str, problems: list[str]) -> None:
    assert [code for _, code in codes(QUEUE | {"policies/a.yaml": alert_policy(spec)})] == problems


def test_a_wrong_field_is_found_in_its_place_with_the_right_one() -> None:
    spec = "{webhooks: [{" + HOOK + ", format: chat, template: '{jop}'}]}"
    (problem,) = reading({"policies/a.yaml": alert_policy(spec)}).problems
    assert (problem.line, problem.column, problem.fix) == (4, 81, "Did you mean job?")


def test_a_password_is_not_repeated_in_the_message() -> None:
    spec = "{webhooks: [{name: a, url: 'https://u:hunter2@x.example/h'}]}"
    (problem,) = reading({"policies/a.yaml": alert_policy(spec)}).problems
    assert "hunter2" not in str(problem)
