"""The WebSocket of a terminal: who may attach, what comes over it, and how it ends. The task behind it is made up."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from reconciler.access.caller import Caller
from reconciler.access.policy import AccessPolicy
from reconciler.api.attach_payloads import Detached
from reconciler.api.guard import Guard
from reconciler.api.payloads import ApiProblem
from reconciler.api.server import ApiServer
from reconciler.client import ApiError, Client, NotAuthorisedError, ServerUnreachableError
from reconciler.connections.limits import ConnectionLimits, RequestTimeouts
from reconciler.protocols.terminals import NoTerminalError, TerminalEnd, Window
from solver.model.document import decode
from solver.model.workload import JobName, TaskPlacement
from tests.contracts.local_worlds import eventually
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec
from tests.reconciler.api.people import ACCESS, identify
from tests.reconciler.api.test_roles import EVERYBODY, STEER

JOB = JobName("job")


class Echo:
    """Implements Terminals and TerminalLine: shows what is typed, ends at `end`, breaks at `break`."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, int, str, int]] = []
        self.windows: list[Window] = []
        self.closed = 0
        self.refuses = False
        self._shown: asyncio.Queue[bytes | TerminalEnd | None] = asyncio.Queue()

    def open_terminal(self, job: JobName, attempt: int, group: str, index: int) -> Echo:
        if self.refuses:
            raise NoTerminalError("not now")
        self.opened.append((job, attempt, group, index))
        return self

    async def receive(self) -> bytes | TerminalEnd | None:
        return await self._shown.get()

    async def send(self, typed: bytes | Window) -> None:
        if isinstance(typed, Window):
            self.windows.append(typed)
        else:
            last = {b"end": TerminalEnd(3, stopped=True), b"break": None}
            await self._shown.put(last.get(typed, typed))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def echo() -> Echo:
    return Echo()


@contextmanager
def serving(site: Site, echo: Echo, access: AccessPolicy = ACCESS) -> Iterator[ApiServer]:
    site.access = access
    services = dataclasses.replace(site.services(), terminals=echo)
    with ApiServer(services, Guard(TOKEN, user="alice", identify=identify)) as server:
        yield server


@pytest.fixture
def server(site: Site, echo: Echo) -> Iterator[ApiServer]:
    """A job of `mine` with a terminal that runs, and one without."""
    with serving(site, echo) as running:
        with Client(running.url, "token-of-mine") as mine:
            mine.submit(JOB, msgspec.structs.replace(spec(), type="interactive", terminal=True))
            mine.submit(JobName("plain"), spec())
        site.bind(JOB, TaskPlacement("worker", 0, NODES[0].name, (NODES[0].gpus[0].id,)))
        yield running


def test_bytes_both_ways_and_how_it_ended(server: ApiServer, site: Site, echo: Echo) -> None:
    with Client(server.url, "token-of-mine") as mine, mine.attach(JOB) as attachment:
        attachment.resize(40, 120)
        attachment.type(b"\x00\xff typed")
        attachment.type(b"end")
        assert list(attachment.shown()) == [b"\x00\xff typed"]
    assert attachment.detached == Detached("ended", "The task has ended.", 3, stopped=True)
    assert echo.opened == [(JOB, 1, "worker", 0)]
    assert echo.windows == [Window(40, 120)]
    eventually(lambda: echo.closed == 1)
    (event,) = [event for event in site.store.history.events(JOB) if event.kind == "attached"]
    assert event.actor == "mine"


def test_a_terminal_outlives_timeouts_and_floods(site: Site, echo: Echo, server: ApiServer) -> None:
    """`server` has begun the job; the one that is flooded has the same store."""
    services = dataclasses.replace(site.services(), terminals=echo)
    limits, timeouts = ConnectionLimits(3, 3), RequestTimeouts(0.2, 0.2, 0.2)
    guard = Guard(TOKEN, user="alice", identify=identify)
    with (
        ApiServer(services, guard, limits=limits, timeouts=timeouts) as small,
        Client(small.url, "token-of-mine") as mine,
        mine.attach(JOB) as attachment,
    ):
        where = ("127.0.0.1", int(small.url.rpartition(":")[2]))
        held = [socket.create_connection(where, 60) for _ in range(10)]
        for each in held:
            with each, suppress(ConnectionResetError):
                assert each.recv(1) == b""  # displaced, or too late
        attachment.type(b"still here")
        attachment.type(b"end")
        assert list(attachment.shown()) == [b"still here"]


def test_what_is_long_comes_in_pieces(server: ApiServer) -> None:
    with Client(server.url, "token-of-mine") as mine, mine.attach(JOB, "worker", 0) as attachment:
        attachment.type(b"x" * 100_000)
        attachment.type(b"end")
        assert b"".join(attachment.shown()) == b"x" * 100_000


def test_a_task_that_is_heard_of_no_more(server: ApiServer, echo: Echo) -> None:
    with Client(server.url, "token-of-mine") as mine, mine.attach(JOB) as attachment:
        attachment.type(b"break")
        assert list(attachment.shown()) == []
        assert attachment.detached is not None
        assert attachment.detached.reason == "lost"


