"""The server's process: a control plane's door for agents on one core, which says what it has heard and what that took."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection

import structlog

from hack.heartbeats.figures import Served
from hack.heartbeats.stamps import Stamps
from hack.heartbeats.world import HOST, Case, authority, number_of
from reconciler.backends.baremetal.agent_server import AgentServer
from reconciler.backends.baremetal.enrolment import Enrolment
from reconciler.backends.baremetal.entry import Entry
from reconciler.backends.baremetal.fleet import Fleet
from reconciler.backends.baremetal.full_collections import only_when_asked
from reconciler.model.clock import SystemClock
from solver.model.cluster import NodeName

WORK = "work"
"""Asks the server to begin to compute beside, and what was served until then."""


class Work:
    """A thread that never waits, as the loop's does in a round. Of the interpreter's lock it leaves what others ask for."""

    def __init__(self) -> None:
        self.cpu_s = 0.0

    def begin(self) -> None:
        """From now on."""
        threading.Thread(target=self._go_on, daemon=True).start()

    def _go_on(self) -> None:
        while True:
            sum(number % 7 for number in range(10_000))
            self.cpu_s = time.thread_time()


class Counting(Fleet):
    """What the door tells of agents; of beats, also how late they were."""

    def __init__(self, stamps: Stamps, work: Work) -> None:
        super().__init__(SystemClock())
        self._stamps = stamps
        self._work = work
        self._latencies_ms: list[float] = []
        self._served_from = self._meters()

    def heard(self, node: NodeName) -> None:
        """A message has been taken in: a beat, once the agent has begun to beat."""
        super().heard(node)
        sent_ns = self._stamps.last_ns(number_of(node))
        if sent_ns:
            self._latencies_ms.append((time.monotonic_ns() - sent_ns) / 1e6)

    def served(self) -> Served:
        """What there was since it was asked last."""
        since, self._served_from = self._served_from, self._meters()
        latencies, self._latencies_ms = self._latencies_ms, []
        wall_s, cpu_s, work_s = (now - then for now, then in zip(self._served_from, since, strict=True))
        return Served(len(latencies), wall_s, cpu_s - work_s, work_s, _rss_kb(), latencies)

    def _meters(self) -> tuple[float, float, float]:
        return time.monotonic(), time.process_time(), self._work.cpu_s


def listen(case: Case, told: Connection, core: int) -> None:
    """Serve until it is told to stop; each time it is asked, say what was served since."""
    os.sched_setaffinity(0, {core})
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    trust, store = authority(case)
    entry = Entry(trust, Enrolment(trust, store.agents, store.history, SystemClock()))
    with Stamps(case.stamps, case.agents) as stamps, suppress(KeyboardInterrupt):
        work = Work()
        fleet = Counting(stamps, work)
        door = AgentServer((HOST, 0), entry, fleet, lambda _: None, lambda: True, lambda: None, structlog.get_logger())
        only_when_asked()
        told.send(door.open())
        while asked := told.recv():
            if asked == WORK:
                work.begin()
            told.send(fleet.served())
        door.close()
    store.close()


def _rss_kb() -> int:
    """Memory of this process now (proc(5), /proc/self/status)."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
