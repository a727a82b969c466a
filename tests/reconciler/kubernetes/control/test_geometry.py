"""MIG on nodes of the device plugin, in a round: which may be changed, what is on its way, and what a plan asks of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from reconciler.kubernetes.binder.journal import GangBinding, PodBinding
from reconciler.kubernetes.binder.records import written
from reconciler.kubernetes.control.geometry import bindable, enforceable, geometry_of, wishes_of, with_geometry
from reconciler.kubernetes.control.sight import Remembered, Sight, cluster_sight, snapshot_from
from reconciler.kubernetes.mig.change import DEADLINE, REST, Made, MigChange, ended_change
from reconciler.kubernetes.mig.slots import slots_of
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.inflight import Counter
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Bind, Plan, Repartition
from solver.policy.division import MigChanges, MigGeometry
from solver.policy.policy import Policy, Queue, Quota, policy_of
from solver.round.solve import solve
from tests.reconciler.kubernetes.samples import Sent, cluster, node, pod

NOW = Instant.parse("2026-11-20T09:00:00Z")
TYPE = GpuType("H100-SXM5-80GB")
POOL = "h100-sxm5-80gb"
CONFIG = "first-1g"
FIRST = slots_of("H100-80GB", [("1g.10gb",) * 7, None])
MANAGED = {names.MIG_CONFIG: "all-disabled", names.MIG_STATE: "success"}


def policy(drain: Any = "never") -> Policy:
    queue = Queue(QueueName("q"), quota=(Quota(TYPE, guaranteed=MilliGpu.gpus(16)),))
    return policy_of((queue,), mig=(MigGeometry("mig", POOL, "free", "H100-80GB", (), MigChanges(4, drain)),))


def a_node(name: str = "n1", gpus: int = 2, change: MigChange | None = None, labels: Mapping[str, str] = {}) -> Sent:
    made = node(name, gpus, labels={names.POOL: POOL, **MANAGED, **labels})
    made["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": "5"}
    if change:
        made["metadata"]["annotations"] = {names.MIG: written(change)}
        made["metadata"]["labels"] |= {names.MIG_CONFIG: change.config, **labels}
    return made


def a_change(**said: Any) -> MigChange:
    known = MigChange("uid-of-n1", CONFIG, 3, NOW, NOW.after(DEADLINE), 2, TYPE, FIRST, (Made(NOW, 1),))
    return msgspec.structs.replace(known, **said)


def wants(profile: str = "1g.10gb", name: str = "a", **said: Any) -> Sent:
    return pod(name, 0, requests={f"nvidia.com/mig-{profile}": "1"}, **said)


def look(nodes: Iterable[Sent], pods: Iterable[Sent], now: Instant = NOW, by: Policy | None = None) -> Sight:
    listed, wires = list(pods), list(nodes)
    known = {(one.metadata.namespace, one.metadata.name): one for one in (read(sent, Pod) for sent in listed)}
    sight = cluster_sight(cluster(wires, listed), known, {}, Duration(300_000), NOW)
    nodes_read = [read(sent, KubeNode) for sent in wires]
    return with_geometry(sight, geometry_of(by or policy(), sight, nodes_read, now), now)


def decided(sight: Sight, now: Instant = NOW, by: Policy | None = None) -> tuple[Snapshot, Plan]:
    """A round of it, with which the checker agrees."""
    snapshot = snapshot_from(now, sight, by or policy(), (), Remembered())
    plan = solve(snapshot, by or policy(), optimise)
    assert list(violations(snapshot, by or policy(), plan)) == []
    return snapshot, plan


def changed(plan: Plan) -> set[str]:
    return {step.node for step in plan.steps if isinstance(step, Repartition)}


def bound(plan: Plan) -> set[str]:
    return {step.job for step in plan.steps if isinstance(step, Bind)}


def test_a_node_that_nobody_uses_is_changed_for_who_needs_an_instance() -> None:
    sight = look([a_node()], [wants()])
    _, plan = decided(sight)
    ((name, wish),) = wishes_of(plan, sight)
    assert (name, wish.needs, wish.gpus, wish.current, wish.changes_left) == (
        "n1",
        {"1g.10gb": 1},
        2,
        "all-disabled",
        4,
    )
    assert (wish.now, wish.target.count(None)) == ((None, None), 1)


RESTING = ended_change(a_change(), "failed", NOW)
TAKEN = ended_change(a_change(), "taken-over", NOW)


@pytest.mark.parametrize(
    ("there", "pods", "why"),
    [
        (a_node(), [wants(), pod("b", 1, "n1")], "in use"),
        (a_node(), [wants(), pod("b", 1, "n1", spec={"schedulerName": "default-scheduler"})], "in use"),
        (node("n1", 2, labels={names.POOL: POOL}), [wants()], "no label"),
        (a_node(labels={names.MIG_STATE: "pending"}), [wants()], "pending"),
        (a_node(labels={names.MIG_STATE: "rebooting"}), [wants()], "rebooting"),
        (a_node(change=RESTING), [wants()], "failed"),
        (a_node(change=TAKEN, labels={names.MIG_CONFIG: "all-3g"}), [wants()], "another program"),
        (a_node(change=a_change(), labels={names.MIG_CONFIG: "all-3g"}), [wants()], "another program"),
        (a_node(change=a_change()), [wants("2g.20gb")], "being partitioned"),
    ],
)
def test_a_node_that_can_not_be_changed_now_is_not(there: Sent, pods: list[Sent], why: str) -> None:
    sight = look([there], pods)
    assert why in sight.geometry.kept[NodeName("n1")]
    _, plan = decided(sight)
    assert changed(plan) == set()
    assert "vision.pod.a" not in bound(plan)


def test_who_needs_another_geometry_gets_it_on_a_node_that_can_have_it() -> None:
    sight = look([a_node("n1", labels={names.MIG_STATE: "pending"}), a_node("n2")], [wants()])
    assert changed(decided(sight)[1]) == {"n2"}


@pytest.mark.parametrize("gone", [False, True])
def test_what_is_on_its_way_is_planned_with_and_not_asked_for_again(gone: bool) -> None:
    """Also while the device plugin is away, so that the node offers nothing."""
    sight = look([a_node(gpus=2, change=a_change())], [wants()])
    if gone:
        there = a_node(gpus=0, change=a_change())
        there["status"]["allocatable"][names.GPU] = "0"
        sight = look([there], [wants()])
    assert sorted({(asked.node, asked.attempt) for asked in sight.repartitions}) == [("n1", 3)]
    _, plan = decided(sight)
    assert changed(plan) == set()
    (bind,) = [step for step in plan.steps if isinstance(step, Bind)]
    assert [task.mig.gpu for task in bind.tasks if task.mig] == ["n1/1"]  # where it will be seen: whole GPUs come first
    assert NodeName("n1") in sight.geometry.changing


def offering(there: Sent, **counts: str) -> Sent:
    for offers in (there["status"]["allocatable"], there["status"]["capacity"]):
        offers.update({"nvidia.com/" + name.replace("_", ".").replace("mig.", "mig-"): n for name, n in counts.items()})
    return there


def test_once_its_state_and_its_resources_say_so_a_change_is_made() -> None:
    shown = offering(a_node(gpus=1, change=a_change()), mig_1g_10gb="7")
    assert look([shown], []).geometry.changing == {}
    shown["metadata"]["labels"][names.MIG_STATE] = "pending"
    assert set(look([shown], []).geometry.changing) == {"n1"}
    late = NOW.after(DEADLINE)
    assert look([shown], [], late).geometry.changing == {}
    shown["metadata"]["labels"][names.MIG_STATE] = "success"
    sight = look([shown], [wants()])
    assert bound(decided(sight)[1]) == {"vision.pod.a"}
    assert [one.instances is None for node in sight.cluster.nodes for one in node.gpus] == [True, False]


def test_a_node_rests_after_a_failure_and_is_asked_again_then() -> None:
    for fate in ("failed", "overdue"):
        resting = a_node(change=ended_change(a_change(), fate, NOW), labels={names.MIG_STATE: "failed"})
        assert changed(decided(look([resting], [wants()]))[1]) == set()
        later = NOW.after(REST)
        assert changed(decided(look([resting], [wants()], later), later)[1]) == {"n1"}


def test_what_is_on_its_way_is_waited_for_whatever_the_policy_says_by_now() -> None:
    bare = msgspec.structs.replace(policy(), mig=())
    sight = look([a_node(change=a_change())], [pod("w", 2)], by=bare)
    assert set(sight.geometry.changing) == {"n1"}
    assert bound(decided(sight, by=bare)[1]) == set()  # one GPU is to be whole, and it wants two


def test_nothing_starts_where_the_mig_manager_is_at_work_by_another_hand() -> None:
    busy = a_node(labels={names.MIG_STATE: "pending"})
    assert bound(decided(look([busy], [pod("w", 1)]))[1]) == set()
    assert bound(decided(look([a_node()], [pod("w", 1)]))[1]) == {"vision.pod.w"}


def test_changes_of_the_last_hour_are_counted() -> None:
    done = ended_change(
        a_change(before=(Made(NOW.after(-3_600_001), 9), Made(NOW.after(-5), 1), Made(NOW, 3))), "made", NOW
    )
    sight = look([a_node(change=done)], [wants()])
    assert sum(known.count for known in sight.counters) == 4
    assert {known.name for known in sight.counters if isinstance(known, Counter)} == {"mig-changes"}
    assert changed(decided(sight)[1]) == set()


def test_what_is_written_on_another_node_or_can_not_be_read_counts_as_nothing() -> None:
    copied = a_node(change=a_change())
    copied["metadata"]["uid"] = "another"
    garbled = a_node("n2")
    garbled["metadata"]["annotations"] = {names.MIG: "z:!"}
    sight = look([copied, garbled], [])
    assert (sight.geometry.changing, sight.repartitions, sight.geometry.kept) == ({}, (), {})


def test_nobody_has_to_leave_for_a_geometry_where_a_node_is_changed_as_a_whole() -> None:
    nodes = [a_node()]
    left = enforceable(policy("entitled"), cluster(nodes, []), [read(nodes[0], KubeNode)])
    assert [known.drains for known in left.mig] == [False]
    assert [known.drains for known in enforceable(policy("entitled"), cluster(nodes, []), []).mig] == [True]


def test_instances_are_used_as_they_are_where_the_policy_says_nothing() -> None:
    bare, there = msgspec.structs.replace(policy(), mig=()), offering(a_node(gpus=1), mig_1g_10gb="7")
    nodes = [read(there, KubeNode)]
    kept = enforceable(bare, cluster([there], []), nodes)
    sight = look([there], [wants(), wants("2g.20gb", "b")], by=kept)
    _, plan = decided(sight, by=kept)
    assert (bound(plan), changed(plan)) == ({"vision.pod.a"}, set())
    assert enforceable(policy(), cluster([there], []), nodes) == policy()
    assert enforceable(bare, cluster([a_node()], []), [read(a_node(), KubeNode)]) == bare


def test_gangs_with_a_gpu_on_a_node_that_is_being_changed_are_not_bound_yet() -> None:
    def gang(job: str, on: str, *devices: str) -> GangBinding:
        named = tuple(DeviceId(each) for each in devices)
        return GangBinding(JobName(job), 1, (PodBinding("s", job, "u", "1", NodeName(on), named),))

    gangs = [gang("a", "n1", "n1/0"), gang("b", "n2", "n2/0"), gang("c", "n1")]
    assert [one.job for one in bindable(gangs, {NodeName("n1")})] == ["b", "c"]
