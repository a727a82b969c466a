"""One soak: steps of seconds to hours, after each of which books and cluster are compared."""

from __future__ import annotations

import gc
import os
import pickle
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import _lru_cache_wrapper
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from sqlalchemy import event

from hack.soak.world import DAY_MS, FAULTS, GUARANTEED, HOUR_MS, Arrival, Arrivals, Forgetful, Policies, nodes
from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.control import ledger_site
from reconciler.control.control import ControlPlane, Solved
from reconciler.control.idle_watch import IdleWatch
from reconciler.control.recording import solver_with
from reconciler.model.clock import SIMULATION_START, VirtualClock
from reconciler.model.gpu_use import NodeMinute
from reconciler.protocols.backend import BackendUnreachableError, Epoch
from reconciler.protocols.ledger import Claim
from reconciler.protocols.placements import Steps
from reconciler.server.pruning import Pruning
from reconciler.store.store import SqlStore, open_store
from reconciler.supervisor.processes import read_of
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.policy.policy import Policy

STEPS_MS = (5_000, 60_000, 600_000, 1_800_000, HOUR_MS)
WEIGHTS = (2, 2, 2, 3, 3)
"""So long a step takes at least, and how often: what is asked for is on its way after some of them, and long done after others."""
LEASE = Duration(2 * HOUR_MS)
NODE_DIES_EVERY_MS = 40 * HOUR_MS
OVERDUE_MS = 7 * DAY_MS
"""No job that would fit in its queue's guarantee alone may wait for longer since it held anything: the cluster is not asked for
more than it has for so long. Larger ones borrow, and nothing says how long half a cluster is waited for: how long is counted."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How much there is after so many simulated hours: objects in memory, MiB of RAM, CPU ms of a pass, and of the database.

    `stretch`: how often another process had gone on with it by then.
    """

    hours: int
    objects: int
    rss_mb: float
    pass_ms: float
    store_mb: float
    stretch: int = 0


@dataclass
class Outcome:
    """What was seen."""

    hours: float = 0.0
    steps: int = 0
    cpu_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


STATE, STORE = "soak.pickle", "quorate.db"
OF_A_PROCESS = frozenset({"path", "store", "plane", "pruning", "pass_ms", "solve", "decided"})


class _NoUse:
    """Implements RecentUse: GPUs tell nothing of what they do."""

    def latest(self) -> Mapping[NodeName, NodeMinute]:
        return {}

    def waiting(self, nodes: Collection[NodeName]) -> Mapping[NodeName, tuple[NodeMinute, ...]]:  # noqa: ARG002
        return {}


