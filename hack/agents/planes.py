"""A control plane: the real door, fleet, backend and pass, with a link to the store that can be cut in the middle of anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

from hack.agents.network import End, Network
from hack.agents.virtual_time import Silence
from hack.crash.clocks import SteppedClock
from hack.crash.doors import Doors, Gates
from hack.crash.workload import NODES
from reconciler.backends.baremetal.agent_server import AgentServer
from reconciler.backends.baremetal.backend import BareMetalBackend, joining
from reconciler.backends.baremetal.fleet import TICK_S, Fleet
from reconciler.backends.baremetal.wire import Hello
from reconciler.control.control import ControlPlane, PolicySource
from reconciler.control.ledger_site import one_pass
from reconciler.control.passes import Pass
from reconciler.control.recording import solver_with
from reconciler.model.clock import Clock
from reconciler.protocols.backend import BackendUnreachableError, StaleEpochError
from reconciler.protocols.ledger import NotLeaderError
from reconciler.protocols.store_errors import StoreUnreachableError
from reconciler.server.cluster_time import cluster_time
from reconciler.store.store import SqlStore
from solver.model.cluster import NodeName
from solver.model.document import decode
from solver.model.quantities import Duration

LEASE: Final = Duration(10_000)


class Named(NamedTuple):
    """Which node an agent speaks for."""

    node: NodeName


class OpenEntry:
    """Who comes is who it says: certificates have tests of their own."""

    async def joins(self, _: End) -> bool:
        """Nobody wants a certificate."""
        return False

    async def hello(self, connection: End) -> tuple[Named, Hello]:
        """What an agent says first."""
        hello = decode(await connection.recv(), Hello)
        return Named(hello.node), hello

    async def no_longer(self, _: Iterable[Named]) -> dict[Named, str]:
        """All are trusted."""
        return {}


def open_door(network: Network, place: str, fleet: Fleet, leads: Callable[[], bool]) -> AgentServer:
    """The real one, to which agents come over the network that is played."""
    declared = {node.name: node for node in NODES}
    where: Any = ("", 0), OpenEntry(), fleet, declared.get, leads, lambda: None, Silence()
    door: Any = AgentServer(*where)
    door._loop, door._closing = network.loop, asyncio.Event()
    door._doorway = SimpleNamespace(keep=lambda _: None, is_news=lambda _: True)
    network.accepting[place] = door._receive
    return cast("AgentServer", door)


class PlaneDoor:
    """Where agents come to a control plane, until its process ends: the real fleet and door."""

    def __init__(self, network: Network, place: str, clock: Clock, leads: Callable[[], bool]) -> None:
        self._network, self._place = network, place
        self.fleet = Fleet(clock)
        self.server = open_door(network, place, self.fleet, leads)
        self._ticks = network.loop.create_task(self._tick())

    def vanish(self) -> None:
        """With its connections."""
        self._ticks.cancel()
        self._network.accepting.pop(self._place, None)
        self._network.vanish(self._place)

    async def _tick(self) -> None:
        for tick in count():
            await self.server._send_away(tick)
            await asyncio.sleep(TICK_S)


class Plane:
    """One process. `store_is_up`: whether it reaches the store. A new one knows nothing."""

    def __init__(
        self,
        name: str,
        place: str,
        network: Network,
        store: SqlStore,
        clock: SteppedClock,
        gates: Gates,
        policies: PolicySource,
        store_is_up: Callable[[], bool],
    ) -> None:
        self.name, self.place, self.clock = name, place, clock
        self._store_is_up = store_is_up
        self._led_s = float("-inf")
        self.door = PlaneDoor(network, place, clock, self.leads)
        of = self.door.server, self.door.fleet, store.ledger.claims
        self.backend = BareMetalBackend(*of, joining=lambda: joining(store.ledger))
        doors = Doors.onto(store, self.backend, gates)
        # Hears the clock of the store, which all control planes share.
        time, self._database = cluster_time(store, clock), store.database
        self._hear, keeper = store.database.told_time, time.keeper(doors.ledger)
        parts = doors.jobs, doors.ledger, doors.history, doors.checkpoints, doors.interventions, doors.health
        together = partial(gates.together, store.database.together)
        own = policies, solver_with(None), time.clock, LEASE
        self.plane = ControlPlane(
            name, *parts, doors.backend, self.backend, *own, keep_time=keeper.keep, together=together
        )

    def leads(self) -> bool:
        """As Runner has it: one that has not reached the store for as long as a lease may have been followed."""
        return self.clock.monotonic_s() < self._led_s + LEASE.seconds

    def take_pass(self) -> Pass | None:
        """None: it does not lead, or was interrupted."""
        began_s = self.clock.monotonic_s()
        if not self._store_is_up():
            return None
        self._database.told_time = self._hear
        try:
            done = one_pass(self.plane)
        except (NotLeaderError, StaleEpochError):
            self._led_s = float("-inf")
            return None
        except StoreUnreachableError:
            return None
        except BackendUnreachableError:
            self._led_s = began_s
            return None
        self._led_s = began_s
        return done

    def dies(self) -> None:
        """With its connections."""
        self.door.vanish()


def waiting(network: Network) -> Callable[[Collection[Future[Any]], float], None]:
    """In place of waiting for answers of agents: their time passes."""

    def wait(asked: Collection[Future[Any]], within_s: float) -> None:
        network.loop.until(lambda: all(future.done() for future in asked), within_s)

    return wait
