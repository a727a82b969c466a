"""Supervisors under the conformance suite: real processes, and those that `python -m hack.agents` plays in virtual time."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol
from unittest import mock

from hack.agents.supervisors import NO_PROCESS, STUBBORN, PlayedSupervisors
from hack.agents.virtual_time import LoopClock, VirtualLoop
from hack.crash.clocks import SteppedClock
from reconciler.backends.simulated.cluster import Interval
from reconciler.node.local import supervisors
from reconciler.node.local.attempts import Accepted
from reconciler.node.local.runtimes import Runtimes
from reconciler.node.local.supervisors import Supervisors
from reconciler.node.local.terms import Terms
from reconciler.protocols.backend import GrowGang, StartGang
from solver.model.quantities import Instant
from solver.model.workload import TaskPlacement
from tests.contracts.backend_world import Command
from tests.contracts.played_commands import PlayedCommands

SETTLES_MAX = 1_500
_REAL_SPAWN = supervisors._spawn


class SupervisorWorld(Protocol):
    """A machine on which supervisors begin as an agent begins them, and commands for their tasks.

    Register an implementation in WORLDS.
    """

    idle_s: float
    """How long a task must do nothing before the suite believes that it is idle."""

    def spawn(self, folder: Path) -> None:
        """One more supervisor for a task's folder."""

    def settle(self) -> None:
        """Let a little time pass, real or virtual."""

    def now(self) -> Instant:
        """As the supervisors have it."""

    def power_fails(self) -> None:
        """All processes are gone at once."""

    def starts(self, folder: Path) -> int:
        """How often the command of a task really began."""

    def alive(self) -> int:
        """How many supervisors there are."""

    def succeeds(self) -> Command:
        """Soon ends with exit code 0."""

    def fails(self, exit_code: int) -> Command:
        """Soon ends with this exit code."""

    def runs(self) -> Command:
        """Runs until it is asked to end."""

    def stubborn(self) -> Command:
        """Runs until it is killed."""

    def hogs(self) -> Command:
        """Runs until it is asked to end, with more than 64Mi of memory."""


class RealSupervisors:
    """Implements SupervisorWorld. Commands sign in their folder; each line is a start."""

    idle_s = 0.5

    def __init__(self, folder: Path) -> None:
        self._pids: set[int] = set()

    def spawn(self, folder: Path) -> None:
        self._pids.add(_REAL_SPAWN(folder))

    def settle(self) -> None:
        time.sleep(0.02)

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1_000_000)

    def power_fails(self) -> None:
        """The supervisors first: whatever they saw of it they would write down."""
        running = [child for pid in self._alive() for child in _children(pid)]
        for pid in (*self._alive(), *running):
            os.kill(pid, signal.SIGKILL)
        wait_for(self, lambda: not self.alive())

    def starts(self, folder: Path) -> int:
        signed = folder / "work" / "signed"
        return signed.read_text().count("\n") if signed.exists() else 0

    def alive(self) -> int:
        return len(self._alive())

    def succeeds(self) -> Command:
        return self._shell("exit 0")

    def fails(self, exit_code: int) -> Command:
        return self._shell(f"exit {exit_code}")

    def runs(self) -> Command:
        return self._shell("exec sleep 600")

    def stubborn(self) -> Command:
        return ("sh", "-c", "trap '' TERM; echo >> signed; while :; do sleep 0.1; done")

    def hogs(self) -> Command:
        return self._shell("exec python3 -S -c 'memory = bytearray(100 * 2**20); import time; time.sleep(600)'")

    def _shell(self, script: str) -> Command:
        return ("sh", "-c", f"echo >> signed; {script}")

    def _alive(self) -> set[int]:
        self._pids -= {pid for pid in self._pids if os.waitpid(pid, os.WNOHANG)[0] == pid}
        return self._pids


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class PlayedWorldOfSupervisors(PlayedCommands):
    """Implements SupervisorWorld."""

    idle_s = 30.0

    def __init__(self, closing: ExitStack) -> None:
        self._loop = VirtualLoop()
        closing.callback(self._loop.close)
        self._clock = SteppedClock(LoopClock(self._loop))
        self._ran: list[Interval] = []
        self.played = PlayedSupervisors(self._loop, self._clock, random.Random(7), self._ran)

    def spawn(self, folder: Path) -> None:
        self.played.spawn(folder)

    def settle(self) -> None:
        self._loop.let_pass(0.25)

    def now(self) -> Instant:
        return self._clock.now()

    def power_fails(self) -> None:
        self.played.end_all()

    def starts(self, folder: Path) -> int:
        group, _, index = folder.name.partition(".")
        index, _, growth = index.partition(".")
        return sum((ran.group, ran.index, ran.growth) == (group, int(index), int(growth or 0)) for ran in self._ran)

    def alive(self) -> int:
        return self.played.alive

    def stubborn(self) -> Command:
        return (STUBBORN,)


@contextmanager
def real_supervisors(folder: Path) -> Iterator[RealSupervisors]:
    """Nothing is left running at the end."""
    world = RealSupervisors(folder)
    try:
        yield world
    finally:
        world.power_fails()


@contextmanager
def played_supervisors(folder: Path) -> Iterator[PlayedWorldOfSupervisors]:
    """Nothing goes on at the end."""
    with ExitStack() as closing:
        closing.enter_context(mock.patch.object(os, "fsync", return_value=None))
        world = PlayedWorldOfSupervisors(closing)
        yield world
        world.power_fails()
        assert world.played.broken == []


def wait_for(world: SupervisorWorld, reached: Callable[[], bool]) -> None:
    """Let time pass until something is so; fails after SETTLES_MAX."""
    for _ in range(SETTLES_MAX):
        if reached():
            return
        world.settle()
    raise AssertionError("never came about")


def begin(
    world: SupervisorWorld, attempt: Path, order: StartGang | GrowGang, tasks: Collection[TaskPlacement] = ()
) -> list[Path]:
    """Let an agent begin the tasks of an order, or some of them; their folders, by rank."""
    attempt.mkdir(parents=True, exist_ok=True)
    devices = [device for task in order.tasks for device in task.devices]
    accepted = Accepted(order, world.now(), 29_500, {device: number for number, device in enumerate(devices)})
    begun: list[Path] = []

    def spawn(folder: Path) -> int:
        begun.append(folder)
        world.spawn(folder)
        return NO_PROCESS

    with mock.patch.object(supervisors, "_spawn", spawn):
        Supervisors(Terms(), Runtimes(), None).start_tasks(attempt, accepted, tasks or order.tasks, {})
    return begun
