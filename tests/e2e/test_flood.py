"""`quorate run` with few descriptors and more half-open connections than it has: it answers, follows Git and starts jobs."""

from __future__ import annotations

import json
import os
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPSConnection
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from reconciler.backends.baremetal.join_wire import ROOTS_PATH
from reconciler.backends.baremetal.wire import AGENT_PATH
from tests.e2e.control_plane import PATIENCE_S, POLICY, ControlPlane, sh, submit, until
from tests.reconciler.gitops.source.origin import Origin

DESCRIPTORS = 256
HELD = 400
LINES_MAX = 1 + PATIENCE_S // 60
"""One a minute, however slow the machine is. Without a limit there are thousands a second."""

HALF = b"GET / HTTP/1.1\r\nX: "
ANOTHER_QUEUE = {"policies/other.yaml": POLICY["policies/queue.yaml"].replace("name: team", "name: other")}


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """What is started meanwhile may open so many files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def hold(closing: ExitStack, port: int, count: int, sent: bytes = HALF) -> None:
    """Open connections that ask for nothing, and keep this end of them."""
    for _ in range(count):
        closing.enter_context(socket.create_connection(("127.0.0.1", port), 60)).sendall(sent)


def port_of(plane: ControlPlane) -> int:
    return urlsplit(plane.logged("listening")[-1]["url"]).port or 0


def complaints(plane: ControlPlane) -> Counter[str]:
    """Lines of the log that are no news, by what they say."""
    lines = [json.loads(line) for line in plane.log().splitlines(keepends=True) if line.endswith("}\n")]
    return Counter(line["event"].partition("\n")[0] for line in lines if line["level"] in ("warning", "error"))


def test_it_works_on_whatever_connections_do(plane: ControlPlane, origin: Origin) -> None:
    """None of them times out: they are held until the end, as far as the server lets them."""
    with descriptors(DESCRIPTORS):
        plane.start("--header-timeout", "1h")
    plane.until_ready()
    before = complaints(plane)
    with ExitStack() as held:
        hold(held, port_of(plane), HELD)
        with plane.client() as client:
            assert client.status().holder
            changed = origin.commit(ANOTHER_QUEUE)
            until("Git is followed", lambda: client.status().last_applied_revision == changed)
            submit(client, ["job"], sh("true"))
            until("the job has run", lambda: client.job("job").state == "succeeded")
        assert len(os.listdir(f"/proc/{plane.pid}/fd")) < DESCRIPTORS
        assert sorted(new := complaints(plane) - before) == ["connections-full"]
        assert new["connections-full"] <= LINES_MAX


def test_without_descriptors_it_says_so_once_and_goes_on_when_there_are_some(plane: ControlPlane) -> None:
    """As when something else of the process has used up what was kept back."""
    plane.start().until_ready()
    before = resource.prlimit(plane.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(plane.pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{plane.pid}/fd")) + 5, before[1]))
    exhausted = "socket.accept() out of system resource"
    with ExitStack() as held:
        hold(held, port_of(plane), 50)
        until("there are none left", lambda: exhausted in complaints(plane))
        resource.prlimit(plane.pid, resource.RLIMIT_NOFILE, before)
        with plane.client() as client:
            assert client.status().holder
        assert complaints(plane)[exhausted] <= LINES_MAX


@pytest.mark.thorough
def test_agents_come_through_a_door_that_others_hold(plane: ControlPlane) -> None:
    with descriptors(DESCRIPTORS):
        plane.start("--agents-listen", "127.0.0.1:0")
    plane.until_ready()
    before = complaints(plane)
    unverified = ssl._create_unverified_context()
    with ExitStack() as held:
        hold(held, plane.agents_port, HELD, b"")
        hold(held, port_of(plane), HELD)
        asking = HTTPSConnection("127.0.0.1", plane.agents_port, timeout=60, context=unverified)
        asking.request("GET", ROOTS_PATH)
        assert b"BEGIN CERTIFICATE" in asking.getresponse().read()
        asking.close()
        with plane.client() as client:
            assert client.status().holder
        assert len(os.listdir(f"/proc/{plane.pid}/fd")) < DESCRIPTORS
        new = complaints(plane) - before
        assert sorted(new) == ["connections-full"]
        assert 2 <= new["connections-full"] <= 2 * LINES_MAX


@pytest.mark.thorough
def test_strangers_at_the_agents_door_fill_no_log(plane: ControlPlane) -> None:
    plane.start("--agents-listen", "127.0.0.1:0")
    for _ in range(20):
        with (
            connect(
                f"wss://127.0.0.1:{plane.agents_port}{AGENT_PATH}", ssl=ssl._create_unverified_context()
            ) as stranger,
            pytest.raises(ConnectionClosed, match="it shows no certificate"),
        ):
            stranger.recv()
    assert 1 <= complaints(plane)["agent-refused"] <= LINES_MAX


@pytest.mark.thorough
def test_more_connections_than_descriptors_are_refused_at_the_start(plane: ControlPlane) -> None:
    with descriptors(DESCRIPTORS):
        plane.spawn("--connections-max", "1000")
    assert plane.exit_code() == 1
    assert "--connections-max 1000" in plane.log()
    assert "LimitNOFILE=" in plane.log()
