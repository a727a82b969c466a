"""One user's requests keep nobody else's waiting: so many of each user are answered at once, and so many more wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from threading import Event as Flag
from threading import Lock
from typing import Any

import httpx2
import pytest

from reconciler.api import request_turns
from reconciler.api.batches import Batches
from reconciler.api.server import ApiServer
from reconciler.store.jobs import SqlJobSource
from solver.model.document import API_VERSION, encode
from solver.model.snapshot import Snapshot
from tests.e2e.control_plane import until
from tests.reconciler.api.conftest import Site, spec
from tests.reconciler.api.people import serving
from tests.reconciler.api.web import WEB

THREADS = 40
"""In which requests are answered."""


FLOOD = 40


class Gate:
    """Snapshots wait here once `shut`."""

    def __init__(self) -> None:
        self.opened, self.reading, self.most, self.lock = Flag(), 0, 0, Lock()
        self.full = Flag()

    def read(self) -> None:
        with self.lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
            if self.reading == request_turns.AT_ONCE:
                self.full.set()
        assert self.opened.wait(60)
        with self.lock:
            self.reading -= 1


def asked(server: ApiServer, user: str, path: str) -> httpx2.Response:
    return WEB.get(f"{server.url}{path}", headers={"Authorization": f"Bearer token-of-{user}"}, timeout=60)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, taken = Gate(), Site.snapshot

    def wait(site: Site) -> Snapshot:
        gate.read()
        return taken(site)

    monkeypatch.setattr(Site, "snapshot", wait)
    yield gate
    gate.opened.set()


def test_a_user_with_many_slow_requests_keeps_no_other_waiting(site: Site, gate: Gate) -> None:
    with serving(site) as server, ThreadPoolExecutor(2 * THREADS) as pool:
        slow = [pool.submit(asked, server, "viewer", "/v1/snapshot") for _ in range(THREADS + 10)]
        assert gate.full.wait(60)
        assert asked(server, "mate", "/v1/whoami").status_code == 200
        gate.opened.set()
        assert {answered.result().status_code for answered in slow} == {200}
        assert gate.most == request_turns.AT_ONCE


AHEAD_MAX = 8
"""Of one user's submissions, taken in between another user's and its answer."""


def test_a_submission_waits_for_no_more_than_a_few_of_a_user_that_floods(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, taken_in, gate = Counter[str](), SqlJobSource.submit_each, Flag()
    join = Batches.__call__

    async def counted(batches: Batches[Any, Any], asked: Any) -> Any:
        arrived[asked.request.state.user] += 1
        return await join(batches, asked)

    def wait(jobs: SqlJobSource, asked: Any) -> Any:
        assert gate.wait(60)
        return taken_in(jobs, asked)

    monkeypatch.setattr(Batches, "__call__", counted)
    monkeypatch.setattr(SqlJobSource, "submit_each", wait)
    with serving(site) as server, ThreadPoolExecutor(FLOOD + 1) as pool:
        noisy = [pool.submit(submitted, server, "mate", f"noisy-{number}") for number in range(FLOOD)]
        until("all of it is there that may be", lambda: arrived["mate"] == min(FLOOD, request_turns.AT_ONCE))
        quiet = pool.submit(submitted, server, "mine", "quiet")
        until("the other is there, too", lambda: arrived["mine"] == 1)
        gate.set()
        assert {one.result().status_code for one in (*noisy, quiet)} == {200}
    users = [kept.event.actor for kept in site.store.history.events_since(0)]
    assert Counter(users) == {"mate": FLOOD, "mine": 1}
    assert users.index("mine") <= AHEAD_MAX


def submitted(server: ApiServer, user: str, name: str) -> httpx2.Response:
    document = {"apiVersion": API_VERSION, "kind": "Job", "metadata": {"name": name}, "spec": spec()}
    headers = {"Authorization": f"Bearer token-of-{user}"}
    return WEB.post(f"{server.url}/v1/jobs", content=encode(document), headers=headers, timeout=60)


def test_more_than_may_wait_are_refused(site: Site, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_turns, "AT_ONCE", 1)
    monkeypatch.setattr(request_turns, "WAITING_MAX", 2)
    with serving(site) as server, ThreadPoolExecutor(8) as pool:
        slow = [pool.submit(asked, server, "viewer", "/v1/snapshot") for _ in range(8)]
        refused = [one.result() for one in islice(as_completed(slow), 5)]
        assert {(one.status_code, one.json()["code"]) for one in refused} == {(429, "too-many-requests")}
        assert asked(server, "mate", "/v1/whoami").status_code == 200
        gate.opened.set()
        assert sorted(answered.result().status_code for answered in slow) == [200] * 3 + [429] * 5
