"""Objects, a round over what they mean, and the plan judged: what is read here is what the solver understands."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from solver.milp.highs import optimise
from tests.drawn import worlds
from tests.reconciler.kubernetes.rounds import placed, starts
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


def listening(*ports: Sent) -> Sent:
    return {"containers": [{"name": "c", "ports": list(ports), "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}


def test_gangs_that_listen_on_one_port_get_nodes_of_their_own() -> None:
    """With hostNetwork the API server writes a hostPort for each containerPort."""
    port = listening({"containerPort": 29500, "hostPort": 29500, "protocol": "TCP"})
    theirs = pod("theirs", 0, on="a1", spec={**port, "schedulerName": "default-scheduler"})
    pods = [*of_gang("one", 2, 1, port), *of_gang("two", 2, 1, port), theirs]
    nodes = [node(name) for name in ("a1", "a2", "a3", "a4", "a5")]
    found = placed(cluster(nodes, pods))
    assert sorted(found["vision.gang.one"] + found["vision.gang.two"]) == ["a2", "a3", "a4", "a5"]
    assert len(placed(cluster(nodes[:4], pods))) == 1


ASKED = st.fixed_dictionaries(
    {
        "requests": st.fixed_dictionaries(
            {
                "rdma/hca": st.sampled_from(["0", "1", "2"]),
                "ephemeral-storage": st.sampled_from(["0", "0", "3G", "1500m"]),
            }
        ),
        "ports": st.lists(
            st.fixed_dictionaries(
                {
                    "hostPort": st.sampled_from([80, 81]),
                    "protocol": st.sampled_from(["TCP", "TCP", "UDP"]),
                    "hostIP": st.sampled_from(["", "0.0.0.0", "10.0.0.1", "10.0.0.2"]),
                }
            ),
            max_size=2,
        ),
        "waits_in": st.sampled_from(["", "", "pair", "trio"]),
        "on": st.sampled_from(["", "", "", "n1", "n2"]),
        "scheduler": st.sampled_from(["quorate", "quorate", "default-scheduler"]),
    }
)
HAS = {"rdma/hca": 3, "ephemeral-storage": 4 * 10**9, "pods": 4}


@worlds(200)
@given(st.lists(ASKED, min_size=4, max_size=12))
def test_no_round_gives_a_node_pods_that_its_kubelet_turns_away(drawn: list[dict[str, Any]]) -> None:
    pods = {f"p{number}": asking(f"p{number}", one) for number, one in enumerate(drawn)}
    there: dict[str, list[Sent]] = {"n1": [], "n2": []}
    for name, sent in list(pods.items()):
        if on := sent["spec"]["nodeName"]:
            if is_turned_away(there[on], sent):
                del pods[name]
            else:
                there[on].append(sent)
    offers = {name: str(number) for name, number in HAS.items()}
    seen = cluster([node(name, offers=offers) for name in there], pods.values())
    pod_of = {(gang.name, each.group, each.task_index): each.name for gang in seen.gangs for each in gang.members}
    for optimiser in (None, optimise):
        after = {name: [*on] for name, on in there.items()}
        for step in starts(seen, optimiser):
            for task in step.tasks:
                bound = pods[pod_of[step.job, task.group, task.index]]
                assert not is_turned_away(after[task.node], bound)
                after[task.node].append(bound)


def asking(name: str, drawn: dict[str, Any]) -> Sent:
    many = {"pair": "2", "trio": "3"}.get(drawn["waits_in"])
    said = {"quorate.dev/gang": drawn["waits_in"], "quorate.dev/gang-size": many} if many and not drawn["on"] else {}
    on = drawn["on"] or ("n1" if drawn["scheduler"] != "quorate" else "")
    sent = pod(name, 1, on=on, requests=drawn["requests"], annotations=said, spec={"schedulerName": drawn["scheduler"]})
    sent["spec"]["containers"][0]["ports"] = [{"containerPort": port["hostPort"], **port} for port in drawn["ports"]]
    return sent


def is_turned_away(there: list[Sent], sent: Sent) -> bool:
    """As a kubelet decides it (OutOfpods, OutOfrdma/hca, NodePorts and so on), one pod after the other."""
    amount_of = {"0": 0, "1": 1, "2": 2, "3G": 3 * 10**9, "1500m": 2}

    def requests(one: Sent) -> Sent:
        return {**one["spec"]["containers"][0]["resources"]["requests"]}

    def total(resource: str) -> int:
        return sum(amount_of[requests(one)[resource]] for one in (*there, sent))

    def clash(one: Sent, other: Sent) -> bool:
        anywhere = ("", "0.0.0.0")
        same = (one["hostPort"], one["protocol"]) == (other["hostPort"], other["protocol"])
        return same and (one["hostIP"] in anywhere or other["hostIP"] in anywhere or one["hostIP"] == other["hostIP"])

    taken = [port for one in there for port in one["spec"]["containers"][0]["ports"]]
    return (
        len(there) >= HAS["pods"]
        or any(total(resource) > HAS[resource] for resource in ("rdma/hca", "ephemeral-storage"))
        or any(clash(port, other) for port in sent["spec"]["containers"][0]["ports"] for other in taken)
    )


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
