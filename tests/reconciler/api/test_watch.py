"""The stream of events: none is lost, none comes twice, whoever writes meanwhile and however often it breaks off."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from itertools import islice
from threading import Event as Flag
from threading import Thread
from typing import Any

import httpx2
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from reconciler.access.caller import Caller
from reconciler.api.authorisation import Authorisation
from reconciler.api.event_stream import EventFeed, message
from reconciler.api.guard import Guard
from reconciler.api.problems import RequestRefusedError
from reconciler.api.server import ApiServer
from reconciler.api.watch_routes import WatchRoutes
from reconciler.client import Client, NotAuthorisedError, ServerUnreachableError
from reconciler.client.watch import Watching
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.history import Event
from solver.model.document import decode
from solver.model.quantities import Instant
from solver.model.workload import JobName
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec
from tests.reconciler.api.people import client_of, serving
from tests.reconciler.api.web import WEB

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def record(site: Site, cause: str, subject: str = "job") -> None:
    site.store.history.record_event(Event(NOW, "kind", subject, cause, "loop"))


def causes(client: Client, count: int, **asked: object) -> list[str]:
    return [kept.event.cause for kept in islice(client.watch(**asked), count)]  # type: ignore[arg-type]


def messages(response: httpx2.Response) -> Generator[dict[str, str], None, None]:
    found: dict[str, str] = {}
    for line in response.iter_lines():
        if not line:
            yield found
            found = {}
        name, _, value = line.partition(": ")
        found |= {name: value} if line else {}


def test_events_from_behind_a_number(site: Site, client: Client) -> None:
    for cause in "abc":
        record(site, cause)
    assert causes(client, 3, after=0) == ["a", "b", "c"]
    assert causes(client, 1, after=2) == ["c"]


def test_events_of_one_subject(site: Site, client: Client) -> None:
    for cause in "abcd":
        record(site, cause, "job" if cause in "bd" else "n1")
    assert causes(client, 2, subject="job", after=0) == ["b", "d"]


def test_from_now_on(site: Site, server: ApiServer) -> None:
    record(site, "before")
    with WEB.stream("GET", f"{server.url}/v1/watch", headers=HEADERS) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        stream = messages(response)
        assert next(stream)["event"] == "start"
        record(site, "after")
        assert next(stream) == {
            "id": "2",
            "event": "event",
            "data": '{"actor":"loop","cause":"after","kind":"kind","subject":"job","time":"2023-11-14T22:13:20Z"}',
        }


def test_none_is_lost_and_none_comes_twice_while_others_write(site: Site, server: ApiServer) -> None:
    many = 300

    def write() -> None:
        for number in range(many):
            record(site, str(number))

    writers = [Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    last = 0
    numbers: list[int] = []
    told: list[str] = []
    with httpx2.Client(base_url=server.url, headers=HEADERS, verify=False, timeout=60) as http:
        while len(numbers) < 2 * many:
            # It breaks off after a few, as often as it takes.
            with http.stream("GET", "/v1/watch", headers={"Last-Event-ID": str(last)}) as response:
                for each in islice(messages(response), 40):
                    last = int(each["id"])
                    if each["event"] == "event":
                        numbers.append(last)
                        told.append(decode(each["data"], Event).cause)
                    if len(numbers) == 2 * many:
                        break
    for writer in writers:
        writer.join()
    assert numbers == sorted(set(numbers))
    assert sorted(told) == sorted([str(number) for number in range(many)] * 2)


def test_a_client_goes_on_where_a_server_stopped(site: Site) -> None:
    with ApiServer(site.services(), Guard(TOKEN, user="alice")) as first:
        port = int(first.url.rpartition(":")[2])
        client = Client(first.url, TOKEN)
        heard: list[str] = []
        connected = Flag()

        def listen() -> None:
            for kept in islice(client.watch(after=0), 2):
                heard.append(kept.event.cause)
                connected.set()

        listener = Thread(target=listen)
        listener.start()
        record(site, "one")
        assert connected.wait(60)
    record(site, "two")
    with ApiServer(site.services(), Guard(TOKEN, user="alice"), port=port):
        listener.join(60)
    client.close()
    assert heard == ["one", "two"]


def test_a_server_that_stops_says_so(site: Site) -> None:
    server = ApiServer(site.services(), Guard(TOKEN, user="alice"))
    with WEB.stream("GET", f"{server.url}/v1/watch", headers=HEADERS) as response:
        stream = messages(response)
        assert next(stream)["event"] == "start"
        closing = Thread(target=server.close)
        closing.start()
        last = next(stream)
        assert (last["event"], "stopping" in last["data"]) == ("end", True)
        assert list(stream) == []
        closing.join(60)
        assert not closing.is_alive()


def test_it_ends_with_the_token_and_with_the_role(site: Site) -> None:
    def ends(caller: Caller) -> bytes:
        services = site.services()
        feed = EventFeed(services.jobs, services.history)
        routes = WatchRoutes(services, Authorisation(services), Flag(), feed)

        async def read() -> list[bytes]:
            return [piece async for piece in routes._messages(caller, "", 0)]

        return asyncio.run(read())[-1]

    expired = Caller("alice", owner=True, until=Instant(1))
    assert b'"expired"' in ends(expired)
    assert b'"not-allowed"' in ends(Caller("nobody"))


def test_what_tasks_wrote_and_jobs_of_others_are_left_out(site: Site) -> None:
    with serving(site) as server:
        for name, queue in (("job", "team"), ("theirs", "other")):
            site.store.jobs.submit(JobName(name), spec(queue=queue), "mine", NOW, "")
            record(site, "failed\ns3cret", name)
        record(site, "end", "n1")
        for who, expected in (
            ("viewer", ["failed", "failed", "end"]),
            ("mate", ["failed\ns3cret", "end"]),
            ("stranger", ["failed\ns3cret", "end"]),
            ("mine", ["failed\ns3cret", "failed\ns3cret", "end"]),
        ):
            with client_of(server, who) as client:
                assert causes(client, len(expected), after=0) == expected, who


def test_too_many_are_told_so(site: Site, server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.api.watch_routes.WATCHERS_MAX", 1)
    with WEB.stream("GET", f"{server.url}/v1/watch", headers=HEADERS) as response:
        stream = messages(response)
        assert next(stream)["event"] == "start"
        second = WEB.get(f"{server.url}/v1/watch", headers=HEADERS)
        assert (second.status_code, second.json()["code"]) == (503, "too-many-watchers")
        stream.close()


def test_those_that_come_at_once_do_not_get_more_than_there_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are past the first await before any has an answer."""
    monkeypatch.setattr("reconciler.api.watch_routes.WATCHERS_MAX", 5)
    monkeypatch.setattr("reconciler.api.watch_routes.PER_USER_MAX", 3)
    services = site.services()
    routes = WatchRoutes(services, Authorisation(services), Flag(), EventFeed(services.jobs, services.history))

    def asking(user: str) -> Request:
        return Request({"type": "http", "method": "GET", "headers": [], "state": {"caller": Caller(user)}})

    async def ask(user: str) -> Response | int:
        try:
            return await routes.watch(asking(user))
        except RequestRefusedError as refused:
            return refused.status

    async def all_ask() -> list[Response | int]:
        first = await asyncio.gather(*(ask(user) for user in ("ada", "bob") for _ in range(10)))
        taken = [each for each in first if isinstance(each, Response)]
        # A client that was gone before its stream began has left its place.
        await asyncio.gather(*(_given_up(each) for each in taken))
        return [*first, await ask("eve")]

    *first, last = asyncio.run(all_ask())
    refused = Counter(each for each in first if isinstance(each, int))
    assert refused == {429: 7, 503: 8}
    assert isinstance(last, Response)


