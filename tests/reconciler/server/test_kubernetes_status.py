"""What is said of a cluster of pods: how far each kind is followed, in status, log and metrics, and what nobody keeps there."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.api.payloads import Condition
from reconciler.control.control import NoPolicyError, PolicyInForce
from reconciler.control.metrics import Metrics
from reconciler.documents.operations import Operations
from reconciler.kubernetes.client.kind_watch import WatchState
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.control.followed_figures import FollowedFigures
from reconciler.kubernetes.control.watch_status import followed_in, say_what_is_behind
from reconciler.kubernetes.objects.resource import NODES, PODS, Resource
from reconciler.model.budget import BudgetPeriod, GpuBudget
from reconciler.model.health_policy import HealthPolicy, NodeTest
from reconciler.model.idle_policy import IdleEvidence, IdlePolicy
from reconciler.model.watch_status import BEHIND_S, FollowedKind
from reconciler.server.kubernetes_status import KubernetesStatus
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName
from solver.policy.policy import Policy, PriorityClass, policy_of

READ = Instant(1_000)
ABSENT = WatchState(Resource("jobset.x-k8s.io/v1alpha2", "jobsets"), False, 0, None, "", None, 0, "404", absent=True)


def pods(silent_s: float, problem: str = "") -> WatchState:
    return WatchState(PODS, True, 40, READ, "9", silent_s, 2, problem)


class Kinds:
    """A ClusterCache, as far as it is asked how it stands."""

    def __init__(self, *looks: WatchState) -> None:
        self.looks = list(looks)

    def standing(self) -> tuple[WatchState, ...]:
        return (self.looks.pop(0) if len(self.looks) > 1 else self.looks[0], ABSENT)

    def followed(self) -> tuple[FollowedKind, ...]:
        return followed_in(cast("ClusterCache", self))


NOTHING = Operations()


class Policies:
    def __init__(self, policy: Policy | None, operations: Operations = NOTHING) -> None:
        self.policy = policy
        self.operations = operations

    def current(self) -> PolicyInForce:
        if self.policy is None:
            raise NoPolicyError("none yet")
        return PolicyInForce("1", self.policy, (), self.operations)


def conditions(policy: Policy | None, *looks: WatchState) -> list[Condition]:
    return list(KubernetesStatus(Kinds(*looks).followed, Policies(policy)).conditions())


@pytest.mark.parametrize(
    ("look", "state"),
    [
        (pods(BEHIND_S), "followed"),
        (pods(BEHIND_S + 1), "behind: nothing heard for 181 s"),
        (pods(1, "403"), "behind: nothing heard for 1 s; 403"),
        (WatchState(NODES, False, 0, None, "", None, 0, "403"), "not followed: 403"),
        (WatchState(NODES, False, 0, READ, "", 999.0, 0, "403"), "not followed: 403"),
        (WatchState(NODES, True, 5, READ, "", 10.0, 0, "404", absent=True), "behind: nothing heard for 10 s; 404"),
        (WatchState(NODES, True, 0, None, "", None, 0, ""), "being read"),
        (ABSENT._replace(silent_s=999.0), "being read"),
    ],
)
def test_the_state_of_a_kind_in_words(look: WatchState, state: str) -> None:
    kind, _ = Kinds(look).followed()
    assert kind.state == state


def test_status_says_which_kinds_are_behind() -> None:
    assert conditions(None, pods(1)) == [Condition("Behind", status=False, reason="Followed", message="")]
    (behind,) = conditions(None, pods(200))
    assert (behind.status, behind.reason) == (True, "NotHeard")
    assert behind.message == "pods: behind: nothing heard for 200 s"


def test_status_says_what_the_policy_asks_for_and_nobody_keeps() -> None:
    policy = policy_of((), (PriorityClass("batch"), PriorityClass("notebooks", idle_limit=Duration(1_000))))
    (_, not_kept) = conditions(policy, pods(1))
    assert (not_kept.type, not_kept.status, not_kept.reason) == ("NotKept", True, "IdleLimits")
    assert "PriorityClasses notebooks end no job" in not_kept.message
    assert len(conditions(policy_of((), (PriorityClass("batch"),)), pods(1))) == 1
    health = HealthPolicy(test=NodeTest(("true",)), origin="policies/health.yaml:3")
    (_, both) = KubernetesStatus(Kinds(pods(1)).followed, Policies(policy, Operations(health=health))).conditions()
    assert (both.reason, both.message.count(";")) == ("IdleLimits", 1)
    (_, untested) = KubernetesStatus(
        Kinds(pods(1)).followed, Policies(policy_of(()), Operations(health=health))
    ).conditions()
    assert (untested.type, untested.reason) == ("NotKept", "NodeTest")
    assert "the test of the HealthPolicy (policies/health.yaml:3) is not run" in untested.message


def test_the_log_says_once_that_a_kind_is_behind_and_once_that_it_is_not_any_more() -> None:
    looks = Kinds(pods(1), pods(200), pods(230), pods(1), pods(1))

    async def rest(_: float) -> None:
        if len(looks.looks) == 1:
            raise asyncio.CancelledError

    with capture_logs() as said, pytest.raises(asyncio.CancelledError):
        asyncio.run(say_what_is_behind(cast("ClusterCache", looks), structlog.get_logger(), rest))
    assert [(line["event"], line["resource"]) for line in said] == [
        ("kind-behind", "pods"),
        ("kind-followed-again", "pods"),
    ]


def test_figures_are_read_at_each_scrape_without_what_is_not_there() -> None:
    metrics = Metrics()
    metrics.add(FollowedFigures(Kinds(pods(200))))
    lines = [line for line in metrics.text().decode().splitlines() if line.startswith("quorate_followed")]
    assert lines == [
        'quorate_followed_objects{kind="pods"} 40.0',
        'quorate_followed_silent_seconds{kind="pods"} 200.0',
        'quorate_followed_breaks_total{kind="pods"} 2.0',
        'quorate_followed_behind{kind="pods"} 1.0',
    ]


def test_status_says_that_nobody_keeps_idle_policies_and_budgets_of_users_there() -> None:
    operations = Operations(
        idle=(IdlePolicy("hoarding", IdleEvidence()),),
        budgets=(
            GpuBudget("daily", BudgetPeriod("day", "UTC"), user="ada", gpu_hours=1),
            GpuBudget("team", BudgetPeriod("day", "UTC"), queue=QueueName("q"), gpu_hours=1),
        ),
    )
    kinds = Kinds(pods(1)).followed
    _, said = KubernetesStatus(kinds, Policies(policy_of(()), operations)).conditions()
    assert (said.reason, said.message.split("; ")) == (
        "IdlePolicies",
        [
            "it is not seen what pods do: the IdlePolicies hoarding warn no job",
            "which user a pod belongs to is not on record: nothing counts to the Budgets daily",
        ],
    )
