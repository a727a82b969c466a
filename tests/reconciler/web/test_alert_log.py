"""What was alerted is told as it was said, with which webhooks heard it, and whether it is still so."""

from __future__ import annotations

from reconciler.alerts.policy import AlertPolicy, Webhook
from reconciler.model.webhook_delivery import DeliveryState
from reconciler.protocols.history import Event, KeptEvent
from reconciler.web.alert_log import AlertLine, alert_lines
from tests.reconciler.api.conftest import NOW

NODES_TOO = AlertPolicy(
    "ops",
    (Webhook("chat", "https://example.com"), Webhook("pager", "https://example.com")),
    ("node-suspect", "node-drained", "node-well", "policy-rejected"),
)
QUIET = AlertPolicy("quiet", (Webhook("chat", "https://example.com"),), ("node-cordoned",), enabled=False)
STANDINGS = {
    "ops/chat": DeliveryState("ops/chat", 4, "t"),
    "ops/pager": DeliveryState("ops/pager", 2, "t", problem="it answered 500"),
}


def lines(*events: tuple[str, str, str]) -> list[AlertLine]:
    """Of events of kind, subject and cause, numbered from 1, a second apart."""
    kept = (
        KeptEvent(number, Event(NOW.after(number * 1_000), *event, "loop")) for number, event in enumerate(events, 1)
    )
    return alert_lines(kept, lambda _: None, (NODES_TOO, QUIET), STANDINGS, {})


def test_an_alert_on_a_node_is_in_force_until_another_says_otherwise_of_the_same_part() -> None:
    found = lines(
        ("node-suspect", "n1", "GPU n1/0: XID 13"),
        ("node-suspect", "n1", "slow"),
        ("node-drained", "n1", "GPU n1/0: XID 79"),
        ("node-suspect", "n2", "slow"),
        ("node-well", "n1", "GPU n1/0: nothing speaks against it any more"),
    )
    assert [(line.alert.number, line.is_open, line.over_at) for line in found] == [
        (5, None, None),
        (4, True, None),
        (3, False, NOW.after(5_000)),
        (2, True, None),
        (1, False, NOW.after(3_000)),
    ]


def test_each_webhook_says_whether_it_was_told() -> None:
    found = lines(*[("policy-refused", "abc", "queue.yaml:3: no such queue\nmore")] * 5)
    assert [[(told.webhook, told.how) for told in line.told] for line in (found[0], found[1], found[4])] == [
        [("ops/chat", "not yet"), ("ops/pager", "not yet: it answered 500")],
        [("ops/chat", "told"), ("ops/pager", "not yet: it answered 500")],
        [("ops/chat", "told"), ("ops/pager", "told")],
    ]
    assert found[0].alert.cause == "queue.yaml:3: no such queue"


def test_what_no_policy_in_force_wants_is_no_alert() -> None:
    assert lines(("node-cordoned", "n1", "by ada"), ("submitted", "job", "to team"), ("started", "job", "")) == []
