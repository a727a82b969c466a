"""A lender and a borrower share a node; what becomes of their jobs can be worked out by hand.

`lent` runs for 4 hours and starts at once. After an hour `owner` comes, for 2 hours, and gets the node back a cadence later;
`lent` waits for it, and does all of its work again. `huge` wants more than there is.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reconciler.analysis.backtest.backtest import Backtest, PolicyCandidate
from reconciler.analysis.backtest.figures import PolicyFigures, Simulation
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName
from solver.policy.policy import Policy, Queue, policy_of
from solver.simulation.trace import ReplayedRound, TraceJob
from tests.solver.worlds import job, node, quota_of

MINUTE = 60_000
HOUR = 60 * MINUTE
END = Instant(20 * HOUR)

LENT = policy_of(
    (
        Queue(QueueName("lender"), quota=(quota_of("H100", 8),)),
        Queue(QueueName("borrower"), quota=(quota_of("H100", 0),)),
    )
)
SHARED = policy_of((Queue(QueueName("lender")), Queue(QueueName("borrower"))))
"""Each has half of the node, so nobody is evicted."""


def traced(name: str, queue: str, submitted: int, hours: int, gpus: int = 8) -> TraceJob:
    asked = msgspec.structs.replace(job(name, queue, 1, gpus), submitted_at=Instant(submitted))
    limited = msgspec.structs.replace(asked.spec, time_limit=Duration(hours * HOUR))
    return TraceJob(msgspec.structs.replace(asked, spec=limited), Duration(hours * HOUR))


JOBS = (
    traced("lent", "borrower", 0, 4),
    traced("owner", "lender", HOUR, 2),
    traced("huge", "lender", 2 * HOUR, 1, gpus=16),
)


def silently(_: str, rounds: Iterator[ReplayedRound]) -> Iterator[ReplayedRound]:
    return rounds


def figures(policy: Policy, jobs: tuple[TraceJob, ...] = JOBS) -> PolicyFigures:
    backtest = Backtest(jobs, Instant(0), END, Duration(MINUTE), None)
    return backtest.under(PolicyCandidate("policy", policy, (node("n", 8),)), silently)


def simulation(*policies: PolicyFigures) -> Simulation:
    return Simulation("tiny", Instant(0), END, Duration(MINUTE), (), policies)
