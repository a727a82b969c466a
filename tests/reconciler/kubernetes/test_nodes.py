"""Nodes: GPU types, slots, MIG instances, domains, and what pods of others leave."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kubernetes.objects.domains import position, positions
from reconciler.model.gpu_products import TYPE_OF_PRODUCT, type_of_product
from solver.model.mig_layout import model_of_type
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from solver.model.topology import topology_of
from tests.reconciler.kubernetes.samples import Sent, cluster, node, pod

TOPOGRAPH = "network.topology.nvidia.com"
AWS = "topology.k8s.aws/network-node-layer"
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


@pytest.mark.parametrize(
    ("product", "gpu_type", "model"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB", "H100-80GB"),
        ("NVIDIA-A100-SXM4-40GB", "A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA-A100-80GB-PCIe-SHARED", "A100-PCIe-80GB", "A100-80GB"),
        ("NVIDIA-H100-NVL", "H100-NVL-94GB", "H100-NVL-94GB"),
        ("NVIDIA-H200", "H200-SXM5-141GB", "H200-141GB"),
        ("NVIDIA-B200", "B200-180GB", "B200-180GB"),
        ("Tesla-T4", "T4-16GB", ""),
        ("NVIDIA-GB200", "GB200", ""),
        ("NVIDIA-A30", "A30-24GB", "A30-24GB"),
    ],
)
def test_products_are_called_as_pools_call_them(product: str, gpu_type: str, model: str) -> None:
    assert type_of_product(product) == gpu_type
    assert model_of_type(type_of_product(product)) == model


def test_types_of_the_table_have_no_makers() -> None:
    assert [product for product in TYPE_OF_PRODUCT if product.startswith(("NVIDIA", "Tesla"))] == []


def test_a_node_offers_what_is_allocatable_less_what_pods_of_others_use() -> None:
    others = [
        pod("agent", gpus=0, on="n1", spec={"schedulerName": "default-scheduler"}),
        pod("theirs", gpus=2, on="n1", spec={"schedulerName": "default-scheduler"}),
        pod("over", gpus=8, on="n1", phase="Succeeded", spec={"schedulerName": "default-scheduler"}),
    ]
    (seen,) = cluster([node("n1")], others).nodes
    assert (seen.cpu, seen.memory) == (94_000, 2**40 - 2**31)
    assert [gpu.id for gpu in seen.gpus] == [f"n1/{index}" for index in range(6)]
    assert seen.gpus[0].memory == 81559 * 2**20
    assert seen.schedulable


def test_gpus_that_are_not_healthy_are_those_that_nobody_has() -> None:
    mine = pod("mine", gpus=1, on="n1", annotations={"quorate.dev/devices": "n1/7"})
    (seen,) = cluster([node("n1", offers={"nvidia.com/gpu": "7"}, has={"nvidia.com/gpu": "8"})], [mine]).nodes
    assert [gpu.index for gpu in seen.gpus if not gpu.healthy] == [6]


@pytest.mark.parametrize(
    "said",
    [
        {"ready": "Unknown"},
        {"spec": {"unschedulable": True}},
        {"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]},
    ],
)
def test_nodes_that_take_nothing_new_are_closed(said: dict[str, Any]) -> None:
    daemon = pod("daemon", gpus=0, on="n1", spec={"schedulerName": "default-scheduler"})
    (seen,) = cluster([node("n1", **said)], [daemon]).nodes
    assert not seen.schedulable


def test_a_node_has_what_others_leave_of_what_gangs_ask_for() -> None:
    others: Sent = {"schedulerName": "default-scheduler"}
    port = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    pods = [
        pod("asks", requests={"rdma/hca": "1", "ephemeral-storage": "1Gi"}),
        pod("listens", gpus=0, spec=port),
        pod("mine", on="n1", requests={"rdma/hca": "1"}),
        pod("theirs", gpus=0, on="n1", requests={"rdma/hca": "1", "hugepages-2Mi": "2Mi"}, spec=others),
        pod("port", gpus=0, on="n2", spec={**others, **port}),
        pod("unread", gpus=0, on="n2", requests={"cpu": "lots"}, spec=others),
        pod("over", gpus=0, on="n2", phase="Succeeded", requests={"rdma/hca": "1"}, spec=others),
    ]
    nodes = [
        node("n1", offers={"rdma/hca": "4", "hugepages-2Mi": "1Gi", "ephemeral-storage": "10Gi"}),
        node("n2", offers={"rdma/hca": "2.5"}),
        node("n3", offers={"pods": "0"}),
    ]
    n1, n2, n3 = (known.resources for known in cluster(nodes, pods).nodes)
    # Of what no gang asks for nothing is said, and of a port only where others listen on it.
    assert n1 == {"ephemeral-storage": 10 * 2**30, "pods": 109, "rdma/hca": 3}
    assert n2 == {"hostPort/TCP/80": 0, "pods": 108, "rdma/hca": 2}
    assert n3 == {}


def test_replicas_are_counted_as_the_gpus_they_are() -> None:
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.product": "NVIDIA-L40S-SHARED"}
    (seen,) = cluster([node("n1", gpus=8, labels=labels)], []).nodes
    assert (len(seen.gpus), seen.gpu_type) == (2, "L40S-48GB")


def test_mig_instances_are_laid_out_on_as_few_gpus_as_they_fit() -> None:
    offers = {
        "nvidia.com/gpu": "6",
        "nvidia.com/mig-3g.40gb": "2",
        "nvidia.com/mig-1g.10gb": "7",
        "nvidia.com/mig-1g.10gb.me": "1",
    }
    (seen,) = cluster([node("n1", offers=offers, labels={"nvidia.com/mig.strategy": "mixed"})], []).nodes
    parts = [
        [(one.profile, one.start) for one in gpu.instances or ()] for gpu in seen.gpus if gpu.instances is not None
    ]
    assert parts[0] == [("3g.40gb", 0), ("3g.40gb", 4)]
    assert sorted(profile for gpu in parts[1:] for profile, _ in gpu) == ["1g.10gb"] * 7 + ["1g.10gb+me"]
    assert len(parts) == 3
    assert sum(gpu.instances is None for gpu in seen.gpus) == 6


def test_mig_instances_that_others_use_keep_their_gpu_from_us() -> None:
    theirs = pod("theirs", gpus=0, on="n1", requests={"nvidia.com/mig-3g.40gb": "1"}, spec={"schedulerName": "x"})
    (seen,) = cluster([node("n1", gpus=0, labels=H100, offers={"nvidia.com/mig-3g.40gb": "4"})], [theirs]).nodes
    assert [len(gpu.instances or ()) for gpu in seen.gpus] == [2]


def test_a_node_of_which_a_device_plugin_says_that_it_has_none_has_none() -> None:
    assert cluster([node("c1", 0, offers={"nvidia.com/gpu": "0"})], []).remarks == ()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}}, "mig-single"),
        ({"labels": {"nvidia.com/gpu.product": ""}}, "gpu-type-unknown"),
        ({"gpus": 0, "labels": H100, "offers": {"nvidia.com/mig-9g.10gb": "1"}}, "mig-profile-unknown"),
        (
            {"gpus": 0, "labels": {"quorate.dev/gpu-type": "X1"}, "offers": {"nvidia.com/mig-1g.10gb": "1"}},
            "mig-model-unknown",
        ),
        ({"offers": {"example.com/odd": "many"}}, "unreadable-quantity"),
    ],
)
def test_what_can_not_be_used_of_a_node_is_said(said: dict[str, Any], code: str) -> None:
    seen = cluster([node("n1", **said)], [])
    assert [remark.code for _, remark in seen.remarks] == [code]
    assert code == "unreadable-quantity" or seen.nodes[0].gpus == ()


@pytest.mark.parametrize(
    ("labels", "island", "rack", "block"),
    [
        ({}, "", "", ""),
        ({"nvidia.com/gpu.clique": "u.1"}, "u.1", "u.1", ""),
        ({"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r"}, "", "", "z1"),
        ({"cloud.provider.com/topology-block": "b", "cloud.provider.com/topology-rack": "r"}, "", "b.r", "b"),
        (
            {f"{TOPOGRAPH}/accelerator": "nvl1", f"{TOPOGRAPH}/leaf": "l", f"{TOPOGRAPH}/spine": "s"},
            "nvl1",
            "s.l",
            "s",
        ),
        ({"topology.kubernetes.io/zone": "z", f"{AWS}-2": "b", f"{AWS}-3": "r"}, "", "z.b.r", "z.b"),
        ({"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "s"}, "", "b.s", "b"),
        ({"accelerator.topograph.run/domain": "d", "nvidia.com/gpu.clique": "u.1"}, "u.1", "u.1", ""),
    ],
)
def test_labels_say_where_a_node_lies(labels: dict[str, str], island: str, rack: str, block: str) -> None:
    assert position(labels) == (island, rack, block)


def test_labels_that_contradict_each_other_never_break_the_tree() -> None:
    """A clique in two racks is left out: a round must not fail because one node was labelled late."""
    late = {"nvidia.com/gpu.clique": "u.1"}
    labels = {
        "n1": late,
        "n2": {**late, "cloud.provider.com/topology-rack": "r"},
        "n3": {"nvidia.com/gpu.clique": "u.2"},
    }
    assert [known.island for known in positions(labels).values()] == ["", "", "u.2"]
    seen = cluster([node(name, labels=said) for name, said in labels.items()], [])
    assert topology_of(seen.nodes)["island"].names


def test_pools_are_those_of_the_cloud_or_of_the_gpu_type() -> None:
    nodes = [
        node("a"),
        node("b", labels={"cloud.google.com/gke-nodepool": "gke"}),
        node("c", labels={"cloud.google.com/gke-nodepool": "gke", "quorate.dev/pool": "ours"}),
        node("d", gpus=0),
    ]
    seen = cluster(nodes, [])
    assert [known.pool for known in seen.nodes] == ["h100-sxm5-80gb", "gke", "ours", "cpu"]
    assert len(snapshot_of(Instant(0), seen.nodes, ()).nodes) == 4
