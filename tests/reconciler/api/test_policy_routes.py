"""What people decide about following Git, over the API: it is kept with who and why, and refused where it does not fit."""

from __future__ import annotations

import pytest

from reconciler.client import ApiError, Client
from reconciler.model.git_status import PolicyCondition, PolicyStatus
from solver.model.quantities import Instant
from tests.reconciler.api.conftest import NOW, REVISION, Site

HELD = "b" * 40


def held(reason: str = "HistoryRewritten", *, acceptable: bool = True) -> PolicyStatus:
    return PolicyStatus(
        (PolicyCondition("Stalled", True, reason, "it was rewritten"),), REVISION, HELD, acceptable=acceptable
    )


def kinds(site: Site, subject: str) -> list[tuple[str, str, str]]:
    return [(event.kind, event.cause, event.actor) for event in site.store.history.events(subject)]


def test_a_held_revision_is_accepted_once_with_who_and_why(client: Client, site: Site) -> None:
    site.told = held()
    done = client.following.approve(HELD[:12], "  rebased\non purpose ")
    assert (done.commit, done.reason, done.in_place_of) == (HELD, "HistoryRewritten", REVISION)
    assert (done.author, done.why) == ("alice", "rebased on purpose")
    assert client.following.approve(HELD, "again") == done
    assert client.following.approvals() == (done,)
    assert kinds(site, HELD) == [("policy-approved", "HistoryRewritten: rebased on purpose", "alice")]
    assert site.looks == 2


@pytest.mark.parametrize(
    ("status", "revision", "reason", "code"),
    [
        (held(), "c" * 12, "why", "not-held"),
        (held(), HELD[:6], "why", "not-held"),
        (held(), "HEAD", "why", "not-held"),
        (held(), "", "why", "not-held"),
        (held("SignatureRefused", acceptable=False), HELD, "why", "not-acceptable"),
        (held(), HELD, "  ", "no-reason"),
        (held(), HELD, "x" * 501, "no-reason"),
        (PolicyStatus((PolicyCondition("Ready", True, "Applied", ""),), HELD, HELD), HELD, "why", "not-held"),
    ],
)
def test_what_can_not_be_accepted(
    client: Client, site: Site, status: PolicyStatus, revision: str, reason: str, code: str
) -> None:
    site.told = status
    with pytest.raises(ApiError) as refused:
        client.following.approve(revision, reason)
    assert refused.value.problem.code == code
    assert (client.following.approvals(), site.looks) == ((), 0)


def test_following_is_stopped_and_taken_up_again(client: Client, site: Site) -> None:
    done = client.following.suspend("the forge moves", "2h")
    assert (done.author, done.why) == ("alice", "the forge moves")
    assert done.until is not None
    assert done.until - done.at == 7_200_000
    assert client.following.suspend("the forge moves", str(done.until)) == done
    with pytest.raises(ApiError, match=r"suspended by alice until .*: the forge moves") as refused:
        client.following.look()
    assert refused.value.status == 409
    ended = client.following.resume()
    assert ended is not None
    assert (ended.number, ended.ended_by, site.looks) == (done.number, "alice", 1)
    assert client.following.resume() is None
    assert client.following.look() == NOW
    assert [kind for kind, _, _ in kinds(site, "policy")] == ["reconcile-suspended", "reconcile-resumed"]
    assert site.store.following.suspension(Instant(NOW)) is None


@pytest.mark.parametrize("until", ["yesterday", "0s", "2020-01-01T00:00:00Z"])
def test_a_suspension_ends_in_the_future(client: Client, until: str) -> None:
    with pytest.raises(ApiError) as refused:
        client.following.suspend("why", until)
    assert refused.value.problem.code == "unfit-end"
