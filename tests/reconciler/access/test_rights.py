"""What roles allow, and where: the rules without any server."""

from __future__ import annotations

from typing import get_args

import pytest

from reconciler.access.caller import Caller
from reconciler.access.policy import AccessPolicy, Role, RoleBinding
from reconciler.access.rights import Action, Rights
from solver.model.workload import QueueName
from solver.policy.policy import Queue, QueueAccess, policy_of

ORG, TEAM, DEEP, OTHER = map(QueueName, ("org", "team", "deep", "other"))
POLICY = policy_of(
    (
        Queue(ORG),
        Queue(TEAM, ORG, access=QueueAccess(submitters=("group:vision",), admins=("user:lead",))),
        Queue(DEEP, TEAM),
        Queue(OTHER, ORG),
    )
)
ADA = Caller("ada")


def rights(caller: Caller, *roles: RoleBinding, groups: dict[str, tuple[str, ...]] | None = None) -> Rights:
    return Rights(caller, POLICY, AccessPolicy(groups=groups or {}, roles=roles))


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("planner", {"plan"}),
        ("viewer", {"plan", "look", "see-job"}),
        ("submitter", {"plan", "look", "see-job", "read-job", "submit"}),
        ("operator", {"plan", "look", "see-job", "read-job", "hold-job", "operate"}),
        (
            "admin",
            {
                "plan",
                "look",
                "see-job",
                "read-job",
                "submit",
                "steer-job",
                "hold-job",
                "operate",
                "steer-policy",
                "admit-nodes",
                "audit",
            },
        ),
    ],
)
def test_what_a_role_allows_in_its_queues_and_below(role: Role, allowed: set[Action]) -> None:
    mine = rights(ADA, RoleBinding(role, ("user:ada",), (TEAM,)))
    for queue, expected in ((TEAM, allowed), (DEEP, allowed), (OTHER, set()), (ORG, set()), (None, set())):
        assert {action for action in get_args(Action) if mine.may(action, queue)} == expected, queue


def test_a_role_without_queues_holds_everywhere() -> None:
    everywhere = rights(ADA, RoleBinding("admin", ("user:ada",)))
    assert all(everywhere.may(action, queue) for action in get_args(Action) for queue in (ORG, DEEP, None))
    assert everywhere.may("steer-job", QueueName("deleted"))


@pytest.mark.parametrize(
    ("subject", "caller", "holds"),
    [
        ("user:ada", ADA, True),
        ("user:ada", Caller("bob"), False),
        ("user:ada", Caller("bob", frozenset({"ada"})), False),
        ("group:ada", ADA, False),
        ("group:vision", Caller("bob", frozenset({"vision"})), True),
        ("group:listed", ADA, True),
        ("group:listed", Caller("bob"), False),
        ("group:*", Caller("anybody"), True),
    ],
)
def test_subjects(subject: str, caller: Caller, holds: bool) -> None:
    mine = rights(caller, RoleBinding("viewer", (subject,)), groups={"listed": ("ada",)})
    assert mine.may_look() == holds


def test_queues_name_their_own_submitters_and_admins() -> None:
    submitter, lead = rights(Caller("bob", frozenset({"vision"}))), rights(Caller("lead"))
    assert submitter.queues_for("submit") == (DEEP, TEAM)
    assert not submitter.may("steer-job", TEAM)
    assert lead.queues_for("steer-job") == (DEEP, TEAM)
    assert not lead.may("see-job", OTHER)


def test_own_jobs_are_ones_own_wherever_they_are() -> None:
    mine = rights(ADA)
    assert {action for action in get_args(Action) if mine.may(action, OTHER, owner="ada")} == {
        "see-job",
        "read-job",
        "steer-job",
        "hold-job",
    }
    assert not mine.may("read-job", OTHER, owner="bob")


def test_without_a_policy_nobody_may_but_the_owner() -> None:
    assert not Rights(ADA, POLICY, None).may_look()
    owner = Rights(Caller("ada", owner=True), policy_of(()), None)
    assert all(owner.may(action, None) for action in get_args(Action))


def test_a_circle_of_queues_ends() -> None:
    circle = policy_of((Queue(TEAM, OTHER), Queue(OTHER, TEAM)))
    assert not Rights(ADA, circle, AccessPolicy()).may("look", TEAM)
