"""Nodes of the cluster joined with what Git declares of them, and what of a node is kept for others."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.files import Files
from reconciler.documents.repository import read_repository
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import ClusterModel, cluster_of
from reconciler.model.declared_nodes import redeclared, with_declaration
from solver.model.amounts import amounts_of
from solver.model.cluster import DeviceId, Gpu, GpuType, Links, NodeName
from solver.model.cluster import Node as SolverNode
from solver.model.quantities import Cpu, Memory
from tests.drawn import worlds
from tests.reconciler.kubernetes.samples import Sent, codes, node, pod, the_gang

RACK, BLOCK = "cloud.provider.com/topology-rack", "cloud.provider.com/topology-block"
GI = 2**30
THEIRS: Sent = {"schedulerName": "default-scheduler"}


def declared(name: str, **said: Any) -> SolverNode:
    gpus = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(8))
    usual = {"pool": "train", "cpu": Cpu(90_000), "memory": Memory(900 * GI), "gpu_type": GpuType("H100-SXM5-80GB")}
    return SolverNode(name=NodeName(name), gpus=gpus, **{**usual, **said})


def seen(nodes: list[Sent], pods: list[Sent] = [], **said: Any) -> KubernetesCluster:  # noqa: B006  (read only)
    return cluster_of([read(sent, KubeNode) for sent in nodes], [read(sent, Pod) for sent in pods], **said)


def test_git_says_what_a_node_is_for_and_the_cluster_what_there_is() -> None:
    links = Links(rack=100.0)
    git = declared("n1", rack="rack-7", block="hall-2", links=links, data=("imagenet",))
    (known,) = seen(
        [node("n1", gpus=4, labels={RACK: "r1", BLOCK: "b1", "nvidia.com/gpu.clique": "u.1"})], declared=[git]
    ).nodes
    assert (known.pool, known.island, known.rack, known.block) == ("train", "", "rack-7", "hall-2")
    assert (known.links, known.data) == (links, ("imagenet",))
    assert len(known.gpus) == 4
    assert known.schedulable


def test_documents_in_git_say_where_nodes_without_labels_lie() -> None:
    text = """
