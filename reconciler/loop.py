"""The only loop: observe, settle, solve, check, record, act. It remembers nothing; every pass starts from what is true."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.act import Leader
from reconciler.backend import Cursor, Epoch
from reconciler.clock import Clock
from reconciler.control import ControlPlane
from reconciler.interventions.record import Intervention
from reconciler.interventions.settle import Hands
from reconciler.jobs.sighted import Sighted
from reconciler.observe import observe
from reconciler.store.protocols import RoundRecord, summarise
from solver.plan.check import violations
from solver.plan.plan import Plan
from solver.plan.violation import Violation
from solver.rules.policy import Policy
from solver.world.document import digest
from solver.world.snapshot import Snapshot


class PlanRefusedError(Exception):
    """The checker found the plan unsafe. Nothing was done; the fault is in the solver."""

    def __init__(self, found: tuple[Violation, ...]) -> None:
        super().__init__("the plan breaks rules and was not acted on: " + "; ".join(map(str, found)))
        self.violations = found


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass saw (`sighted`: of the backend; `by_hand`: what people have put in force) and did.

    `round` is None where it had nothing new to say; `refused` counts claims not granted.
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
    sighted: Sighted
    by_hand: tuple[Intervention, ...]

    @property
    def idle(self) -> bool:
        """Nothing was to be done."""
        return not self.settled and not self.plan.steps


def one_pass(plane: ControlPlane) -> Pass:
    """Take one step towards what Git wants.

    Raises NotLeaderError or StaleEpochError (another leads: stand by), NoPolicyError or BackendUnreachableError (try
    again), PlanRefusedError (report it), StoreUnusableError (a person must act). It may be killed anywhere and called again.
    """
    laps = _Laps(plane.clock)
    leader = Leader(plane, plane.ledger.lead(plane.holder, plane.clock.now(), plane.lease))
    revision, policy, declared, operations = plane.policies.current()
    sighted = Sighted.of(plane.backend.changes(Cursor(0)))
    laps.end("sight")
    leader.accrue(policy, declared)
    settled = leader.settle(sighted, operations, declared) + Hands(plane, leader.epoch).settle(policy, declared)
    laps.end("settle")
    snapshot = leader.wind(observe(plane, sighted, declared, policy, operations), policy, revision)
    laps.end("observe")
    plan, solution = plane.solve(snapshot, policy)
    laps.end("solve")
    _refuse_unsafe(snapshot, policy, plan)
    laps.end("check")
    # The record comes before the deed, so that no deed is ever without one.
    number = _record(leader, RoundRecord(0, snapshot.time, revision, snapshot, policy, plan, laps.phase_ms, solution))
    refused = leader.act(plan)
    laps.end("act")
    by_hand = plane.interventions.in_force()
    return Pass(
        leader.epoch, revision, policy, snapshot, plan, number, settled, refused, laps.phase_ms, sighted, by_hand
    )


def _refuse_unsafe(snapshot: Snapshot, policy: Policy, plan: Plan) -> None:
    found = violations(snapshot, policy, plan)
    if found:
        raise PlanRefusedError(found)


def _record(leader: Leader, record: RoundRecord) -> int | None:
    """Keep a round that has steps, or says something else of the jobs than the round before it."""
    history = leader.plane.history
    said_before = next((summary.verdicts for summary in history.rounds(limit=1)), digest(()))
    if not record.plan.steps and summarise(record).verdicts == said_before:
        return None
    return history.record_round(leader.epoch, record)


class _Laps:
    """How long each phase took, in milliseconds."""

    def __init__(self, clock: Clock) -> None:
        self.phase_ms: dict[str, float] = {}
        self._clock = clock
        self._since = clock.monotonic_s()

    def end(self, phase: str) -> None:
        """The phase that began where the last one ended is over."""
        now = self._clock.monotonic_s()
        self.phase_ms[phase] = (now - self._since) * 1_000
        self._since = now
