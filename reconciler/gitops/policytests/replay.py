"""Rounds over a policy test: a replay that begins with running jobs, in which nodes are lost and jobs are cancelled."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from reconciler.documents.policy_test import Happening
from reconciler.gitops.policytests.world import PolicyTestWorld
from solver.milp.optimiser import Optimiser
from solver.model.cluster import Node
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName
from solver.plan.plan import Plan
from solver.policy.policy import Policy
from solver.round.solve import solve
from solver.simulation.replay import Replay
from solver.simulation.trace import Run, TraceJob

CADENCE = Duration(30_000)
"""At most one round in so much of a test's time: as long as the grace that a policy gives by default."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One round, and what each job holds from then until the next. `plan` None: no job was there to decide about."""

    at: Instant
    snapshot: Snapshot
    plan: Plan | None
    jobs: Mapping[JobName, Job]


@dataclass
class StagedReplay(Replay):
    """A replay of a test. What a replay does holds here too; beside it, rounds are held as long as there are jobs.

    Jobs on a node that is lost stop at once and wait again; they have done what their checkpoints saved.
    """

    happenings: list[tuple[Instant, Happening]] = field(default_factory=list)
    begins: Instant = field(default_factory=lambda: Instant(0))

    @classmethod
    def of(
        cls, world: PolicyTestWorld, happenings: Sequence[Happening], policy: Policy, optimiser: Optimiser | None
    ) -> StagedReplay:
        """The replay of a test that has not begun."""
        staged = cls(world.nodes, policy, optimiser, CADENCE, begins=world.begins)
        timed = [(world.begins.after(happening.at), happening) for happening in happenings]
        staged.happenings = sorted(timed, key=lambda known: known[0])
        for running in world.running:
            staged._go_on(running)
        return staged

    def moments(self, arriving: Sequence[TraceJob], until: Instant) -> Iterator[Moment]:
        """Rounds from the beginning until an instant. The first is held at the beginning, whatever is there."""
        arrivals = sorted(arriving, key=lambda known: (known.job.submitted_at, known.job.name))
        position, now = 0, self.begins
        while now <= until:
            self._end_jobs(now)
            self._reserved = {name: held for name, held in self._reserved.items() if not held.is_over(now)}
            while self._openings and self._openings[0] <= now:
                heapq.heappop(self._openings)
            self._happen(now)
            position = self._arrive(arrivals, position, now)
            self._accrue(now)
            snapshot = snapshot_of(now, self.nodes, self._live.values(), self._in_flight())
            plan = solve(snapshot, self.policy, self.optimiser, self._kept) if self._live else None
            if plan is not None:
                self._apply(plan, now)
            yield Moment(now, snapshot, plan, MappingProxyType(dict(self._live)))
            following = self._following(arrivals, position, now.after(self.cadence))
            if following is None:
                return
            now = following

    def _following(self, arrivals: Sequence[TraceJob], position: int, earliest: Instant) -> Instant | None:
        times = [self._next_event(arrivals, position, earliest)]
        times += [max(at, earliest) for at, _ in self.happenings[:1]]
        return min((at for at in times if at is not None), default=None)

    def _go_on(self, running: TraceJob) -> None:
        """A job that runs when the test begins."""
        job = running.job
        started = self.begins if job.started_at is None else job.started_at
        self._live[job.name] = job
        self._durations[job.name] = running.duration
        heapq.heappush(self._ends, (started.after(running.duration), job.name, job.attempt))
        known = self.policy.priority_class(job)
        heapq.heappush(self._unprotected, started.after(known.protection.min_runtime if known else Duration(0)))
        held = MilliGpu(sum(task.gpus for task in job.placement))
        self.runs[job.name] = Run(
            job.name, job.spec.queue, held, job.submitted_at, started_at=started, running_since=self.begins
        )

    def _happen(self, now: Instant) -> None:
        while self.happenings and self.happenings[0][0] <= now:
            _, happening = self.happenings.pop(0)
            for name in happening.cancel:
                self._cancel(name, now)
            self.nodes = tuple(_changed(node, happening) for node in self.nodes)
            gone = set(happening.lose)
            for job in list(self._live.values()):
                if any(task.node in gone for task in job.placement):
                    self._give_back(job.name, now)

    def _cancel(self, name: JobName, now: Instant) -> None:
        """Its owner wants it no more: it is gone, with what was promised to it and reserved for it."""
        if self._live.pop(name, None) is not None:
            self.runs[name] = msgspec.structs.replace(self.runs[name].stopped(now), ended_at=now)
        self._promises.pop(name, None)
        self._reserved.pop(name, None)


def _changed(node: Node, happening: Happening) -> Node:
    if node.name in happening.lose:
        return msgspec.structs.replace(node, ready=False)
    if node.name in happening.cordon:
        return msgspec.structs.replace(node, cordoned=True)
    if node.name in happening.restore:
        return msgspec.structs.replace(node, ready=True, cordoned=False)
    return node
