"""Real connections to a real server: what takes too long is ended, what waits gives way, what is answered stays."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.api import limited_http
from reconciler.api.guard import Guard
from reconciler.api.payloads import LOG_BYTES_MAX
from reconciler.api.server import ApiServer
from reconciler.connections.limits import ConnectionLimits, RequestTimeouts
from reconciler.protocols.history import Event
from reconciler.protocols.terminals import NO_TERMINALS
from solver.model.workload import JobName, TaskPlacement
from tests.contracts.local_worlds import eventually
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec
from tests.reconciler.api.web import WEB

OWNER = {"Authorization": f"Bearer {TOKEN}"}
HALF = b"GET / HTTP/1.1\r\nX: "
LONG = RequestTimeouts(3600, 3600, 3600)
ROOMY = ConnectionLimits(100, 100)
READ_LATER_MAX = 2**26
"""More than tcp_wmem and tcp_rmem of Linux have, unless somebody has raised them."""
SHORT_S = 0.2
TRICKLE_S = 0.02
PATIENCE_S = 60
QUEUES = f"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
WATCH = QUEUES.replace(b"/v1/queues", b"/v1/watch")


def posting(length: int, path: str = "/v1/webhooks/github", token: str = TOKEN) -> bytes:
    """The header of a POST. To that path it may be anybody's, and the body is read before the signature is looked at."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


@contextmanager
def serving(site: Site, limits: ConnectionLimits = ROOMY, timeouts: RequestTimeouts = LONG) -> Iterator[ApiServer]:
    log = structlog.get_logger("quorate.test")
    services = replace(site.services(), terminals=NO_TERMINALS)
    with ApiServer(services, Guard(TOKEN, user="alice"), limits=limits, timeouts=timeouts, log=log) as server:
        yield server


@contextmanager
def opened(server: ApiServer, sent: bytes = b"", address: str = "127.0.0.1") -> Iterator[socket.socket]:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S, source_address=(address, 0)) as connection:
        connection.sendall(sent)
        yield connection


def read_end(connection: socket.socket) -> bytes:
    """All that comes until the server ends it."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def trickle(connection: socket.socket, piece: bytes) -> bytes:
    """Send a piece again and again until the server says or ends something; what that is."""
    try:
        while not select.select([connection], [], [], TRICKLE_S)[0]:
            connection.sendall(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return read_end(connection)


def is_open(connection: socket.socket) -> bool:
    return not select.select([connection], [], [], 0)[0]


def status(server: ApiServer) -> int:
    return WEB.get(f"{server.url}/v1/queues", headers=OWNER).status_code


@pytest.mark.parametrize(
    ("begun", "piece"),
    [(HALF, b""), (HALF, b"a"), (b"GET / HTTP/1.1\r\n", b"X: a\r\n"), (b"G", b"")],
    ids=["nothing more", "a long value", "many short ones", "a letter"],
)
def test_a_header_that_does_not_end_is_answered_408(site: Site, begun: bytes, piece: bytes) -> None:
    with serving(site, timeouts=replace(LONG, header_s=SHORT_S)) as server, opened(server, begun) as connection:
        assert trickle(connection, piece).startswith(b"HTTP/1.1 408 ")
        assert status(server) == 200


def test_a_connection_without_a_word_is_ended_without_one(site: Site) -> None:
    with serving(site, timeouts=replace(LONG, header_s=SHORT_S)) as server, opened(server) as connection:
        assert read_end(connection) == b""


def test_the_second_header_has_the_same_time(site: Site) -> None:
    with serving(site, timeouts=replace(LONG, header_s=SHORT_S)) as server, opened(server, QUEUES) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(HALF)
        assert b"HTTP/1.1 408 " in trickle(connection, b"a")


def test_between_two_requests_it_is_idle_and_then_ended(site: Site) -> None:
    with serving(site, timeouts=replace(LONG, idle_s=SHORT_S)) as server, opened(server, QUEUES) as connection:
        assert read_end(connection).count(b"HTTP/1.1 200 ") == 1


def test_a_body_that_trickles_is_ended_and_leaves_nothing_in_the_log(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it is read before it is known who that is, or not at all."""
    with serving(site, timeouts=replace(LONG, body_s=SHORT_S)) as server:
        with opened(server, posting(1_000_000)) as connection:
            assert trickle(connection, b"x").startswith(b"HTTP/1.1 408 ")
        with opened(server, posting(1_000_000, "/v1/jobs")) as connection:
            assert trickle(connection, b"x").startswith(b"HTTP/1.1 408 ")
        with opened(server, posting(1_000_000, "/v1/jobs", token="wrong")) as connection:
            assert trickle(connection, b"x").count(b"HTTP/1.1 ") == 1  # 401, and no more
        assert status(server) == 200
    assert caplog.messages == []


