"""The rounds to come after a live snapshot: no job arrives, what runs ends at its limit or as earlier jobs did, nothing breaks.

Where few jobs are alive, a round is held whenever something ends. Of a larger cluster only the rounds in which a job is known to
leave are held; those between are played as estimates are (backfill/future_state), greedily and at the instants of `grid_of`.
A start is told late by at most an eighth of the wait for it. How much is played depends on the snapshot alone, never on a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from solver.model.inflight import ConvergenceClock, InFlight
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, foreseen, snapshot_of
from solver.model.workload import JobName
from solver.plan.plan import Evict, Plan, Release, Shrink
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree, QuotaLine
from solver.policy.windows import changes_at, policy_at
from solver.preemption.departures import clocks_of
from solver.queueing.durations import expected, expected_of
from solver.queueing.fallback import fallback_opens
from solver.quota.entitlement import queue_limits_of, use_by_line
from solver.round.solve import solve
from solver.round.steps import bind_of
from solver.simulation.greedy_rounds import GreedyRounds
from solver.simulation.projection_start import live_after
from solver.simulation.replay import Replay
from solver.simulation.trace import Run

JOBS_SMALL = 32
"""Live jobs up to which every end has a round of its own."""

ROUNDS_MAX = 120
"""Rounds played at most."""

HELD_MAX = 4
"""Rounds of a large cluster that are held, and not played between others."""

ENDLESS = Duration(100 * 365 * 86_400_000)
"""How long runs what has no end: longer than any horizon."""

_GRID_FIRST_MS = 60_000
_GRID_RATIO = 9 / 8


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What a running job is asked for in a round to come."""

    at: Instant
    step: Evict | Shrink


@dataclass(frozen=True, slots=True)
class Projection:
    """What came of the rounds: which waiting job starts when, and which job gives what up in the rounds after the first.

    `after`: the world once the first round has come true. `over`: the limits that were broken before it, by how many milli-GPU;
    `kept`: those of them that are kept again, since when. `clocks`: those that run once it is over. `complete`: until the horizon,
    or until nothing was left to happen; else `until` says how far. `endless`: running jobs of which nothing says when they end.
    """

    after: Snapshot
    over: Mapping[QuotaLine, int]
    starts: Mapping[JobName, Instant]
    given_up: tuple[GivenUp, ...]
    kept: Mapping[QuotaLine, Instant]
    clocks: tuple[ConvergenceClock, ...]
    until: Instant
    rounds: int
    complete: bool
    endless: int


def project(snapshot: Snapshot, plan: Plan, policy: Policy, commit: str) -> Projection:
    """Play on from a snapshot and the plan of its own round; the lowered limits of `commit` begin to count.

    `eta_horizon` says how far. What history expects of jobs stays as the snapshot has it.
    """
    unasked = msgspec.structs.replace(policy.scheduling, estimated_jobs=0)
    cadence = Duration(max(1000, policy.scheduling.evictions.grace))
    policy = msgspec.structs.replace(policy, scheduling=unasked)
    future = _Future(foreseen(snapshot).nodes, policy, None, cadence, before=snapshot, commit=commit)
    future.begin(plan)
    return future.played(snapshot.time.after(policy.scheduling.eta_horizon))


def grid_of(begin: Instant, until: Instant) -> Iterator[Instant]:
    """Instants ever further apart, the last at `until`."""
    ahead_ms = float(_GRID_FIRST_MS)
    while begin + ahead_ms < until:
        yield begin.after(Duration(round(ahead_ms)))
        ahead_ms *= _GRID_RATIO
    yield until