class Soak:
    """Call `run` once. What is put by goes on where it was, by another process, with a control plane that begins anew."""

    def __init__(self, seed: int, path: Path) -> None:
        self.clock = VirtualClock()
        self.chance = random.Random(f"soaking {seed}")
        self.cluster = SimulatedCluster(nodes(), self.clock, self.chance, FAULTS)
        self.cluster.intervals = self.intervals = Forgetful()
        self.backend = SimulatedBackend(self.cluster)
        self.policies = Policies(self.clock)
        self.epoch: Epoch | None = None
        self.arrivals = Arrivals(seed)
        self.next = next(self.arrivals)
        self.give_ups: dict[str, Instant] = {}
        self.held: dict[JobName, Instant] = {}
        self.dies = SIMULATION_START.after(NODE_DIES_EVERY_MS)
        self.outcome = Outcome()
        self.held_gpu_ms, self.held_since = 0, SIMULATION_START
        self.held_milli = 0
        self.day = 0
        self.stretch = 0
        self._begin(path)

    @classmethod
    def resumed(cls, kept: Path, path: Path) -> Soak:
        """One that was put by in a folder, with a copy of its store at `path`."""
        soak: Soak = pickle.loads((kept / STATE).read_bytes())
        path.unlink(missing_ok=True)
        shutil.copyfile(kept / STORE, path)
        soak.stretch += 1
        soak._begin(path)
        return soak

    def _begin(self, path: Path) -> None:
        """What is of this process: a store that is open, and a control plane."""
        self.path, self.store = path, open_quickly(path, self.clock)
        self.solve, self.decided = solver_with(None), dict[str, Snapshot | Policy]()
        self.plane = self._plane()
        self.pass_ms = list[float]()
        doors = self.store.history, self.store.placements, self.store.capacities, self.store.gpu_uses
        self.pruning = Pruning(*doors, self.policies, self.clock, lambda: self.epoch, apart_s=0.0)

    def __getstate__(self) -> dict[str, object]:
        """Without what is of a process."""
        return {name: value for name, value in vars(self).items() if name not in OF_A_PROCESS}

    def put_by(self, kept: Path) -> None:
        """All of it, into a folder that is there whole or not at all."""
        made = kept.with_name(f"{kept.name}.part")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        self.store.database.engine.dispose()  # the last connection writes all into the one file
        shutil.copyfile(self.path, made / STORE)
        (made / STATE).write_bytes(pickle.dumps(self))
        made.rename(kept)

    def run(self, hours: int, sample_every: int = 500, seen: Callable[[Sample], None] = lambda _: None) -> Outcome:
        """Until so many hours have passed in all, or something is wrong."""
        end = SIMULATION_START.after(hours * HOUR_MS)
        due = (int(self.outcome.hours) // sample_every + 1) * sample_every
        while self.clock.now() < end and not self.outcome.problems:
            began = time.process_time()
            self._step()
            self.outcome.cpu_s += time.process_time() - began
            self.outcome.hours = (self.clock.now() - SIMULATION_START) / HOUR_MS
            if self.outcome.hours >= due:
                due += sample_every
                self._sample(seen)
        self.store.close()
        return self.outcome

    def _step(self) -> None:
        """Time passes until something happens, things come from outside, and a pass is taken, after which books are compared."""
        before = self.clock.now()
        now = max(before.after(self.chance.choices(STEPS_MS, WEIGHTS)[0]), self._next_at())
        self.clock.advance(now - before)
        self.held_gpu_ms += self.held_milli * (now - before)
        self._happen(now)
        began = time.process_time()
        try:
            self._passed(now)
        except BackendUnreachableError:
            self.outcome.counts["unreachable"] += 1
        except Exception as error:  # noqa: BLE001  (whatever it is, the loop should have survived it)
            self.outcome.problems.append(f"{now}: the loop died: {type(error).__name__}: {error}")
            return
        self.pass_ms.append((time.process_time() - began) * 1000)
        self.outcome.problems += [f"{now}: {found}" for found in self._broken(now)]
        if (now - SIMULATION_START) // DAY_MS > self.day:
            self.day = (now - SIMULATION_START) // DAY_MS
            self._end_of_day(now)

    def _next_at(self) -> Instant:
        """When something happens next that a pass may see: until then nothing would come of one."""
        tomorrow = SIMULATION_START.after((self.day + 1) * DAY_MS)
        return min(self.next.at, self.dies, tomorrow, *self.give_ups.values(), self.cluster.next_at() or tomorrow)

    def _passed(self, now: Instant) -> None:
        done = ledger_site.one_pass(self.plane)
        self.epoch = done.epoch
        self.outcome.steps += 1
        self.outcome.counts.update(type(step).__name__ for step in done.plan.steps)
        if done.fault:
            self.outcome.problems.append(f"{now}: a plan was refused: {done.fault}")

    def _happen(self, now: Instant) -> None:
        while self.next.at <= now:
            self._submit(self.next, now)
            self.next = next(self.arrivals)
        for name in [name for name, at in self.give_ups.items() if at <= now]:
            del self.give_ups[name]
            if self.store.jobs.job(JobName(name)).outcome is None:
                self.plane.jobs.request_cancel(JobName(name), "ada")
                self.outcome.counts["cancelled"] += 1
        if self.dies <= now:
            lasts = Duration(self.chance.choice((60_000, HOUR_MS, 6 * HOUR_MS)))
            self.cluster.fail_node(self.chance.choice(nodes()).name, now, lasts)
            self.dies = now.after(round(self.chance.expovariate(1 / NODE_DIES_EVERY_MS)))
            self.outcome.counts["nodeDied"] += 1

    def _submit(self, came: Arrival, now: Instant) -> None:
        self.plane.jobs.submit(JobName(came.name), came.spec, "ada", now, f"key-of-{came.name}")
        self.outcome.counts["submitted"] += 1
        if came.gives_up is not None:
            self.give_ups[came.name] = came.gives_up

    def _broken(self, now: Instant) -> Iterator[str]:
        """Rules that hold between any two passes."""
        claims, live = self.store.ledger.claims(), self.store.jobs.live_jobs()
        self.held_milli = sum(task.gpus for claim in claims for task in claim.tasks)
        owners: dict[DeviceId, Claim] = {}
        for claim in claims:
            for device in (device for task in claim.tasks for device in task.devices):
                if device in owners:
                    yield f"double-bound: {device} by {owners[device].job} and {claim.job}"
                owners[device] = claim
        names = {record.name for record in live}
        yield from (f"{claim.job} has ended and holds devices" for claim in claims if claim.job not in names)
        ran: dict[DeviceId, str] = {}
        for task in self.cluster.running():
            for device in task.devices:
                owner = owners.get(device)
                if device in ran:
                    yield f"two run on {device}: {ran[device]} and {task.job}"
                ran[device] = task.job
                if owner is None or (owner.job, owner.attempt) != (task.job, task.attempt):
                    yield f"{task.job}/{task.attempt} runs on {device}, which {owner.job if owner else 'no job'} holds"
        intents = Counter((intent.kind, intent.job) for intent in self.store.ledger.intents())
        yield from (f"{count} intents {kind} {job}" for (kind, job), count in intents.items() if count > 1)
        self.held = {name: at for name, at in self.held.items() if name in names}
        self.held.update((claim.job, now) for claim in claims)
        for record in live:
            since = self.held.get(record.name, record.submitted_at)
            least = sum(group.least * group.shape.cost for group in record.spec.task_groups)
            self.outcome.counts["longestWaitHours"] = max(
                self.outcome.counts["longestWaitHours"], (now - since) // HOUR_MS
            )
            if now - since > OVERDUE_MS and least <= GUARANTEED:
                yield f"{record.name} has waited since {since}"

    def _end_of_day(self, now: Instant) -> None:
        """What was on record for the days up to now is what the claims held; then what is old goes."""
        step = Duration(now - self.held_since)
        used = self.store.placements.use_of_queues(Steps(self.held_since, step, 1), now)
        on_record = sum(use[0] for use in used.values())
        if on_record != self.held_gpu_ms:
            self.outcome.problems.append(f"{now}: {on_record} milli-GPU-ms are on record, {self.held_gpu_ms} were held")
        self.held_gpu_ms, self.held_since = 0, now
        self.outcome.counts["gpuHours"] += on_record // (1000 * HOUR_MS)
        self.pruning.look()
        self.intervals.trim(self.cluster, now.after(-DAY_MS))

    def _sample(self, seen: Callable[[Sample], None]) -> None:
        _empty_bounded_caches()
        gc.collect()
        rss = next(
            int(line.split()[1]) for line in read_of(os.getpid(), "status").splitlines() if line.startswith("VmRSS:")
        )
        store = sum(path.stat().st_size for path in self.path.parent.iterdir()) / 2**20
        took = sorted(self.pass_ms)[len(self.pass_ms) // 2]
        found = Sample(
            round(self.outcome.hours),
            len(gc.get_objects()),
            round(rss / 1024, 1),
            round(took, 1),
            round(store, 1),
            self.stretch,
        )
        self.pass_ms.clear()
        self.outcome.samples.append(found)
        seen(found)

    def _solve(self, snapshot: Snapshot, policy: Policy) -> Solved:
        self.decided = {"snapshot": snapshot, "policy": policy}
        return self.solve(snapshot, policy)

    def _plane(self) -> ControlPlane:
        store = self.store
        doors = store.jobs, store.ledger, store.history, store.checkpoints, store.interventions, store.health
        return ControlPlane(
            "only",
            *doors,
            self.backend,
            self.backend,
            self.policies,
            self._solve,
            self.clock,
            LEASE,
            idle=IdleWatch(_NoUse(), store.gpu_uses),
            budgets=self.policies.budgets,
            reading=store.database.reading_together,
        )


def _empty_bounded_caches() -> None:
    """What is kept up to a number is no growth, and fills up for months: such as the texts of 32,768 instants."""
    for kept in gc.get_objects():
        if isinstance(kept, _lru_cache_wrapper) and kept.cache_parameters()["maxsize"] is not None:
            kept.cache_clear()


def growth(samples: list[Sample], of: Callable[[Sample], float]) -> float:
    """By which part the last third is more than the one before it; the first is for warming up."""
    third = len(samples) // 3
    if not third:
        return 0.0
    before, after = samples[-2 * third : -third], samples[-third:]
    return sum(map(of, after)) / sum(map(of, before)) - 1


def longest(samples: list[Sample]) -> list[Sample]:
    """Those of the one process that took the most: only within a process is memory comparable."""
    stretches = groupby(samples, attrgetter("stretch"))
    return max((list(of_one) for _, of_one in stretches), key=len, default=[])


def open_quickly(path: Path, clock: VirtualClock) -> SqlStore:
    """Commits need not wait for the disk; leases go by the simulated clock."""
    store = open_store(path)
    store.database.now = lambda *_: clock.now()  # type: ignore[method-assign]
    store.database.engine.dispose()
    event.listen(store.database.engine, "connect", lambda made, _: made.execute("PRAGMA synchronous=OFF"))
    return store
