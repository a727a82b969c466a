"""Rounds over a trace: the same `solve` as in production, against arrivals and durations that are known beforehand."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from solver.capacity.partitioning import HOUR_MS, mig_changes
from solver.milp.optimiser import Optimiser
from solver.model.cluster import Node
from solver.model.inflight import Counter, DurationQuantile, Ended, InFlight, Intent, Reservation, Usage
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant, MilliGpu
from solver.model.round_cache import RoundCache
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName
from solver.plan.plan import (
    Bind,
    Evict,
    Grow,
    Nominate,
    Plan,
    Release,
    Repartition,
    Reserve,
    Shrink,
    Unreserve,
    Withdraw,
)
from solver.policy.policy import Policy
from solver.policy.precedence import shared_by_users, waiting_since
from solver.policy.reclaim import budgets_hold_for, preempts_from, reclaim_within
from solver.policy.tree import QueueTree
from solver.policy.windows import changes_at, policy_at
from solver.queueing.costs import near, ran_ms
from solver.queueing.durations import HISTORY_JOBS, quantiles
from solver.queueing.fallback import fallback_opens
from solver.queueing.loans import DocumentCalls, asked_back_at, ends_by, first_on
from solver.quota.usage import accrued, holds_of
from solver.round.solve import solve
from solver.simulation.trace import ReplayedRound, Run, TraceJob

TICK = Duration(1_800_000)
"""How often turns are looked at while nothing else happens."""


@dataclass(slots=True)
class Replay:
    """Replays a trace on a cluster. Iterate `rounds`; `runs` then says how every job fared.

    A round is held when something arrived, ended, or came to accept further GPU types, at most one per `cadence`: what a
    control plane with that debounce would have decided, without its latencies. Where jobs take turns, and some wait, one is
    also held when a job has run for as long as its class protects it, and every `tick`. Starting and leaving take no time,
    and nothing breaks. An evicted job has done what its checkpoints saved, and takes the policy's restart cost longer when it
    runs again.
    """

    nodes: tuple[Node, ...]
    policy: Policy
    optimiser: Optimiser | None
    cadence: Duration
    tick: Duration = TICK
    runs: dict[JobName, Run] = field(default_factory=dict)
    _live: dict[JobName, Job] = field(default_factory=dict)
    _durations: dict[JobName, Duration] = field(default_factory=dict)
    _ends: list[tuple[Instant, JobName, int]] = field(default_factory=list)
    _openings: list[Instant] = field(default_factory=list)
    _promises: dict[JobName, Intent] = field(default_factory=dict)
    _reserved: dict[JobName, Reservation] = field(default_factory=dict)
    _ended: list[Ended] = field(default_factory=list)
    _unprotected: list[Instant] = field(default_factory=list)
    _mig_changes: list[Counter] = field(default_factory=list)
    _usage: tuple[Usage, ...] = ()
    _usage_at: Instant = field(default_factory=lambda: Instant(0))
    _kept: RoundCache = field(default_factory=RoundCache)

    def rounds(self, trace: Iterable[TraceJob], until: Instant) -> Iterator[ReplayedRound]:
        """Hold rounds from the first arrival until an instant, or until nothing is left to happen."""
        arrivals = sorted(trace, key=lambda known: (known.job.submitted_at, known.job.name))
        position, earliest = 0, Instant(0)
        while (now := self._next_event(arrivals, position, earliest)) is not None and now <= until:
            self._end_jobs(now)
            self._reserved = {name: held for name, held in self._reserved.items() if not held.is_over(now)}
            while self._openings and self._openings[0] <= now:
                heapq.heappop(self._openings)
            position = self._arrive(arrivals, position, now)
            waits = any(job.phase == "pending" for job in self._live.values())
            if waits or any(at <= now for at in self._called_back(now)):
                self._accrue(now)
                snapshot = snapshot_of(now, self.nodes, self._live.values(), self._in_flight())
                plan = solve(snapshot, self.policy, self.optimiser, self._kept)
                self._apply(plan, now)
                yield ReplayedRound(snapshot, plan)
            earliest = now.after(self.cadence)

    def _in_flight(self) -> InFlight:
        return InFlight(
            intents=tuple(self._promises.values()),
            reservations=tuple(self._reserved.values()),
            usage=self._usage,
            history=near(self._ended, self._live.values()) if self.policy.goes_by_history else (),
            counters=tuple(self._mig_changes),
            durations=self._expected(),
        )

    def _expected(self) -> tuple[DurationQuantile, ...]:
        """How long jobs without a limit can be expected to run, where some job runs without one."""
        endless = any(job.placement and job.time_limit is None for job in self._live.values())
        return quantiles(self._ended[-HISTORY_JOBS:], self.policy.scheduling.duration_quantile) if endless else ()

    def _next_event(self, arrivals: Sequence[TraceJob], position: int, earliest: Instant) -> Instant | None:
        times = [self._ends[0][0]] if self._ends else []
        times += self._openings[:1]
        times += [held.until for held in self._reserved.values() if held.is_declared and held.until is not None]
        times += self._next_loans(earliest)
        times += self._next_overdue(earliest)
        times += self._next_preemptors(earliest)
        times += self._next_quota(earliest)
        if self._promises:
            times.append(earliest)
        times += self._next_turn(earliest)
        if position < len(arrivals):
            times.append(arrivals[position].job.submitted_at)
        return max(min(times), earliest) if times else None

    def _next_overdue(self, earliest: Instant) -> Iterator[Instant]:
        """When nothing may delay a guarantee any longer, where there are other queues to take it back from."""
        tree = QueueTree.of(self.policy)
        for job in self._live.values() if len(self.policy.queues) > 1 else ():
            if job.phase == "pending":
                for within in (reclaim_within, budgets_hold_for):
                    at = job.submitted_at.after(within(self.policy, tree, job.spec.queue))
                    if at >= earliest:
                        yield at

    def _next_preemptors(self, earliest: Instant) -> Iterator[Instant]:
        """When jobs have waited for so long that others leave for them."""
        tree = QueueTree.of(self.policy)
        for job in self._live.values() if self.policy.delays_preemption else ():
            at = preempts_from(self.policy, tree, job) if job.phase == "pending" else None
            if at is not None and at >= earliest:
                yield at

    def _next_quota(self, earliest: Instant) -> Iterator[Instant]:
        """When a queue has another quota, while jobs wait; also since the last round."""
        waits = self.policy.repeats and any(job.phase == "pending" for job in self._live.values())
        at = changes_at(self.policy, Instant(max(0, earliest - self.cadence))) if waits else None
        if at is not None:
            yield at

    def _next_turn(self, earliest: Instant) -> Iterator[Instant]:
        """When a job may have its turn, though nothing happens."""
        if self.policy.takes_turns and self._ends and any(job.phase == "pending" for job in self._live.values()):
            yield earliest.after(self.tick)
            while self._unprotected and self._unprotected[0] < earliest:
                heapq.heappop(self._unprotected)
            yield from self._unprotected[:1]

    def _next_loans(self, earliest: Instant) -> Iterator[Instant]:
        """When what is reserved for gangs has to be asked back, if a job runs on it."""
        gangs = [held for held in self._reserved.values() if not held.is_declared]
        for job in self._live.values() if gangs else ():
            held = first_on(gangs, job.placement)
            if held is not None and not ends_by(job, held.start) and held.start - self.policy.grace(job) >= earliest:
                yield Instant(held.start - self.policy.grace(job))
        yield from (at for at in self._called_back(earliest) if at >= earliest)

    def _called_back(self, now: Instant) -> Iterator[Instant]:
        """When documents have jobs asked to leave what they keep."""
        policy = policy_at(self.policy, now)
        calls = DocumentCalls.of(self._reserved.values(), policy, QueueTree.of(policy), self.nodes)
        for job in self._live.values() if calls is not None else ():
            held = calls.first(job, job.placement) if calls is not None and job.placement else None
            if held is not None and not ends_by(job, held.start):
                yield asked_back_at(job, held, policy)

    def _end_jobs(self, now: Instant) -> None:
        while self._ends and self._ends[0][0] <= now:
            ended_at, name, attempt = heapq.heappop(self._ends)
            job = self._live.get(name)
            # Else it was evicted before its end.
            if job is not None and (job.attempt, job.phase) == (attempt, "running"):
                self._accrue(ended_at)
                del self._live[name]
                self.runs[name] = msgspec.structs.replace(self.runs[name].stopped(ended_at), ended_at=ended_at)
                self._ended.append(ended_job(job, ended_at))

    def _accrue(self, now: Instant) -> None:
        """Past use up to an instant until which nothing starts or ends."""
        half_life = self.policy.scheduling.usage_half_life
        if half_life is not None:
            types = {node.name: node.gpu_type for node in self.nodes}
            sharing = shared_by_users(QueueTree.of(self.policy))
            holds = [
                hold
                for job in self._live.values()
                for hold in holds_of(
                    job.spec.queue,
                    job.placement,
                    types,
                    now if job.started_at is None else job.started_at,
                    job.user if job.spec.queue in sharing else None,
                )
            ]
            self._usage = accrued(self._usage, self._usage_at, holds, now, half_life)
            self._usage_at = now

    def _arrive(self, arrivals: Sequence[TraceJob], position: int, now: Instant) -> int:
        while position < len(arrivals) and arrivals[position].job.submitted_at <= now:
            job = arrivals[position].job
            self._live[job.name] = job
            self._durations[job.name] = arrivals[position].duration
            if fallback_opens(job, self.policy) > job.submitted_at:
                heapq.heappush(self._openings, fallback_opens(job, self.policy))
            self.runs[job.name] = Run(job.name, job.spec.queue, job.spec.gpus, job.submitted_at)
            position += 1
        return position

    def _apply(self, plan: Plan, now: Instant) -> None:
        changed = [step for step in plan.steps if isinstance(step, Repartition)]
        if changed:
            self._partition(changed, now)
        for step in plan.steps:
            match step:
                case Bind():
                    self._bind(step, now)
                case Evict():
                    self._evict(step, now)
                case Nominate() | Withdraw() | Reserve() | Unreserve():
                    self._keep(step, now)
                case Shrink() | Grow():
                    self._resize(step, now)
                case Repartition():
                    pass  # Made true above, all at once.
                case Release():
                    raise AssertionError(f"{step.job} is released, but starting takes no time here")

    def _keep(self, step: Nominate | Withdraw | Reserve | Unreserve, now: Instant) -> None:
        """What is promised to jobs that wait, and what is reserved for them."""
        match step:
            case Nominate(job, attempt, tasks, deadline):
                self._promises[job] = Intent("nominate", job, attempt, now, now.after(deadline), tasks)
                self._reserved.pop(job, None)
            case Withdraw(job):
                del self._promises[job]
            case Reserve(job, tasks, start, until):
                self._reserved[job] = Reservation(job, tasks, start, until)
            case Unreserve(job):
                del self._reserved[job]

    def _bind(self, step: Bind, now: Instant) -> None:
        self._promises.pop(step.job, None)
        self._reserved.pop(step.job, None)
        self._live[step.job] = msgspec.structs.replace(
            self._live[step.job],
            phase="running",
            attempt=step.attempt,
            started_at=now,
            time_limit=step.time_limit,
            placement=step.tasks,
        )
        heapq.heappush(self._ends, (now.after(self._durations[step.job]), step.job, step.attempt))
        known = self.policy.priority_class(self._live[step.job])
        heapq.heappush(self._unprotected, now.after(known.protection.min_runtime if known else Duration(0)))
        run = self.runs[step.job]
        held = MilliGpu(sum(task.gpus for task in step.tasks))
        first = now if run.started_at is None else run.started_at
        waited = max(run.longest_wait_ms, now - waiting_since(self._live[step.job]))
        self.runs[step.job] = msgspec.structs.replace(
            run, started_at=first, running_since=now, gpus=held, longest_wait_ms=waited
        )

    def _evict(self, step: Evict, now: Instant) -> None:
        self._give_back(step.job, now)
        job, run = self._live[step.job], self.runs[step.job]
        self._live[step.job] = msgspec.structs.replace(job, evicted_at=(*job.evicted_at, now))
        self.runs[step.job] = msgspec.structs.replace(run, evictions=run.evictions + 1)

    def _give_back(self, name: JobName, now: Instant) -> None:
        """A running job waits again. It has done what its checkpoints saved, and takes the policy's restart cost longer."""
        job = self._live[name]
        ran_ms = now - job.started_at if job.started_at is not None else 0
        checkpoint = job.spec.checkpoint
        saved_ms = ran_ms - ran_ms % checkpoint.interval if checkpoint else 0
        restart_cost = self.policy.scheduling.evictions.restart_cost
        self._durations[name] = Duration(self._durations[name] - saved_ms + restart_cost)
        held = sum(task.gpus for task in job.placement)
        self._live[name] = msgspec.structs.replace(
            job,
            phase="pending",
            started_at=None,
            placement=(),
            time_limit=None,
            served_gpu_ms=job.served_gpu_ms + held * ran_ms // MILLI_PER_GPU,
        )
        self.runs[name] = self.runs[name].stopped(now)

    def _resize(self, step: Shrink | Grow, now: Instant) -> None:
        """A gang of another size goes on at once; how long it runs is what the trace says, whatever its size."""
        job, run, named = self._live[step.job], self.runs[step.job], set(step.tasks)
        stays = tuple(task for task in job.placement if task not in named)
        tasks = (*stays, *step.tasks) if isinstance(step, Grow) else stays
        held = MilliGpu(sum(task.gpus for task in tasks))
        self._live[step.job] = msgspec.structs.replace(job, placement=tasks)
        self.runs[step.job] = msgspec.structs.replace(run.stopped(now), running_since=now, gpus=held)

    def _partition(self, changed: Sequence[Repartition], now: Instant) -> None:
        """GPUs are partitioned at once, and each counts for the hour after."""
        made = {step.device: step.instances for step in changed}
        self._mig_changes = [known for known in self._mig_changes if known.window_start > now - HOUR_MS]
        self._mig_changes += mig_changes(self.nodes, ((device, now) for device in made))
        self.nodes = tuple(
            msgspec.structs.replace(
                node,
                gpus=tuple(
                    msgspec.structs.replace(gpu, instances=made[gpu.id]) if gpu.id in made else gpu for gpu in node.gpus
                ),
            )
            if any(gpu.id in made for gpu in node.gpus)
            else node
            for node in self.nodes
        )


def ended_job(job: Job, at: Instant) -> Ended:
    """What history keeps of a job that runs and ends now."""
    spec, ran = job.spec, Duration(round(ran_ms(job, at)))
    return Ended(spec.queue, spec.gpus, job.submitted_at, job.name, ran, spec.priority_class)
