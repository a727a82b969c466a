"""One run: agents and control planes, whose network, machines, disks and clocks fail for some minutes, and are right again then."""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args
from unittest import mock

from hack.agents.machines import Machine, played
from hack.agents.network import Network, Way
from hack.agents.planes import Plane, waiting
from hack.agents.virtual_time import LoopClock, VirtualLoop
from hack.crash import judge
from hack.crash.clocks import SPEEDS, STEP_MS, SteppedClock, share_its_clock
from hack.crash.doors import Gates, Killed
from hack.crash.workload import NODES, ChangingPolicy, Happening, names, workload
from hack.soak.soak import open_quickly
from hack.stale_views.run import Evictions
from reconciler.backends.baremetal import backend
from reconciler.backends.simulated.cluster import Interval
from reconciler.model.clock import SIMULATION_START
from reconciler.protocols.store_errors import StoreUnreachableError
from solver.model.workload import JobName

PAUSE_S: Final = 2.0
FAULTS_UNTIL: Final = SIMULATION_START.after(180_000)
PASSES_MAX, CALM = 400, 5
"""Faults last for ninety passes; three hundred later is `never`. At rest: so many passes in which nothing is done."""
PLACES: Final = ("plane-a", "plane-b")
STORE: Final = "store"
FAULT_RATE: Final = 0.2
"""Of each pass, in which something befalls the cluster."""
LASTS_S: Final = (1.0, 60.0)
"""How long it lasts: longer than a node's lease, a control plane's and a start's deadline, shorter than a node is given up."""

Fault = Literal[
    "cut",
    "cut-one-way",
    "slow",
    "store-cut",
    "store-cut-midway",
    "plane-dies",
    "agent-dies",
    "reboot",
    "old-disk",
    "node-clock-set",
    "plane-clock-set",
]
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
NETWORK: Final[tuple[Fault, ...]] = ("cut", "cut-one-way", "slow", "store-cut", "store-cut-midway")
"""What ends no process: then, and where nodes' clocks are set, what runs ends as its users, its limit or policy want."""

CLOCKS: Final[tuple[Fault, ...]] = ("node-clock-set", "plane-clock-set")
"""Where nothing else fails, limits hold: no node is told late that a task is to stop."""
EARLY_MS, LATE_MS = 3_000, 30_000
"""What a limit may be missed by: a node says when a task began, and a stop takes passes, messages, and the grace of tasks."""

_LAWFUL_END: Final = re.compile(r"cancelled by|time limit|failed with exit code|every task that was to stay has ended")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run showed. `healed_s`: from the last fault's end until the loop was at rest, jobs that run included."""

    seed: int
    passes: int
    befell: Counter[str]
    orders: int
    evictions: int
    turned: int
    flaps: int
    healed_s: float
    violations: tuple[str, ...]


def run_seed(seed: int, faults: Collection[Fault] = FAULTS) -> Outcome:
    """One run, in a folder of its own. `faults`: what may happen."""
    with tempfile.TemporaryDirectory(prefix="quorate-agents-") as folder, ExitStack() as closing:
        run = _Run(seed, Path(folder), faults, closing)
        return run.to_the_end()


