"""Objects, a round over what they mean, and the plan judged: what is read here is what the solver understands."""

from __future__ import annotations

from tests.reconciler.kubernetes.rounds import placed
from tests.reconciler.kubernetes.samples import Sent, cluster, node, pod

RACK = "cloud.provider.com/topology-rack"


def of_gang(name: str, many: int, gpus: int, spec: Sent | None = None, required: str = "") -> list[Sent]:
    said = {"quorate.dev/gang": name, "quorate.dev/gang-size": str(many)}
    said |= {"kueue.x-k8s.io/podset-required-topology": required} if required else {}
    return [pod(f"{name}-{n}", gpus, labels={"app": name}, annotations=said, spec=spec or {}) for n in range(many)]


def test_a_round_places_gangs_around_what_runs() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
            ]
        }
    }
    nodes = [node(name, labels={RACK: name[0]}) for name in ("a1", "a2", "b1", "b2")]
    pods = [
        pod("runs", 4, on="a1", annotations={"quorate.dev/devices": "a1/0,a1/1,a1/2,a1/3"}),
        pod("theirs", 2, on="a2", spec={"schedulerName": "default-scheduler"}),
        *of_gang("rack", 2, 8, required=RACK),
        *of_gang("apart", 2, 4, {"affinity": apart}),
        *of_gang("large", 9, 8),
    ]
    seen = cluster(nodes, pods)
    assert placed(seen) == {"vision.gang.rack": ["b1", "b2"], "vision.gang.apart": ["a1", "a2"]}


def test_a_round_keeps_pods_to_the_nodes_that_they_select_and_tolerate() -> None:
    taint = [{"key": "gpu", "effect": "NoSchedule"}]
    tolerant = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
    nodes = [
        node("a1", taints=taint),
        node("b1", taints=taint, labels={"disk": "nvme"}),
        node("b2", taints=taint, labels={"disk": "nvme"}),
        node("c1", gpus=0),
    ]
    pods = [
        *of_gang("nvme", 2, 8, {"nodeSelector": {"disk": "nvme"}, **tolerant}),
        *of_gang("any", 1, 8, tolerant),
        *of_gang("web", 1, 0),
    ]
    assert placed(cluster(nodes, pods)) == {
        "vision.gang.any": ["a1"],
        "vision.gang.nvme": ["b1", "b2"],
        "vision.gang.web": ["c1"],
    }


def test_what_one_pod_is_called_or_asks_for_stops_no_other() -> None:
    enough = {"cpu": "9E", "memory": "16Ei"}
    pods = [
        pod("greedy", 1, requests=enough),
        pod("sits", 1, on="a2", annotations={"quorate.dev/devices": "a2/0"}, requests=enough),
        *of_gang("team/train", 2, 4),
        *of_gang("team%2Ftrain", 1, 4),
        pod("humble", 1),
    ]
    nodes = [node("a1", offers=enough), node("a2"), node("a3")]
    started = placed(cluster(nodes, pods))
    assert sorted(started) == ["vision.gang.team%252Ftrain", "vision.gang.team%2Ftrain", "vision.pod.humble"]
