"""A cluster with a ledger of its own as the truth: jobs are processes of this machine, or of nodes with agents."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reconciler.control.budget_limits import without_borrowing
from reconciler.control.control import ControlPlane, PolicyInForce, PolicySource
from reconciler.control.event_settler import EventSettler
from reconciler.control.fallback import CheckedDeed, CheckedPlan, conclude, decide
from reconciler.control.interventions import InterventionController
from reconciler.control.loop import ClockNews, take_pass
from reconciler.control.narrow_rounds import NarrowRounds
from reconciler.control.node_health import Ward
from reconciler.control.observation import observe
from reconciler.control.passes import Laps, Pass, record_news
from reconciler.control.plan_executor import PlanExecutor
from reconciler.documents.operations import Operations
from reconciler.lifecycle.health.effects import cordons
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.clock import Clock
from reconciler.model.intervention_record import Intervention
from reconciler.protocols.backend import Cursor, Epoch
from reconciler.protocols.rounds import RoundRecord
from solver.model.cluster import Node
from solver.model.inflight import ConvergenceClock
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.plan.plan import Plan
from solver.policy.policy import Policy

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LedgerLook:
    """What the backend reports, beside what Git says."""

    sighted: BackendReports
    policy: Policy
    declared: tuple[Node, ...]
    operations: Operations


@dataclass
class LedgerSite:
    """Implements Site. None of its parts waits for an event loop."""

    plane: ControlPlane
    narrow: NarrowRounds | None = None
    events: EventSettler | None = None
    _leader: PlanExecutor = field(init=False)
    _sighted: BackendReports = field(init=False)

    @property
    def clock(self) -> Clock:
        """The plane's."""
        return self.plane.clock

    @property
    def policies(self) -> PolicySource:
        """The plane's."""
        return self.plane.policies

    def lead(self) -> Epoch:
        """By the ledger's lease."""
        epoch = self.plane.ledger.lead(self.plane.holder, self.clock.now(), self.plane.lease)
        self.plane.keep_time(epoch)
        self._leader = PlanExecutor(self.plane, epoch)
        return epoch

    async def look(self, in_force: PolicyInForce) -> LedgerLook:
        """Ask the backend. Raises BackendUnreachableError."""
        _, policy, declared, operations = in_force
        self.plane.prepare(declared)
        if self.events is not None:
            self.events.hold()
        if self.narrow is not None:
            self.narrow.look()
        self._sighted = BackendReports.of(self.plane.backend.changes(Cursor(0)))
        return LedgerLook(self._sighted, policy, declared, operations)

    def accrue(self, look: LedgerLook) -> None:
        """By what the ledger holds."""
        self._leader.accrue(look.policy, look.declared)

    async def settle(self, look: LedgerLook) -> int:
        """Health of nodes, then jobs, then what people did by hand."""
        settled = Ward(self.plane, self._leader.epoch).settle(look.sighted, look.operations.health, look.declared)
        followed = self._leader.settle(look.sighted, look.operations, look.declared, look.policy)
        if self.narrow is not None and followed.gone:
            self.narrow.ended(followed.gone)
        settled += followed.number
        return settled + InterventionController(self.plane, self._leader.epoch).settle(look.policy, look.declared)

    def observe(self, look: LedgerLook) -> tuple[Snapshot, Policy]:
        """Join what Git declares, what the backend reports, what each job holds and what wants to run; keep what GPUs there are."""
        with self.plane.reading():
            snapshot = observe(self.plane, look.sighted, look.declared, look.policy, look.operations)
        self.plane.keep_capacity(self._leader.epoch, snapshot)
        return snapshot, without_borrowing(look.policy, snapshot, self.plane.budgets())

    def lent(self) -> Sequence[JobName]:
        """By the marks of their claims."""
        return [claim.job for claim in self.plane.ledger.claims() if claim.marks.is_lent]

    def keep_clocks(self, clocks: Sequence[ConvergenceClock], told: Sequence[ClockNews]) -> None:
        """In the ledger, and in the history."""
        with self.plane.together():
            self.plane.ledger.keep_clocks(self._leader.epoch, tuple(clocks))
            self.plane.history.record_events(self._leader.event(*one) for one in told)

    async def decide(self, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedDeed:
        """In this thread, which has nothing else to do."""
        self.plane.ask(snapshot, policy)
        if self.narrow is not None:
            self.narrow.see(snapshot, policy)
        if self.events is not None:
            self.events.follow(self._sighted)
        return decide(self.plane.solve, snapshot, policy, laps)

    async def conclude(self, deed: CheckedDeed, snapshot: Snapshot, policy: Policy, laps: Laps) -> CheckedPlan:
        """In this thread, too."""
        return conclude(deed, snapshot, policy, laps)

    def keep_round(self, record: RoundRecord) -> int | None:
        """In the history."""
        return record_news(self.plane.history, self._leader.epoch, record)

    async def act(self, plan: Plan, look: LedgerLook) -> int:  # noqa: ARG002  (Site's)
        """The ledger first, then the backend. A start that another has overtaken meanwhile counts as refused."""
        if self.narrow is None:
            return self._leader.act(plan)
        left, overtaken = self.narrow.commit(plan)
        for job, broken in overtaken.items():
            if broken:
                self._leader.note("bind-refused", job, f"others have started since: {'; '.join(map(str, broken))}")
        return self._leader.act(left) + len(overtaken)

    async def keep_free(self, plan: Plan, look: LedgerLook) -> None:  # noqa: ARG002  (Site's)
        """In the ledger."""
        self._leader.keep_free(plan)

    async def tell(self, plan: Plan, snapshot: Snapshot, look: LedgerLook) -> None:
        """Tells nothing: the API and the history read it there."""

    def stand_on(self, record: RoundRecord, number: int | None) -> None:
        """Where jobs are started alone."""
        if self.narrow is not None:
            self.narrow.stand_on(record, number)

    def by_hand(self, look: LedgerLook) -> tuple[Intervention, ...]:  # noqa: ARG002  (Site's)
        """With the cordons of nodes that are not well."""
        return (*self.plane.interventions.in_force(), *cordons(self.plane.health.all()))


def one_pass(
    plane: ControlPlane,
    narrow: NarrowRounds | None = None,
    events: EventSettler | None = None,
    hear: Callable[[Pass], None] = lambda _: None,
) -> Pass:
    """Take one pass in this thread. `narrow`: starts jobs beside it; `events`: settles what happens beside its round.

    `hear`, and what it raises: as `take_pass`.
    """
    try:
        done, _ = _completed(take_pass(LedgerSite(plane, narrow, events), hear))
    finally:
        if events is not None:
            events.hold()
    return done


def _completed(work: Coroutine[Any, Any, T]) -> T:
    """What comes of a coroutine that never waits: no event loop is needed to run it."""
    try:
        work.send(None)
    except StopIteration as over:
        result: T = over.value
        return result
    work.close()
    raise RuntimeError("a pass of a ledger has nothing to wait for")
