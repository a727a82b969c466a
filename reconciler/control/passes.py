"""One pass of a control plane, whatever it runs on: what it saw and did, and what every pass has to do the same way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.control.queue_use import QueueUses
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.clock import Clock
from reconciler.model.intervention_record import Intervention
from reconciler.protocols.backend import Epoch
from reconciler.protocols.history import History
from reconciler.protocols.ledger import Claim, Ledger, PastUse
from reconciler.protocols.rounds import RoundRecord
from solver.model.cluster import Node
from solver.model.document import digest
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.plan.plan import Plan
from solver.plan.violation import Violation
from solver.policy.policy import Policy
from solver.policy.precedence import shared_by_users
from solver.policy.tree import QueueTree
from solver.quota.usage import accrued, holds_of


class NoPlanError(Exception):
    """The solver failed. Nothing was done."""


class PlanRefusedError(Exception):
    """The checker found the plan unsafe. Nothing was done; the fault is in the solver."""

    def __init__(self, found: tuple[Violation, ...]) -> None:
        super().__init__("the plan breaks rules and was not acted on: " + "; ".join(map(str, found)))
        self.violations = found


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass saw (`sighted`: of the backend; `by_hand`: what people have put in force) and did.

    `round` is None where it had nothing new to say; `refused` counts claims not granted; `fault` says what went wrong with the
    solver, where only the greedy answer may be acted on. `shortfalls`: jobs that wait or leave by the plan though they need not.
    `uses`: as of the round. `is_whole`: the plan has its second part; if not, it is still to come, or there is none. `unlent`: what
    the round was decided on, and its policy, if nothing were lent; None where nothing is.
    """

    epoch: Epoch
    revision: str
    policy: Policy
    snapshot: Snapshot
    plan: Plan
    round: int | None
    settled: int
    refused: int
    phase_ms: dict[str, float]
    sighted: BackendReports
    by_hand: tuple[Intervention, ...]
    fault: str = ""
    shortfalls: tuple[Violation, ...] = ()
    uses: QueueUses | None = None
    is_whole: bool = True
    unlent: tuple[Snapshot, Policy] | None = None

    @property
    def idle(self) -> bool:
        """Nothing was to be done."""
        return not self.settled and not self.plan.steps


def refuse(found: tuple[Violation, ...]) -> None:
    """Let no plan be acted on that breaks rules. Raises PlanRefusedError."""
    if found:
        raise PlanRefusedError(found)


def record_news(history: History, epoch: Epoch, record: RoundRecord) -> int | None:
    """Keep a round that has steps, or says something else of the jobs than the round before it.

    One that was kept when it was acted on, and has its `number` since, is kept as a whole.
    """
    if record.number:
        history.conclude_round(epoch, record)
        return record.number
    if not record.is_whole:
        return history.record_round(epoch, record) if record.plan.steps else None
    said_before = next((summary.verdicts for summary in history.rounds(limit=1)), digest(()))
    if not record.plan.steps and record.summary.verdicts == said_before:
        return None
    return history.record_round(epoch, record)


def accrue(
    ledger: Ledger,
    epoch: Epoch,
    now: Instant,
    policy: Policy,
    holders: Iterable[tuple[QueueName, str, Claim]],
    nodes: Iterable[Node],
) -> None:
    """Bring past use up to date, where the policy lets it count: before a pass changes what jobs hold. Raises StaleEpochError.

    `holders`: each claim with the queue and user that it is charged to; they are read only where it counts.
    """
    half_life = policy.scheduling.usage_half_life
    if half_life is None:
        return
    past, types = ledger.past_use(), {node.name: node.gpu_type for node in nodes}
    sharing = shared_by_users(QueueTree.of(policy))
    holds = [
        hold
        for queue, user, claim in holders
        for hold in holds_of(queue, claim.tasks, types, claim.since, user if queue in sharing else None)
    ]
    ledger.keep_past_use(epoch, PastUse(accrued(past.usage, past.at, holds, now, half_life), now))


class Laps:
    """How long each phase took, in milliseconds; one that there was twice, in all."""

    def __init__(self, clock: Clock) -> None:
        self.phase_ms: dict[str, float] = {}
        self._clock = clock
        self._since = clock.monotonic_s()

    def end(self, phase: str) -> None:
        """The phase that began where the last one ended is over."""
        now = self._clock.monotonic_s()
        self.phase_ms[phase] = self.phase_ms.get(phase, 0.0) + (now - self._since) * 1_000
        self._since = now
