"""A real `quorate run` as a process of its own, on a real policy repository, spoken to through the client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, make_url

from reconciler.access.token_file import read_token
from reconciler.client import Client
from reconciler.protocols.history import Event
from reconciler.server.folder import StateFolder
from reconciler.store.engines import postgresql_url
from reconciler.store.store import open_store
from solver.model.quantities import Cpu, Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from tests.contracts.stores import postgresql_schema

PATIENCE_S = 180
QUORATE = ("-m", "reconciler.cli.main")
POLICY = {
    "policies/queue.yaml": "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: team}\nspec: {}\n",
    "cluster-state/pool.yaml": (
        "apiVersion: quorate.dev/v1\nkind: NodePool\nmetadata: {name: pool}\n"
        "spec: {gpuType: H100, gpusPerNode: 4, cpu: 64, memory: 64Gi, nodes: {prefix: n, count: 2}}\n"
    ),
}


def until(what: str, reached: Callable[[], object]) -> None:
    """Wait for something; generous, because machines are slow and busy."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"never came about: {what}"
        time.sleep(0.02)


class ControlPlane:
    """One state folder and one repository, by its path or URL; `start` it as often as you like.

    `program`: what Python runs, QUORATE unless stated.
    """

    def __init__(self, repository: Path | str, state: Path, program: Sequence[str] = ()) -> None:
        self.folder = StateFolder(state)
        self._log = state.with_suffix(".log")
        self._command = [
            *(sys.executable, *(program or QUORATE), "run", "--policies-repo", str(repository)),
            *("--state", str(state), "--listen", "127.0.0.1:0", "--poll", "50ms"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> ControlPlane:
        """Start it and wait until it listens."""
        self.spawn(*options)
        until("it listens", lambda: self._ended() or self.logged("listening"))
        assert not self._ended(), self.log()
        return self

    def spawn(self, *options: str) -> None:
        """Start it, and don't wait."""
        self._log.unlink(missing_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*self._command, *options], stdout=log, stderr=log)

    @property
    def agents_port(self) -> int:
        """Where it listens for agents."""
        found: int = self.logged("listening-for-agents")[-1]["port"]
        return found

    def client(self) -> Client:
        """Close it after use."""
        return Client(self.logged("listening")[-1]["url"], read_token(self.folder.token))

    def until_ready(self) -> None:
        """Wait until it decides rounds."""
        with self.client() as client:
            until("the policy is in force", lambda: client.status().last_applied_revision)
            until("it leads", lambda: leads(client))

    def signal(self, number: signal.Signals) -> int:
        """Send a signal; returns the exit code it ends with."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait for it to end."""
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return self._log.read_text()

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log's lines about one kind of event; a line under way is left out."""
        lines = [line for line in self.log().splitlines(keepends=True) if line.endswith("}\n")]
        return [entry for entry in map(json.loads, lines) if entry["event"] == event]

    def events(self, subject: str) -> list[Event]:
        store = open_store(self.folder.database)
        try:
            return list(store.history.events(subject))
        finally:
            store.close()

    def end(self) -> None:
        """After a test: nothing of it stays behind, tasks included."""
        if self._process is not None and not self._ended():
            self._process.kill()
            self._process.wait()
        until("nothing of it runs", lambda: not killed(str(self.folder.tasks)))

    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None


def leads(client: Client) -> bool:
    return any(each.type == "Leading" and each.status for each in client.status().conditions)


def sh(script: str, tasks: int = 1, gpus: int = 1) -> JobSpec:
    """A gang that runs a shell script."""
    shape = Shape(gpus=gpus, cpu=Cpu(1), memory=Memory(2**26))
    return JobSpec(QueueName("team"), (TaskGroup("worker", tasks, shape),), command=("sh", "-c", script))


def submit(client: Client, names: Sequence[str], spec: JobSpec) -> None:
    for name in names:
        client.submit(JobName(name), spec, idempotency_key=name)


def processes_that_mention(text: str) -> list[int]:
    """Those with this in their command line or environment, but for the one that asks."""
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _mentions(pid, text.encode())]


def killed(text: str) -> list[int]:
    """Those that mention it have been told to end; the next look finds who has not yet, and who began meanwhile."""
    found = processes_that_mention(text)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _mentions(pid: int, text: bytes) -> bool:
    process = Path(f"/proc/{pid}")
    try:
        return pid != os.getpid() and text in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    except OSError:
        return False  # it has ended, or is somebody else's


@contextmanager
def in_postgresql(folder: Path) -> Iterator[tuple[list[str], Engine]]:
    """A fresh schema: the options of `quorate` that name it as the store, and a way into it for whoever judges."""
    with postgresql_schema() as store:
        url, password, engine = make_url(store), folder / "password", create_engine(postgresql_url(store))
        password.touch(mode=0o600)
        password.write_text(str(url.password))
        named = url._replace(password=None).render_as_string()
        yield ["--store", named, "--store-password-file", str(password)], engine
        engine.dispose()
