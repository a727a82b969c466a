"""A Slurm cluster for one pass: it is looked at, a round is decided, and nothing is done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from reconciler.control.control import PolicyInForce, PolicySource, Solve
from reconciler.control.fallback import CheckedDeed, CheckedPlan, conclude, decide
from reconciler.control.loop import ClockNews
from reconciler.control.passes import Laps, accrue
from reconciler.lifecycle.interventions.effects import about, held_jobs
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.clock import Clock
from reconciler.model.intervention_record import Intervention
from reconciler.model.problem import InvalidDocumentsError
from reconciler.protocols.backend import BackendUnreachableError, Epoch
from reconciler.protocols.history import Event
from reconciler.protocols.interventions import Interventions
from reconciler.protocols.rounds import RoundRecord
from reconciler.slurm.commands import JOBS, NODES, SlurmCommands
from reconciler.slurm.look import SlurmLook, slurm_look
from reconciler.slurm.nodes import NodeStanding, known_nodes, node_standings
from reconciler.slurm.observer import SlurmObserver
from reconciler.slurm.policy_names import PolicyNaming
from solver.model.inflight import ConvergenceClock, InFlight
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobName
from solver.plan.plan import Plan
from solver.plan.reason import count
from solver.policy.policy import Policy
from solver.queueing.costs import near
from solver.queueing.durations import quantiles

LEASE = Duration(600_000)
"""Nobody else has the folder, which is locked."""


@dataclass
class SlurmCluster:
    """What is asked, and what is remembered of how. `otherwise`: the queue of jobs whose account and partition have none."""

    commands: SlurmCommands
    otherwise: str = ""
    _nodes_by: int = 0

    def look(self, in_force: PolicyInForce, clock: Clock) -> SlurmLook:
        """Ask for nodes and jobs. Raises BackendUnreachableError where one of them can't be had, or not be read."""
        try:
            known = known_nodes(in_force.nodes, self._node_standings())
            naming = PolicyNaming(in_force.policy, known.types, self.otherwise)
            seen = slurm_look(self.commands.read(JOBS), known, naming, clock.now())
        except InvalidDocumentsError as error:
            raise BackendUnreachableError("; ".join(map(str, error.problems))) from error
        strange = [job for job in seen.jobs if job.spec.queue not in naming.leaves]
        if not strange:
            return seen
        first = strange[0]
        told = f"{count(len(strange), 'job')} of queues that the policy does not have, such as {first.spec.queue} of {first.name}"
        return replace(seen, doubts=(*seen.doubts, told))

    def _node_standings(self) -> dict[str, NodeStanding]:
        """By the command that answered last, else by another."""
        failed = list[str]()
        for number in sorted(range(len(NODES)), key=lambda number: number != self._nodes_by):
            try:
                found = node_standings(self.commands.read(NODES[number]))
            except (BackendUnreachableError, InvalidDocumentsError) as error:
                problems = error.problems if isinstance(error, InvalidDocumentsError) else (error,)
                failed += map(str, problems)
            else:
                self._nodes_by = number
                return found
        raise BackendUnreachableError("; ".join(failed))


@dataclass(frozen=True, slots=True)
class SlurmPlane:
    """What every pass is handed."""

    cluster: SlurmCluster
    observer: SlurmObserver
    interventions: Interventions
    policies: PolicySource
    solve: Solve
    clock: Clock


