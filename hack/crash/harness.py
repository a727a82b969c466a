"""One run: a workload on the simulated cluster, with a control plane that is killed, held up and replaced on the way."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event

from hack.crash import judge
from hack.crash.clocks import STEP_MS, ClocksOfNodes, SteppedClock, share_its_clock
from hack.crash.doors import Doors, Gates, Killed, Moment
from hack.crash.keeping import keep
from hack.crash.resizes import resize
from hack.crash.tells import Numbers, tell
from hack.crash.workload import (
    AGAIN,
    NODES,
    USERS_BUSY_MS,
    ChangingPolicy,
    Happening,
    by_hand,
    hanging,
    names,
    second_thoughts,
    urgent,
    workload,
)
from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.backends.simulated.behaviour import KIND, UNKIND
from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.control.control import ControlPlane, Solved
from reconciler.control.event_settler import EventSettler
from reconciler.control.ledger_site import one_pass
from reconciler.control.narrow_rounds import NarrowRounds
from reconciler.control.plan_executor import PlanExecutor
from reconciler.control.recording import solver_with
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.lifecycle.jobs.states import state_of
from reconciler.model.clock import SIMULATION_START, Clock, VirtualClock
from reconciler.model.intervention_record import Intervention, InterventionKind, Subject
from reconciler.protocols.backend import BackendUnreachableError, Cursor, Epoch, StaleEpochError
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import NotLeaderError
from reconciler.server.cluster_time import cluster_time
from reconciler.store.store import SqlStore, open_store
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.policy.policy import Policy

PASS_PAUSE_MS = 2_000
LEASE = Duration(4_000)
"""Short, so that a control plane can die many times before faults stop."""
ALONE_EVERY = 3
"""In so many seeds jobs that come are started alone, beside complete rounds; in as many others what happens meanwhile is settled
beside them."""
DECIDES_FOR_MS = 3_000
"""So long at most rounds take where that matters."""
TOLD_EVERY = 5
"""In so many seeds gangs are told things: it takes from the world's chance, and the others have more of what else can go wrong."""
CHANGING_EVERY = 4
"""In so many seeds a max is lowered and raised again, and past use counts."""
STEPPED_EVERY = 4
"""In so many seeds clocks are set while the control plane runs, by STEP_MS and back: the leader's, the other's, and the nodes',
which run at other speeds, too. In every other one of these the store is on a machine of its own, with a clock that is right; in the
others on that of the control planes, which count on from how long it has been up."""
EVICTING_EVERY, CHANGES_MIND = 4, 0.5
"""In so many seeds some jobs are urgent, and who has submitted them changes their mind at this rate while others leave."""
EARLY_MS = 3_000
"""By what a time limit may be missed: nodes say when tasks began, by clocks that may run too fast."""
FAULTS_UNTIL = SIMULATION_START.after(2 * USERS_BUSY_MS)
PASSES_MAX = 200
"""Faults last for sixty passes, and once they stop everything ends within a hundred: this is `never`."""

Fate = Callable[[int, str, Moment], str]
"""What befalls the control plane at the n-th gate: `pass`, `kill`, `pause`, or `step` (its machine's clock is set)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run showed."""

    seed: int
    gates: int
    kills: int
    pauses: int
    stepped: int
    stale_refused: int
    passes: int
    violations: tuple[str, ...]
    passed: Counter[str]
    """How often it came to each gate: those of the loop, and those of users."""
    killed: Counter[str]
    """At which gates a control plane was killed."""


