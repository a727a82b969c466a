"""Delivery to real receivers on loopback: in order, never lost, and one that misbehaves in whatever way delays no other."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.alerts import post
from reconciler.alerts.courier import GIVEN_UP, Courier
from reconciler.alerts.figures import WebhookFigures
from reconciler.alerts.policy import AlertPolicy, Webhook
from reconciler.alerts.sender import Sender
from reconciler.control.metrics import Metrics
from reconciler.documents.operations import Operations
from reconciler.model.webhook_delivery import DeliveryState
from reconciler.protocols.backend import Epoch
from reconciler.protocols.history import Event
from reconciler.server.alerts import AlertSending
from solver.model.quantities import Duration
from tests.reconciler.alerts.receiver import Receiver, receiving
from tests.reconciler.control.plane import Site, site_at

JOB = "train"
HOUR = 3_600_000


class World:
    """A store with one job, policies, and the thread's work driven by hand in virtual time."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.secrets = folder / "alert-secrets"
        self.secrets.mkdir()
        site.submit(JOB, ("true",))
        self.epoch: Epoch | None = site.store.ledger.lead("test", site.clock.now(), Duration(10_000))
        self.events = 0

    def policy(self, *webhooks: Webhook, **fields: object) -> None:
        made = msgspec.structs.replace(AlertPolicy("ops", webhooks), **fields)
        self.site.operations = Operations(alerts=(made,))
        self.send()

    def happens(self, number: int = 1) -> None:
        """So many failures of the job, and beside each an event that nobody is told."""
        for _ in range(number):
            self.events += 1
            for kind in ("bound", "failed"):
                self.site.store.history.record_event(
                    Event(self.site.clock.now(), kind, JOB, f"number {self.events}", "loop")
                )

    def send(self, looks: int = 1, rest_s: float = 0) -> None:
        """A process of its own each time: nothing is remembered but what the store has. Waits until nothing is under way."""
        asyncio.run(self._send(looks, rest_s))

    async def _send(self, looks: int, rest_s: float) -> None:
        sending = self.sending()
        for _ in range(looks):
            sending.look()
            await asyncio.gather(*sending._under_way.values(), return_exceptions=True)
            self.site.clock.advance(round(rest_s * 1_000))
        sending.look()
        await asyncio.gather(*sending._under_way.values(), return_exceptions=True)
        sending._gather()

    def sending(self) -> AlertSending:
        store, clock = self.site.store, self.site.clock
        sender = Sender(self.secrets, clock)
        courier = Courier(store.alerts, store.history, store.jobs, clock, sender.send, lambda: 0.5, "loop")
        return AlertSending(courier, self.site, lambda: self.epoch, structlog.get_logger())

    def standing(self, webhook: str = "ops/a") -> DeliveryState:
        return {standing.webhook: standing for standing in self.site.store.alerts.webhooks()}[webhook]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with site_at(tmp_path / "quorate.db") as site:
        yield World(site, tmp_path)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def told(receiver: Receiver) -> list[str]:
    return [got.json["data"]["cause"] for got in receiver.got]


def test_everything_from_when_it_is_known_in_order_and_once(world: World, receiver: Receiver) -> None:
    world.happens(3)
    world.policy(Webhook("a", receiver.url))
    world.happens(5)
    world.send()
    world.happens(120)
    world.send(looks=3)
    assert told(receiver) == [f"number {number}" for number in range(4, 129)]
    assert len(set(receiver.ids())) == 125
    assert world.standing().delivered == 125
    assert world.standing().cursor == world.site.store.history.newest_event()


def test_a_failure_is_repeated_with_the_same_id_and_body_before_what_follows(world: World, receiver: Receiver) -> None:
    world.policy(Webhook("a", receiver.url))
    world.happens(3)
    receiver.statuses = [204, 500, 503]
    world.send()
    assert told(receiver) == ["number 1", "number 2"]
    assert (world.standing().problem, world.standing().tries) == ("it answered 500", 1)
    world.send()
    assert len(receiver.got) == 2, "it rests first"
    world.site.clock.advance(1_000)
    world.send()
    world.site.clock.advance(2_000)
    world.send()
    assert told(receiver) == ["number 1", "number 2", "number 2", "number 2", "number 3"]
    assert len({(got.id, got.body) for got in receiver.got[1:4]}) == 1
    assert (world.standing().problem, world.standing().failing_since, world.standing().tries) == ("", None, 0)


def test_killed_between_answer_and_note_it_says_the_same_once_more(world: World, receiver: Receiver) -> None:
    world.policy(Webhook("a", receiver.url))
    world.happens(2)
    before = world.standing()
    world.send()
    store = world.site.store
    assert world.epoch is not None
    store.alerts.forget(world.epoch, "ops/a")
    store.alerts.begin(world.epoch, before)
    world.send()
    assert told(receiver) == ["number 1", "number 2"] * 2
    assert len(receiver.ids()) == 2


