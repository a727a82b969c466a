"""One drill: two control planes under load, of which the leader is killed or held up, again and again."""

from __future__ import annotations

import random
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Final

from sqlalchemy import create_engine, text

from hack.failover.audit import Audit, Led
from hack.failover.load import gang, lives, violations
from hack.failover.planes import Plane, kill_tasks, make_policy
from hack.postgresql.server import USER, PrivateServer
from reconciler.model.clock import SystemClock
from reconciler.store.engines import postgresql_url
from reconciler.store.store import SqlStore, open_store

WITHIN_S: Final = 90
LIVE_MAX: Final = 10
"""Of jobs: more than fit on eight GPUs, so that every takeover meets some that run, some that start and some that wait."""


STOPS_MAX: Final = 100
"""Tries to hold up the leader between its record of a round and what it does about it."""


class StuckError(Exception):
    """Something that should have come about did not."""


@dataclass
class Drill:
    """`elected_s` and `acted_s`: from each blow until another led, and until it first wrote something of a round."""

    kills: int = 0
    pauses: int = 0
    cuts: int = 0
    jobs: int = 0
    elected_s: list[float] = field(default_factory=list)
    acted_s: list[float] = field(default_factory=list)
    stale_refused: int = 0
    writes: int = 0
    violations: list[str] = field(default_factory=list)


def drill(
    server: PrivateServer,
    kills: int,
    pauses: int,
    cuts: int = 0,
    seed: int = 0,
    program: tuple[str, ...] = Plane.program,
    tell: Callable[[str], None] = lambda _: None,
) -> Drill:
    """Strike the leader so often, in an order drawn from the seed; then let everything end, and judge. Raises StuckError."""
    with (
        tempfile.TemporaryDirectory(prefix="quorate-failover-") as made,
        site_of(server, Path(made), program, seed) as site,
    ):
        blows = ["kill"] * kills + ["pause"] * pauses + ["cut"] * cuts
        site.chance.shuffle(blows)
        site.start_load()
        for blow in blows:
            tell(blow)
            {"kill": site.kill, "pause": site.pause, "cut": site.cut}[blow]()
        site.to_the_end()
        return site.done