@dataclass
class Run:
    """The state of one run. The cluster and the file of the store outlive every control plane."""

    seed: int
    path: Path
    fate: Fate
    clock: VirtualClock = field(default_factory=VirtualClock)
    kills: int = 0
    pauses: int = 0
    stepped: int = 0
    stale_refused: int = 0
    passes: int = 0
    gates_passed: int = 0
    planes_made: int = 0
    paused: bool = False
    asking: bool = False
    epoch: Epoch | None = None
    problems: list[str] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        planned = workload(chance, SIMULATION_START, divided=self.seed % 2 == 0)
        if self._evicts:
            planned = urgent(random.Random(f"urgent of {self.seed}"), planned)
        planned = second_thoughts(random.Random(f"second thoughts of {self.seed}"), planned)
        planned = by_hand(random.Random(f"by hand of {self.seed}"), planned)
        self.happenings = hanging(random.Random(f"hangs of {self.seed}"), planned)
        self.to_come = list(self.happenings)
        self.cluster = SimulatedCluster(NODES, self.clock, chance, UNKIND)
        self.backend = SimulatedBackend(self.cluster)
        self.steps, self.machine = random.Random(f"steps of {self.seed}"), SteppedClock(self.clock)
        self.node_clocks = ClocksOfNodes(self.backend, {node.name: SteppedClock(self.clock) for node in NODES})
        self.gates = Gates(self._at_gate)
        self.keeping = random.Random(f"checkpoints of {self.seed}")
        self.sizes, self.words = random.Random(f"sizes of {self.seed}"), random.Random(f"words of {self.seed}")
        self.slowness = random.Random(f"slow rounds of {self.seed}")
        self.minds = random.Random(f"minds of {self.seed}")
        self.told: Numbers = {}
        self.came: list[JobName] = []
        self.policies = ChangingPolicy(self.clock if self.seed % CHANGING_EVERY == 1 else None, FAULTS_UNTIL)
        self.store = _open(self.path, self.gates, self.clock)
        if not self._on_one_machine:
            share_its_clock(self.store, self.clock)
        self.boot_id = self.path.with_name("boot_id")
        self.boot_id.write_text("the first")
        self._begin()

    def to_the_end(self) -> Outcome:
        """Run until everything has ended, and judge."""
        while not self._over() and self.passes < PASSES_MAX and not self.problems:
            try:
                self._let_happen()
            except Killed:
                self._restart()
            self._pass()
        self._judge()
        self.store.close()
        return Outcome(
            self.seed,
            self.gates_passed,
            self.kills,
            self.pauses,
            self.stepped,
            self.stale_refused,
            self.passes,
            tuple(self.problems),
            self.gates.passed,
            self.killed,
        )

    def _over(self) -> bool:
        """Faults have stopped, nobody has anything left to do, and the loop is at rest."""
        at_rest = not self.to_come and self.clock.now() >= FAULTS_UNTIL and not self.store.jobs.live_jobs()
        return at_rest and not self.store.ledger.claims() and not self.store.ledger.partitionings.in_flight()

    def _let_happen(self) -> None:
        """Time passes, and what comes from outside comes. Users speak to the API, which is the loop's process."""
        self.clock.advance(PASS_PAUSE_MS)
        if self.clock.now() >= FAULTS_UNTIL and self.cluster.faults is not KIND:
            self.cluster.faults = KIND
            if self.stepped:
                self.machine.ahead = 0
                self.node_clocks.set_right()
        if self._evicts and self.clock.now() < FAULTS_UNTIL:
            self._change_minds()
        while self.to_come and self.to_come[0].at <= self.clock.now():
            self._happen(self.to_come.pop(0))

    @property
    def _on_one_machine(self) -> bool:
        return self.seed % (2 * STEPPED_EVERY) == STEPPED_EVERY

    @property
    def _evicts(self) -> bool:
        return self.seed % EVICTING_EVERY == 2

    def _change_minds(self) -> None:
        """Whoever sees others save their work for a job of theirs may do without it for a while: the eviction is called off."""
        for stop in self.store.ledger.intents():
            wanted = stop.kind == "stop" and stop.purpose == "evict" and stop.stage != "ends" and stop.beneficiary
            if wanted and self.minds.random() < CHANGES_MIND:
                now, lasts = self.clock.now(), self.minds.randint(2_000, 15_000)
                self.to_come.append(Happening(now, "suspend", wanted))
                self.to_come.append(Happening(now.after(lasts), "resume", wanted))
                self.to_come.sort(key=lambda happening: happening.at)

    def _happen(self, happening: Happening) -> None:
        """What a user asks for twice where the server was killed meanwhile, and what is known of the world."""
        self.asking = True
        try:
            self._ask(happening)
        except Killed:
            self.to_come.insert(0, happening)
            raise
        finally:
            self.asking = False

    def _ask(self, happening: Happening) -> None:
        name, jobs = JobName(happening.subject), self.plane.jobs
        if happening.kind == "submit" and happening.spec is not None:
            jobs.submit(name, happening.spec, "ada", self.plane.clock.now(), f"key-of-{name}")
            self.came.append(name)
        elif happening.kind == "cancel":
            jobs.request_cancel(name, "ada")
        elif happening.kind == "suspend":
            jobs.request_suspend(name, "ada")
        elif happening.kind == "resume":
            self._resume(name)
        elif happening.kind == "requeue":
            attempt = next((claim.attempt for claim in self.store.ledger.claims() if claim.job == name), 0)
            jobs.request_requeue(name, attempt, "ada")
        elif happening.kind in ("hold", "cordon"):
            self._intervene(happening)
        else:
            node = next(node.name for node in NODES if node.name == happening.subject)
            self.cluster.fail_node(node, self.clock.now(), happening.lasts)

    def _resume(self, name: JobName) -> None:
        """As the API does it: with a line on record."""
        ledger = self.store.ledger
        claim = next((claim for claim in ledger.claims() if claim.job == name), None)
        held = claim, ledger.intents(), ledger.reservations(), ledger.attempts().get(name, 0)
        with self.plane.together():
            state = state_of(self.plane.jobs.resume(name), *held)
            self.plane.history.record_event(Event(self.plane.clock.now(), "resume-asked", name, "", "ada", state))

    def _intervene(self, happening: Happening) -> None:
        """As the API does it: what is in force is kept, and then there is a line on record."""
        now = self.plane.clock.now()
        kind: InterventionKind = "hold" if happening.kind == "hold" else "cordon"
        subject = Subject("job" if kind == "hold" else "node", happening.subject)
        asked = Intervention(kind, subject, "ada", "by hand", now, now.after(happening.lasts))
        with self.plane.together():
            self.plane.interventions.begin(asked)
            self.plane.history.record_event(Event(now, f"{kind}-asked", happening.subject, "by hand", "ada"))

    def _pass(self) -> None:
        self.passes += 1
        try:
            self._end_alone()
            came, self.came = self.came, []
            if self.narrow is not None and came:
                self.narrow.start(came)
            done = one_pass(self.plane, self.narrow, self.events)
            self.epoch = done.epoch
            leader = PlanExecutor(self.plane, done.epoch)
            if self.clock.now() < FAULTS_UNTIL or any(i.kind == "grow" for i in self.store.ledger.intents()):
                resize(leader, self.sizes, [self.cluster.node(node.name) for node in NODES])
            if self.seed % TOLD_EVERY == 0 and self.clock.now() < FAULTS_UNTIL:
                tell(leader, self.words, self.told)
            keep(leader, self.keeping)
        except Killed:
            self._restart()
        except NotLeaderError as other:
            self.clock.advance(max(0, other.until - self.clock.now()))
        except StaleEpochError:
            self.stale_refused += 1
        except BackendUnreachableError:
            pass  # the next pass asks again
        except Exception as error:  # noqa: BLE001  (whatever it is, the loop should have survived it)
            self.problems.append(f"the loop died: {type(error).__name__}: {error}")

    def _restart(self) -> None:
        self.kills += 1
        self.store.close()  # it remembers nothing but its connections, and makes new ones
        self._begin()

    def _end_alone(self) -> None:
        """Where jobs are started alone, those that wait get what others held that have ended. Another may lead by now."""
        if self.epoch is None or self.narrow is None:
            return
        before = {claim.job for claim in self.store.ledger.claims()}
        _, _, declared, operations = self.plane.policies.current()
        try:
            reports = BackendReports.of(self.plane.backend.changes(Cursor(0)))
            PlanExecutor(self.plane, self.epoch).settle(reports, operations, declared)
            self.narrow.free(sorted(before - {claim.job for claim in self.store.ledger.claims()}))
        except StaleEpochError:
            self.stale_refused += 1

    def _begin(self) -> None:
        """A control plane, which knows nothing but what is in the store."""
        self.plane, self.epoch = self._new_plane(self.store, self.machine), None
        alone = self.seed % ALONE_EVERY == 1
        self.narrow = NarrowRounds(self.plane, lambda: self.epoch, self.problems.append, 0.0) if alone else None
        self.events: EventSettler | None = None
        if self.seed % ALONE_EVERY == 2:
            self.events = EventSettler(self.plane, lambda: self.epoch)
            self.plane = replace(self.plane, solve=self._decided_slowly)

    def _decided_slowly(self, snapshot: Snapshot, policy: Policy) -> Solved:
        """A round, during which time passes, users go on, and what comes of it is settled."""
        solved = solver_with(None)(snapshot, policy)
        for _ in range(2):
            self.clock.advance(self.slowness.randrange(DECIDES_FOR_MS // 2))
            while self.to_come and self.to_come[0].at <= self.clock.now():
                self._happen(self.to_come.pop(0))
            if self.events is not None:
                with suppress(StaleEpochError, BackendUnreachableError):
                    self.events.settle()
        return solved

    def _new_plane(self, store: SqlStore, clock: Clock) -> ControlPlane:
        self.planes_made += 1
        doors = Doors.onto(store, self.node_clocks, self.gates)
        time = cluster_time(store, clock, self.boot_id)
        return ControlPlane(
            f"plane-{self.planes_made}",
            doors.jobs,
            doors.ledger,
            doors.history,
            doors.checkpoints,
            doors.interventions,
            doors.health,
            doors.backend,
            self.backend,
            self.policies,
            solver_with(None),
            time.clock,
            LEASE,
            keep_time=time.keeper(doors.ledger).keep,
            reading=store.database.reading_together,
            together=lambda: self.gates.together(store.database.together),
        )

    def _at_gate(self, gate: str, moment: Moment) -> None:
        if self.paused:
            return  # while one is held up, the other runs undisturbed
        self.gates_passed += 1
        fate = self.fate(self.gates_passed, gate, moment) if self.clock.now() < FAULTS_UNTIL else "pass"
        if fate == "step":
            self.stepped += 1
            self.machine.ahead = self._step()
            self.node_clocks.set_one(self.steps)
        if fate == "kill":
            self.killed[f"{moment} {gate}"] += 1
            raise Killed
        # One that is held up in the middle of a write holds up all others: databases end its session then.
        if (
            fate == "pause" and not self.asking and not self.gates.within
        ):  # who waits for an answer asks nothing else meanwhile
            self._hold_up()

    def _step(self) -> int:
        """By how much a clock is ahead: an hour, an hour behind, or not at all; where clocks are not set, it never is."""
        return self.steps.choice((-STEP_MS, 0, STEP_MS)) if self.seed % STEPPED_EVERY == 0 else 0

    def _hold_up(self) -> None:
        """The leader stands still for longer than its lease; another takes over, acts, and vanishes without a word."""
        self.pauses += 1
        self.paused = True
        self.clock.advance(LEASE)
        hears, machine = self.store.database.told_time, SteppedClock(self.clock, self._step())
        other = self._new_plane(self.store, self.machine if self._on_one_machine else machine)
        for _ in range(3):
            self._let_happen()
            try:
                one_pass(other)
            except BackendUnreachableError:
                continue
        self.store.database.told_time = hears
        self.paused = False

    def _judge(self) -> None:
        ran, records = self.cluster.intervals, self.store.jobs.jobs()
        submitted, cancelled = names(self.happenings, "submit"), names(self.happenings, "cancel")
        self.problems += [f"ungated write: {place}" for place in dict.fromkeys(self.gates.ungated)]
        self.problems += [f"stale write accepted: {write}" for write in self.gates.stale_accepted]
        self.problems += judge.double_owners(ran)
        self.problems += [f"no ground: {mishap}" for mishap in self.cluster.mishaps]
        self.problems += judge.doubled_starts(ran)
        self.problems += judge.runs_after_success(ran, records)
        self.problems += judge.lost_jobs(submitted, records)
        self.problems += judge.false_outcomes(ran, records, cancelled, self.gates.told_to_leave)
        self.problems += judge.too_many_retries(ran, records, AGAIN.max_retries)
        self.problems += judge.cut_short(ran, records, self.store.history, EARLY_MS)
        self.problems += judge.mistold(self.cluster.tells.heard, ran, self.gates.tells)
        self.problems += judge.leftovers(ran, self.store.ledger)
        self.problems += judge.mistold_acts(ran, records, self.store.history)
        self.problems += judge.unlawful_lives(submitted, self.store.history)


def random_fate(seed: int) -> Fate:
    """Killed at every gate with some chance, and held up a third as often.

    Seldom in some seeds, because what goes wrong late in the life of one leader needs a leader that lives so long.
    """
    chance = random.Random(f"fate of {seed}")
    often = chance.choice((0.004, 0.05, 0.2))

    def fate(_number: int, _gate: str, _moment: Moment) -> str:
        drawn = chance.random()
        if drawn < often * 4 / 3:
            return "kill" if drawn < often else "pause"
        return "step" if seed % STEPPED_EVERY == 0 and drawn > 1 - often / 2 else "pass"

    return fate


def killed_at(number: int) -> Fate:
    """Killed once, at this gate."""
    return lambda passed, _gate, _moment: "kill" if passed == number else "pass"


def run_seed(seed: int, fate: Fate | None = None) -> Outcome:
    """One run, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="quorate-crash-") as folder:
        return Run(seed, Path(folder) / "quorate.db", fate or random_fate(seed)).to_the_end()


def _open(path: Path, gates: Gates, clock: VirtualClock) -> SqlStore:
    """A crash here ends the program and not the machine, so commits need not wait for the disk. Every write is seen.

    Leases go by a clock of the database's, as with PostgreSQL.
    """
    store = open_store(path)
    writing = store.database.writing

    def seen(*arguments: Any, **named: Any) -> AbstractContextManager[Connection]:
        gates.written()
        return writing(*arguments, **named)

    store.database.now = lambda *_: clock.now()  # type: ignore[method-assign]
    store.database.writing = seen  # type: ignore[method-assign,assignment]
    store.database.engine.dispose()
    event.listen(store.database.engine, "connect", lambda made, _: made.execute("PRAGMA synchronous=OFF"))
    return store
