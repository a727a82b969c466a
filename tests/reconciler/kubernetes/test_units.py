"""Sub-groups of PodGroups of which so many do: KAI's, and Volcano's, become units of task groups."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reconciler.kubernetes.control.node_health import leaving_drained
from reconciler.kubernetes.control.sight import cluster_sight
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.wire import Pod, read
from reconciler.model.health_record import NodeHealth, PartHealth
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import Bundle, Together
from solver.policy.policy import policy_of
from tests.reconciler.kubernetes.rounds import starts
from tests.reconciler.kubernetes.samples import Sent, cluster, codes, from_yaml, node, pod, queued, the_gang

NOW = Instant(0)
RACK = "cloud.provider.com/topology-rack"
NODES = [node(name, labels={RACK: name[0]}) for name in ("a1", "a2", "b1", "b2")]
IN_RACK = {"topology": "default", "requiredTopologyLevel": RACK}


def kai(spec: Sent) -> list[Sent]:
    """A PodGroup of KAI."""
    (group,) = from_yaml(
        """
        apiVersion: scheduling.run.ai/v2alpha2
        kind: PodGroup
        metadata: {name: serve, namespace: vision}
        spec: {queue: research}
        """
    )
    return [{**group, "spec": group["spec"] | spec}]


def sub_group(name: str, parent: str = "", pods: int = 0, **more: object) -> Sent:
    """One of its sub-groups."""
    return {"name": name, **({"parent": parent} if parent else {}), **({"minMember": pods} if pods else {}), **more}


def in_sub_group(role: str, number: int = 0, gpus: int = 1) -> Sent:
    """A pod of one."""
    labels = queued({"kai.scheduler/subgroup-name": role})
    return pod(f"{role}-{number}", gpus=gpus, labels=labels, annotations={"pod-group-name": "serve"})


PAIRS = {
    "minSubGroup": 2,
    "subGroups": [
        known
        for number in range(3)
        for known in (
            sub_group(f"replica-{number}", topologyConstraint=IN_RACK),
            sub_group(f"replica-{number}-prefill", f"replica-{number}", 1),
            sub_group(f"replica-{number}-decode", f"replica-{number}", 2),
        )
    ],
}


def pairs(units: Sequence[int] = (0, 1, 2)) -> list[Sent]:
    """The pods of these units."""
    return [
        known
        for unit in units
        for known in (
            in_sub_group(f"replica-{unit}-prefill", gpus=4),
            in_sub_group(f"replica-{unit}-decode", 0),
            in_sub_group(f"replica-{unit}-decode", 1),
        )
    ]


def groups_of(gang: PodGang) -> list[tuple[str, int, int, int]]:
    """Its task groups: replicas, the least, and how many a unit has."""
    assert gang.job is not None, (gang.refusals, gang.missing)
    return [(known.name, known.replicas, known.least, known.replica_step) for known in gang.job.spec.task_groups]


def test_sub_groups_of_several_roles_are_units() -> None:
    gang = the_gang(cluster(NODES, pairs(), kai(PAIRS)))
    assert groups_of(gang) == [("replica-decode", 6, 4, 2), ("replica-prefill", 3, 2, 1)]
    assert gang.job is not None
    assert gang.job.spec.topology.together == (Together(("replica-decode", "replica-prefill"), "rack", None, 3, 2),)
    assert {
        (known.group, known.task_index): known.name for known in gang.members if known.group == "replica-decode"
    } == {
        ("replica-decode", 2 * unit + number): f"replica-{unit}-decode-{number}"
        for unit in range(3)
        for number in range(2)
    }


def test_sub_groups_of_one_role_are_bundles_that_come_together() -> None:
    tree = [sub_group(f"prefill-{number}", pods=2, topologyConstraint=IN_RACK) for number in range(4)]
    pods = [in_sub_group(f"prefill-{unit}", number) for unit in range(4) for number in range(2)]
    gang = the_gang(cluster(NODES, pods, kai({"minSubGroup": 3, "subGroups": [*tree]})))
    assert groups_of(gang) == [("prefill", 8, 6, 2)]
    assert gang.job is not None
    assert gang.job.spec.topology.together == (Together(("prefill",), None, None, 4, 3),)
    assert gang.job.spec.task_groups[0].topology.group == Bundle(2, "rack")


def test_a_gang_waits_for_as_many_whole_units_as_it_needs() -> None:
    gangs = cluster(NODES, pairs([0]), kai(PAIRS)).gangs
    assert [(gang.name, str(gang.missing)) for gang in gangs] == [("vision.kai.serve", "waiting for 3 of 6 pods")]


def test_what_is_no_whole_unit_yet_waits_by_itself() -> None:
    gangs = cluster(NODES, pairs()[:-1], kai(PAIRS)).gangs
    whole, part = sorted(gangs, key=lambda gang: gang.name)
    assert groups_of(whole) == [("replica-decode", 4, 4, 2), ("replica-prefill", 2, 2, 1)]
    assert (part.name, str(part.missing)) == ("vision.kai.serve:replica-2", "waiting for 1 of 3 pods")


def test_all_sub_groups_are_needed_where_the_number_says_so() -> None:
    tree = [sub_group("leader", pods=1), sub_group("worker", pods=2)]
    pods = [in_sub_group("leader"), in_sub_group("worker", 0), in_sub_group("worker", 1), in_sub_group("worker", 2)]
    gang = the_gang(cluster(NODES, pods, kai({"minSubGroup": 2, "subGroups": tree})))
    assert groups_of(gang) == [("leader", 1, 1, 1), ("worker", 3, 2, 1)]


def running(units: Sequence[int] = (0, 1, 2)) -> list[Sent]:
    """The same pods, on nodes."""
    on = [(known, "a1" if "-0-" in known["metadata"]["name"][:10] else "b1") for known in pairs(units)]
    return [
        {**known, "spec": {**known["spec"], "nodeName": node}, "status": {**known["status"], "phase": "Running"}}
        for known, node in on
    ]


def test_a_pod_that_takes_the_place_of_another_is_that_task_of_its_unit() -> None:
    pods = [known for known in running() if known["metadata"]["name"] != "replica-1-decode-1"]
    gang = the_gang(cluster(NODES, [*pods, in_sub_group("replica-1-decode", 2)], kai(PAIRS)))
    assert gang.job is not None
    assert gang.job.phase == "running"
    assert [task.index for task in gang.job.placement if task.group == "replica-decode"] == [0, 1, 2, 4, 5]
    assert [known.task_index for known in gang.members if known.name == "replica-1-decode-2"] == [3]
    assert all(not known.nodes for known in gang.job.spec.task_groups)


def test_a_gang_gets_no_node_while_a_unit_that_runs_lacks_a_pod() -> None:
    pods = [known for known in running([0, 1]) if known["metadata"]["name"] != "replica-1-decode-1"]
    gang = the_gang(cluster(NODES, [*pods, *pairs([2])], kai(PAIRS)))
    assert groups_of(gang) == [("replica-decode", 6, 4, 2), ("replica-prefill", 3, 2, 1)]
    assert gang.job is not None
    assert all(known.nodes for known in gang.job.spec.task_groups)


def test_a_round_starts_the_units_for_which_there_is_room_and_completes_those_that_lost_a_pod() -> None:
    full = [pod("holder", gpus=6, on="b1"), pod("other", gpus=7, on="b2")]
    mine = {"queue": "q"}
    (start,) = starts(cluster(NODES, [*pairs(), *full], kai(PAIRS | mine)))
    assert sorted((task.group, task.index) for task in start.tasks) == [
        *(("replica-decode", index) for index in range(4)),
        *(("replica-prefill", index) for index in range(2)),
    ]
    pods = [known for known in running() if known["metadata"]["name"] != "replica-1-decode-1"]
    (grow,) = starts(cluster(NODES, [*pods, in_sub_group("replica-1-decode", 2)], kai(PAIRS | mine)))
    assert [(task.group, task.index, task.node[0]) for task in grow.tasks] == [("replica-decode", 3, "b")]


def test_a_drained_node_takes_the_whole_units_that_it_has_a_part_of() -> None:
    pods = running()
    far = next(known for known in pods if known["metadata"]["name"] == "replica-2-decode-1")
    far["spec"]["nodeName"] = "a2"
    seen = cluster(NODES, pods, kai(PAIRS))
    read_pods = {(known.metadata.namespace, known.metadata.name): known for known in (read(sent, Pod) for sent in pods)}
    sight = cluster_sight(seen, read_pods, {}, Duration(60_000), NOW, ())
    one = [f"uid-of-replica-2-{rest}" for rest in ("decode-0", "decode-1", "prefill-0")]
    for name, only in (("a2", one), ("b1", [])):  # two of three units have to stay
        health = NodeHealth(NodeName(name), parts=(PartHealth("", "drained", NOW, "XID 79", NOW.after(60_000)),))
        (step,) = leaving_drained(sight, (health,), policy_of(()))
        assert sorted(step.only) == only


@pytest.mark.parametrize(
    ("spec", "pods", "told"),
    [
        (
            {"minSubGroup": 1, "subGroups": [sub_group("a", pods=1), sub_group("b", pods=2)]},
            [in_sub_group("a")],
            "its PodGroup needs 1 of 2 sub-groups, which are not alike",
        ),
        (
            {"minSubGroup": 3, "subGroups": [sub_group("a", pods=1), sub_group("b", pods=1)]},
            [in_sub_group("a")],
            "its PodGroup needs 3 of 2 sub-groups",
        ),
        (
            {"minSubGroup": 1, "subGroups": [sub_group("w-0", pods=1), sub_group("w-1", pods=1)]},
            [in_sub_group("w-0", gpus=1), in_sub_group("w-1", gpus=2)],
            "these are not alike: their pods ask for different things",
        ),
        (
            {"minSubGroup": 1, "subGroups": [sub_group("w-0", pods=1), sub_group("w-1", pods=1)]},
            [in_sub_group("w-0", 0), in_sub_group("w-0", 1)],
            "are more than its sub-groups need",
        ),
    ],
)
def test_what_units_can_not_say_is_refused(spec: Sent, pods: list[Sent], told: str) -> None:
    gang = the_gang(cluster(NODES, pods, kai(spec)))
    assert codes(gang) == ["sub-groups"]
    assert told in gang.refusals[0].message


def volcano(policy: Sent, pods: int) -> list[Sent]:
    """A PodGroup of Volcano."""
    (group,) = from_yaml(
        """
        apiVersion: scheduling.volcano.sh/v1beta1
        kind: PodGroup
        metadata: {name: serve, namespace: vision}
        spec: {queue: research}
        """
    )
    return [{**group, "spec": group["spec"] | {"minMember": pods, "subGroupPolicy": [policy]}}]


def test_sub_groups_of_volcano_are_told_apart_by_labels() -> None:
    policy = {"name": "pair", "subGroupSize": 3, "minSubGroups": 2, "matchLabelKeys": ["app/replica"]}
    pods = [
        pod(
            f"{role}-{unit}-{number}",
            gpus=gpus,
            labels=queued({"app/replica": str(unit)}),
            annotations={"scheduling.volcano.sh/group-name": "serve", "volcano.sh/task-spec": role},
        )
        for unit in range(3)
        for role, gpus, many in (("prefill", 4, 1), ("decode", 1, 2))
        for number in range(many)
    ]
    gang = the_gang(cluster(NODES, pods, volcano(policy, 6)))
    assert groups_of(gang) == [("decode", 6, 4, 2), ("prefill", 3, 2, 1)]
    assert gang.job is not None
    assert gang.job.spec.topology.together == (Together(("decode", "prefill"), None, None, 3, 2),)
