"""Plans are accepted over the API, with who and why; a stale one is refused."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.client import ApiError, Client
from reconciler.documents.repository import Compiled
from reconciler.gitops.review.comparison import cluster_of
from reconciler.gitops.review.meaning import meaning_of
from reconciler.model.envelope import Envelope
from reconciler.model.git_status import PolicyCondition, PolicyStatus
from reconciler.model.review_findings import Review
from tests.reconciler.api.conftest import IN_FORCE, REVISION, Site
from tests.reconciler.gitops.review.test_guardrails import evicted, found

HEAD = "b" * 40
HELD = PolicyStatus((PolicyCondition("Stalled", True, "PlanDrift", "too much"),), REVISION, HEAD, acceptable=True)


def planned(meaning: str = "sha256:head") -> Review:
    review = found((evicted("a", 4),))
    return msgspec.structs.replace(review, head=msgspec.structs.replace(review.head, meaning=meaning, commit=HEAD))


ENVELOPE = Envelope.of(planned(), 0.0)


def test_a_plan_is_accepted_before_its_revision_is_merged(client: Client, site: Site) -> None:
    done = client.following.accept_plan(ENVELOPE, "agreed")
    assert (done.accepted.envelope, done.accepted.author, done.accepted.why) == (ENVELOPE, "alice", "agreed")
    assert not done.in_force
    assert site.store.plans.accepted("sha256:head") == done.accepted
    (event,) = site.store.history.events("sha256:head")
    assert (event.kind, event.cause, event.actor) == ("plan-accepted", "1 evicted, 4.0 GPU-hours lost: agreed", "alice")
    assert site.looks == 1


def test_what_is_in_force_already_needs_nobody(client: Client, site: Site) -> None:
    in_force = meaning_of(Compiled(*site.in_force[1:]))
    done = client.following.accept_plan(msgspec.structs.replace(ENVELOPE, meaning=in_force), "agreed")
    assert done.in_force
    assert (site.store.plans.accepted(in_force), site.looks) == (None, 0)


def test_a_plan_of_another_revision_than_the_one_that_is_held_is_stale(client: Client, site: Site) -> None:
    site.told, site.planned = HELD, planned("sha256:another")
    with pytest.raises(ApiError) as refused:
        client.following.accept_plan(ENVELOPE, "agreed")
    assert (refused.value.problem.code, refused.value.problem.status) == ("stale-plan", 409)
    site.planned = planned()
    assert client.following.accept_plan(ENVELOPE, "agreed").accepted.envelope == ENVELOPE


def test_an_exact_plan_is_of_this_cluster_and_this_base(client: Client, site: Site) -> None:
    in_force = meaning_of(Compiled(*site.in_force[1:]))
    exact = msgspec.structs.replace(
        ENVELOPE, exact=True, in_place_of=in_force, cluster=cluster_of(site.services().snapshot())
    )
    assert client.following.accept_plan(exact, "agreed").accepted.envelope == exact
    for other in ({"in_place_of": "sha256:older"}, {"cluster": "sha256:before"}):
        with pytest.raises(ApiError, match="is not what it was"):
            client.following.accept_plan(msgspec.structs.replace(exact, **other), "agreed")


def test_the_plan_of_a_held_revision_is_shown_beside_what_was_accepted(client: Client, site: Site) -> None:
    site.told = HELD
    with pytest.raises(ApiError, match="No revision is held"):
        client.following.fresh_plan()
    site.planned = planned()
    assert client.following.fresh_plan().accepted is None
    done = client.following.accept_plan(ENVELOPE, "agreed")
    shown = client.following.fresh_plan()
    assert (shown.review, shown.accepted) == (site.planned, done.accepted)
    site.told = IN_FORCE  # reverted meanwhile
    with pytest.raises(ApiError, match="No revision is held"):
        client.following.fresh_plan()
