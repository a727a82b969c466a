"""Gangs that run on nodes which are not ready or under pressure: what they are told, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kubernetes.objects.gang_troubles import GangTrouble, gang_troubles
from reconciler.kubernetes.objects.node_troubles import trouble_of
from reconciler.kubernetes.objects.wire import KubeNode, read
from reconciler.kubernetes.objects.world import ClusterModel
from reconciler.kubernetes.status.occurrences import trouble_occurrences
from tests.reconciler.kubernetes.control.test_sight import GANG, a_worker, sight_of
from tests.reconciler.kubernetes.samples import Sent, node, pod

SINCE = "2026-11-20T08:50:00Z"
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-11-20T08:50:05Z"}
DEFAULT = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}


def away(name: str, *taints: Sent) -> Sent:
    """A node that is not heard of any more."""
    sent = node(name, taints=list(taints))
    sent["status"]["conditions"] = [
        {"type": "Ready", "status": "Unknown", "lastTransitionTime": SINCE, "reason": "NodeStatusUnknown"}
    ]
    return sent


def pressed(name: str, kind: str = "MemoryPressure") -> Sent:
    sent = node(name)
    sent["status"]["conditions"].append(
        {"type": kind, "status": "True", "lastTransitionTime": SINCE, "reason": "KubeletHasInsufficientMemory"}
    )
    return sent


def troubles(nodes: list[Sent], *tolerations: Sent, **said: Any) -> list[GangTrouble]:
    """Of a gang with two pods on n1 and one on n2."""
    spec = {"spec": {"tolerations": list(tolerations)}}
    pods = [a_worker(0, "n2", **spec), a_worker(1, "n1", **spec), a_worker(2, "n1", **spec)]
    sight = sight_of(nodes, pods)
    return list(gang_troubles(sight.gangs, sight.pods, sight.cluster.troubles))


def test_a_gang_is_told_which_node_is_not_ready_since_when_and_when_its_pods_are_evicted() -> None:
    (one,) = troubles([away("n1", UNREACHABLE), node("n2")], DEFAULT)
    assert one.sentence == (
        "node n1 is not ready: its condition Ready is Unknown since 2026-11-20T08:50:00Z (NodeStatusUnknown); 2 of its 3 pods "
        "run there: Kubernetes evicts what runs there at 2026-11-20T08:55:05Z, when that is tolerated no longer; a gang that "
        "loses a pod by it takes in the one that comes for it, and is released whole where it is not whole in time (startDeadline)"
    )
    said = [(known.regarding.name, known.reason, known.warning) for known in trouble_occurrences([one])]
    assert said == [(f"w{number}", "NodeNotReady", True) for number in range(3)], "the first is told, wherever it is"


@pytest.mark.parametrize(
    ("taints", "tolerations", "clause"),
    [
        ([UNREACHABLE], [{**DEFAULT, "tolerationSeconds": 60}, DEFAULT], "at 2026-11-20T08:51:05Z"),
        ([UNREACHABLE], [], "at 2026-11-20T08:50:05Z"),
        ([UNREACHABLE | {"timeAdded": None}], [], "at 2026-11-20T08:50:00Z"),
        ([UNREACHABLE], [{"operator": "Exists"}], "stays until the node is back or is deleted"),
        ([UNREACHABLE, UNREACHABLE | {"key": "a"}], [{"operator": "Exists"}, DEFAULT], "at 2026-11-20T08:55:05Z"),
        ([], [DEFAULT], "once it has tainted the node"),
        ([UNREACHABLE | {"effect": "NoSchedule"}], [DEFAULT], "once it has tainted the node"),
    ],
)
def test_when_pods_are_evicted_follows_from_taints_and_tolerations(
    taints: list[Sent], tolerations: list[Sent], clause: str
) -> None:
    (one,) = troubles([away("n1", *taints), node("n2")], *tolerations)
    assert clause in one.sentence


def test_pressure_is_told_with_what_the_kubelet_does_about_it() -> None:
    (one,) = troubles([pressed("n1"), node("n2")])
    assert one.sentence.startswith(
        "node n1 is under pressure: its condition MemoryPressure is True since 2026-11-20T08:50:00Z "
        "(KubeletHasInsufficientMemory); 2 of its 3 pods run there: its kubelet evicts pods until there is memory again"
    )
    assert {known.reason for known in trouble_occurrences([one])} == {"NodePressure"}


def test_each_of_its_nodes_is_told_and_a_gang_elsewhere_is_told_nothing() -> None:
    both = troubles([away("n1"), pressed("n2", "DiskPressure")])
    assert [(one.trouble.node, len(one.pods)) for one in both] == [("n1", 2), ("n2", 1)]
    assert troubles([node("n1"), node("n2"), away("n3")]) == []


def test_why_says_it_of_a_gang_and_a_pod_by_itself_is_no_gang_that_loses_one() -> None:
    alone = sight_of([away("n1")], [pod("alone", 1, "n1")])
    ((name, (sentence,)),) = alone.words.items()
    assert name == "vision.pod.alone"
    assert sentence.endswith("once it has tainted the node and that is tolerated no longer")
    gang = sight_of([away("n1"), node("n2")], [a_worker(0, "n2"), a_worker(1, "n1"), a_worker(2, "n1")])
    assert list(gang.words) == [GANG]


def test_a_node_without_conditions_is_not_ready_and_one_that_is_well_is_no_trouble() -> None:
    silent = node("n1")
    silent["status"]["conditions"] = []
    trouble = trouble_of(read(silent, KubeNode))
    assert trouble is not None
    assert trouble.words == "node n1 is not ready: it has no condition Ready"
    assert trouble_of(read(node("n1"), KubeNode)) is None


def test_the_world_says_it_as_long_as_it_is_so_also_where_nothing_else_of_the_node_changes() -> None:
    world, well, bad = ClusterModel(), read(node("n1"), KubeNode), read(pressed("n1"), KubeNode)
    world.node(None, well)
    assert world.cluster().troubles == ()
    world.node(well, bad)
    assert [known.node for known in world.cluster().troubles] == ["n1"]
    world.node(bad, well)
    assert world.cluster().troubles == ()
    world.node(well, bad)
    world.node(bad, None)
    assert world.cluster().troubles == ()
