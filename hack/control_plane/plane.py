"""One `quorate run` over the simulated backend, as a process: to be started and asked; what it ordered, and what it cost."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from sqlalchemy import make_url

from hack.memory import peak_mb
from reconciler.access.token_file import read_token
from reconciler.server.folder import StateFolder
from reconciler.supervisor.processes import read_of

LOOK_EVERY_S: Final = 0.02
READY_EVERY_S: Final = 0.1
"""Each question takes CPU time of what begins."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PASSES: Final = re.compile(r'^quorate_round_phase_seconds_count\{phase="(sight|solve)"\} (\S+)$', re.MULTILINE)


_DECIDED: Final = re.compile(r'^quorate_(?:arrivals|ends)_total\{decided="(\w+)"\} (\S+)$', re.MULTILINE)


class PlaneFailedError(Exception):
    """The process ended, or did not get to where it was waited for."""


class RefusedError(PlaneFailedError):
    """It answered, and not with 200. `status`: of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Ordered(NamedTuple):
    """An order that arrived at the cluster: when, by the monotonic clock, and which."""

    at_s: float
    kind: str
    job: str


@dataclass
class SimulatedPlane:
    """`folder`: of the state, the log and the orders. `store`: a PostgreSQL database; None: SQLite. `more`: options of `run`."""

    folder: Path
    policy: Path
    store: str | None = None
    more: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] | None = field(default=None)
    _read: int = 0
    _orders: list[Ordered] = field(default_factory=list)

    @property
    def state(self) -> StateFolder:
        """What it must not lose."""
        return StateFolder(self.folder / "state")

    def start(self, limit_s: float) -> float:
        """Start it; seconds until it leads and has decided a round. Raises PlaneFailedError."""
        listened, began_s = self._said(), time.monotonic()
        shared = self._shared(self.store) if self.store else ()
        command = [
            *(sys.executable, "-m", "hack.control_plane.simulated", str(self._orders_file), "run"),
            *("--policies-repo", str(self.policy), "--poll", "5s", "--listen", "127.0.0.1:0"),
            *("--state", str(self.state.path), *shared, *self.more),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self.until("it listens", lambda: self._said() > listened, limit_s)
        self.until("it has decided a round", self._is_ready, limit_s, READY_EVERY_S)
        return time.monotonic() - began_s

    def stop(self) -> None:
        """Tell it to end, and wait until it has."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def until(self, what: str, reached: Callable[[], object], limit_s: float, every_s: float = LOOK_EVERY_S) -> None:
        """Wait for something. Raises PlaneFailedError where the process ends, or it does not come about in time."""
        deadline_s = time.monotonic() + limit_s
        while not reached():
            if self._process is None or self._process.poll() is not None:
                raise PlaneFailedError(f"the control plane ended: {self._log.read_text()[-2_000:]}")
            if time.monotonic() > deadline_s:
                raise PlaneFailedError(f"it did not come about in {limit_s:g} s that {what}")
            time.sleep(every_s)

    def caller(self) -> Caller:
        """A connection of its own."""
        return Caller(self.url, read_token(self.state.token) or "")

    @property
    def url(self) -> str:
        """Where it listens."""
        said = [line for line in self._log.read_text().splitlines() if '"listening"' in line]
        return str(json.loads(said[-1])["url"])

    @property
    def is_alive(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    def ordered(self) -> list[Ordered]:
        """All orders so far."""
        if self._orders_file.exists():
            with self._orders_file.open(encoding="utf-8") as file:
                file.seek(self._read)
                for line in file.read().splitlines(keepends=True):
                    if line.endswith("\n"):
                        self._read += len(line.encode())
                        at_ns, kind, job = line.split()
                        self._orders.append(Ordered(int(at_ns) / 1e9, kind, job))
        return self._orders

    def passes(self) -> dict[str, int]:
        """How many passes it has taken (`sight`), and rounds decided (`solve`)."""
        text = self.caller().get("/metrics").decode()
        return {"sight": 0, "solve": 0} | {name: int(float(count)) for name, count in _PASSES.findall(text)}

    def decided(self) -> Counter[str]:
        """How many jobs that came, and gangs that ended, were decided alone (`narrow`), or left to rounds (`complete`)."""
        found, text = Counter(narrow=0, complete=0), self.caller().get("/metrics").decode()
        for name, count in _DECIDED.findall(text):
            found[name] += int(float(count))
        return found

    def cpu_s(self) -> float:
        """CPU seconds of its processes so far."""
        return sum(_cpu_s(pid) for pid in self._pids())

    def peak_mb(self) -> int:
        """The most memory that each of its processes had, added up."""
        return peak_mb(*self._pids())

    def _pids(self) -> list[int]:
        if self._process is None:
            return []
        return list(_family(self._process.pid))

    def _shared(self, store: str) -> tuple[str, ...]:
        """The options of a PostgreSQL database; a password in its URL is handed over in a file, as the process wants it."""
        url, passwords = make_url(store), self.folder / "password"
        passwords.touch(mode=0o600)
        passwords.write_text(str(url.password or "none"))
        named = url._replace(password=None).render_as_string()
        return "--store", named, "--store-password-file", str(passwords), "--tasks", str(self.folder / "tasks")

    def _is_ready(self) -> bool:
        try:
            self.caller().get("/readyz")
        except (PlaneFailedError, OSError):
            return False
        return True

    def _said(self) -> int:
        return self._log.read_bytes().count(b'"listening"') if self._log.exists() else 0

    @property
    def _log(self) -> Path:
        return self.folder / "plane.log"

    @property
    def _orders_file(self) -> Path:
        return self.folder / "orders"


class Caller:
    """Asks the API, on a new connection each time. Every call raises PlaneFailedError for what is no success."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def get(self, path: str) -> bytes:
        """What is there."""
        return self._call("GET", path, None)

    def post(self, path: str, document: object = None) -> bytes:
        """Send a document."""
        return self._call("POST", path, None if document is None else json.dumps(document).encode())

    def _call(self, method: str, path: str, body: bytes | None) -> bytes:
        where = urlsplit(self.url)
        with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=600)) as connection:
            connection.request(method, path, body, {**self.headers, "Connection": "close"})
            answer = connection.getresponse()
            said = answer.read()
        if answer.status != http.client.OK:
            raise RefusedError(f"{method} {path}: {answer.status} {said.decode(errors='replace')[:300]}", answer.status)
        return said


def _family(pid: int) -> Iterator[int]:
    """A process and all that it and its children have begun, each of which any of its threads may have."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in read_of(pid, str(children.relative_to(f"/proc/{pid}"))).split():
            yield from _family(int(child))


def _cpu_s(pid: int) -> float:
    """utime and stime of proc(5); 0 of one that has ended."""
    fields = read_of(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def job_document(name: str, spec: Any, **more: Any) -> dict[str, Any]:
    """A Job as users write it."""
    return {"apiVersion": "quorate.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": {**spec, **more}}
