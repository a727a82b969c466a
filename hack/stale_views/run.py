"""One run: a crowded cluster under a control plane that sees old views and is replaced meanwhile; then views are honest."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hack.crash import judge
from hack.crash.workload import NODES, USERS_BUSY_MS, ChangingPolicy, names, workload
from hack.soak.soak import open_quickly
from hack.stale_views.views import KINDS, Staleness, StaleViews
from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.backends.simulated.behaviour import Faults
from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.control.control import ControlPlane
from reconciler.control.ledger_site import one_pass
from reconciler.control.recording import solver_with
from reconciler.model.clock import SIMULATION_START, VirtualClock
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.ledger import NotLeaderError
from solver.model.quantities import Duration
from solver.model.workload import JobName
from solver.plan.plan import Evict, Shrink, Step

PAUSE_MS, LEASE = 2_000, Duration(4_000)
STALE_UNTIL = SIMULATION_START.after(2 * USERS_BUSY_MS)
PASSES_MAX, CALM = 200, 5
"""Staleness lasts for sixty passes; a hundred later this is `never`. At rest: so many passes in which nothing is done."""
FAILS_OVER = 0.05
DELAYS = Faults(effect_delay=Duration(8_000), report_delay=Duration(5_000))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run showed. `evictions`: of jobs for others; `flaps`: of them those that undid another, or came in vain again.

    `turned`: those that look so, and followed from a failure between the two: they are lawful.
    """

    seed: int
    passes: int
    views: Counter[str]
    takeovers: int
    evictions: int
    turned: int
    flaps: int
    violations: tuple[str, ...]


@dataclass
class Evictions:
    """Who left for whom, over the rounds of a run.

    An eviction undoes another if a job leaves for one that had left for it, and nothing but the two evictions is to blame. Where
    the attempt that had left broke in between (its node died, say), that job needs GPUs anew: what leaves for it then is `turned`.
    """

    known: list[tuple[JobName, JobName]] = field(default_factory=list)
    flaps: list[str] = field(default_factory=list)
    turned: int = 0
    _attempts: dict[tuple[JobName, JobName], int] = field(default_factory=dict)

    def note(
        self, steps: Iterable[Step], began: Collection[JobName], broken: Collection[tuple[JobName, int]] = ()
    ) -> None:
        """`began`: jobs of which something has run; an eviction for a job that has not, made again, was in vain.

        `broken`: attempts of which something failed or was lost.
        """
        for step in steps:
            if isinstance(step, Evict | Shrink) and step.beneficiary is not None:
                pair, back = (step.job, step.beneficiary), (step.beneficiary, step.job)
                if back in self._attempts and (step.beneficiary, self._attempts[back]) in broken:
                    self.turned += 1
                elif back in self._attempts:
                    self.flaps.append(f"{step.job} left for {step.beneficiary}, which had left for it")
                elif pair in self._attempts and step.beneficiary not in began and isinstance(step, Evict):
                    self.flaps.append(f"{step.job} left for {step.beneficiary} again, which never began")
                self.known.append(pair)
                self._attempts[pair] = step.attempt


def run_seed(seed: int, kinds: Collection[Staleness] = KINDS) -> Outcome:
    """One run, in a folder of its own. `kinds`: what befalls views; (): nothing, to compare with."""
    with tempfile.TemporaryDirectory(prefix="quorate-stale-") as folder:
        return _Run(seed, Path(folder) / "quorate.db", kinds).to_the_end()


class _Run:
    def __init__(self, seed: int, path: Path, kinds: Collection[Staleness]) -> None:
        self.seed, self.clock = seed, VirtualClock()
        chance = random.Random(f"stale {seed}")
        self.happenings = list(workload(chance, SIMULATION_START, divided=False))
        self.to_come = list(self.happenings)
        self.cluster = SimulatedCluster(NODES, self.clock, chance, DELAYS)
        self.backend = SimulatedBackend(self.cluster)
        self.views = StaleViews(self.backend, self.clock, seed, STALE_UNTIL, kinds)
        self.store, self.chance = open_quickly(path, self.clock), random.Random(f"failovers {seed}")
        self.evictions, self.problems, self.takeovers, self.passes = Evictions(), list[str](), 0, 0
        self.plane = self._plane()

    def to_the_end(self) -> Outcome:
        """Until it rests, and judge."""
        calm = 0
        while calm < CALM and self.passes < PASSES_MAX and not self.problems:
            self.clock.advance(PAUSE_MS)
            while self.to_come and self.to_come[0].at <= self.clock.now():
                self._happen()
            if self.clock.now() < STALE_UNTIL and self.chance.random() < FAILS_OVER:
                self._fail_over()
            done = self._pass()
            over = self.clock.now() >= STALE_UNTIL and not self.to_come and not self.store.jobs.live_jobs()
            calm = calm + 1 if done and over else 0
        if calm < CALM and not self.problems:
            self.problems.append(
                f"no rest: after {self.passes} passes {len(self.store.jobs.live_jobs())} jobs are live"
            )
        self.problems += self._found()
        self.store.close()
        flaps = self.evictions.flaps
        return Outcome(
            self.seed,
            self.passes,
            self.views.befell,
            self.takeovers,
            len(self.evictions.known),
            self.evictions.turned,
            len(flaps),
            (*self.problems, *(f"flap: {flap}" for flap in flaps)),
        )

    def _happen(self) -> None:
        happening = self.to_come.pop(0)
        name, now = JobName(happening.subject), self.clock.now()
        if happening.kind == "submit" and happening.spec is not None:
            self.plane.jobs.submit(name, happening.spec, "ada", now, f"key-of-{name}")
        elif happening.kind == "cancel":
            self.plane.jobs.request_cancel(name, "ada")
        elif happening.kind == "node-dies":
            node = next(node.name for node in NODES if node.name == happening.subject)
            self.cluster.fail_node(node, now, happening.lasts)

    def _fail_over(self) -> None:
        """Another leads, once the lease is over."""
        self.clock.advance(LEASE)
        self.takeovers += 1
        self.plane = self._plane()

    def _pass(self) -> bool:
        """Whether nothing was to be done."""
        self.passes += 1
        try:
            done = one_pass(self.plane)
        except NotLeaderError as other:
            self.clock.advance(max(0, other.until - self.clock.now()))
            return False
        except StaleEpochError:
            return False
        except Exception as error:  # noqa: BLE001  (whatever it is, the loop should have survived it)
            self.problems.append(f"the loop died: {type(error).__name__}: {error}")
            return False
        if done.fault:
            self.problems.append(f"a plan was refused: {done.fault}")
        ran = self.cluster.intervals
        self.evictions.note(done.plan.steps, {task.job for task in ran}, judge.broken(ran))
        return done.idle

    def _found(self) -> Iterator[str]:
        ran, records = self.cluster.intervals, self.store.jobs.jobs()
        yield from judge.double_owners(ran)
        yield from judge.doubled_starts(ran)
        yield from judge.runs_after_success(ran, records)
        if not self.problems:
            yield from judge.lost_jobs(names(tuple(self.happenings), "submit"), records)
            yield from judge.leftovers(ran, self.store.ledger)

    def _plane(self) -> ControlPlane:
        store = self.store
        doors = store.jobs, store.ledger, store.history, store.checkpoints, store.interventions, store.health
        name, policies = f"plane-{self.takeovers}", ChangingPolicy()
        return ControlPlane(name, *doors, self.views, self.backend, policies, solver_with(None), self.clock, LEASE)
