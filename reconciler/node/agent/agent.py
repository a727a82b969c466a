"""The agent: connects to whichever control plane leads, again and again, and serves it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
from structlog.typing import FilteringBoundLogger
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from reconciler.access.secret_file import SecretFile
from reconciler.backends.baremetal.certificates import CONTROL_PLANE
from reconciler.backends.baremetal.key_files import KeyFileError
from reconciler.backends.baremetal.wire import AGENT_PATH, FEATURES_HEADER, GPU_USE, MESSAGE_BYTES_MAX
from reconciler.model.clock import Clock
from reconciler.node.agent.identity import AgentIdentity, read_identity
from reconciler.node.agent.join import ControlPlaneUnreachableError, JoinRefusedError, renew
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.node.agent.pace import AgentPace
from reconciler.node.agent.session import Session
from reconciler.protocols.backend import BackendUnreachableError

Server = tuple[str, int]
"""Host and port."""

RENEWAL_EVERY_S: Final = 60.0
"""About how often it is looked whether the certificate is to be renewed."""


class NodeAgent:
    """`run` it in an event loop, until that is cancelled. Tasks don't notice whether it runs, nor whether a control plane answers.

    `address`: where tasks on other nodes reach this one; "": where
    the control plane sees it come from.
    """

    def __init__(
        self,
        orders: OrderHandler,
        servers: Sequence[Server],
        identity: AgentIdentity,
        clock: Clock,
        log: FilteringBoundLogger,
        address: str = "",
        pace: AgentPace = AgentPace(),  # noqa: B008  (it is frozen)
        chance: random.Random | None = None,
    ) -> None:
        self._orders = orders
        self._servers = servers
        self._node = identity.node
        self._identities = SecretFile(identity.path, self._read, KeyFileError, identity)
        self._log = log
        self._address = address
        self._pace = pace
        self._chance = chance or random.SystemRandom()
        self._clock = clock
        self._worker = ThreadPoolExecutor(1, "orders")

    def _read(self, path: Path) -> AgentIdentity:
        """As the file has it: this agent renews it, and an operator may join the node anew. Raises KeyFileError."""
        found = read_identity(path)
        if found.node != self._node:
            raise KeyFileError(
                f"{path}: it is {found.node}'s, and this agent is that of {self._node}. Put it back, or restart"
            )
        return found

    async def run(self) -> None:
        """Connect, and renew the certificate in its time."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connect())
            group.create_task(self._renew())

    async def _connect(self) -> None:
        """Connect to one server after the other, with rests that grow as long as none of them leads."""
        failures = 0
        while True:
            for server in self._servers:
                welcome = await self._serve(server)
                failures = 0 if welcome else failures + 1
                await asyncio.sleep(self._pace.rest_s(failures, self._chance.random()))

    async def _renew(self) -> None:
        """Get the next certificate when it is time. Open connections go on with the one they have."""
        while True:
            await asyncio.sleep(RENEWAL_EVERY_S * (0.5 + self._chance.random()))
            identity = self._identities()
            for host, port in self._servers if self._clock.now() >= identity.renew_at else ():
                try:
                    await asyncio.to_thread(renew, host, port, identity)
                    break
                except (ControlPlaneUnreachableError, JoinRefusedError, KeyFileError) as error:
                    self._log.warning("certificate-not-renewed", server=f"{host}:{port}", message=str(error))

    async def _serve(self, server: Server) -> bool:
        """One connection; whether a control plane that leads was there."""
        host, port = server
        session: Session | None = None
        try:
            async with connect(
                f"wss://{host}:{port}{AGENT_PATH}",
                additional_headers={FEATURES_HEADER: GPU_USE},
                ssl=self._identities().client_context(),
                server_hostname=CONTROL_PLANE,
                proxy=None,
                compression=None,
                open_timeout=self._pace.connect_within_s,
                ping_interval=self._pace.ping_s,
                ping_timeout=self._pace.ping_s,
                close_timeout=self._pace.close_within_s,
                max_size=MESSAGE_BYTES_MAX,
            ) as connection:
                self._log.info("connected", server=f"{host}:{port}")
                session = Session(connection, self._orders, self._address, self._pace, self._chance, self._worker)
                await session.serve()
        except (OSError, InvalidHandshake, ConnectionClosed, TimeoutError, KeyFileError) as error:
            self._log.warning("disconnected", server=f"{host}:{port}", message=str(error))
        except BackendUnreachableError as error:
            self._log.error("state-folder-unusable", message=str(error))
        except msgspec.MsgspecError as error:
            self._log.error("server-not-understood", server=f"{host}:{port}", message=str(error))
        return session is not None and session.welcome
