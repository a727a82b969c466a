"""A merged revision is planned once more, and held where it breaks a guardrail or does more than was accepted."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest

from reconciler.control.control import PolicyInForce
from reconciler.documents.repository import Reading
from reconciler.gitops.review.activation import FRESH_MS, AsAccepted, FreshPlans, WithinGuardrails
from reconciler.gitops.review.meaning import meaning_of
from reconciler.gitops.review.side import ReviewSide
from reconciler.gitops.source.errors import NotReadyToPlanError
from reconciler.gitops.source.requirements import RevisionCandidate, RevisionHold
from reconciler.model.envelope import Envelope
from reconciler.model.review_findings import Breach, Review
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, snapshot_of
from tests.reconciler.gitops.review.test_guardrails import NOW, compiled, evicted, found

BREACH = Breach("maxQuotaCutPercent", "queue vision: guaranteed 64 → 1", "Cut it in steps", "policies/vision.yaml:6")


@dataclass
class Cluster:
    """What the loop saw, and what a change would do to it; `judged` counts how often that was asked."""

    fresh: Review = field(default_factory=found)
    snapshot: Snapshot | None = field(default_factory=lambda: snapshot_of(NOW, (), ()))
    judged: int = 0

    def judge(self, snapshot: Snapshot, _base: ReviewSide, _head: ReviewSide) -> Review:
        self.judged += 1
        return msgspec.structs.replace(self.fresh, time=snapshot.time)

    def plans(self) -> FreshPlans:
        return FreshPlans(lambda: self.snapshot, self.judge)


def candidate(guaranteed: int = 8, guardrails: str = "{}", first: bool = False) -> RevisionCandidate:
    """A revision that guarantees so much, in place of one that guarantees 64 and has these guardrails."""
    in_force = PolicyInForce("a" * 40, *compiled(guardrails).parts)
    head = compiled(guaranteed=guaranteed)
    return RevisionCandidate(
        "b" * 40, None if first else "a" * 40, None if first else in_force, lambda: Reading((), head)
    )


def saved(review: Review, exact: bool = False) -> Envelope:
    return Envelope.of(review, 0.0, exact)


def accepted(cluster: Cluster, plan: Envelope | None, asked: RevisionCandidate) -> RevisionHold | None:
    wanted = meaning_of(asked.compiled)
    return AsAccepted(cluster.plans(), lambda meaning: plan if meaning == wanted else None).hold(asked)


def test_a_guardrail_holds_it_with_the_line_that_breaks_it() -> None:
    cluster = Cluster(msgspec.structs.replace(found(), breaches=(BREACH,)))
    held = WithinGuardrails(cluster.plans()).hold(candidate())
    assert held is not None
    assert (held.reason, held.acceptable) == ("GuardrailRefused", True)
    assert "guaranteed 64 → 1 (maxQuotaCutPercent, policies/vision.yaml:6)" in held.message
    (problem,) = held.problems
    assert (problem.file, problem.line, problem.code) == ("policies/vision.yaml", 6, "maxQuotaCutPercent")


def test_within_what_was_accepted_it_goes_on() -> None:
    one = found((evicted("a", 4),))
    assert accepted(Cluster(one), saved(one), candidate()) is None
    assert accepted(Cluster(found()), saved(one), candidate()) is None


def test_beyond_it_is_held_with_both_plans_side_by_side() -> None:
    two = found((evicted("a", 4), evicted("b", 1)))
    held = accepted(Cluster(two), saved(found((evicted("a", 4),))), candidate())
    assert held is not None
    assert (held.reason, held.acceptable) == ("PlanDrift", True)
    assert [(each.what, each.accepted, each.now, each.beyond) for each in held.drift] == [
        ("jobs evicted", "1", "2", True),
        ("GPU-hours lost", "4.0", "5.0", True),
    ]
    assert "jobs evicted: 2 (accepted: 1); GPU-hours lost: 5.0 (accepted: 4.0)." in held.message


@pytest.mark.parametrize(
    ("asked", "jobs", "reason"),
    [
        ("never", 1, ""),
        ("evictions", 0, ""),
        ("evictions", 1, "PlanMissing"),
        ("always", 0, "PlanMissing"),
    ],
)
def test_whether_somebody_must_have_accepted_a_plan(asked: str, jobs: int, reason: str) -> None:
    cluster = Cluster(found(tuple(evicted(f"job-{number}", 1) for number in range(jobs))))
    held = accepted(cluster, None, candidate(guardrails=f"{{requirePlan: {asked}}}"))
    assert (held.reason if held else "") == reason


def test_an_exact_plan_is_stale_once_somebody_came_or_went() -> None:
    exact = saved(found(), exact=True)
    moved = msgspec.structs.replace(found(), cluster="sha256:another")
    assert accepted(Cluster(), exact, candidate()) is None
    held = accepted(Cluster(moved), exact, candidate())
    assert held is not None
    assert held.reason == "PlanStale"
    assert accepted(Cluster(moved), saved(found()), candidate()) is None, "an envelope does not mind"


def test_what_says_the_same_or_comes_first_is_not_planned() -> None:
    cluster = Cluster(msgspec.structs.replace(found(), breaches=(BREACH,)))
    for asked in (candidate(guaranteed=64), candidate(first=True)):
        assert WithinGuardrails(cluster.plans()).hold(asked) is None
    assert cluster.judged == 0


def test_before_the_first_round_it_has_to_wait() -> None:
    with pytest.raises(NotReadyToPlanError):
        WithinGuardrails(Cluster(snapshot=None).plans()).hold(candidate())


def test_a_held_revision_is_planned_anew_now_and_then() -> None:
    cluster = Cluster()
    guardrails = WithinGuardrails(cluster.plans())
    for later, judged in ((0, 1), (FRESH_MS, 1), (FRESH_MS + 1, 2)):
        cluster.snapshot = snapshot_of(Instant(NOW + later), (), ())
        guardrails.hold(candidate())
        assert cluster.judged == judged