@dataclass
class Site:
    """What a drill is about."""

    folder: Path
    store: SqlStore
    audit: Audit
    planes: dict[str, Plane]
    chance: random.Random
    done: Drill = field(default_factory=Drill)
    _over: Event = field(default_factory=Event)
    _load: Thread | None = None

    def start_load(self) -> None:
        """From here on jobs are submitted."""
        self._load = Thread(target=self._submit_until_over, name="load", daemon=True)
        self._load.start()

    def stop_load(self) -> None:
        """No more jobs."""
        self._over.set()
        if self._load is not None:
            self._load.join()

    def _submit_until_over(self) -> None:
        """Keep the cluster full. Users speak to the store, whoever leads."""
        clock = SystemClock()
        while not self._over.wait(0.1):
            for _ in range(len(self.store.jobs.live_jobs()), LIVE_MAX):
                name, spec = gang(self.done.jobs, self.folder / "trace")
                self.store.jobs.submit(name, spec, "ada", clock.now(), name)
                self.done.jobs += 1

    def kill(self) -> None:
        """SIGKILL for the leader; it starts again once another leads."""
        led = self._leader_at_work()
        self._strike(led, signal.SIGKILL)
        self.done.kills += 1
        self.planes[led.who].wait()
        self.planes[led.who].start()
        until("it is there again", self.planes[led.who].is_up)

    def pause(self) -> None:
        """SIGSTOP for the leader, in the middle of its writes; it wakes up once another leads and acts."""
        led = self._leader_at_work()
        plane = self.planes[led.who]
        for _ in range(STOPS_MAX):
            plane.send(signal.SIGSTOP)
            time.sleep(0.05)
            if self.audit.last_write() == "INSERT rounds":
                break  # it has recorded what it is about to do, and done nothing of it
            plane.send(signal.SIGCONT)
            written = self.audit.writes()
            until("it writes", lambda before=written: self.audit.writes() > before, every_s=0.0)  # type: ignore[misc]
        self._strike(led, signal.SIGSTOP)
        self.done.pauses += 1
        said = plane.log.read_bytes().count(b"standing-by")
        plane.send(signal.SIGCONT)
        until("it knows that it does not lead", lambda: plane.log.read_bytes().count(b"standing-by") > said)

    def cut(self) -> None:
        """Every connection of the leader is lost in the middle of its writes, of which it can't know which were committed."""
        led = self._leader_at_work()
        self.audit.cut_off(led.who)
        self.done.cuts += 1
        written = self.audit.writes()
        until("somebody writes again", lambda: self.audit.writes() > written)

    def to_the_end(self) -> None:
        """All jobs end; the planes stop in order."""
        self.stop_load()
        until("every job has ended", lambda: not self.store.jobs.live_jobs() and not self.store.ledger.claims())
        for plane in self.planes.values():
            plane.send(signal.SIGTERM)
        for plane in self.planes.values():
            plane.wait()
            if plane.ended() != 0:
                self.done.violations.append(
                    f"{plane.name} ended with {plane.ended()}: {plane.log.read_text()[-2_000:]}"
                )
        self.done.stale_refused = sum(plane.log.read_text().count(" is over; epoch ") for plane in self.planes.values())
        self.done.writes = self.audit.writes()
        self.done.violations += self.audit.stale_writes()
        records = self.store.jobs.jobs(limit=100_000)
        self.done.violations += violations(lives(self.folder / "trace"), records)
        if len(records) != self.done.jobs:
            self.done.violations.append(f"lost: {self.done.jobs} jobs were accepted, {len(records)} are known")

    def _leader_at_work(self) -> Led:
        """Who leads, just after it wrote something: in the middle of a pass."""
        until("somebody leads", lambda: self.audit.leads() is not None)
        led = self.audit.leads()
        if led is None:
            raise StuckError("nobody leads")
        until("it acts", lambda: self.audit.first_deed_s(led.epoch) is not None)
        time.sleep(self.chance.uniform(1, 5))
        written = self.audit.writes()
        until("it writes", lambda: self.audit.writes() > written, every_s=0.0)
        return led

    def _strike(self, led: Led, number: signal.Signals) -> None:
        self.planes[led.who].send(number)
        struck_s = self.audit.now_s()

        def newest() -> Led:
            found = self.audit.leads()
            return led if found is None else found

        until("another leads", lambda: newest().epoch > led.epoch)
        after = newest()
        until("it acts", lambda: self.audit.first_deed_s(after.epoch) is not None)
        self.done.elected_s.append(after.at_s - struck_s)
        self.done.acted_s.append((self.audit.first_deed_s(after.epoch) or after.at_s) - struck_s)


@contextmanager
def site_of(
    server: PrivateServer, folder: Path, program: tuple[str, ...] = Plane.program, seed: int = 0
) -> Iterator[Site]:
    """Two control planes that run, without load yet; nothing of it is left afterwards, tasks included."""
    passwords = folder / "passwords"
    passwords.touch(mode=0o600)
    passwords.write_text(f"{server.host}:{server.port}:*:{USER}:{server.password}\n")
    policy = make_policy(folder / "policy")
    database = _new_database(server)
    url = f"postgresql://{USER}@{server.host}:{server.port}/{database}"
    store = open_store(server.url(database))
    planes = {name: Plane(name, folder, policy, url, passwords, program) for name in ("a", "b")}
    site = Site(folder, store, Audit(store.database.engine), planes, random.Random(seed))
    try:
        for plane in planes.values():
            plane.start()
        until("both are there", lambda: all(plane.is_up() for plane in planes.values()))
        yield site
    finally:
        site.stop_load()
        for plane in planes.values():
            plane.send(signal.SIGKILL)
            plane.wait()
        kill_tasks(folder / "tasks")
        store.close()


def _new_database(server: PrivateServer) -> str:
    """Of this drill alone. It goes with its server."""
    engine = create_engine(postgresql_url(server.url()), isolation_level="AUTOCOMMIT")
    name = f"drill_{secrets.token_hex(8)}"
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return name


def until(what: str, reached: Callable[[], object], every_s: float = 0.01) -> None:
    """Wait for something; generous, because machines are slow and busy. Raises StuckError."""
    deadline = time.monotonic() + WITHIN_S
    while not reached():
        if time.monotonic() > deadline:
            raise StuckError(f"it never came about that {what}")
        time.sleep(every_s)
