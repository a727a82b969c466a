"""Nodes of a Kubernetes cluster that say that they are not well: what policy makes of that, in rounds, on record and to gangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.documents.operations import Operations
from reconciler.kubernetes.binder.eviction import Outcome
from reconciler.kubernetes.binder.eviction_steps import LeaveNode, eviction_record_of, leaving_pods, uids_of
from reconciler.kubernetes.binder.records import written
from reconciler.kubernetes.control.node_health import ASK_AGAIN, DrainRequests, leaving_drained
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.node_signs import node_signs
from reconciler.kubernetes.objects.resource import NODES
from reconciler.kubernetes.objects.wire import KubeNode, read
from reconciler.kubernetes.status.occurrences import node_health_occurrence, of_drains
from reconciler.model.health_policy import ConditionRule, HealthPolicy, LabelRule, NodeTest, TaintRule
from reconciler.model.health_record import NodeHealth, PartHealth
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from solver.plan.plan import Bind
from tests.reconciler.kubernetes.control.followed import NOW, Followed, a_running, a_waiting, followed
from tests.reconciler.kubernetes.control.test_sight import DEADLINE, GANG, POLICY, a_worker, sight_of
from tests.reconciler.kubernetes.samples import Sent, node

MINUTE = 60_000
XID = ConditionRule("XIDError", "drain", held=Duration(MINUTE))
HEALTH = HealthPolicy(conditions=(XID,), bad_node_ttl=Duration(30 * MINUTE), max_unhealthy="50%")
Story = Callable[[Followed], Coroutine[Any, Any, None]]


def a_sick(name: str, kind: str = "XIDError", status: str = "True", since: str = "2026-11-20T08:58:00Z") -> Sent:
    """A node with 8 H100 and a condition beside Ready."""
    sent = node(name)
    sent["status"]["conditions"].append(
        {"type": kind, "status": status, "lastTransitionTime": since, "reason": "XID79"}
    )
    return sent


def told(folder: Path, story: Story, *objects: Sent, health: HealthPolicy | None = HEALTH) -> None:
    async def with_objects() -> None:
        async with followed(folder, *objects) as world:
            world.policies.in_force = world.policies.in_force._replace(operations=Operations(health=health))
            await story(world)

    asyncio.run(with_objects())


async def goes_on(world: Followed, minutes: int, *changed: Sent) -> None:
    """So much later, with these nodes as they are now, one more pass."""
    for sent in changed:
        world.objects.put(NODES, sent)
    await world.caught_up()
    world.clock.advance(minutes * MINUTE)
    await world.taken()


def events(world: Followed) -> list[tuple[str, str]]:
    history = world.store.history
    return [(one.kind, name) for name in ("n1", "n2", "n3") for one in history.events(name)]


def signs(sent: Sent, policy: HealthPolicy) -> list[tuple[str, str, Instant | None]]:
    return [(sign.key.kind, sign.detail, sign.at) for sign in node_signs(read(sent, KubeNode), policy)]


def test_a_condition_says_since_when_and_why() -> None:
    said = "its condition XIDError is True since 2026-11-20T08:58:00Z (XID79)"
    assert signs(a_sick("n1"), HEALTH) == [("condition", said, Instant.parse("2026-11-20T08:58:00Z"))]
    assert signs(a_sick("n1", status="False"), HEALTH) == []
    assert signs(a_sick("n1", "KernelDeadlock"), HEALTH) == []
    (unreadable,) = signs(a_sick("n1", since="yesterday"), HEALTH)
    assert unreadable[1:] == ("its condition XIDError is True (XID79)", None)


def test_a_rule_may_name_several_statuses_and_a_node_that_is_not_ready_is_lost_too() -> None:
    away = ConditionRule("Ready", "cordon", ("False", "Unknown"), Duration(MINUTE))
    assert [kind for kind, _, _ in signs(node("n1", ready="Unknown"), HealthPolicy(conditions=(away,)))] == [
        "lost",
        "condition",
    ]
    assert signs(node("n1"), HealthPolicy(conditions=(away,))) == []


def test_taints_and_labels_that_health_tooling_sets() -> None:
    at = "2026-11-20T08:00:00Z"
    sick = node(
        "n1",
        taints=[{"key": "example.com/gpu-health", "value": "bad", "effect": "NoExecute", "timeAdded": at}],
        labels={"example.com/state": "quarantined"},
    )
    policy = HealthPolicy(
        taints=(
            TaintRule("example.com/gpu-health", "drain"),
            TaintRule("example.com/gpu-health", "suspect", effect="NoSchedule"),
            TaintRule("example.com/gpu-health", "cordon", "worse"),
        ),
        labels=(
            LabelRule("example.com/state", "cordon", ("quarantined",)),
            LabelRule("example.com/state", "drain", ("broken",)),
        ),
    )
    assert signs(sick, policy) == [
        ("taint", "it has the taint example.com/gpu-health=bad:NoExecute", Instant.parse(at)),
        ("label", "it has the label example.com/state=quarantined", None),
    ]


def test_nothing_new_starts_on_a_node_that_is_drained_for_its_condition_and_it_is_on_record(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        done, _ = await world.taken()
        assert {one.name: one.cordoned for one in done.snapshot.nodes} == {"n1": True, "n2": False}
        assert [step.tasks[0].node for step in done.plan.steps if isinstance(step, Bind)] == ["n2"]
        assert events(world) == [("node-drained", "n1")]
        (by_health,) = done.by_hand
        assert (by_health.author, by_health.subject.name) == ("health", "n1")
        (record,) = world.store.health.all()
        (part,) = record.parts
        assert (part.state, part.reason) == (
            "drained",
            "its condition XIDError is True since 2026-11-20T08:58:00Z (XID79)",
        )

    told(tmp_path, story, a_sick("n1"), node("n2"), a_waiting("waits"))


def test_a_node_that_flaps_is_drained_once_and_comes_back_when_its_time_is_over(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        await world.taken()
        well = a_sick("n1", status="False", since="2026-11-20T09:01:00Z")
        await goes_on(world, 1, well)
        await goes_on(world, 10, a_sick("n1", since="2026-11-20T09:05:00Z"))
        await goes_on(world, 10, well)
        assert events(world) == [("node-drained", "n1")]
        await goes_on(world, 60)
        assert events(world) == [("node-drained", "n1"), ("node-well", "n1")]
        assert world.store.health.all() == ()

    told(tmp_path, story, a_sick("n1"), node("n2"))


def test_where_nothing_changes_a_pass_is_due_when_the_condition_has_lasted_long_enough(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        await world.quiet()
        assert events(world) == []
        world.clock.advance(20_000)
        assert not world.quietness.holds()
        await world.taken()
        assert events(world) == [("node-drained", "n1")]

    told(tmp_path, story, a_sick("n1", since="2026-11-20T08:59:10Z"), node("n2"))


def test_no_more_of_a_pool_is_closed_than_policy_allows_and_the_rest_is_suspect(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        done, _ = await world.taken()
        assert [one.name for one in done.snapshot.nodes if one.cordoned] == ["n1", "n2"]
        assert events(world) == [("node-drained", "n1"), ("node-drained", "n2"), ("node-suspect", "n3")]

    told(tmp_path, story, *(a_sick(f"n{number}") for number in range(1, 4)))


def test_a_user_lets_a_node_take_work_again_and_a_test_that_is_not_run_holds_it_no_longer(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        await world.taken()
        (record,) = world.store.health.all()
        assert record.parts[0].until == world.clock.now().after(30 * MINUTE - 1_000)
        world.store.health.forgive(NodeName("n1"), world.clock.now())
        done, _ = await world.taken()
        assert not any(one.cordoned for one in done.snapshot.nodes)
        assert events(world) == [("node-drained", "n1"), ("node-well", "n1")]

    tested = msgspec.structs.replace(HEALTH, test=NodeTest(("true",)))
    told(tmp_path, story, a_sick("n1"), node("n2"), health=tested)


@pytest.mark.parametrize("health", [None, HealthPolicy()])
def test_without_a_rule_nothing_follows(health: HealthPolicy | None, tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        done, _ = await world.taken()
        assert not any(one.cordoned for one in done.snapshot.nodes)
        assert not events(world)

    told(tmp_path, story, a_sick("n1"), node("n2"), health=health)


def test_what_is_remembered_ends_with_the_policy_and_with_the_node(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        await world.taken()
        world.objects.drop(NODES, "", "n1")
        await goes_on(world, 1)
        assert world.store.health.all() == ()
        await goes_on(world, 1, a_sick("n1"))
        assert len(world.store.health.all()) == 1
        world.policies.in_force = world.policies.in_force._replace(operations=Operations())
        await goes_on(world, 1)
        assert world.store.health.all() == ()

    told(tmp_path, story, a_sick("n1"), node("n2"))


DRAINED = NodeHealth(NodeName("n1"), parts=(PartHealth("", "drained", NOW, "XID 79", NOW.after(MINUTE)),))
CORDONED = NodeHealth(NodeName("n2"), parts=(PartHealth("", "cordoned", NOW, "XID 79"),))


def leaving(pods: Sequence[Sent], records: Sequence[NodeHealth] = (DRAINED, CORDONED)) -> list[LeaveNode]:
    return list(leaving_drained(sight_of([node("n1"), node("n2")], pods), records, POLICY))


def on(index: int, at: str, **notes: str) -> Sent:
    return a_worker(index, at, annotations={names.ATTEMPT: "2", **notes})


def test_a_gang_leaves_as_a_whole_when_one_of_its_nodes_is_drained() -> None:
    (step,) = leaving([on(0, "n1"), on(1, "n2"), on(2, "n2")])
    assert step[:3] == (GANG, 2, "node n1 is drained (XID 79)")
    assert leaving([on(0, "n2"), on(1, "n2"), on(2, "n2")]) == []
    assert leaving([on(0, "n1"), on(1, "n2"), on(2, "n2")], (CORDONED,)) == []


def test_an_elastic_gang_goes_on_without_the_tasks_that_it_can_do_without() -> None:
    few = {names.GANG_SIZE: "2"}
    (step,) = leaving([on(0, "n1", **few), on(1, "n2", **few), on(2, "n2", **few)])
    assert step.only == ("uid-of-w0",)
    (step,) = leaving([on(0, "n1", **few), on(1, "n1", **few), on(2, "n2", **few)])
    assert step.only == ()


def test_an_elastic_gang_that_would_lose_a_whole_role_leaves_as_a_whole() -> None:
    alone = on(0, "n1", **{names.GANG_SIZE: "2", names.ROLE: "head"})
    others = [on(number, "n2", **{names.GANG_SIZE: "2", names.ROLE: "worker"}) for number in (1, 2, 3)]
    sight = sight_of([node("n1"), node("n2")], [alone, *others])
    job = sight.gangs[GANG].job
    assert job is not None
    assert all(group.least for group in job.spec.task_groups), "or this says nothing"
    (step,) = leaving_drained(sight, (DRAINED,), POLICY)
    assert step.only == ()


def test_what_was_asked_is_written_and_not_asked_again_and_counts_as_no_eviction() -> None:
    pods = [on(0, "n1"), on(1, "n2"), on(2, "n2")]
    sight = sight_of([node("n1"), node("n2")], pods)
    (step,) = leaving_drained(sight, (DRAINED,), POLICY)
    gang = sight.gangs[GANG]
    there = leaving_pods(gang, sight.pods, uids_of(gang, step))
    record = eviction_record_of(step, there, NOW)
    assert (record.intent.kind, record.intent.purpose, record.intent.evicts) == ("stop", "requeue", False)
    assert record.asks_to_save
    pods[0]["metadata"]["annotations"][names.EVICT] = written(record)
    assert leaving(pods) == []


def test_each_pod_that_leaves_is_told_and_the_node_is() -> None:
    sight = sight_of([node("n1"), node("n2")], [on(0, "n1"), on(1, "n2"), on(2, "n2")])
    steps = tuple(leaving_drained(sight, (DRAINED,), POLICY))
    said = list(of_drains(steps, sight.gangs))
    assert [(one.regarding.name, one.reason) for one in said] == [(f"w{n}", "Evicting") for n in range(3)]
    assert said[0].note.startswith("node n1 is drained (XID 79); it has ")
    of_node = node_health_occurrence(NodeName("n1"), DRAINED.parts[0])
    assert (of_node.regarding.kind, of_node.reason, of_node.warning) == ("Node", "NodeDrained", True)
    assert of_node.note == f"XID 79, until {NOW.after(MINUTE)}"


def test_a_gang_that_may_not_leave_is_asked_again_after_a_while() -> None:
    requests, step = DrainRequests(), LeaveNode(JobName("a"), 1, "why", DEADLINE)
    assert requests.due([step], NOW) == (step,)
    requests.heard([Outcome(JobName("a"), "refused", "a budget")], NOW)
    assert requests.due([step], NOW.after(ASK_AGAIN - 1)) == ()
    assert requests.due([step], NOW.after(ASK_AGAIN)) == (step,)


def test_a_running_pod_counts_as_before_on_a_node_that_is_only_cordoned(tmp_path: Path) -> None:
    async def story(world: Followed) -> None:
        done, _ = await world.taken()
        assert [job.phase for job in done.snapshot.jobs] == ["running"]
        assert not done.plan.steps

    cordon = msgspec.structs.replace(HEALTH, conditions=(ConditionRule("XIDError", "cordon"),))
    told(tmp_path, story, a_sick("n1"), node("n2"), a_running("runs", "n1"), health=cordon)
