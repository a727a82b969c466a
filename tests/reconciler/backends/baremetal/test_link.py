"""The door and real agents: who is let in, who is sent away, and what comes through."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode

from reconciler.backends.baremetal.agent_connection import AgentConnection
from reconciler.backends.baremetal.certificates import CONTROL_PLANE
from reconciler.backends.baremetal.join_wire import JOIN_PATH
from reconciler.backends.baremetal.wire import AGENT_PATH, BAD_HELLO, PROTOCOL, FromAgent, Hello, LogRead, Type
from reconciler.node.agent.folder import Epochs
from reconciler.node.agent.identity import AgentIdentity
from reconciler.node.agent.join import join
from reconciler.protocols.backend import Cursor, Epoch, StaleEpochError, StartGang
from reconciler.protocols.terminals import NoTerminalError, TerminalEnd, Window
from solver.model.cluster import NodeName
from solver.model.document import encode
from solver.model.workload import JobName
from tests.contracts.backend_world import Watcher, start, stop
from tests.contracts.baremetal_worlds import BareMetalWorld
from tests.contracts.local_worlds import eventually
from tests.reconciler.backends.baremetal.trust import Trust

JOB = JobName("job")


@pytest.fixture
def world(tmp_path: Path, trust: Trust) -> Iterator[BareMetalWorld]:
    made = BareMetalWorld(tmp_path, trust)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def intruder(world: BareMetalWorld, trust: Trust, tmp_path: Path) -> AgentIdentity:
    """A third node's agent, whose certificate is good."""
    (tmp_path / "n3").mkdir(mode=0o700)
    return join("127.0.0.1", world.port, trust.token(NodeName("n3")), tmp_path / "n3" / "identity.pem")


@contextmanager
def deaf(world: BareMetalWorld, trust: Trust, folder: Path, number: int) -> Iterator[None]:
    """So many agents are let in, and from then on take nothing of what they are sent, which the first one is much of."""
    names = [NodeName(f"deaf-{each}") for each in range(number)]
    for name in names:
        (folder / name).mkdir(mode=0o700)
    who = [join("127.0.0.1", world.port, trust.token(name), folder / name / "identity.pem") for name in names]
    heard, over = threading.Event(), threading.Event()

    async def listen() -> None:
        async with AsyncExitStack() as connections:
            for each in who:
                url, context = f"wss://127.0.0.1:{world.port}{AGENT_PATH}", each.client_context()
                opened = connect(url, ssl=context, server_hostname=CONTROL_PLANE, proxy=None, close_timeout=0.1)
                connection = await connections.enter_async_context(opened)
                await connection.send(encode(hello(each.node)).decode())
                await connection.recv()
            heard.set()
            over.wait()  # And with it the event loop, which alone reads.

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    try:
        assert heard.wait(60)
        for _ in range(3):  # More than the system and TLS take for somebody who does not read it.
            world.door.send(names[:1], lambda number: Type(number, bytes(2**23)))
        yield
    finally:
        over.set()
        thread.join()


def code_after(world: BareMetalWorld, who: AgentIdentity, said: FromAgent, path: str = AGENT_PATH) -> int:
    """The code with which the door closes, once this was said."""

    async def say() -> int:
        url = f"wss://127.0.0.1:{world.port}{path}"
        async with connect(url, ssl=who.client_context(), server_hostname=CONTROL_PLANE, proxy=None) as connection:
            await connection.send(encode(said).decode())
            try:
                await connection.recv()
            except ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd else 0
            raise AssertionError("it was answered")

    return asyncio.run(say())


def with_terminal(order: StartGang) -> StartGang:
    return msgspec.structs.replace(order, spec=msgspec.structs.replace(order.spec, terminal=True))


def hello(node: str, protocol: int = PROTOCOL) -> Hello:
    return Hello(protocol, NodeName(node), Epoch(99), "")


def test_a_certificate_lets_nobody_speak_for_another_node(world: BareMetalWorld, intruder: AgentIdentity) -> None:
    assert code_after(world, intruder, hello("n1")) == BAD_HELLO
    assert code_after(world, intruder, hello("n3", PROTOCOL + 1)) == BAD_HELLO
    assert world.fleet.epoch == 0, "what it said is not believed"
    with pytest.raises(InvalidStatus):
        code_after(world, intruder, hello("n3"), "/v1/jobs")


def test_nobody_sends_much_before_it_is_known_who_that_is(world: BareMetalWorld, intruder: AgentIdentity) -> None:
    long = Hello(PROTOCOL, NodeName("n3"), Epoch(0), "x" * 100_000)
    for path in (JOIN_PATH, AGENT_PATH):
        assert code_after(world, intruder, long, path) == CloseCode.MESSAGE_TOO_BIG

    async def tell_much() -> None:
        url, context = f"wss://127.0.0.1:{world.port}{AGENT_PATH}", intruder.client_context()
        async with connect(url, ssl=context, server_hostname=CONTROL_PLANE, proxy=None) as connection:
            await connection.send(encode(hello("n3")).decode())
            await connection.recv()
            await connection.send(encode(LogRead(1, bytes(100_000))).decode())
            await (await connection.ping())

    asyncio.run(tell_much())


def test_a_revoked_agent_is_let_go(world: BareMetalWorld, trust: Trust) -> None:
    trust.store.agents.revoke(NodeName("n1"), trust.clock.now(), "ada")
    eventually(lambda: world.fleet.nodes_there() == {NodeName("n2")})


def test_an_agent_that_is_sent_away_comes_again_when_the_control_plane_leads(world: BareMetalWorld) -> None:
    world.leads = False
    eventually(lambda: not world.fleet.nodes_there())
    world.leads = True
    eventually(lambda: len(world.fleet.nodes_there()) == 2)