@dataclass(slots=True)
class _Future(Replay):
    """A replay that begins with what is live in a snapshot.

    `before`: that snapshot. `over`: limits that are broken in it, and by how much. `broken`: since when each of them is kept.
    `looked_at`: deadlines for which a round was held. `more`: the last one may have left a job for the next to evict.
    `held`, `count`: how many rounds were held, and were played in all.
    """

    before: Snapshot = field(kw_only=True)
    commit: str = field(kw_only=True)
    clocks: tuple[ConvergenceClock, ...] = ()
    given_up: list[GivenUp] = field(default_factory=list)
    over: dict[QuotaLine, int] = field(default_factory=dict)
    broken: dict[QuotaLine, Instant | None] = field(default_factory=dict)
    looked_at: set[Instant] = field(default_factory=set)
    more: bool = False
    held: int = 0
    count: int = 0

    def begin(self, plan: Plan) -> None:
        """Take over what is live, and make the plan of its round true."""
        now, in_flight = self.before.time, self.before.in_flight
        self.clocks = in_flight.convergence
        self._usage, self._usage_at = in_flight.usage, now
        self._promises = {intent.job: intent for intent in in_flight.nominations}
        self._reserved = {known.holder: known for known in in_flight.reservations}
        self._mig_changes = list(in_flight.counters)
        self._take_over()
        tree = QueueTree.of(policy_at(self.policy, now))
        used = use_by_line(self._seen(now), tree)
        self.over = {
            line: used[line] - most for line, most in queue_limits_of(tree).items() if used.get(line, 0) > most
        }
        self.broken = dict.fromkeys(self.over)
        self.looked_at = {clock.deadline for clock in self.clocks if clock.deadline <= now}
        self._make_true(plan, now)

    def played(self, until: Instant) -> Projection:
        """Hold the rounds until a horizon."""
        endless = sum(
            end >= self.before.time.after(ENDLESS) and job.attempt == attempt and job.phase == "running"
            for end, name, attempt in self._ends
            if (job := self._live.get(name))
        )
        clocks, after = self.clocks, self._seen(self.before.time)
        small = len(self._live) <= JOBS_SMALL
        reached = self._each_round(until) if small else self._few_rounds(until)
        runs = ((job.name, self.runs[job.name].started_at) for job in self.before.pending)
        starts = {name: at for name, at in runs if at is not None}
        kept = {line: at for line, at in self.broken.items() if at is not None}
        return Projection(
            after, self.over, starts, tuple(self.given_up), kept, clocks, reached, self.count, reached == until, endless
        )

    def _each_round(self, until: Instant) -> Instant:
        """A round for everything that happens; returns how far they reach."""
        now = self.before.time
        while self._is_open():
            times = [at for at in (self._next_due(now), self._next_event((), 0, now.after(self.cadence))) if at]
            if not times or min(times) > until:
                break
            if self.count == ROUNDS_MAX:
                return now
            now = min(times)
            self._hold(now)
        return until

    def _few_rounds(self, until: Instant) -> Instant:
        """Held rounds where a job is to leave, played ones between them; returns how far they reach."""
        now = self.before.time
        while (at := self._next_due(now)) is not None and at <= until:
            self._play(now, at)
            if self.held == HELD_MAX:
                return at
            if at == self._next_due(now):  # Else the limit has come to be kept by itself.
                self._hold(at)
            now = at
        self._play(now, until)
        return until

    def _next_due(self, now: Instant) -> Instant | None:
        """When a job may have to leave next: a limit is to be kept, another quota holds, or as many left as may in one round."""
        earliest = now.after(self.cadence)
        due = [max(clock.deadline, earliest) for clock in self.clocks if clock.deadline not in self.looked_at]
        changes = changes_at(self.policy, now)
        due += [max(changes, earliest)] if changes is not None else []
        return min((*due, earliest) if self.more else due, default=None)

    def _is_open(self) -> bool:
        """Something may still start, or be made to leave."""
        waits = any(job.phase == "pending" for job in self._live.values())
        return waits or None in self.broken.values() or bool(self.policy.quota_edges)

    def _hold(self, now: Instant) -> None:
        self.count, self.held = self.count + 1, self.held + 1
        self._end_jobs(now)
        self.looked_at |= {clock.deadline for clock in self.clocks if clock.deadline <= now}
        self._reserved = {name: held for name, held in self._reserved.items() if not held.is_over(now)}
        while self._openings and self._openings[0] <= now:
            heapq.heappop(self._openings)
        self._accrue(now)
        plan = solve(self._seen(now), self.policy, None)
        left = [step for step in plan.steps if isinstance(step, Evict | Shrink)]
        self.given_up += (GivenUp(now, step) for step in left)
        self._make_true(plan, now)

    def _make_true(self, plan: Plan, now: Instant) -> None:
        for step in plan.steps:
            if isinstance(step, Release):
                self._live[step.job] = msgspec.structs.replace(
                    self._live[step.job], phase="pending", started_at=None, placement=(), time_limit=None
                )
        steps = tuple(step for step in plan.steps if not isinstance(step, Release))
        self._apply(msgspec.structs.replace(plan, steps=steps), now)
        seen = self._seen(now)
        self.clocks = clocks_of(seen, self.policy, self.commit)
        self._note_kept(use_by_line(seen, QueueTree.of(self.policy)), now)
        most = self.policy.scheduling.evictions.per_round
        self.more = most is not None and len({step.job for step in steps if isinstance(step, Evict | Shrink)}) >= most

    def _note_kept(self, used: Mapping[QuotaLine, int], now: Instant) -> None:
        limits = queue_limits_of(QueueTree.of(policy_at(self.policy, now))) if self.broken else {}
        for line, since in self.broken.items():
            over = line in limits and used.get(line, 0) > limits[line]
            self.broken[line] = None if over else (since or now)

    def _seen(self, now: Instant) -> Snapshot:
        return snapshot_of(now, self.nodes, self._live.values(), self._in_flight(), self.before.node_sets)

    def _in_flight(self) -> InFlight:
        return msgspec.structs.replace(
            self.before.in_flight,
            intents=tuple(self._promises.values()),
            reservations=tuple(self._reserved.values()),
            usage=self._usage,
            counters=tuple(self._mig_changes),
            convergence=self.clocks,
            repartitions=(),
        )

    def _take_over(self) -> None:
        known = expected(self.before.in_flight.durations)
        for job, end in live_after(self.before):
            self._live[job.name] = job
            duration = job.time_limit or self.policy.time_limit(job) or expected_of(job, known) or ENDLESS
            self._durations[job.name] = duration
            gpus = MilliGpu(sum(task.gpus for task in job.placement)) or job.spec.gpus
            self.runs[job.name] = Run(job.name, job.spec.queue, gpus, job.submitted_at)
            if job.placement:
                heapq.heappush(self._ends, (end or self.before.time.after(ENDLESS), job.name, job.attempt))
            elif (opens := fallback_opens(job, self.policy)) > self.before.time:
                heapq.heappush(self._openings, opens)

    def _play(self, now: Instant, stop: Instant) -> None:
        """Play from a round to the next that is held, or to the horizon."""
        self._keep_promises(now.after(self.cadence))
        between = GreedyRounds.of(self._seen(now), self.policy)
        grid = (at for at in grid_of(self.before.time, stop) if at > now)
        for at, starts in between.rounds(grid):
            self.count += 1
            for start in starts:
                self._bind(bind_of(start.candidate.job, start.placed.tasks, self.policy), at)
            self._note_kept(between.world.shares.used, at)
        for name in between.gone():
            self._live.pop(name, None)
        changes = list(between.changes())
        if changes:
            self._partition(changes, stop)
        self._end_jobs(stop)
        self.clocks = clocks_of(self._seen(stop), self.policy, self.commit)

    def _keep_promises(self, now: Instant) -> None:
        """A job that was promised GPUs begins once their holders have left; an instance that is still to be made waits."""
        for name, promise in sorted(self._promises.items()):
            job = self._live.get(name)
            if job is not None and job.phase == "pending" and not any(task.mig for task in promise.tasks):
                self._bind(bind_of(job, promise.tasks, self.policy), now)
