"""What a round would have done is said once for each job, and again only when it is something else."""

from __future__ import annotations

import msgspec

from reconciler.control.dry_run import ProposedStep, meaning_of, new_in, wishes_of
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import QueueName
from solver.plan.plan import Bind, Evict, Plan, Waits
from solver.policy.policy import Queue, policy_of
from solver.round.solve import solve
from tests.solver.worlds import job, node, quota_of

POLICY = policy_of(
    (
        Queue(QueueName("lender"), quota=(quota_of("H100", 8),)),
        Queue(QueueName("borrower"), quota=(quota_of("H100", 0),)),
    )
)


def world(at: int, *nodes: str) -> Snapshot:
    return snapshot_of(
        Instant(at), [node(name, 8) for name in nodes], [job("a", "lender", 1, 8), job("b", "lender", 1, 8)]
    )


def plan(at: int, *nodes: str) -> Plan:
    return solve(world(at, *nodes), POLICY, None)


def test_a_start_that_does_not_happen_is_said_once() -> None:
    first, again = plan(0, "n1"), plan(60_000, "n1")
    (said,) = new_in(wishes_of(first), {})
    assert said == ("a", ProposedStep("would-start", "attempt 1 on n1"))
    assert list(new_in(wishes_of(again), wishes_of(first))) == []
    assert meaning_of(first) == meaning_of(again)


def test_where_it_would_start_is_no_news_and_that_another_would_is() -> None:
    first, elsewhere, both = plan(0, "n1"), plan(0, "n2"), plan(0, "n1", "n2")
    assert [step.tasks[0].node for step in elsewhere.steps if isinstance(step, Bind)] == ["n2"]
    assert list(new_in(wishes_of(elsewhere), wishes_of(first))) == []
    assert [subject for subject, _ in new_in(wishes_of(both), wishes_of(first))] == ["b"]
    assert meaning_of(first) == meaning_of(elsewhere) != meaning_of(both)


def test_an_eviction_says_for_whom_and_is_said_again_for_somebody_else() -> None:
    first = plan(0, "n1")
    (bind,) = [step for step in first.steps if isinstance(step, Bind)]
    evict = Evict(
        bind.job, 1, "reclaim", POLICY.scheduling.evictions.grace, world(0).jobs[0].spec.gpus, 7200.0, bind.job
    )
    evicts = msgspec.structs.replace(first, steps=(evict,))
    wish = wishes_of(evicts)["a"]
    assert (wish.event, wish.beneficiary) == ("would-evict", "a")
    assert "2.0 GPU-hours" in wish.cause
    assert list(new_in(wishes_of(evicts), wishes_of(first))) == [("a", wish)]
    other = {"a": wish._replace(beneficiary="b")}
    assert list(new_in(other, wishes_of(evicts))) == [("a", other["a"])]


def test_when_somebody_could_start_is_no_news_and_why_it_waits_is() -> None:
    first = plan(0, "n1")
    (waits,) = [verdict for verdict in first.verdicts if isinstance(verdict, Waits)]

    def with_(other: Waits) -> Plan:
        verdicts = tuple(other if verdict is waits else verdict for verdict in first.verdicts)
        return msgspec.structs.replace(first, verdicts=verdicts)

    assert waits.estimate is not None
    assert meaning_of(with_(msgspec.structs.replace(waits, estimate=None))) == meaning_of(first)
    assert meaning_of(with_(msgspec.structs.replace(waits, reasons=()))) != meaning_of(first)