async def _given_up(answer: Response) -> None:
    async def gone(*_: object) -> Any:
        raise OSError("the client is gone")

    with suppress(ClientDisconnect):
        await answer({"type": "http", "asgi": {"spec_version": "2.4"}}, gone, gone)


def test_a_watcher_without_a_right_is_refused_and_not_asked_again(server: ApiServer) -> None:
    with Client(server.url, "wrong") as client, pytest.raises(NotAuthorisedError):
        next(client.watch())


def test_a_server_that_stays_away_is_said_to(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.client.watch._PAUSE_S", 0.001)
    with Client("http://127.0.0.1:1", TOKEN) as client, pytest.raises(ServerUnreachableError):
        next(client.watch())


def test_silence_is_a_sign_too(client: Client) -> None:
    signs = Watching(client._transport, silence_s=0.05).signs()
    assert list(islice(signs, 3)) == [None, None, None]


def test_waiting_ends_with_the_job_or_the_time(site: Site, client: Client) -> None:
    client.submit(JobName("job"), spec())
    with pytest.raises(TimeoutError, match="job has not ended within"):
        client.wait("job", timeout_s=0.1)
    outcome = JobOutcome("succeeded", NOW)

    def finish() -> None:
        site.store.jobs.finish(site.epoch(), JobName("job"), outcome)
        record(site, "x")

    finisher = Thread(target=finish)
    finisher.start()
    assert client.wait("job", timeout_s=60).outcome == outcome
    finisher.join()


def test_a_message_is_of_one_line_each() -> None:
    event = Event(NOW, "kind", "job", "two\nlines\r\n: and more", "loop")
    assert message("event", event, 7).count(b"\n") == 4
