"""Alerts of a real `quorate run`: killed in the middle of a load, and with a receiver that is not there at first."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from reconciler.alerts.kinds import kind_of
from reconciler.model.job_record import TERMINAL
from reconciler.protocols.history import KeptEvent
from reconciler.store.store import open_store
from tests.e2e.control_plane import ControlPlane, sh, submit, until
from tests.reconciler.alerts.receiver import Receiver, receiving
from tests.reconciler.gitops.source.origin import INVALID, Origin

pytestmark = pytest.mark.long

ALERTED = ("started", "succeeded", "policy-rejected")


def alert_policy(receiver: Receiver) -> dict[str, str]:
    spec = f"{{webhooks: [{{name: hook, url: '{receiver.url}'}}], on: [{', '.join(ALERTED)}]}}"
    return {
        "policies/alerts.yaml": f"apiVersion: quorate.dev/v1\nkind: AlertPolicy\nmetadata: {{name: ops}}\nspec: {spec}\n"
    }


def until_known(plane: ControlPlane) -> None:
    with plane.client() as client:
        until("the webhook is known", lambda: any(c.type == "AlertsDelivered" for c in client.status().conditions))


def worth_telling(plane: ControlPlane) -> list[KeptEvent]:
    """What the store has on record that the policy wants told."""
    store = open_store(plane.folder.database)
    try:
        return [kept for kept in store.history.events_since(0, limit=10_000) if kind_of(kept.event) in ALERTED]
    finally:
        store.close()


def test_killed_in_the_middle_everything_on_record_is_told_in_order(
    plane: ControlPlane, origin: Origin, tmp_path: Path
) -> None:
    """8 jobs, two kills, and a receiver that fails now and then. Repeats have the same id; each id has one body."""
    with receiving() as receiver:
        origin.commit(alert_policy(receiver))
        plane.start().until_ready()
        until_known(plane)
        names = [f"job-{number}" for number in range(8)]
        with plane.client() as client:
            submit(client, names, sh("sleep 0.2", gpus=4))
        for kills in (2, 6):
            receiver.statuses += [500]
            until("some was told", lambda told=kills: len(receiver.ids()) >= told)  # type: ignore[misc]
            plane.signal(signal.SIGKILL)
            plane.start()
        plane.until_ready()
        with plane.client() as client:
            until("all have ended", lambda: all(view.state in TERMINAL for view in client.jobs().items))
        bad = origin.commit({"policies/queue.yaml": INVALID})
        until("the refusal is told", lambda: receiver.got[-1].json["subject"] == bad)
        assert plane.signal(signal.SIGTERM) == 0
        expected = worth_telling(plane)
        assert [name.rsplit("-", 1)[1] for name in receiver.ids()] == [str(kept.number) for kept in expected]
        assert len({(got.id, got.body) for got in receiver.got}) == len(expected)
        assert len(expected) > 8


@pytest.mark.long
def test_a_receiver_that_is_away_is_said_and_gets_everything_when_it_is_back(
    plane: ControlPlane, origin: Origin
) -> None:
    with receiving() as before:
        port = int(before.url.split(":")[2].partition("/")[0])
        origin.commit(alert_policy(before))
        plane.start().until_ready()
        until_known(plane)
    with plane.client() as client:
        submit(client, ["job"], sh("sleep 2"))
        until("it is said", lambda: "ops/hook has not answered since" in _message(plane))
        assert client.alerts.webhooks().items[0].state == "failing"
        assert client.ready()
        with receiving(port) as back:
            until("both are told", lambda: len(back.ids()) == 2)
            assert [got.json["type"] for got in back.got] == ["dev.quorate.job.started", "dev.quorate.job.succeeded"]
            until("all is well", lambda: _message(plane) == "")


def _message(plane: ControlPlane) -> str:
    with plane.client() as client:
        return next(c.message for c in client.status().conditions if c.type == "AlertsDelivered")