def test_who_does_not_take_leave_holds_up_nobody(
    world: BareMetalWorld, trust: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, leaving, at_once = AgentConnection.close, set[AgentConnection](), list[int]()

    async def counted(line: AgentConnection, code: int, reason: str) -> None:
        leaving.add(line)
        at_once.append(len(leaving))
        await close(line, code, reason)
        leaving.remove(line)

    monkeypatch.setattr(AgentConnection, "close", counted)
    with deaf(world, trust, tmp_path, 8):
        eventually(lambda: len(world.fleet.nodes_there()) == 10)
        world.leads = False
        eventually(lambda: not world.fleet.nodes_there())
    assert max(at_once) >= 8, "all at once, and not one after the other"


def test_a_door_closes_though_an_agent_takes_nothing(world: BareMetalWorld, trust: Trust, tmp_path: Path) -> None:
    with deaf(world, trust, tmp_path, 1):
        closing = threading.Thread(target=world.door.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()
    world.restart()


def test_an_epoch_is_on_every_agents_disk_before_anything_is_ordered_under_it(world: BareMetalWorld) -> None:
    Watcher(world).send(start(world, "job", world.succeeds(), (0, (0,))), epoch=4)
    assert [(world.state / node / "tasks" / "epoch").read_text() for node in ("n1", "n2")] == ["4", "4"]
    world.restart()
    with pytest.raises(StaleEpochError):
        world.backend.submit(stop("job"), Epoch(3))


def test_what_one_agent_says_of_epochs_is_on_no_other_ones_disk(
    world: BareMetalWorld, trust: Trust, tmp_path: Path
) -> None:
    with deaf(world, trust, tmp_path, 1):
        assert world.fleet.epoch == 99
        world.leads = False
        eventually(lambda: not world.fleet.nodes_there())
    world.leads = True
    eventually(lambda: sum(node.ready for node in world.backend.changes(Cursor(0)).nodes) == 2)
    assert [Epochs(world.state / node / "tasks").seen() for node in ("n1", "n2")] == [0, 0]


def test_tasks_meet_at_the_address_of_the_first_ones_node(world: BareMetalWorld) -> None:
    watcher = Watcher(world)
    watcher.send(start(world, "job", world.runs(), (1, (0,)), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    eventually(lambda: [world.starts(JOB, 1, "worker", index) for index in (0, 1)] == [1, 1])
    seen = [world.environment(JOB, 1, "worker", index) for index in (0, 1)]
    assert {one["MASTER_ADDR"] for one in seen} == {"n2.example"}
    assert [one["LOCAL_RANK"] for one in seen] == ["0", "0"]
    files = [Path(one["QUORATE_GANG_FILE"]).read_text() for one in seen]
    assert files[0] == files[1]
    assert f"n2.example:{seen[0]['MASTER_PORT']}" in files[0]


def test_logs_are_read_where_they_are_also_after_nobody_tells_of_the_task(world: BareMetalWorld) -> None:
    watcher = Watcher(world)
    watcher.send(start(world, "job", world.shell("echo said"), (1, (0,))))
    watcher.until(lambda: watcher.states("job") == ["succeeded"])
    read = (JOB, 1, "worker", 0, 1, 3)
    assert world.inner.read_log(*read) == b"aid"
    watcher.forget("job")
    world.restart()
    assert world.inner.read_log(*read) == b"aid"
    with pytest.raises(KeyError):
        world.inner.read_log(JobName("other"), 1, "worker", 0, 0, 1)


def test_a_terminal_is_reached_through_its_agent(world: BareMetalWorld) -> None:
    script = 'stty -echo; read line; stty size; echo "you said $line"; exit 3'
    order = start(world, "job", world.shell(script), (1, (0,)))
    watcher = Watcher(world)
    watcher.send(with_terminal(order))
    watcher.until(lambda: watcher.states("job") == ["running"])
    eventually(lambda: world.starts(JOB, 1, "worker", 0) == 1)
    line = world.inner.open_terminal(JOB, 1, "worker", 0)

    async def talk() -> tuple[bytes, TerminalEnd | None]:
        shown = b""
        await line.send(Window(20, 70))
        await line.send(b"hello\n")
        while isinstance(said := await line.receive(), bytes):
            shown += said
        return shown, said

    shown, end = asyncio.run(talk())
    line.close()
    assert b"20 70" in shown
    assert b"you said hello" in shown
    assert end == TerminalEnd(3, stopped=False)
    with pytest.raises(NoTerminalError):
        world.inner.open_terminal(JOB, 1, "worker", 0)


def test_what_a_gang_that_goes_on_has_given_up_is_ended_where_it_runs_on(world: BareMetalWorld) -> None:
    watcher = Watcher(world)
    watcher.send(start(world, "job", world.runs(), (0, (0,)), (1, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    assert world.starts(JOB, 1, "worker", 1) == 1  # A stop could end it before it has come to signing.
    world.gives_up("job", 1)
    watcher.until(lambda: watcher.states("job") == ["running", "stopped"])
    assert world.starts(JOB, 1, "worker", 1) == 1


def test_nothing_is_left_of_a_door_that_was_closed(world: BareMetalWorld) -> None:
    world.door.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "agents"]
    world.inner.changes(Cursor(0))
    world.inner.submit(stop("job"), Epoch(1))
    world.restart()


def test_a_job_on_a_node_that_was_set_up_anew_is_known_to_be_lost(world: BareMetalWorld) -> None:
    watcher = Watcher(world)
    watcher.send(start(world, "job", world.runs(), (0, (0,)), (1, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    world.is_set_up_anew(world.nodes[1])
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    world.confirms("job")
    watcher.until(lambda: watcher.states("job") == ["running", "lost"])
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