def test_letting_go_lets_go_of_the_task_too(server: ApiServer, echo: Echo) -> None:
    with Client(server.url, "token-of-mine") as mine, mine.attach(JOB) as attachment:
        attachment.close()
        eventually(lambda: echo.closed == 1)
        with pytest.raises(ServerUnreachableError, match="was lost"):
            attachment.type(b"x")


@pytest.mark.parametrize("bad", ["no json", '{"rows": 0, "columns": 80}', '{"rows": 24, "columns": 65536}', "{}"])
def test_what_is_no_message_ends_it(server: ApiServer, bad: str) -> None:
    with socket_of(server, "mine") as socket:
        socket.send(bad)
        assert decode(socket.recv(), Detached).reason == "bad-message"
        with pytest.raises(ConnectionClosed):
            socket.recv()


def test_roles_are_asked_for_again_while_it_lasts(server: ApiServer, site: Site) -> None:
    with Client(server.url, "token-of-lead") as lead, lead.attach(JOB) as attachment:
        site.access = None
        assert list(attachment.shown()) == []
        assert attachment.detached is not None
        assert attachment.detached.reason == "not-allowed"


def test_an_expired_token_ends_it(site: Site, echo: Echo, server: ApiServer) -> None:
    services = dataclasses.replace(site.services(), terminals=echo)
    guard = Guard(TOKEN, user="alice", identify=lambda _: Caller("mine", until=NOW))  # Long ago.
    with ApiServer(services, guard) as other, Client(other.url, "any") as mine, mine.attach(JOB) as attachment:
        assert list(attachment.shown()) == []
        assert attachment.detached is not None
        assert attachment.detached.reason == "expired"


def test_a_server_that_stops_lets_everybody_go(site: Site, echo: Echo, server: ApiServer) -> None:
    with Client(server.url, "token-of-mine") as mine, mine.attach(JOB) as attachment:
        server.close()
        assert list(attachment.shown()) == []
        assert attachment.detached is None
    assert echo.closed == 1


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "not-authenticated"),
        ({"Authorization": "Bearer wrong"}, 401, "not-authenticated"),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403, "origin-not-allowed"),
        ({"Authorization": "Bearer token-of-mate"}, 403, "not-allowed"),
    ],
)
def test_the_guard_stands_before_it(
    server: ApiServer, echo: Echo, headers: dict[str, str], status: int, code: str
) -> None:
    refused = refusal(server, f"/v1/jobs/{JOB}/attach", headers)
    assert (refused.response.status_code, problem(refused).code) == (status, code)
    assert echo.opened == []


def test_another_host_name_is_refused(server: ApiServer) -> None:
    # By whoever makes a browser believe that its own name is our address.
    host, port = server.url.removeprefix("http://").split(":")
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(f"ws://evil.example/v1/jobs/{JOB}/attach", address=(host, int(port)), proxy=None),
    ):
        pass
    assert problem(refused.value).code == "host-not-allowed"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/jobs/plain/attach", 409, "no-terminal"),
        ("/v1/jobs/nobody/attach", 404, "unknown-job"),
        (f"/v1/jobs/{JOB}/attach?index=x", 422, "invalid-parameter"),
        ("/v1/nothing", 403, None),
    ],
)
def test_what_can_not_be_attached_to(server: ApiServer, path: str, status: int, code: str | None) -> None:
    refused = refusal(server, path, {"Authorization": f"Bearer {TOKEN}"})
    assert refused.response.status_code == status
    if code is not None:
        assert problem(refused).code == code
        assert refused.response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("who", sorted(EVERYBODY))
def test_who_may_attach(server: ApiServer, who: str) -> None:
    token = TOKEN if who == "alice" else f"token-of-{who}"
    with Client(server.url, token) as client:
        if who in STEER:
            with client.attach(JOB) as attachment:
                attachment.type(b"end")
                assert list(attachment.shown()) == []
        else:
            with pytest.raises(NotAuthorisedError) as refused:
                client.attach(JOB).__enter__()
            assert (refused.value.status, refused.value.problem.code) == (403, "not-allowed")


def test_one_that_does_not_run(server: ApiServer, echo: Echo) -> None:
    echo.refuses = True
    with Client(server.url, "token-of-mine") as mine, pytest.raises(ApiError, match="nothing to attach to") as refused:
        mine.attach(JOB).__enter__()
    assert refused.value.problem.code == "not-running"


@contextmanager
def socket_of(server: ApiServer, who: str) -> Iterator[ClientConnection]:
    url = f"ws{server.url.removeprefix('http')}/v1/jobs/{JOB}/attach"
    with connect(url, additional_headers={"Authorization": f"Bearer token-of-{who}"}, proxy=None) as socket:
        yield socket


def refusal(server: ApiServer, path: str, headers: dict[str, str]) -> InvalidStatus:
    url = f"ws{server.url.removeprefix('http')}{path}"
    with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers, proxy=None):
        pass
    return refused.value


def problem(refused: InvalidStatus) -> ApiProblem:
    return decode(bytes(refused.response.body or b""), ApiProblem)