def test_a_body_that_comes_fast_enough_is_waited_for(site: Site) -> None:
    """Another one, begun at the same time, is ended meanwhile: the time for both is over, and this one has earned more."""
    length = 900_000
    with (
        serving(site, timeouts=replace(LONG, body_s=SHORT_S)) as server,
        opened(server, posting(length)) as large,
        opened(server, posting(length)) as slow,
    ):
        large.sendall(b"x" * (length - 1))
        assert trickle(slow, b"x").startswith(b"HTTP/1.1 408 ")
        large.sendall(b"x")
        assert large.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_body_of_a_webhook_is_not_waited_for_where_none_is_heard(site: Site) -> None:
    site.webhook_secrets = ()
    with serving(site) as server, opened(server, posting(1_000_000)) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 404 ")


def test_an_answer_that_nobody_takes_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else could end it here. The answers are more than what the system keeps for a reader who comes later."""
    monkeypatch.setattr(limited_http, "SEND_S", SHORT_S)
    site.store.jobs.submit(JobName("job"), spec(), "alice", NOW, "")
    site.bind("job", TaskPlacement("worker", 0, NODES[0].name, (NODES[0].gpus[0].id,)))
    site.logs["job", 1, "worker", 0] = b"x" * LOG_BYTES_MAX
    logs = QUEUES.replace(b"/v1/queues", f"/v1/jobs/job/logs?limit={LOG_BYTES_MAX}".encode())
    with serving(site) as server, opened(server, logs * (READ_LATER_MAX // LOG_BYTES_MAX)):
        connections = server._server._gate._open
        eventually(lambda: len(connections) == 1)
        eventually(lambda: not connections)


def test_the_oldest_that_waits_gives_way_and_no_other(site: Site) -> None:
    with capture_logs() as lines, serving(site, ConnectionLimits(4, 4)) as server, ExitStack() as closing:
        held = [closing.enter_context(opened(server, HALF)) for _ in range(4)]
        assert status(server) == 200
        assert read_end(held[0]) == b""
        assert [is_open(each) for each in held[1:]] == [True] * 3
        for each in held[1:]:
            each.sendall(b"a\r\nHost: localhost\r\n\r\n")
            assert each.recv(65536).startswith(b"HTTP/1.1 404 ")
    assert [line["event"] for line in lines] == ["connections-full"]


def test_one_peer_that_is_full_leaves_room_for_another(site: Site) -> None:
    with serving(site, ConnectionLimits(20, 3)) as server, ExitStack() as closing:
        other = closing.enter_context(opened(server, QUEUES[:-2], address="127.0.0.2"))
        held = [closing.enter_context(opened(server, HALF)) for _ in range(30)]
        eventually(lambda: sum(map(is_open, held)) == 3)
        assert [is_open(each) for each in held[-3:]] == [True] * 3
        other.sendall(b"\r\n")
        assert other.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_peer_whose_requests_are_all_being_answered_is_told_to_come_again(site: Site) -> None:
    with serving(site, ConnectionLimits(20, 2)) as server, ExitStack() as closing:
        for _ in range(2):
            watcher = closing.enter_context(opened(server, WATCH))
            assert b"event: start" in _until(watcher, b"event: start")
        refused = closing.enter_context(opened(server))
        assert read_end(refused).startswith(b"HTTP/1.1 503 ")
        with opened(server, QUEUES, address="127.0.0.2") as other:
            assert other.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_stream_of_events_outlives_timeouts_and_floods(site: Site) -> None:
    timeouts = RequestTimeouts(SHORT_S, SHORT_S, SHORT_S)
    with serving(site, ConnectionLimits(3, 3), timeouts) as server, opened(server, WATCH) as watcher:
        assert b"event: start" in _until(watcher, b"event: start")
        with opened(server, HALF) as late:
            assert trickle(late, b"a").startswith(b"HTTP/1.1 408 ")
        with ExitStack() as closing:
            held = [closing.enter_context(opened(server, HALF)) for _ in range(10)]
            for each in held:
                read_end(each)
        site.store.history.record_event(Event(NOW, "kind", "job", "still here", "loop"))
        assert b"still here" in _until(watcher, b"still here")


def test_a_server_stops_though_a_body_never_comes(site: Site) -> None:
    with serving(site, timeouts=replace(LONG, body_s=SHORT_S)) as server, opened(server, posting(1000)):
        assert status(server) == 200
    assert not server.alive


def test_bad_requests_fill_no_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with serving(site) as server:
        for _ in range(20):
            with opened(server, b"\0\r\n\r\n") as connection:
                assert read_end(connection).startswith(b"HTTP/1.1 400 ")
    assert len(caplog.messages) <= 1


def test_a_body_of_two_lengths_is_refused(site: Site) -> None:
    """What stands before the server may believe the one, and the server the other (RFC 9112, section 11.2)."""
    chunked = posting(5).replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nContent-Length")
    with serving(site) as server, opened(server, chunked + b"0\r\n\r\n") as connection:
        assert b"ambiguous-length" in _until(connection, b"ambiguous-length")


def _until(connection: socket.socket, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        piece = connection.recv(65536)
        assert piece, found
        found += piece
    return found
