"""Messages: CloudEvents as the specification has them, and signatures that others can verify."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path

import msgspec
import pytest

from reconciler.alerts.alert import Alert, alert_of, wants
from reconciler.alerts.kinds import kind_of
from reconciler.alerts.message import Message, headers_of, message_of
from reconciler.alerts.policy import AlertPolicy, Webhook
from reconciler.alerts.post import retry_after
from reconciler.alerts.secret_files import SecretFileError, read_keys, read_secret
from reconciler.model.job_record import JobRecord
from reconciler.model.webhook_delivery import BACKOFF_MAX, RETRY_AFTER_MAX, DeliveryResult, DeliveryState
from reconciler.protocols.history import Event, KeptEvent
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, QueueName
from tests.contracts.stores import NOW, SPEC
from tests.reconciler.alerts.test_template import ALERT

STORE = "6f1d4bd8-8f7f-4bb4-b9f6-3a3c5c0f2b1e"
RECORD = JobRecord(JobName("train"), SPEC, "ada", NOW)


def test_a_cloud_event_in_structured_mode() -> None:
    message = message_of(ALERT, Webhook("w", "https://x.example"), STORE)
    assert message.content_type == "application/cloudevents+json"
    assert json.loads(message.body) == {
        "specversion": "1.0",
        "id": f"{STORE}-7",
        "source": f"urn:uuid:{STORE}",
        "type": "dev.quorate.job.evicted",
        "subject": "train",
        "time": "1970-01-01T00:00:00Z",
        "datacontenttype": "application/json",
        "data": {
            "job": "train", "queue": "research", "user": "ada", "attempt": 2, "actor": "loop",
            "cause": "it gives up 4 GPUs", "beneficiary": "serve",
        },
    }  # fmt: skip


def test_policy_has_a_type_of_its_own_and_no_job() -> None:
    event = Event(NOW, "policy-refused", "abc", "Stalled: queue.yaml:4:8\nmore", "control-plane")
    alert = alert_of(KeptEvent(3, event), lambda _: RECORD)
    assert alert is not None
    told = json.loads(message_of(alert, Webhook("w", "https://x.example"), STORE).body)
    assert (told["type"], told["subject"]) == ("dev.quorate.policy.rejected", "abc")
    assert told["data"] == {"cause": "Stalled: queue.yaml:4:8", "actor": "control-plane"}


def test_nodes_have_types_of_their_own_and_are_told_whatever_queues_a_policy_names() -> None:
    event = Event(NOW, "node-drained", "n1", "GPU n1/0: XID 48", "control-plane")
    alert = alert_of(KeptEvent(3, event), lambda _: RECORD)
    assert alert is not None
    told = json.loads(message_of(alert, Webhook("w", "https://x.example"), STORE).body)
    assert (told["type"], told["subject"]) == ("dev.quorate.node.drained", "n1")
    assert told["data"] == {"cause": "GPU n1/0: XID 48", "actor": "control-plane"}
    text = json.loads(message_of(alert, Webhook("w", format="chat"), STORE).body)["text"]
    assert text == "n1: node-drained. GPU n1/0: XID 48"
    policy = AlertPolicy("ops", (), ("node-drained",), (QueueName("research"),), ("ada",))
    assert wants(policy, alert, {})
    assert not wants(AlertPolicy("team", ()), alert, {}), "only who asks for it"


def test_chat_gets_one_line_of_text() -> None:
    message = message_of(ALERT, Webhook("w", format="chat", template="{job}: {cause}"), STORE)
    assert (message.content_type, json.loads(message.body)) == (
        "application/json",
        {"text": "train: it gives up 4 GPUs"},
    )
    policy = Alert(1, "policy-rejected", NOW, "abc", "why", "loop")
    assert json.loads(message_of(policy, Webhook("w", format="chat"), STORE).body) == {
        "text": "policy abc: policy-rejected. why"
    }


def test_the_signature_is_the_one_of_standard_webhooks() -> None:
    """The example of the specification and of its libraries."""
    message = Message("msg_p5jXN8AQM9LWM0D4loKWxJek", "application/json", b'{"test": 2432232314}')
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = headers_of(message, Instant(1_614_265_330_000), (key,), {})
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_receiver_can_verify_what_came() -> None:
    key = b"k" * 32
    message = message_of(ALERT, Webhook("w"), STORE)
    headers = headers_of(message, NOW, (key,), {"X-Cluster": "one"})
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + message.body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["X-Cluster"] == "one"
    assert "webhook-signature" not in headers_of(message, NOW, (), {})


def test_while_a_key_is_changed_messages_are_signed_with_both(tmp_path: Path) -> None:
    """So that a receiver may take the new one at any time in between."""
    path, keys = tmp_path / "key", (b"k" * 32, b"n" * 32)
    path.write_text("".join(f"whsec_{base64.b64encode(key).decode()}\n" for key in keys))
    path.chmod(0o600)
    assert read_keys(tmp_path, "key") == keys
    message = message_of(ALERT, Webhook("w"), STORE)
    both = headers_of(message, NOW, keys, {})["webhook-signature"].split(" ")
    assert both == [headers_of(message, NOW, (key,), {})["webhook-signature"] for key in keys]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (Event(NOW, "asked-to-stop", "j", "", "l", "evicting", 1, "evict", "b"), "evicted"),
        (Event(NOW, "asked-to-stop", "j", "", "l", "evicting", 1, "suspend"), None),
        (Event(NOW, "asked-to-stop", "j", "", "l", "stopping", 1, "end"), None),
        (Event(NOW, "called-off", "j", "", "l", "running", 1), "eviction-called-off"),
        (Event(NOW, "released", "j", "", "l", "suspended"), "suspended"),
        (Event(NOW, "released", "j", "", "l", "queued"), None),
        (Event(NOW, "suspend-asked", "j", "", "ada", "suspended"), "suspended"),
        (Event(NOW, "suspend-asked", "j", "", "ada", "running"), None),
        (Event(NOW, "withdrawn", "j", "", "l", "suspended"), None),
        (Event(NOW, "running", "j", "", "l", "running"), "started"),
        (Event(NOW, "idle", "j", "", "l", attempt=1), "idle"),
        (Event(NOW, "lent", "j", "", "l", attempt=1), "idle"),
        (Event(NOW, "idle-over", "j", "", "l", attempt=1), None),
        (Event(NOW, "budget", "budget:daily", "", "l", attempt=80), "budget"),
        (Event(NOW, "alert-given-up", "ops/chat", "", "l"), None),
    ],
)
def test_which_events_are_told(event: Event, kind: str | None) -> None:
    assert kind_of(event) == kind


def test_of_a_cause_only_the_first_line_is_told() -> None:
    event = Event(NOW, "failed", "train", "exit code 3\nexport PASSWORD=hunter2", "loop", "failed", 2)
    alert = alert_of(KeptEvent(1, event), lambda _: RECORD)
    assert alert is not None
    assert (alert.cause, alert.attempt, alert.user, alert.queue) == ("exit code 3", 2, "ada", "q")


def test_who_wants_what() -> None:
    parents = {QueueName("org"): None, QueueName("q"): QueueName("org"), QueueName("other"): None}
    alert = alert_of(KeptEvent(1, Event(NOW, "failed", "train", "", "loop")), lambda _: RECORD)
    about_policy = alert_of(KeptEvent(2, Event(NOW, "policy-refused", "abc", "", "loop")), lambda _: None)
    assert alert is not None
    assert about_policy is not None
    everybody = AlertPolicy("ops", ())
    cases = {
        (): True, ("org",): True, ("q",): True, ("other",): False, ("other", "org"): True,
    }  # fmt: skip
    for queues, wanted in cases.items():
        named = msgspec.structs.replace(everybody, queues=tuple(map(QueueName, queues)))
        assert wants(named, alert, parents) is wanted
        assert wants(named, about_policy, parents)
    assert not wants(msgspec.structs.replace(everybody, users=("bob",)), alert, parents)
    assert wants(msgspec.structs.replace(everybody, users=("bob", "ada")), alert, parents)
    assert not wants(msgspec.structs.replace(everybody, on=("succeeded",)), alert, parents)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("", 0), ("7", 7), ("-7", 0), ("soon", 0), ("1.5", 0), ("9" * 40, 999_999_999), ("Sun, 01 Mar 2026 12:01:00 GMT", 60),
     ("Sun, 01 Mar 2020 12:01:00 GMT", 0), ("Mon, 01 Jan 0001 00:00:00 +1400", 0)],
)  # fmt: skip
def test_retry_after(written: str, seconds: int) -> None:
    assert retry_after(written, NOW) == Duration(seconds * 1_000)


def test_rests_grow_to_a_bound_and_a_receiver_may_ask_for_longer_ones() -> None:
    standing = DeliveryState("ops/chat", 5, "t")
    rests = []
    for _ in range(50):
        standing = standing.after(6, DeliveryResult("it answered 500"), NOW, 0.5)
        rests.append(standing.not_before - NOW)
    assert rests[:4] == [1_000, 2_000, 4_000, 8_000]
    assert rests[-1] == BACKOFF_MAX
    assert (standing.cursor, standing.tries, standing.failing_since) == (5, 50, NOW)
    longer = DeliveryState("ops/chat", 5, "t").after(6, DeliveryResult("it answered 429", Duration(90_000)), NOW, 0.0)
    assert longer.not_before == NOW.after(90_000)
    for_ever = DeliveryState("ops/chat", 5, "t").after(6, DeliveryResult("it answered 503", Duration(10**12)), NOW, 0.0)
    assert for_ever.not_before == NOW.after(RETRY_AFTER_MAX)
    assert standing.after(6, DeliveryResult(), NOW, 0.0) == DeliveryState(
        "ops/chat", 6, "t", delivered=1, answered_at=NOW
    )


def test_a_key_is_read_from_a_file_that_is_its_owners_alone(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("whsec_" + base64.b64encode(b"k" * 32).decode() + "\n")
    key.chmod(0o600)
    assert read_keys(tmp_path, "key") == (b"k" * 32,)
    key.chmod(0o640)
    with pytest.raises(SecretFileError, match="others can read or own key"):
        read_keys(tmp_path, "key")


@pytest.mark.parametrize("text", ["hunter2-hunter2", "whsec_aHVudGVyMg==", "whsec_!!!", "", "x" * 5_000])
def test_what_is_no_key_is_refused_and_never_shown(tmp_path: Path, text: str) -> None:
    key = tmp_path / "key"
    key.write_text(text)
    key.chmod(0o600)
    with pytest.raises(SecretFileError) as refused:
        read_keys(tmp_path, "key")
    assert "unter" not in str(refused.value)
    assert "aHVud" not in str(refused.value)


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "outside").chmod(0o600)
    folder = tmp_path / "alert-secrets"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "folder").mkdir()
    for name in ("link", "folder", "none"):
        with pytest.raises(SecretFileError):
            read_secret(folder, name)