def test_signed_by_a_key_of_the_servers_folder(world: World, receiver: Receiver) -> None:
    key = b"k" * 32
    (world.secrets / "key").write_text("whsec_" + base64.b64encode(key).decode())
    (world.secrets / "key").chmod(0o600)
    world.policy(Webhook("a", receiver.url, secret_file="key", headers={"X-Cluster": "one"}))
    world.happens()
    world.send()
    (got,) = receiver.got
    signed = f"{got.id}.{got.headers['webhook-timestamp']}.".encode() + got.body
    signature = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert got.headers["webhook-signature"] == f"v1,{signature}"
    assert got.headers["content-type"] == "application/cloudevents+json"
    assert got.headers["x-cluster"] == "one"


def test_a_url_that_is_a_secret_is_read_from_a_file_and_chat_gets_text(world: World, receiver: Receiver) -> None:
    world.policy(Webhook("a", url_file="chat-url", format="chat"))
    world.happens()
    world.send()
    assert "chat-url can't be read" in world.standing().problem
    (world.secrets / "chat-url").write_text(receiver.url)
    (world.secrets / "chat-url").chmod(0o600)
    world.site.clock.advance(1_000)
    world.send()
    assert [got.json for got in receiver.got] == [{"text": "train of ada in q: failed. number 1"}]


@pytest.mark.parametrize(
    "url", ["http://example.com/hook", "https://user:pw@example.com/", "file:///etc/passwd", "gopher"]
)
def test_a_file_with_an_unsafe_url_is_not_followed_nor_shown(world: World, url: str) -> None:
    (world.secrets / "chat-url").write_text(url)
    (world.secrets / "chat-url").chmod(0o600)
    world.policy(Webhook("a", url_file="chat-url"))
    world.happens()
    world.send()
    assert world.standing().problem == "chat-url holds no https URL"


def test_one_that_hangs_delays_no_other(world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "TIMEOUT_S", 5.0)
    with receiving() as slow:
        slow.hung = True
        world.policy(Webhook("a", slow.url), Webhook("b", receiver.url))
        world.happens(3)
        asyncio.run(_while_one_hangs(world, slow, lambda: len(receiver.got) == 3))
    assert world.standing("ops/b").delivered == 3
    assert (world.standing("ops/a").delivered, world.standing("ops/a").problem) == (0, "no answer within 5 s")
    assert len(slow.got) == 1


async def _while_one_hangs(world: World, slow: Receiver, reached: Callable[[], bool]) -> None:
    """The other is told everything in the time that one try of the slow one takes."""
    sending = world.sending()
    sending.look()
    hanging = sending._under_way["ops/a"]
    while not reached():
        assert not hanging.done()
        await asyncio.sleep(0.005)
    await asyncio.gather(*sending._under_way.values())


