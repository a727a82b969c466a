"""Supervisors of tasks, and the tasks themselves, played in virtual time: they read and write what real ones do, in their order.

What a command does is what the simulated backend makes of it. Beside those, `stubborn` ends only when it is killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from hack.agents.virtual_time import VirtualLoop
from hack.crash.clocks import SteppedClock
from reconciler.backends.simulated.behaviour import Behaviour, behaviour_of
from reconciler.backends.simulated.cluster import Interval, Telling
from reconciler.protocols.backend import TaskState
from reconciler.supervisor import taskfiles
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName

POLL_S: Final = 0.4
BEGINS_S: Final = (0.05, 3.0)
"""How long a supervisor takes until its command runs, on a machine that has other things to do."""
OBEYS_WITHIN_S: Final = 10.0
STUBBORN: Final = "stubborn"
"""A command that does not obey: it ends when its grace is over."""
STOPPED_CODE, KILLED_CODE = 143, 137
"""As after SIGTERM and SIGKILL."""
_MEASURED_AFTER: Final = Duration(1_000)
NO_PROCESS: Final = 2**30
"""A pid that Linux gives to none (proc(5), pid_max)."""


class PlayedTask(msgspec.Struct, frozen=True, rename="camel"):
    """What `task.json` says, as far as it is played; a task that has more is refused."""

    command: tuple[str, ...]
    environment: dict[str, str]
    after: tuple[str, ...]
    growth: int
    memory_limit: int
    look_every_s: float | None
    terminal: bool
    refused: str
    secrets: tuple[Any, ...]
    container: Any
    account: Any

    def interval(self, begin: Instant) -> Interval:
        """That it runs."""
        of = self.environment
        name = JobName(of["QUORATE_JOB"]), int(of["QUORATE_ATTEMPT"]), of["QUORATE_GROUP"], int(of["QUORATE_INDEX"])
        devices = tuple(map(DeviceId, filter(None, of["QUORATE_DEVICES"].split(","))))
        return Interval(*name, NodeName(of["QUORATE_NODE"]), devices, begin, growth=self.growth)

    def require_played(self) -> None:
        """Raises AssertionError for what only real supervisors do."""
        beyond = self.terminal, self.refused, self.secrets, self.container, self.account
        assert not any(beyond), f"no supervisor that is played gives a task this: {self}"


@dataclass
class PlayedSupervisors:
    """Those of one machine. `ran` and `heard` outlive its reboots, and are what judges see."""

    loop: VirtualLoop
    clock: SteppedClock
    chance: random.Random
    ran: list[Interval]
    heard: list[Telling] = field(default_factory=list)
    environments: dict[tuple[JobName, int, str, int], dict[str, str]] = field(default_factory=dict)
    """Of the newest life of each task that began."""
    forgotten: list[tuple[Instant, Instant]] = field(default_factory=list)
    """Spans that a disk which was put in place of another does not know of."""
    broken: list[str] = field(default_factory=list)
    """What none of them should have met."""
    _alive: dict[PlayedSupervisor, asyncio.Task[None]] = field(default_factory=dict)

    def spawn(self, folder: Path) -> None:
        """One more process; where the folder has a supervisor, it will see that and end."""
        supervisor = PlayedSupervisor(self, folder)
        self._alive[supervisor] = self.loop.create_task(self._play(supervisor))

    def end_all(self) -> None:
        """The power fails: nothing is written any more."""
        for supervisor, playing in self._alive.items():
            playing.cancel()
            supervisor.vanish()
        self._alive.clear()

    @property
    def alive(self) -> int:
        """How many there are."""
        return len(self._alive)

    async def _play(self, supervisor: PlayedSupervisor) -> None:
        try:
            await supervisor.main()
        except FileNotFoundError:
            pass  # The folder is gone: it will never be asked for.
        except Exception as error:  # noqa: BLE001  (whatever it is, a real one would not have ended by it)
            self.broken.append(f"a supervisor that is played ended by {type(error).__name__}: {error}")
        supervisor.vanish()
        self._alive.pop(supervisor, None)


@dataclass(eq=False)
class PlayedSupervisor:
    """One process, which works in its folder as the real one does: it stays in it when the folder is moved."""

    machine: PlayedSupervisors
    folder: Path
    _handles: list[int] = field(default_factory=list)
    _number: int | None = None
    """Of the interval in which its command runs."""
    _told: int = 0

    def __post_init__(self) -> None:
        inside = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        self._handles.append(inside)
        self.folder = Path(f"/proc/self/fd/{inside}")

    def vanish(self) -> None:
        """The process ends, whatever it was at, and with it its lock."""
        self._note_end("lost", None)
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()

    async def main(self) -> None:
        """From its beginning to its end."""
        await self._rest()
        if not await self._take_lock() or self._exists(taskfiles.STARTED, taskfiles.STOP, taskfiles.LEAVE):
            return
        task = msgspec.json.decode((self.folder / taskfiles.TASK).read_bytes(), type=PlayedTask)
        task.require_played()
        if not await self._others_run(task):
            return
        await self._rest()
        began = self.machine.clock.true.now()
        run = PlayedRun(task, behaviour_of(task.command), began)
        self._look(run, began)
        interval = task.interval(began)
        self._number = len(self.machine.ran)
        self.machine.ran.append(interval)
        self.machine.environments[interval.job, interval.attempt, interval.group, interval.index] = task.environment
        self._write(taskfiles.STARTED, {"pid": NO_PROCESS, "startTicks": 1, "at": int(self.machine.clock.now())})
        code = await self._supervise(run)
        lost = self._why_lost() if run.stopped else ""
        self._note_end("lost" if lost else "stopped" if run.stopped else "failed" if code else "succeeded", code)
        ended = {"code": code, "stopped": run.stopped, "lost": lost}
        # Before the lock is let go: with neither it nor this, the task would count as lost.
        self._write(taskfiles.EXIT, {**ended, "at": int(self.machine.clock.now()), "memory": run.measured})

    async def _take_lock(self) -> bool:
        """False: another one has the task."""
        lock = os.open(self.folder / taskfiles.LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        self._handles.append(lock)
        while not self._exists(taskfiles.STARTED):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(POLL_S)
            else:
                return True
        return False

    async def _others_run(self, task: PlayedTask) -> bool:
        while not all((self.folder / ".." / other / taskfiles.STARTED).exists() for other in task.after):
            if self._exists(taskfiles.STOP, taskfiles.LEAVE):
                return False
            await asyncio.sleep(POLL_S)
        return True

    async def _supervise(self, run: PlayedRun) -> int:
        """Until the command has ended; its exit code."""
        unseen = [taskfiles.ABORT, taskfiles.LEAVE, taskfiles.STOP]
        while True:
            now = self.machine.clock.true.now()
            code = run.ended(now)
            if code is not None:
                return code
            self._look(run, now)
            self._tell(run, now)
            self._say_progress(run, now)
            if run.measure(now):
                self._write(taskfiles.MEMORY, run.measured)
            for told in [each for each in unseen if self._exists(each)]:
                unseen.remove(told)
                grace_s = float(self._read(told)["graceS"])
                obeys_s = self.machine.chance.uniform(0, min(grace_s, OBEYS_WITHIN_S))
                run.stop(now, Duration(int(grace_s * 1_000)), Duration(int(obeys_s * 1_000)))
            await asyncio.sleep(POLL_S)

    def _look(self, run: PlayedRun, now: Instant) -> None:
        every_s = run.task.look_every_s
        if every_s is None or now < run.next_look:
            return
        since = {"idleMs": run.behaviour.active_at(run.began, now), "typedIdleMs": run.began, "logIdleMs": run.began}
        seen = {name: now - at for name, at in since.items()}
        run.next_look = now.after(int(every_s * 1_000))
        self._write(taskfiles.ACTIVITY, {**seen, "seenAt": int(self.machine.clock.now())})

    def _tell(self, run: PlayedRun, now: Instant) -> None:
        before = self._told
        for tell in self._news(run.task.growth):
            if tell["reason"] != "dump":
                self._write(taskfiles.REQUEST, {name: tell[name] for name in ("number", "reason", "until")})
            self._told = tell["number"]
            ran = run.task.interval(run.began)
            self.machine.heard.append(Telling(ran.job, ran.attempt, ran.group, ran.index, ran.growth, self._told, now))
        if self._told != before:
            self._write(taskfiles.TOLD, self._told)

    def _news(self, growth: int) -> Iterator[dict[str, Any]]:
        if self._exists(taskfiles.TELLS):
            tells = self._read(taskfiles.TELLS)["tells"]
            yield from (tell for tell in tells if tell["number"] > self._told and growth <= tell["growth"])

    def _say_progress(self, run: PlayedRun, now: Instant) -> None:
        """This is the task's own doing, with the time of its file."""
        step = run.step(now)
        if step is None or step == run.said:
            return
        run.said = step
        path, said_s = self.folder / taskfiles.PROGRESS, self.machine.clock.now() / 1_000
        path.write_text(json.dumps({"step": step, "rate": run.behaviour.rate}))
        os.utime(path, (said_s, said_s))

    def _why_lost(self) -> str:
        return str(self._read(taskfiles.ABORT)["reason"]) if self._exists(taskfiles.ABORT) else ""

    def _note_end(self, state: TaskState, code: int | None) -> None:
        if self._number is not None:
            number, self._number = self._number, None
            changes: dict[str, Any] = {"end": self.machine.clock.true.now(), "state": state, "exit_code": code}
            self.machine.ran[number] = msgspec.structs.replace(self.machine.ran[number], **changes)

    async def _rest(self) -> None:
        await asyncio.sleep(self.machine.chance.uniform(*BEGINS_S) / 2)

    def _exists(self, *names: str) -> bool:
        return any((self.folder / name).exists() for name in names)

    def _read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_bytes())

    def _write(self, name: str, content: object) -> None:
        taskfiles.write_durably(str(self.folder / name), json.dumps(content))


