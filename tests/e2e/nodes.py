"""A real `quorate agent` as a process of its own, with a folder of its own, behind a link that can be cut."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reconciler.backends.baremetal.join_token import read_token
from reconciler.client import Client
from reconciler.node.agent.join import join
from tests.e2e.control_plane import killed, processes_that_mention
from tests.e2e.links import Link, Network

LOOK_EVERY_S = 0.25
PATIENCE_S = 180.0


def eventually(what: str, reached: Callable[[], object]) -> None:
    """Wait for something that takes long; looking costs a control plane more than waiting."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"never came about: {what}"
        time.sleep(LOOK_EVERY_S)


class AgentProcess:
    """The agent of one node; `start` it as often as you like. `ports`: where control planes listen for agents."""

    def __init__(self, node: str, folder: Path, link: Link, ports: Sequence[int]) -> None:
        self.node = node
        self.folder = folder / node
        self.link = link
        self._ports = ports
        self._tasks = f"{self.folder}/tasks/"
        self._log = folder / f"{node}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def join(self, client: Client) -> None:
        """Become the node's agent, with a token that an admin made."""
        self.folder.mkdir(mode=0o700)
        token = read_token(client.agents.token(self.node, "1h").token)
        join(*self.link.server(self._ports[0]), token, self.folder / "identity.pem")

    def start(self, *options: str, **variables: str) -> AgentProcess:
        """`variables`: of its environment, in place of the test's own."""
        servers = [f"{host}:{port}" for host, port in map(self.link.server, self._ports)]
        named = [word for server in servers for word in ("--server", server)]
        command = [sys.executable, "-m", "reconciler.cli.main", "agent", *named, "--state", str(self.folder), *options]
        environment = {**os.environ, **variables}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.link.on_node(command), stdout=log, stderr=log, env=environment)
        return self

    def kill(self, with_tasks: bool = False) -> None:
        """As kill -9 does; with its tasks, as a machine that loses power."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        if with_tasks:
            eventually("nothing of it runs", lambda: not killed(self._tasks))

    def tasks(self) -> list[int]:
        """The processes of its tasks and their supervisors."""
        return processes_that_mention(self._tasks)

    def log(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        """After a test: nothing of it stays behind."""
        if self._process is not None:
            self.kill(with_tasks=True)
        secrets = self.folder / "secrets"
        if secrets.is_symlink():
            shutil.rmtree(secrets.resolve())


@contextmanager
def three_nodes(
    network: Network, ports: Sequence[int], client: Client, folder: Path
) -> Iterator[dict[str, AgentProcess]]:
    """Agents of n1, n2 and n3, joined and started; nothing of them stays behind."""
    made: dict[str, AgentProcess] = {}
    try:
        for node in ("n1", "n2", "n3"):
            made[node] = AgentProcess(node, folder, network.link(node), ports)
            made[node].join(client)
            made[node].start()
        yield made
    finally:
        for agent in made.values():
            agent.end()