def test_who_does_not_speak_tls_and_whom_nobody_knows_is_said(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = socket.getaddrinfo

    def without_network(host: Any, *more: Any, **options: Any) -> Any:
        if host in ("nobody.example.com", b"nobody.example.com"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", without_network)
    plain = receiver.url.replace("http://", "https://")
    world.policy(Webhook("a", plain), Webhook("b", "https://nobody.example.com/x"))
    world.happens()
    world.send(looks=2)
    assert world.standing("ops/a").problem == "the connection failed (no TLS is spoken there)"
    assert world.standing("ops/b").problem == "the connection failed (its host is not known)"


def test_one_that_is_dead_is_said_and_others_go_on(world: World, receiver: Receiver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    world.policy(Webhook("a", f"http://127.0.0.1:{port}/x"), Webhook("b", receiver.url))
    world.happens()
    with capture_logs() as lines:
        world.send(looks=2)
    assert world.standing().problem == "the connection failed (nothing listens there)"
    assert [line["webhook"] for line in lines if line["event"] == "webhook"] == ["ops/a"]
    assert told(receiver) == ["number 1"]


def test_what_is_too_old_is_given_up_on_record_and_what_is_new_is_still_told(world: World, receiver: Receiver) -> None:
    world.policy(Webhook("a", receiver.url), give_up_after=Duration(2 * HOUR))
    receiver.statuses = [500] * 2
    world.happens(2)
    world.send()
    world.site.clock.advance(HOUR)
    world.happens()
    world.send()
    assert world.standing().tries == 2
    world.site.clock.advance(HOUR + 1)
    world.send()
    assert told(receiver) == ["number 1", "number 1", "number 3"]
    assert (world.standing().given_up, world.standing().delivered) == (2, 1)
    given_up = world.site.store.history.events("ops/a")
    assert [(event.kind, event.cause) for event in given_up] == [
        (GIVEN_UP, "failed of train (event 2) was not delivered within 2h: it answered 500"),
        (GIVEN_UP, "failed of train (event 4) was not delivered within 2h: it answered 500"),
    ]
    metrics = Metrics()
    metrics.add(WebhookFigures(world.site.store.alerts))
    figures = metrics.text().decode()
    assert 'quorate_alerts_given_up_total{webhook="ops/a"} 2.0' in figures
    assert 'quorate_alerts_delivered_total{webhook="ops/a"} 1.0' in figures
    assert 'quorate_alert_webhook_failing{webhook="ops/a"} 0.0' in figures


def test_what_is_old_is_tried_once_where_the_webhook_has_not_failed(world: World, receiver: Receiver) -> None:
    """As after a long stop of the control plane."""
    world.policy(Webhook("a", receiver.url))
    world.happens()
    world.site.clock.advance(48 * HOUR)
    world.send()
    assert told(receiver) == ["number 1"]


def test_a_receiver_may_ask_for_a_longer_rest(world: World, receiver: Receiver) -> None:
    world.policy(Webhook("a", receiver.url))
    receiver.statuses, receiver.answer_headers = [429], {"Retry-After": "60"}
    world.happens()
    world.send()
    world.send(looks=59, rest_s=1)
    assert len(receiver.got) == 1
    world.site.clock.advance(1_000)
    world.send()
    assert len(receiver.got) == 2


def test_gone_stops_it_until_it_leads_elsewhere(world: World, receiver: Receiver) -> None:
    world.policy(Webhook("a", receiver.url))
    receiver.statuses = [410]
    world.happens(2)
    world.send(looks=3, rest_s=HOUR)
    assert len(receiver.got) == 1
    assert world.standing().stopped
    world.policy(Webhook("a", receiver.url + "/new"))
    world.happens()
    world.send()
    assert told(receiver)[1:] == ["number 3"], "it begins anew"


def test_with_another_url_a_failing_webhook_goes_on_at_once_and_loses_nothing(world: World, receiver: Receiver) -> None:
    world.policy(Webhook("a", "http://127.0.0.1:9/"))
    world.happens(2)
    world.send()
    assert world.standing().failing_since is not None
    world.policy(Webhook("a", receiver.url))
    world.send()
    assert told(receiver) == ["number 1", "number 2"]


def test_redirects_are_not_followed_and_bodies_reach_no_log(world: World, receiver: Receiver) -> None:
    with receiving() as other:
        receiver.statuses, receiver.answer_headers = [307], {"Location": other.url}
        receiver.body = b"canary"
        world.policy(Webhook("a", receiver.url))
        world.happens()
        with capture_logs() as lines:
            world.send()
    assert other.got == []
    assert world.standing().problem == "it answered 307, and redirects are not followed"
    assert "canary" not in repr(lines) + repr(world.standing())


def test_disabled_or_gone_it_is_forgotten_and_begins_anew(world: World, receiver: Receiver) -> None:
    webhook = Webhook("a", receiver.url)
    world.policy(webhook)
    world.policy(webhook, enabled=False)
    world.happens()
    assert world.site.store.alerts.webhooks() == ()
    world.policy(webhook)
    world.happens()
    world.send()
    assert told(receiver) == ["number 2"]


def test_who_does_not_lead_sends_nothing(world: World, receiver: Receiver) -> None:
    world.policy(Webhook("a", receiver.url))
    world.happens()
    leads, world.epoch = world.epoch, None
    world.send()
    assert leads is not None
    world.site.store.ledger.resign(leads)
    world.site.store.ledger.lead("other", world.site.clock.now(), Duration(10_000))
    world.epoch = leads
    world.send()
    assert receiver.got == []


def test_who_loses_the_lead_while_sending_notes_nothing_and_another_sends_the_same(
    world: World, receiver: Receiver
) -> None:
    world.policy(Webhook("a", receiver.url))
    world.happens(3)
    asyncio.run(_deposed_while_sending(world, receiver))
    assert told(receiver) == ["number 1"]
    world.send()
    assert told(receiver) == ["number 1", "number 1", "number 2", "number 3"]
    assert len(receiver.ids()) == 3


async def _deposed_while_sending(world: World, receiver: Receiver) -> None:
    receiver.hung = True
    sending = world.sending()
    sending.look()
    while not receiver.got:
        await asyncio.sleep(0.005)
    assert world.epoch is not None
    ledger, now = world.site.store.ledger, world.site.clock.now()
    ledger.resign(world.epoch)
    world.epoch = ledger.lead("other", now, Duration(10_000))
    receiver.hung = False
    receiver.released.set()
    await asyncio.wait(sending._under_way.values())
    sending._gather()


def test_the_thread_stops_at_once_though_a_receiver_hangs(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "TIMEOUT_S", 120.0)
    receiver.hung = True
    world.policy(Webhook("a", receiver.url))
    world.happens()
    sending = world.sending()
    sending.every_s = 0.01

    async def stop_once_it_hangs() -> None:
        serving = asyncio.ensure_future(sending._serve())
        while not receiver.got:
            await asyncio.sleep(0.005)
        sending.stop()
        await serving

    asyncio.run(asyncio.wait_for(stop_once_it_hangs(), post.TIMEOUT_S / 2))
    assert world.standing().tries == 0