@dataclass
class PlayedRun:
    """What has become of a command that runs."""

    task: PlayedTask
    behaviour: Behaviour
    began: Instant
    stopped: bool = False
    next_look: Instant = Instant(0)  # noqa: RUF009  (an int: can't be changed)
    said: int | None = None
    _kill_at: Instant | None = None
    _ends: list[tuple[Instant, int]] = field(default_factory=list)
    _peak: int = 0
    _exceeded: bool = False

    def __post_init__(self) -> None:
        self._is_stubborn = self.task.command == (STUBBORN,)
        if self._is_stubborn:
            self.behaviour = replace(self.behaviour, lasts=None)
        if self.behaviour.lasts is not None:
            self._ends.append((self.began.after(self.behaviour.lasts), self.behaviour.exit_code))

    @property
    def measured(self) -> dict[str, Any]:
        """Of its memory."""
        return {"peak": self._peak, "limit": self.task.memory_limit, "exceeded": self._exceeded}

    def ended(self, now: Instant) -> int | None:
        """Its exit code, once it has one."""
        over = min((end for end in self._ends if end[0] <= now), default=None)
        return over[1] if over else None

    def stop(self, now: Instant, grace: Duration, obeys: Duration) -> None:
        """It is told to end. Told twice, it has no longer than the shorter of the two."""
        if self._kill_at is None:
            self.stopped = True
            if not self._is_stubborn:
                self._ends.append((now.after(obeys), STOPPED_CODE))
        self._kill(now.after(grace))

    def measure(self, now: Instant) -> bool:
        """Whether there is something new to be said of its memory; what has more than it asked for is killed."""
        peak, limit = self.behaviour.memory, self.task.memory_limit
        if not peak or peak == self._peak or now < self.began.after(_MEASURED_AFTER):
            return False
        self._peak, self._exceeded = peak, 0 < limit < peak
        if self._exceeded:
            self._kill(now)
        return True

    def step(self, now: Instant) -> int | None:
        """The last one that it has done; None: it says nothing."""
        if not self.behaviour.rate:
            return None
        lasted, hangs = Duration(now - self.began), self.behaviour.hangs
        return int(self.behaviour.rate * (lasted if hangs is None else min(lasted, hangs)).seconds)

    def _kill(self, at: Instant) -> None:
        self._kill_at = at if self._kill_at is None else min(self._kill_at, at)
        self._ends.append((at, KILLED_CODE))
