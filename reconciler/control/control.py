"""Everything one control plane is made of, handed in as one value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from reconciler.control.attempt_counts import NO_TALLY, EndsTally
from reconciler.control.idle_watch import IdleWatch
from reconciler.control.queue_use import QueueUses
from reconciler.documents.operations import Operations
from reconciler.model.budget import BudgetStanding
from reconciler.model.clock import Clock
from reconciler.model.task_log import Logs
from reconciler.protocols.backend import Backend, Epoch
from reconciler.protocols.checkpoints import CheckpointRegistry
from reconciler.protocols.health import NodeHealths
from reconciler.protocols.history import History
from reconciler.protocols.interventions import Interventions
from reconciler.protocols.job_source import JobSource
from reconciler.protocols.ledger import Ledger
from reconciler.protocols.terminals import NO_TERMINALS, Terminals
from solver.model.cluster import Node
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.plan.plan import Plan
from solver.plan.violation import Violation
from solver.policy.policy import Policy

LEASE = Duration(10_000)
"""How long a leader that is not heard of keeps the lead. The loop renews it every second, and beside passes that take longer."""


class Concluded(NamedTuple):
    """A plan, and what the optimiser answered where a clock may have decided it ("" where solving again gives the same)."""

    plan: Plan
    solution: str = ""


class RoundChecker(Protocol):
    """Judges a round in its two parts, as solver/checker does."""

    def deed_violations(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
        """What is wrong with what it does."""

    def conclusion_violations(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
        """What is wrong with what it says beside."""

    def findings(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:
        """What it falls short of."""


class Solved(NamedTuple):
    """A round in two parts: what has to be known before it is acted on, and its whole plan, which takes as long again.

    `checker`: where the round has been decided in another process, which judges it, too; None: it is judged in this one.
    `uses`: what that process says of queues, when all else is said; None: those work it out that ask.
    """

    deed: Concluded
    conclude: Callable[[], Concluded]
    checker: RoundChecker | None = None
    uses: QueueUses | None = None

    @classmethod
    def at_once(cls, plan: Plan, solution: str = "") -> Solved:
        """One whose plan is whole already."""
        whole = Concluded(plan, solution)
        return cls(whole, lambda: whole)


Solve = Callable[[Snapshot, Policy], Solved]


class RoundWorkerError(Exception):
    """The process that decides rounds failed, or said what can't be."""


class RoundWorkerLostError(Exception):
    """That process ended, fell silent, or rests after that. `instead` decides the round in this one."""

    def __init__(self, why: str, instead: Solve) -> None:
        super().__init__(why)
        self.instead = instead


class NoPolicyError(Exception):
    """There has not been a good revision yet, so nothing can be decided."""


class PolicyInForce(NamedTuple):
    """What Git wants: where it comes from, the policy, the declared nodes, and the rules that rounds do not read."""

    revision: str
    policy: Policy
    nodes: tuple[Node, ...]
    operations: Operations = Operations()


class PolicySource(Protocol):
    """Where the policy comes from: Git, or a test."""

    def current(self) -> PolicyInForce:
        """The newest good revision. Raises NoPolicyError."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """`holder` names this process in the lease: no two living ones may share it.

    `prepare`: hears of the nodes for which a round is to be decided, before a pass looks at them. `ask`: hears of that round as
    soon as it is known, so that it may be begun beside what is done before `solve`. `keep_capacity`: puts on record what it says
    of GPUs. `keep_time`: puts on record where `clock` stands. `tally`: counts how attempts end.
    `idle`: knows since when GPUs do nothing; None: nothing does, and no IdlePolicy is kept.
    `budgets`: how they stand, as far as that is known. `reading`: what is read of the stores inside it is of one moment, where
    that costs less. `together`: what is written inside it is on record whole, or not at all; nothing is to be read there.
    """

    holder: str
    jobs: JobSource
    ledger: Ledger
    history: History
    checkpoints: CheckpointRegistry
    interventions: Interventions
    health: NodeHealths
    backend: Backend
    logs: Logs
    policies: PolicySource
    solve: Solve
    clock: Clock
    lease: Duration = LEASE
    terminals: Terminals = NO_TERMINALS
    prepare: Callable[[Collection[Node]], None] = lambda _: None
    ask: Callable[[Snapshot, Policy], None] = lambda _, __: None
    keep_capacity: Callable[[Epoch, Snapshot], None] = lambda _, __: None
    keep_time: Callable[[Epoch], None] = lambda _: None
    tally: EndsTally = NO_TALLY
    idle: IdleWatch | None = None
    budgets: Callable[[], Sequence[BudgetStanding]] = tuple
    reading: Callable[[], AbstractContextManager[None]] = nullcontext
    together: Callable[[], AbstractContextManager[None]] = nullcontext