@dataclass
class _Run:
    seed: int
    folder: Path
    faults: Collection[Fault]
    closing: ExitStack
    befell: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    evictions: Evictions = field(default_factory=Evictions)
    ran: list[Interval] = field(default_factory=list)
    machines: dict[str, Machine] = field(default_factory=dict)
    passes: int = 0
    made: int = 0
    cut_midway: bool = False
    killed_midway: bool = False

    def __post_init__(self) -> None:
        self.loop = VirtualLoop()
        self.closing.callback(self.loop.close)
        self.true = LoopClock(self.loop)
        self.chance = random.Random(f"faults of {self.seed}")
        self.network = Network(self.loop, self.seed)
        for patch in self._patches():
            self.closing.enter_context(patch)
        planned = workload(random.Random(f"agents {self.seed}"), SIMULATION_START, divided=False)
        self.happenings = tuple(one for one in planned if one.kind != "node-dies")
        self.to_come = list(self.happenings)
        self.clocks = {place: SteppedClock(self.true) for place in (*PLACES, *(node.name for node in NODES))}
        for node in NODES:
            where = self.folder / node.name, self.network, PLACES, self.clocks[node.name], self.ran
            self.machines[node.name] = Machine(node, *where)
            self.closing.callback(self.machines[node.name].supervisors.end_all)
        self.gates = Gates(self._at_gate)
        self.store = open_quickly(self.folder / "quorate.db", self.true)  # type: ignore[arg-type]
        self.closing.callback(self.store.close)
        share_its_clock(self.store, self.true)
        self.planes: dict[str, Plane] = {place: self._plane(place) for place in PLACES}

    def _patches(self) -> Iterator[Any]:
        yield from played(self.machines, self.network)
        yield mock.patch.object(backend, "wait", waiting(self.network))

    def to_the_end(self) -> Outcome:
        """Until it rests, and judge."""
        calm, healed_s = 0, 0.0
        while calm < CALM and self.passes < PASSES_MAX and not self.problems:
            self.loop.let_pass(PAUSE_S)
            if self.true.now() < FAULTS_UNTIL:
                self._perhaps_fail()
            elif self._is_faulty:
                self._set_right()
            self._let_happen()
            idle = self._passes()
            over = self.true.now() >= FAULTS_UNTIL and not self.to_come and not self.store.jobs.live_jobs()
            calm = calm + 1 if idle and over else 0
            healed_s = (self.true.now() - FAULTS_UNTIL) / 1_000
        if calm < CALM and not self.problems:
            live = [str(record.name) for record in self.store.jobs.live_jobs()]
            self.problems.append(f"no rest: after {self.passes} passes {live} are live")
        self.problems += [problem for machine in self.machines.values() for problem in machine.supervisors.broken]
        self.problems += self._found()
        self.problems += [f"flap: {flap}" for flap in self.evictions.flaps]
        of = self.evictions
        known = len(of.known), of.turned, len(of.flaps)
        orders = self.gates.passed["before backend.submit"]
        return Outcome(self.seed, self.passes, self.befell, orders, *known, healed_s, tuple(self.problems))

    def _plane(self, place: str) -> Plane:
        self.made += 1
        made = f"{place}-{self.made}", place, self.network, self.store, self.clocks[place], self.gates, ChangingPolicy()
        return Plane(*made, lambda: self.network.is_up(place, STORE))

    def _passes(self) -> bool:
        """Of every control plane that is there; whether one that leads had nothing to do."""
        idle = False
        for place, plane in self.planes.items():
            if place not in self.network.accepting:
                continue
            self.passes += place == PLACES[0]
            try:
                done = plane.take_pass()
            except Killed:
                self._plane_dies(place)
                continue
            except Exception as error:  # noqa: BLE001  (whatever it is, the loop should have survived it)
                self.problems.append(f"the loop died: {type(error).__name__}: {error}")
                continue
            if done is not None:
                self.evictions.note(done.plan.steps, {task.job for task in self.ran}, judge.broken(self.ran))
                self.problems += [f"a plan was refused: {done.fault}"] if done.fault else []
                idle = done.idle
        return idle

    def _let_happen(self) -> None:
        while self.to_come and self.to_come[0].at <= self.true.now():
            happening = self.to_come.pop(0)
            self._ask(happening)

    def _ask(self, happening: Happening) -> None:
        """Users reach some control plane's API: what it writes is in the store that all share."""
        name = JobName(happening.subject)
        if happening.kind == "submit" and happening.spec is not None:
            self.store.jobs.submit(name, happening.spec, "ada", self.true.now(), f"key-of-{name}")
        elif happening.kind == "cancel":
            self.store.jobs.request_cancel(name, "ada")

    def _perhaps_fail(self) -> None:
        if self.faults and self.chance.random() < FAULT_RATE:
            fault = self.chance.choice(sorted(self.faults))
            self.befell[fault] += 1
            _HAPPENS[fault](self, self.chance.uniform(*LASTS_S))
        if self.chance.random() < 0.1:
            self.chance.choice(list(self.machines.values())).keeps_its_disk()

    def _later(self, after_s: float, then: Callable[[], object]) -> None:
        self.loop.call_later(after_s, then)

    def _links(self) -> tuple[str, str]:
        return self.chance.choice(sorted(self.machines)), self.chance.choice(PLACES)

    def _cut(self, lasts_s: float, ways: set[Way]) -> None:
        self.network.down |= ways
        self._later(lasts_s, lambda: self.network.down.difference_update(ways))

    def cut(self, lasts_s: float) -> None:
        """Both ways between a node and a control plane; or a node and all of them."""
        node, place = self._links()
        places = PLACES if self.chance.random() < 0.5 else (place,)
        self._cut(lasts_s, {way for one in places for way in (Way(node, one), Way(one, node))})

    def cut_one_way(self, lasts_s: float) -> None:
        """What the one says arrives, and nothing that the other does."""
        node, place = self._links()
        self._cut(lasts_s, {self.chance.choice((Way(node, place), Way(place, node)))})

    def slow(self, lasts_s: float) -> None:
        """Messages take seconds."""
        ways = {Way(*self._links()) for _ in range(2)} | {Way(*reversed(self._links())) for _ in range(2)}
        self.network.slow |= ways
        self._later(lasts_s, lambda: self.network.slow.difference_update(ways))

    def store_cut(self, lasts_s: float) -> None:
        """Between a control plane and the store."""
        self._cut(lasts_s, {Way(self.chance.choice(PLACES), STORE)})

    def store_cut_midway(self, _: float) -> None:
        """In the middle of the next pass: a write was done or not, and nobody says which."""
        self.cut_midway = True

    def plane_dies(self, lasts_s: float) -> None:
        """In the middle of whatever it does, or between two passes."""
        if self.chance.random() < 0.5:
            self.killed_midway = True
        else:
            self._plane_dies(self.chance.choice(PLACES), lasts_s)

    def _plane_dies(self, place: str, lasts_s: float = 4.0) -> None:
        if place not in self.network.accepting:
            return
        self.planes[place].dies()
        self._later(lasts_s, lambda: self.planes.update({place: self._plane(place)}))

    def agent_dies(self, lasts_s: float) -> None:
        """What it runs goes on."""
        machine = self.machines[self._links()[0]]
        machine.end_agent()
        self._later(lasts_s / 3, machine.begin_agent)

    def reboot(self, lasts_s: float) -> None:
        """With all that runs there."""
        machine = self.machines[self._links()[0]]
        machine.dies()
        self._later(lasts_s, machine.begin_agent)

    def old_disk(self, lasts_s: float) -> None:
        """A machine dies, and comes back with a disk as it was some time ago."""
        machine = self.machines[self._links()[0]]
        machine.dies()
        machine.has_an_old_disk()
        self._later(lasts_s, machine.begin_agent)

    def node_clock_set(self, _: float) -> None:
        """By an hour, or right again; and at times it runs too fast or too slowly from then on."""
        clock = self.clocks[self._links()[0]]
        clock.ahead, clock.speed = self.chance.choice((-STEP_MS, 0, STEP_MS)), self.chance.choice(SPEEDS)
        clock.set_at = self.true.now()

    def plane_clock_set(self, _: float) -> None:
        """By an hour, or right again."""
        self.clocks[self.chance.choice(PLACES)].ahead = self.chance.choice((-STEP_MS, 0, STEP_MS))

    @property
    def _is_faulty(self) -> bool:
        return any(clock.ahead or clock.speed != 1.0 for clock in self.clocks.values())

    def _set_right(self) -> None:
        for clock in self.clocks.values():
            clock.ahead, clock.speed = 0, 1.0

    def _at_gate(self, _gate: str, moment: str) -> None:
        """Where one of them is to come, it comes at one of the next few writes and orders: before it was done, or after."""
        if self.true.now() >= FAULTS_UNTIL or not (self.cut_midway or self.killed_midway) or self.chance.random() > 0.3:
            return
        if self.killed_midway:
            self.killed_midway = False
            raise Killed
        self.cut_midway = False
        raise StoreUnreachableError(f"the link was cut {moment} it")

    def _killed(self) -> Iterator[str]:
        """What ran, and was stopped for another reason than that somebody wanted it, or that it had failed by itself."""
        for name in sorted(names(self.happenings, "submit")):
            events = self.store.history.events(name, 1_000)
            began = {event.attempt for event in events if event.kind == "running"}
            for event in events:
                stopped = event.kind == "asked-to-stop" and event.attempt in began and event.purpose == "end"
                if stopped and not _LAWFUL_END.search(event.cause):
                    yield f"killed: {name} in attempt {event.attempt}, because {event.cause}"

    def _is_forgotten(self, task: Interval) -> bool:
        """It began or ended, and the disk that says so is gone: where nothing had been told of it yet, it may begin again."""
        gone = self.machines[task.node].supervisors.forgotten
        return task.end is not None and any(kept < task.end <= off for kept, off in gone)

    def _found(self) -> Iterator[str]:
        ran, records = self.ran, self.store.jobs.jobs()
        known = [task for task in ran if not self._is_forgotten(task)]
        yield from judge.double_owners(ran)
        yield from judge.doubled_starts(known)
        yield from judge.runs_after_success(known, records)
        yield from (f"stale write accepted: {write}" for write in self.gates.stale_accepted)
        if set(self.faults) <= {*NETWORK, "node-clock-set"}:
            yield from self._killed()
        yield from judge.cut_short(known, records, self.store.history, EARLY_MS)
        if set(self.faults) <= set(CLOCKS):
            yield from judge.outlasting(known, records, LATE_MS)
        if not self.problems:
            yield from judge.lost_jobs(names(self.happenings, "submit"), records)
            yield from judge.leftovers(ran, self.store.ledger)


_HAPPENS: Final[dict[Fault, Callable[[_Run, float], None]]] = {
    "cut": _Run.cut,
    "cut-one-way": _Run.cut_one_way,
    "slow": _Run.slow,
    "store-cut": _Run.store_cut,
    "store-cut-midway": _Run.store_cut_midway,
    "plane-dies": _Run.plane_dies,
    "agent-dies": _Run.agent_dies,
    "reboot": _Run.reboot,
    "old-disk": _Run.old_disk,
    "node-clock-set": _Run.node_clock_set,
    "plane-clock-set": _Run.plane_clock_set,
}