apiVersion: quorate.dev/v1
kind: NodePool
metadata: {name: train}
spec: {gpuType: H100-SXM5-80GB, gpusPerNode: 8, cpu: 90, memory: 900Gi, nodes: {prefix: n, count: 4}, cordoned: [n4]}
---
apiVersion: quorate.dev/v1
kind: Topology
metadata: {name: train}
spec: {pool: train, shape: {nodesPerIsland: 1, islandsPerRack: 2, racksPerBlock: 2}}
"""
    written = read_repository(Files({"cluster-state/train.yaml": text.encode()})).checked().nodes
    there = [node("n1"), node("n2"), node("n3"), node("n4"), node("n5")]
    found = {str(known.name): known for known in seen(there, declared=written).nodes}
    racks = {name: (known.domain("rack"), known.domain("block")) for name, known in found.items()}
    assert racks["n1"] == racks["n2"] != racks["n3"] == racks["n4"]
    assert {block for _, block in (racks[f"n{number}"] for number in (1, 2, 3, 4))} == {"train/block-0001"}
    assert [name for name, known in found.items() if known.cordoned] == ["n4"]
    assert (found["n5"].pool, found["n5"].rack, found["n5"].cpu) == ("h100-sxm5-80gb", "", 96_000)


def test_where_git_says_no_domain_labels_do() -> None:
    (known,) = seen([node("n1", labels={RACK: "r1"})], declared=[declared("n1")]).nodes
    assert (known.pool, known.rack) == ("train", "r1")


def test_a_node_that_only_git_knows_is_not_there_and_one_that_git_does_not_know_joins_as_it_is() -> None:
    cluster = seen(
        [node("n1"), node("new", labels={"quorate.dev/pool": "spot"})], declared=[declared("n1"), declared("n9")]
    )
    assert [(known.name, known.pool) for known in cluster.nodes] == [("n1", "train"), ("new", "spot")]


def test_closed_is_who_either_says_is() -> None:
    nodes = [node("n1"), node("n2", spec={"unschedulable": True}), node("n3")]
    cluster = seen(nodes, declared=[declared("n1", cordoned=True), declared("n2"), declared("n3")])
    assert [known.cordoned for known in cluster.nodes] == [True, True, False]


def test_the_gpu_type_of_git_goes_before_a_label_and_takes_the_place_of_one_that_is_missing() -> None:
    unlabelled = node("n2")
    del unlabelled["metadata"]["labels"]["nvidia.com/gpu.product"]
    nodes = [node("n1"), unlabelled]
    assert seen(nodes).remarks[0][1].code == "gpu-type-unknown"
    cluster = seen(nodes, declared=[declared("n1", gpu_type=GpuType("H100-custom")), declared("n2")])
    assert cluster.remarks == ()
    assert [(known.gpu_type, len(known.gpus)) for known in cluster.nodes] == [("H100-custom", 8), ("H100-SXM5-80GB", 8)]


def test_jobs_may_use_no_more_cpu_and_memory_than_git_says_and_than_others_leave() -> None:
    nodes = [node(f"n{number}") for number in (1, 2)]
    others = [pod("theirs", 0, on="n2", requests={"cpu": "50", "memory": "1000Gi"}, spec=THEIRS)]
    cluster = seen(nodes, others, declared=[declared("n1"), declared("n2")])
    assert [(known.cpu, known.memory) for known in cluster.nodes] == [(90_000, 900 * GI), (46_000, 24 * GI)]


def test_jobs_may_use_no_more_of_a_resource_than_git_says() -> None:
    git = declared("n1", resources=amounts_of({"rdma/hca": 2, "ephemeral-storage": 2**40, "nobody/asks": 1}))
    asks = pod("asks", requests={"rdma/hca": "1", "ephemeral-storage": "1Gi"})
    cluster = seen([node("n1", offers={"rdma/hca": "4", "ephemeral-storage": "10Gi"})], [asks], declared=[git])
    assert cluster.nodes[0].resources == {"ephemeral-storage": 10 * GI, "pods": 110, "rdma/hca": 2}
    less = redeclared(cluster.nodes[0], git, declared("n1", resources=amounts_of({"rdma/hca": 1})))
    assert less.resources == {"ephemeral-storage": 10 * GI, "pods": 110, "rdma/hca": 1}
    more = redeclared(cluster.nodes[0], git, declared("n1", resources=amounts_of({"rdma/hca": 3})))
    assert more.resources == {"ephemeral-storage": 10 * GI, "pods": 110, "rdma/hca": 3}


KEPT = {"quorate.dev/headroom-cpu": "4", "quorate.dev/headroom-memory": "16Gi"}


def test_headroom_is_kept_until_others_use_it_and_counted_once_then() -> None:
    nodes = [node(f"n{number}", labels=KEPT) for number in (1, 2, 3)]
    others = [
        pod("small", 0, on="n2", requests={"cpu": "3", "memory": "1Gi"}, spec=THEIRS),
        pod("large", 0, on="n3", requests={"cpu": "10", "memory": "1Gi"}, spec=THEIRS),
        pod("ours", 8, on="n3", requests={"cpu": "40", "memory": "1Gi"}),
    ]
    cluster = seen(nodes, others)
    assert [known.cpu for known in cluster.nodes] == [92_000, 92_000, 86_000]
    assert {known.memory for known in cluster.nodes} == {1008 * GI}


def test_headroom_is_a_label_or_an_annotation_and_more_than_there_is_leaves_nothing() -> None:
    nodes = [node("a"), node("b"), node("c"), node("d", labels={"quorate.dev/headroom-cpu": "0"})]
    for sent, cpu in zip(nodes, ("8", "much", "500", "8"), strict=True):
        sent["metadata"]["annotations"] = {"quorate.dev/headroom-cpu": cpu}
    cluster = seen(nodes)
    assert [known.cpu for known in cluster.nodes] == [88_000, 96_000, 0, 96_000]
    assert [(name, remark.code) for name, remark in cluster.remarks] == [("b", "unreadable-headroom")]


def test_quorates_pods_tolerate_that_a_node_is_quorates_only() -> None:
    taints = [{"key": "quorate.dev/only", "effect": "NoSchedule"}]
    gang = the_gang(seen([node("n1", taints=taints)], [pod("waits")]))
    assert gang.job is not None
    assert codes(gang) == []
    other = the_gang(seen([node("n1", taints=[{"key": "theirs", "effect": "NoSchedule"}])], [pod("waits")]))
    assert codes(other) == ["no-node"]


DECLARED = st.lists(
    st.builds(
        declared,
        st.sampled_from(["n1", "n2", "n3", "n9"]),
        pool=st.sampled_from(["train", "other"]),
        rack=st.sampled_from(["", "g1", "g2"]),
        cordoned=st.booleans(),
        gpu_type=st.sampled_from(["", "H100-SXM5-80GB", "H100-custom"]).map(GpuType),
    ),
    max_size=4,
    unique_by=lambda known: known.name,
)


@worlds(100)
@given(st.lists(DECLARED, min_size=1, max_size=4))
def test_what_is_declared_last_counts_as_if_it_had_been_said_at_once(revisions: list[list[SolverNode]]) -> None:
    nodes = [read(node(name, labels={RACK: "r1"}), KubeNode) for name in ("n1", "n2", "n3")]
    pods = [read(pod("runs", 2, on="n1"), Pod), read(pod("waits", spec={"nodeSelector": {RACK: "r1"}}), Pod)]
    world = ClusterModel()
    for known in nodes:
        world.node(None, known)
    for each in pods:
        world.pod(None, each)
    for revision in revisions:
        world.declare(revision)
        found = world.cluster()
        assert found == cluster_of(nodes, pods, declared=revision)
        by_name = {known.name: known for known in revision}
        assert all(with_declaration(by_name.get(known.name), known) == known for known in found.nodes), (
            "joined again, it is the same"
        )