@dataclass
class SlurmSite:
    """Implements Site. `step_ms`: by how much the clock was set since the pass before."""

    plane: SlurmPlane
    step_ms: int = 0
    _epoch: Epoch = field(init=False)

    @property
    def clock(self) -> Clock:
        """The plane's."""
        return self.plane.clock

    @property
    def policies(self) -> PolicySource:
        """The plane's."""
        return self.plane.policies

    def lead(self) -> Epoch:
        """Of the store alone: nothing in Slurm is led. Raises StoreUnusableError."""
        memory = self.plane.observer.memory
        self._epoch = memory.ledger.lead(memory.holder, self.clock.now(), LEASE)
        return self._epoch

    async def look(self, in_force: PolicyInForce) -> SlurmPass:
        """Raises BackendUnreachableError."""
        seen = await asyncio.to_thread(self.plane.cluster.look, in_force, self.clock)
        return SlurmPass(seen, in_force.policy, self.plane.interventions.in_force())

    def accrue(self, look: SlurmPass) -> None:
        """By what jobs hold."""
        ledger, seen = self.plane.observer.memory.ledger, look.seen
        accrue(ledger, self._epoch, self.clock.now(), look.policy, seen.holders(), seen.nodes)

    async def settle(self, look: SlurmPass) -> int:
        """Nothing is under way."""
        del look
        return 0

    def observe(self, look: SlurmPass) -> tuple[Snapshot, Policy]:
        """What was seen, without what people keep back by hand here, and with what is known of jobs before."""
        now, policy, ledger = self.clock.now(), look.policy, self.plane.observer.memory.ledger
        held = held_jobs(look.by_hand, look.seen.records, policy, now)
        cordoned = about(look.by_hand, "cordon", "node", now)
        boosts = about(look.by_hand, "boost", "job", now)
        jobs = tuple(
            msgspec.structs.replace(job, boosted=job.name in boosts) if not job.placement else job
            for job in look.seen.offered
            if job.placement or job.name not in held
        )
        nodes = (
            msgspec.structs.replace(node, cordoned=node.cordoned or node.name in cordoned) for node in look.seen.nodes
        )
        quantile, ended = policy.scheduling.duration_quantile, self.plane.observer.ended()
        in_flight = InFlight(
            usage=ledger.past_use().usage,
            durations=quantiles(ended, quantile) if quantile else (),
            history=near(ended, jobs) if policy.goes_by_history else (),
            convergence=ledger.clocks(),
        )
        return snapshot_of(now, nodes, jobs, in_flight, inventory="reported"), policy

    def lent(self) -> tuple[JobName, ...]:
        """None here."""
        return ()

    def keep_clocks(self, clocks: Sequence[ConvergenceClock], told: Sequence[ClockNews]) -> None:
        """In the folder's store."""
        memory = self.plane.observer.memory
        memory.ledger.keep_clocks(self._epoch, tuple(clocks))
        self.plane.observer.record_events([Event(self.clock.now(), *one, memory.holder) for one in told])

    async def decide(self, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedDeed:
        """Beside the wait for a stop."""
        return await asyncio.to_thread(decide, self.plane.solve, snapshot, policy, laps)

    async def conclude(self, deed: CheckedDeed, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedPlan:
        """As above."""
        return await asyncio.to_thread(conclude, deed, snapshot, policy, laps)

    def keep_round(self, record: RoundRecord) -> int | None:
        """If it says something new."""
        return self.plane.observer.keep_round(self._epoch, record)

    def stand_on(self, record: RoundRecord, number: int | None) -> None:
        """Nothing is started beside rounds."""

    async def act(self, plan: Plan, look: SlurmPass) -> int:
        """Nothing."""
        del plan, look
        return 0

    async def keep_free(self, plan: Plan, look: SlurmPass) -> None:
        """Nothing."""

    async def tell(self, plan: Plan, snapshot: Snapshot, look: SlurmPass) -> None:
        """What would have been done. Raises StoreUnusableError."""
        del snapshot
        await asyncio.to_thread(self.plane.observer.note, look.seen, plan, self.step_ms)

    def by_hand(self, look: SlurmPass) -> tuple[Intervention, ...]:
        """As the round knew it."""
        return look.by_hand


@dataclass(frozen=True, slots=True)
class SlurmPass:
    """What a pass saw first, and the policy it is held against."""

    seen: SlurmLook
    policy: Policy
    by_hand: tuple[Intervention, ...]

    @property
    def sighted(self) -> BackendReports:
        """Nothing of Quorate runs there."""
        return BackendReports({node.name: node for node in self.seen.nodes}, {})
