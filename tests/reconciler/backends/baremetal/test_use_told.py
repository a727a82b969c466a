"""What agents record of their GPUs' use comes through the door: once on a connection, and whole on the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from reconciler.backends.baremetal.certificates import CONTROL_PLANE
from reconciler.backends.baremetal.wire import AGENT_PATH, FEATURES_HEADER, PROTOCOL, Declare, Hello, ToAgent
from reconciler.model.clock import SystemClock
from reconciler.model.gpu_use import SAMPLE_EVERY, GpuMinute, NodeMinute, UseFigures, UseSpread, record_of
from reconciler.node.agent.folder import AgentFolder
from reconciler.node.agent.join import join
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.node.agent.pace import AgentPace
from reconciler.node.agent.session import MINUTES_PER_BEAT
from reconciler.node.local.gpus import DeclaredGpus
from reconciler.protocols.backend import Epoch
from solver.model.cluster import DeviceId, NodeName
from solver.model.document import decode, encode
from solver.model.quantities import Duration, Instant
from tests.contracts.baremetal_worlds import BareMetalWorld
from tests.contracts.local_worlds import eventually
from tests.reconciler.backends.baremetal.trust import Trust

N1, N3 = NodeName("n1"), NodeName("n3")


class UseWorld(BareMetalWorld):
    """Agents that beat often."""

    pace = AgentPace(beat_s=0.02, look_s=0.03, rest_first_s=0.01, rest_max_s=0.02)


@pytest.fixture
def world(tmp_path: Path, trust: Trust) -> Iterator[UseWorld]:
    made = UseWorld(tmp_path, trust)
    try:
        yield made
    finally:
        made.close()


def minute(at: int) -> NodeMinute:
    record = record_of(UseFigures("gpm", 12, active=UseSpread(50.0, 40.0)))
    return NodeMinute(Instant(at * 60_000), (GpuMinute(DeviceId("n1/0"), "GPU-1", record),))


def told(world: UseWorld, node: NodeName = N1) -> list[NodeMinute]:
    return [minute for own, minute in world.use if own == node]


def test_minutes_are_told_once_the_newest_first_and_anew_to_the_next_control_plane(world: UseWorld) -> None:
    recorded = [minute(at) for at in range(10)]
    world.minutes += recorded
    eventually(lambda: len(told(world)) >= len(recorded))
    assert told(world)[:MINUTES_PER_BEAT] == recorded[-MINUTES_PER_BEAT:]
    assert sorted(told(world), key=lambda one: one.start) == recorded
    world.minutes.append(minute(10))
    eventually(lambda: len(told(world)) >= len(recorded) + 1)
    assert told(world)[-1] == minute(10)
    world.use.clear()
    world.restart()
    eventually(lambda: len(told(world)) >= len(recorded) + 1)
    assert sorted(told(world), key=lambda one: one.start) == [*recorded, minute(10)]


def test_an_agent_tells_no_control_plane_that_does_not_ask(tmp_path: Path) -> None:
    def minutes(number: int) -> tuple[tuple[NodeMinute, ...], int]:
        return (minute(0),)[number:], 1

    gpus = partial(DeclaredGpus, real_gpus=tmp_path / "none")
    orders = OrderHandler(N1, AgentFolder(tmp_path), SystemClock(), gpus=gpus, minutes=minutes)
    assert orders.use_after(0) == ((), 0)
    assert orders.sample_every() == SAMPLE_EVERY
    orders.note(Declare(None, Duration(2_000)))
    assert orders.use_after(0) == ((minute(0),), 1)
    assert orders.sample_every() == 2_000
    orders.note(Declare(None))
    assert orders.use_after(0) == ((), 0)


@pytest.mark.parametrize(("features", "expected"), [("", None), ("gpu-use", Duration(5_000)), ("x gpu-use", 5_000)])
def test_an_agent_of_a_release_before_is_sent_no_field_that_it_would_refuse(
    world: UseWorld, trust: Trust, tmp_path: Path, features: str, expected: int | None
) -> None:
    (tmp_path / "n3").mkdir(mode=0o700)
    who = join("127.0.0.1", world.port, trust.token(N3), tmp_path / "n3" / "identity.pem")

    async def declared() -> Declare:
        url, context = f"wss://127.0.0.1:{world.port}{AGENT_PATH}", who.client_context()
        headers = {FEATURES_HEADER: features} if features else {}
        async with connect(
            url, ssl=context, server_hostname=CONTROL_PLANE, proxy=None, additional_headers=headers
        ) as connection:
            await connection.send(encode(Hello(PROTOCOL, N3, Epoch(0), "")).decode())
            while True:
                said: ToAgent = decode(await connection.recv(), ToAgent)  # type: ignore[arg-type]
                if isinstance(said, Declare):
                    return said

    said = asyncio.run(declared())
    assert said.sample_every == expected
    assert (b"sampleEvery" in encode(said)) == (expected is not None)
