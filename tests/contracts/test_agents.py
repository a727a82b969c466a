"""What every store of agents does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from reconciler.protocols.agents import AgentRecord, AgentRevokedError, Invitation, NotInvitedError
from solver.model.cluster import NodeName
from tests.contracts.stores import NOW, Stores

NODE, OTHER = NodeName("gpu-1"), NodeName("gpu-2")
HOUR = 3_600_000
UNTIL = NOW.after(24 * HOUR)
INVITATION = Invitation("sha256:aa", NODE, "ada", NOW, NOW.after(HOUR))


def test_an_invitation_lets_one_key_in_and_the_same_again_changes_nothing(stores: Stores) -> None:
    stores.agents.invite(INVITATION)
    assert stores.agents.invitations() == (INVITATION,)
    joined = stores.agents.join("sha256:aa", NODE, "key", NOW, UNTIL)
    assert joined == AgentRecord(NODE, 1, NOW, NOW, UNTIL)
    assert stores.agents.invitations() == ()
    stores.reopen()
    assert stores.agents.join("sha256:aa", NODE, "key", NOW.after(5), UNTIL.after(5)) == joined
    with pytest.raises(NotInvitedError, match="used before, with another key"):
        stores.agents.join("sha256:aa", NODE, "other", NOW, UNTIL)
    assert stores.agents.agents() == (joined,)
    assert stores.agents.generations() == {joined.node: joined.generation}


def test_a_token_is_for_its_node_and_its_time(stores: Stores) -> None:
    stores.agents.invite(INVITATION)
    for token, node, now, problem in (
        ("sha256:bb", NODE, NOW, "no such token"),
        ("sha256:aa", OTHER, NOW, "the token is for node gpu-1, and gpu-2 asks"),
        ("sha256:aa", NODE, NOW.after(HOUR), "was good until"),
    ):
        with pytest.raises(NotInvitedError, match=problem):
            stores.agents.join(token, node, "key", now, UNTIL)
    assert stores.agents.agents() == ()
    assert stores.agents.join("sha256:aa", NODE, "key", NOW.after(HOUR - 1), UNTIL).generation == 1


def test_a_new_invitation_replaces_the_one_before_it_and_drops_what_is_over(stores: Stores) -> None:
    stores.agents.invite(INVITATION)
    stores.agents.invite(msgspec.structs.replace(INVITATION, token_hash="sha256:bb", node=OTHER, until=NOW.after(9)))
    newer = msgspec.structs.replace(INVITATION, token_hash="sha256:cc", at=NOW.after(9))
    stores.agents.invite(newer)
    assert stores.agents.invitations() == (newer,)
    with pytest.raises(NotInvitedError, match="no such token"):
        stores.agents.join("sha256:aa", NODE, "key", NOW, UNTIL)


def test_each_joining_begins_a_generation(stores: Stores) -> None:
    stores.agents.invite(INVITATION)
    stores.agents.join("sha256:aa", NODE, "key", NOW, UNTIL)
    stores.agents.renew(NODE, 1, NOW.after(3), UNTIL.after(3))
    assert stores.agents.agent(NODE) == AgentRecord(NODE, 1, NOW, NOW.after(3), UNTIL.after(3))
    stores.agents.invite(msgspec.structs.replace(INVITATION, token_hash="sha256:bb"))
    assert stores.agents.join("sha256:bb", NODE, "key", NOW.after(5), UNTIL).generation == 2
    with pytest.raises(AgentRevokedError):
        stores.agents.renew(NODE, 1, NOW, UNTIL)
    stores.agents.renew(NODE, 2, NOW, UNTIL)


def test_a_revoked_agent_gets_nothing_until_it_joins_anew(stores: Stores) -> None:
    assert stores.agents.revoke(NODE, NOW, "ada") is None
    stores.agents.invite(INVITATION)
    stores.agents.join("sha256:aa", NODE, "key", NOW, UNTIL)
    revoked = stores.agents.revoke(NODE, NOW.after(7), "ada")
    assert revoked == AgentRecord(NODE, 2, NOW, NOW, UNTIL, NOW.after(7), "ada")
    assert stores.agents.revoke(NODE, NOW.after(9), "bob") == revoked
    for generation in (1, 2):
        with pytest.raises(AgentRevokedError, match="gpu-1 counts no more"):
            stores.agents.renew(NODE, generation, NOW, UNTIL)
    with pytest.raises(NotInvitedError):
        stores.agents.join("sha256:aa", NODE, "key", NOW, UNTIL)
    stores.agents.invite(msgspec.structs.replace(INVITATION, token_hash="sha256:bb"))
    assert stores.agents.join("sha256:bb", NODE, "key", NOW, UNTIL) == AgentRecord(NODE, 3, NOW, NOW, UNTIL)


def test_revoking_takes_back_an_invitation(stores: Stores) -> None:
    stores.agents.invite(INVITATION)
    stores.agents.revoke(NODE, NOW, "ada")
    with pytest.raises(NotInvitedError):
        stores.agents.join("sha256:aa", NODE, "key", NOW, UNTIL)


def test_of_many_who_use_a_token_at_once_one_joins(stores: Stores) -> None:
    stores.agents.invite(INVITATION)

    def attempt(number: int) -> bool:
        try:
            stores.agents.join("sha256:aa", NODE, f"key-{number}", NOW, UNTIL)
        except NotInvitedError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(attempt, range(8))) == 1
    found = stores.agents.agent(NODE)
    assert found is not None
    assert found.generation == 1
