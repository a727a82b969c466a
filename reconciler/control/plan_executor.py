"""Makes settlements and plan steps true: the ledger first, then the backend, each step idempotent and under one epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from reconciler.control.leader_actions import LeaderActions
from reconciler.control.observation import records_of
from reconciler.control.partition import GpuPartitioner
from reconciler.control.passes import accrue
from reconciler.control.settler import Settler
from reconciler.control.starts import Alone, StartExecutor, in_turn
from reconciler.documents.operations import Operations
from reconciler.lifecycle.checkpoints.save_status import NOTHING_SAVED, SaveStatus, saving_of
from reconciler.lifecycle.health.effects import drained_places
from reconciler.lifecycle.health.trials import under_way
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.lifecycle.jobs.decisions import settlements
from reconciler.lifecycle.jobs.dependencies import abandoned_jobs, depended_on
from reconciler.lifecycle.jobs.device_readiness import DeviceReadiness, gpus_of
from reconciler.lifecycle.jobs.evidence import Evidence, tails_of
from reconciler.lifecycle.jobs.gang_stop import STOP_GRACE
from reconciler.lifecycle.jobs.idle_rules import IdleFacts
from reconciler.lifecycle.jobs.orders import order_of
from reconciler.lifecycle.jobs.settlements import GiveBack, Settlement
from reconciler.lifecycle.jobs.states import state_of
from reconciler.model.causes import names_of, nodes_of, why_evicted
from reconciler.model.health_record import NodeHealth
from reconciler.model.job_record import JobRecord, JobState
from reconciler.protocols.ledger import Claim, ClaimRefusedError
from solver.model.cluster import DeviceId, Node
from solver.model.inflight import Intent, Reservation, declared_name
from solver.model.workload import JobName, QueueName
from solver.plan.plan import (
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


class Settled(NamedTuple):
    """How much followed from a look, and which gangs hold nothing any more."""

    number: int
    gone: tuple[JobName, ...]


@dataclass(frozen=True, slots=True)
class PlanExecutor(LeaderActions):
    """A control plane that leads under one epoch. Every method raises StaleEpochError once it no longer does."""

    def settle(
        self,
        sighted: BackendReports,
        operations: Operations,
        declared: tuple[Node, ...],
        policy: Policy | None = None,
    ) -> Settled:
        """Make true what follows from what the backend reports, by the policies in force. `policy` None: no job is found idle."""
        partitioned = GpuPartitioner(self.plane, self.epoch).settle(sighted)
        with self.plane.reading():
            claims, intents = self.plane.ledger.claims(), self.plane.ledger.intents()
            health = self.plane.health.all()
            records = records_of(self.plane, claims)
            saving = saving_of(records, intents, operations.storages, self.plane.checkpoints)
            decided = (
                *self._followed(
                    *(
                        records,
                        claims,
                        intents,
                        health,
                        sighted.without(under_way(health)),
                        operations,
                        declared,
                        saving,
                    ),
                    self._idle_facts(operations, policy, claims, records),
                ),
                *abandoned_jobs(
                    records, {claim.job for claim in claims}, self.plane.jobs.tallies(depended_on(records))
                ),
            )
        Settler(self.plane, self.epoch).apply_all(decided)
        return Settled(partitioned + len(decided), _gone(decided))

    def settle_some(
        self,
        names: Collection[JobName],
        sighted: BackendReports,
        operations: Operations,
        declared: tuple[Node, ...],
    ) -> tuple[JobName, ...]:
        """The same of some gangs that hold something, whatever else is so; returns those that hold nothing any more.

        Gangs that are to save their work before they leave take turns with all others, and wait for `settle`.
        """
        holds = self.plane.ledger.of(names)
        saving = {asked.job for asked in holds.intents if asked.kind == "stop" and asked.stage != "ends"}
        claims = tuple(holds.claims[name] for name in sorted(holds.claims.keys() - saving))
        attempts = {
            (claim.job, claim.attempt): sighted.attempts[claim.job, claim.attempt]
            for claim in claims
            if (claim.job, claim.attempt) in sighted.attempts
        }
        records = tuple(self.plane.jobs.named([claim.job for claim in claims]).values())
        own = replace(sighted, attempts=attempts)
        decided = tuple(
            self._followed(records, claims, holds.intents, self.plane.health.all(), own, operations, declared)
        )
        Settler(self.plane, self.epoch).apply_all(decided)
        return _gone(decided)

    def _followed(
        self,
        records: tuple[JobRecord, ...],
        claims: tuple[Claim, ...],
        intents: tuple[Intent, ...],
        health: Iterable[NodeHealth],
        sighted: BackendReports,
        operations: Operations,
        declared: tuple[Node, ...],
        saving: SaveStatus = NOTHING_SAVED,
        idle: IdleFacts | None = None,
    ) -> Iterable[Settlement]:
        ground = DeviceReadiness(sighted.nodes, self.changing(), drained_places(health))
        tails = tails_of(records, claims, sighted, self.plane.logs)
        of_limits = self.plane.idle.of_limits() if self.plane.idle else {}
        evidence = Evidence(operations, declared, tails, saving, idle, of_limits)
        return settlements(records, claims, intents, sighted, self.plane.clock.now(), ground, evidence)

    def _idle_facts(
        self, operations: Operations, policy: Policy | None, claims: Iterable[Claim], records: Iterable[JobRecord]
    ) -> IdleFacts | None:
        if self.plane.idle is None or policy is None:
            return None
        by_name = {record.name: record for record in records}
        return self.plane.idle.facts(operations.idle, policy, claims, by_name, self.plane.clock.now())

    def accrue(self, policy: Policy, declared: Iterable[Node]) -> None:
        """Bring past use up to date, where the policy lets it count: before a pass changes what jobs hold."""
        accrue(self.plane.ledger, self.epoch, self.plane.clock.now(), policy, self._holders(), declared)

    def _holders(self) -> Iterator[tuple[QueueName, str, Claim]]:
        """Every claim with the queue and user of its job; read once it is asked for."""
        claims = self.plane.ledger.claims()
        records = self.plane.jobs.named([claim.job for claim in claims])
        yield from ((records[claim.job].spec.queue, records[claim.job].user, claim) for claim in claims)

    def act(self, plan: Plan) -> int:
        """Make a plan's steps true; returns how many the ledger refused, which the next pass then sees."""
        refused, unmade, starts = 0, set[DeviceId](), StartExecutor(self.plane, self.epoch)
        for step in in_turn(plan.steps):
            if isinstance(step, tuple):
                refused += starts.bind(step, unmade)
            elif isinstance(step, Grow) and unmade & gpus_of(step.tasks):
                self.note("bind-refused", step.job, "a GPU that it needs may not be partitioned anew")
                refused += 1
            elif not self._take(step):
                refused += 1
                unmade |= {step.device} if isinstance(step, Repartition) else set()
        return refused

    def keep_free(self, plan: Plan) -> None:
        """Reserve what a plan reserves, and no longer what it does not."""
        for step in plan.steps:
            if isinstance(step, Reserve | Unreserve):
                self._keep_free(step)

    def _take(self, step: Alone) -> bool:
        match step:
            case Release():
                return self._release(step)
            case Evict():
                self._evict(step)
            case Nominate() | Withdraw() | Reserve() | Unreserve():
                self._keep_free(step)
            case Shrink():
                self._shrink(step)
            case Grow():
                return self._grow(step)
            case Repartition():
                return GpuPartitioner(self.plane, self.epoch).ask(step)
        return True

    def _keep_free(self, step: Nominate | Withdraw | Reserve | Unreserve) -> None:
        """With one line on record, of a job that waits or of the holder of a document's reservation."""
        ledger, epoch = self.plane.ledger, self.epoch
        state = None if declared_name(step.job) else self._waits_as(step.job, step)
        with self.plane.together():
            match step:
                case Nominate(job, _, tasks):
                    ledger.nominate(epoch, self._nomination(step))
                    self.note("promised", job, f"{nodes_of(tasks)}, once they are free", state)
                case Withdraw(job):
                    ledger.withdraw(epoch, job)
                    self.note("withdrawn", job, "what it was promised is not to be had any more", state)
                case Reserve(job, tasks, start, until):
                    ledger.reserve(epoch, Reservation(job, tasks, start, until))
                    self.note("reserved", job, f"{nodes_of(tasks) or 'nothing'} from {start}", state)
                case Unreserve(job):
                    ledger.unreserve(epoch, job)
                    self.note("unreserved", job, "nothing is held for it any more", state)

    def _release(self, step: Release) -> bool:
        """Unless it became ready while the round was decided."""
        claim, now = self.plane.ledger.held_by(step.job), self.plane.clock.now()
        if claim is not None and claim.attempt == step.attempt and claim.running_since is not None:
            return False
        until = now.after(STOP_GRACE)
        self.stop(Intent("stop", step.job, step.attempt, now, until), "it did not become ready in time")
        return True

    def _evict(self, step: Evict) -> None:
        now = self.plane.clock.now()
        whom, until = step.beneficiary, now.after(step.grace)
        intent = Intent("stop", step.job, step.attempt, now, until, beneficiary=whom, purpose="evict")
        self.stop(intent, why_evicted(step))

    def _shrink(self, step: Shrink) -> None:
        now = self.plane.clock.now()
        until = now.after(step.grace)
        intent = Intent("shrink", step.job, step.attempt, now, until, step.tasks, step.beneficiary)
        self.ask_to_leave(intent, why_evicted(step))

    def _grow(self, step: Grow) -> bool:
        now = self.plane.clock.now()
        intent = Intent("grow", step.job, step.attempt, now, now.after(step.deadline), step.tasks)
        try:
            with self.plane.together():
                claim = self.plane.ledger.grow(self.epoch, intent)
                self.note("grows", step.job, f"{names_of(step.tasks)} join on {nodes_of(step.tasks)}")
        except ClaimRefusedError as refused:
            self.note("grow-refused", step.job, str(refused))
            return False
        self.begin(order_of(intent, claim, self.plane.jobs.job(step.job)), step.tasks)
        return True

    def _waits_as(self, job: JobName, step: Nominate | Withdraw | Reserve | Unreserve) -> JobState | None:
        """What a job that waits will be once something is kept for it, or no longer."""
        record, ledger = self.plane.jobs.job(job), self.plane.ledger
        if record.outcome is not None or ledger.held_by(job) is not None:
            return None
        intents, reservations = ledger.intents(), ledger.reservations()
        match step:
            case Nominate():
                intents = (*intents, self._nomination(step))
            case Withdraw():
                intents = tuple(known for known in intents if known.kind != "nominate" or known.job != job)
            case Reserve(_, tasks, start, until):
                reservations = (*reservations, Reservation(job, tasks, start, until))
            case Unreserve():
                reservations = tuple(known for known in reservations if known.holder != job)
        return state_of(record, None, intents, reservations, ledger.last_attempt(job))

    def _nomination(self, step: Nominate) -> Intent:
        now = self.plane.clock.now()
        return Intent("nominate", step.job, step.attempt, now, now.after(step.deadline), step.tasks)


def _gone(decided: Iterable[Settlement]) -> tuple[JobName, ...]:
    return tuple(one.job for one in decided if isinstance(one, GiveBack))
