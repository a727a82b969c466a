"""Two PostgreSQL servers, a primary and its synchronous standby, that take over from each other under a writer."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Final, Literal, TypeVar

import psycopg

from hack.kubernetes import guard
from hack.ports import free_ports
from hack.postgresql.server import USER, account_to_run_as, find_binaries, make_cluster, words_to_become
from hack.store_faults.disks import judge
from reconciler.store.store import open_store

T = TypeVar("T")
TakeOver = Literal["kill", "split"]
WITHIN_S: Final = 120
LOOK_EVERY_S: Final = 0.05
STANDBY: Final = "standby"


class NotSoError(Exception):
    """Something that should have come about did not."""


def until(what: str, seen: Callable[[], T]) -> T:
    """What is seen once it is something. Raises NotSoError."""
    deadline = time.monotonic() + WITHIN_S
    while not (found := seen()):
        if time.monotonic() > deadline:
            raise NotSoError(f"not within {WITHIN_S} s: {what}")
        time.sleep(LOOK_EVERY_S)
    return found


@dataclass
class Server:
    """One server with its folder."""

    folder: Path
    port: int
    password: str

    @property
    def data(self) -> Path:
        """Where its files are."""
        return self.folder / "data"

    def ask(self, query: str) -> list[tuple[object, ...]] | None:
        """What it answers; None: it does not."""
        where = f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/postgres?connect_timeout=2"
        try:
            with psycopg.connect(where, autocommit=True) as connection:
                return connection.execute(query).fetchall()
        except psycopg.Error:
            return None

    def signal(self, by: signal.Signals) -> None:
        """To all its processes; each has a session of its own."""
        first = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        for pid in (first, *_children(first)):
            try:
                os.kill(pid, by)
            except ProcessLookupError:
                continue


def _children(parent: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


@dataclass
class Pair:
    """Both servers. `promote` has the standby take over."""

    binaries: Path
    as_account: list[str]
    primary: Server
    standby: Server

    @property
    def url(self) -> str:
        """Of whichever can be written to."""
        hosts = "&".join(f"host=127.0.0.1:{each.port}" for each in (self.primary, self.standby))
        return f"postgresql://{USER}:{self.primary.password}@/postgres?{hosts}"

    def promote(self) -> None:
        """The standby is a primary, and waits for no other."""
        control = [*self.as_account, str(self.binaries / "pg_ctl"), "promote", "-D", str(self.standby.data)]
        subprocess.run(control, check=True, capture_output=True)
        until("the standby leads", lambda: self.standby.ask("SELECT 1 WHERE NOT pg_is_in_recovery()"))


@contextmanager
def pair(*, synchronous: bool = True) -> Iterator[Pair]:
    """A primary whose commits wait for its standby, if it is `synchronous`. Raises NoPostgresqlError, NotSoError."""
    binaries, password, account = find_binaries(), secrets.token_urlsafe(16), account_to_run_as()
    as_account = words_to_become(account)
    with ExitStack() as closing:
        ports = free_ports(2)
        folders = [Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="quorate-pair-"))) for _ in ports]
        for folder in folders:
            (folder / "password").write_text(password)
            if account is not None:
                for path in (folder, folder / "password"):
                    os.chown(path, account.pw_uid, account.pw_gid)
        first, second = (Server(folder, port, password) for folder, port in zip(folders, ports, strict=True))
        make_cluster(binaries, first.folder, as_account)
        with (first.data / "pg_hba.conf").open("a") as allowed:
            allowed.write(f"host replication {USER} 127.0.0.1/32 scram-sha-256\n")
        _start(closing, binaries, as_account, first)
        until("the primary answers", lambda: first.ask("SELECT 1"))
        source = f"host=127.0.0.1 port={first.port} user={USER} password={password} application_name={STANDBY}"
        copy = [*as_account, str(binaries / "pg_basebackup"), "-D", str(second.data), "-R", "-d", source, "-c", "fast"]
        subprocess.run(copy, check=True, cwd=second.folder, capture_output=True)
        _start(closing, binaries, as_account, second)
        follows = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"
        until("the standby follows", lambda: first.ask(follows))
        if synchronous:
            _have_commits_wait(first)
        yield Pair(binaries, as_account, first, second)


def _have_commits_wait(first: Server) -> None:
    first.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
    first.ask("SELECT pg_reload_conf()")
    synced = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
    until("the standby is synchronous", lambda: first.ask(synced))


def _start(closing: ExitStack, binaries: Path, as_account: list[str], server: Server) -> None:
    options = {"listen_addresses": "127.0.0.1", "port": str(server.port), "unix_socket_directories": str(server.folder)}
    # On the standby nothing but what it got counts: it waits for no other once it leads.
    more = {"fsync": "off", "wal_level": "replica", "max_connections": "50"}
    words = [word for name, value in (options | more).items() for word in ("-c", f"{name}={value}")]
    command = [*as_account, str(binaries / "postgres"), "-D", str(server.data), *words]
    guarded = guard.start({"postgres": command}, server.folder, signal.SIGKILL)
    closing.callback(guard.stop, guarded)


@dataclass
class Said:
    """A writer and the lines that it has said so far."""

    url: str
    run: str
    jobs: int
    lines: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None

    def start(self) -> Said:
        """Let it write."""
        command = [sys.executable, "-m", "hack.store_faults.writer", self.url, self.run, str(self.jobs)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        Thread(target=self._hear, daemon=True).start()
        return self

    def _hear(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.lines.extend(line.strip() for line in iter(self.process.stdout.readline, ""))

    def acknowledged(self) -> int:
        """How much of its work was."""
        return sum(line.startswith(("job ", "claim ", "event ", "done ")) for line in list(self.lines))


@dataclass(frozen=True, slots=True)
class TakeOverTrial:
    """What came of one. `late`: what the former primary acknowledged after the other led: nothing, if all is well."""

    seed: int
    kind: TakeOver
    acknowledged: int
    refused: int
    late: int
    problems: tuple[str, ...]


def take_over(seed: int, kind: TakeOver, *, synchronous: bool = True) -> TakeOverTrial:
    """A standby takes over at a drawn moment: the primary is killed, or stands still and goes on when it leads no more."""
    chance = random.Random(f"take over {seed} {kind}")
    with pair(synchronous=synchronous) as servers:
        open_store(servers.url).close()
        writer = Said(servers.url, "first", 40).start()
        least = chance.randrange(4, 60)
        until(f"{least} are acknowledged", lambda: writer.acknowledged() >= least)
        servers.primary.signal(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        servers.promote()
        late = 0
        if kind == "split":
            late = _goes_on(servers)
        process = writer.process
        code = until("the writer ends", lambda: [process.poll()] if process and process.poll() is not None else [])
        found = [] if code == [0] else [f"not back: the writer ended with {code[0]}: {writer.lines[-1]}"]
        after = f"postgresql://{USER}:{servers.standby.password}@127.0.0.1:{servers.standby.port}/postgres"
        problems = (*found, *judge(after, writer.lines), *(["acknowledged by a former primary"] if late else []))
        refused = sum(line.startswith("refused") for line in writer.lines)
        return TakeOverTrial(seed, kind, writer.acknowledged(), refused, late, problems)


def _goes_on(servers: Pair) -> int:
    """The former primary runs again: what a client writes there waits for the standby, and is never acknowledged."""
    servers.primary.signal(signal.SIGCONT)
    alone = f"postgresql://{USER}:{servers.primary.password}@127.0.0.1:{servers.primary.port}/postgres"
    stray = Said(alone, "stray", 1).start()
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    until("it waits for the standby", lambda: stray.acknowledged() or servers.primary.ask(waits))
    servers.primary.signal(signal.SIGKILL)
    if stray.process is not None:
        stray.process.kill()
        stray.process.wait()
    return stray.acknowledged()
