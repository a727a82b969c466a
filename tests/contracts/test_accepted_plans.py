"""What every store of accepted plans does."""

from __future__ import annotations

import msgspec

from reconciler.model.envelope import AcceptedPlan, Envelope
from tests.contracts.stores import NOW, Stores
from tests.reconciler.gitops.review.test_guardrails import evicted, found

REVIEW = found((evicted("a", 4),))
PLAN = AcceptedPlan(Envelope.of(REVIEW, 0.01), "ada", "agreed with research", NOW)


def test_it_is_found_by_what_the_revision_says_also_after_a_restart(stores: Stores) -> None:
    stores.plans.accept(PLAN)
    stores.reopen()
    assert stores.plans.accepted(PLAN.envelope.meaning) == PLAN
    assert stores.plans.accepted("sha256:another") is None


def test_the_newest_counts(stores: Stores) -> None:
    later = msgspec.structs.replace(PLAN, author="bob", at=NOW.after(5))
    stores.plans.accept(PLAN)
    stores.plans.accept(later)
    assert stores.plans.accepted(PLAN.envelope.meaning) == later


def test_what_is_used_up_counts_no_more(stores: Stores) -> None:
    stores.plans.accept(PLAN)
    for _ in range(2):
        stores.plans.use("sha256:another")
        assert stores.plans.accepted(PLAN.envelope.meaning) == PLAN
    for _ in range(2):
        stores.plans.use(PLAN.envelope.meaning)
        assert stores.plans.accepted(PLAN.envelope.meaning) is None
