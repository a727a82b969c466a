"""Pods with claims and nodes with devices, as a round sees them."""

from __future__ import annotations

from typing import Any

import msgspec

from hack.kubernetes import devices
from reconciler.kubernetes.dra.allocator import NoDevices
from reconciler.kubernetes.dra.pod_claims import PodClaims
from reconciler.kubernetes.dra.stock import Needs
from reconciler.kubernetes.dra.wire import ClaimStatus, ResourceClaim
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import ClusterModel
from solver.model.cluster import MigInstance, NodeName
from tests.reconciler.kubernetes.dra.test_stock import written
from tests.reconciler.kubernetes.dra.worlds import CLASSES, NOW, a_claim, a_request, profile, slices_of

H100 = "H100-SXM5-80GB"
READY: dict[str, Any] = {
    "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "20"},
    "conditions": [{"type": "Ready", "status": "True"}],
}


def a_pod(name: str, *claims: str, node: str = "", phase: str = "Pending", **more: Any) -> Pod:
    spec = {
        "schedulerName": names.SCHEDULER,
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
        **({"nodeName": node} if node else {}),
        **more,
    }
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": {names.QUEUE: "research"}}
    return read({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


class Seen:
    """A world of two nodes with GPUs for claims."""

    def __init__(self, *claims: ResourceClaim, gpus: int = 2) -> None:
        self.world = ClusterModel()
        self.claims = PodClaims(self.world)
        for name in ("n1", "n2"):
            status = {
                "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "20"},
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            self.claims.node(None, read({"metadata": {"name": name}, "status": status}, KubeNode))
            for part in slices_of(devices.mig_slices(name, gpus)):
                self.claims.slice(None, part)
        for known in CLASSES.values():
            self.claims.device_class(None, known)
        for claim in claims:
            self.claims.claim(None, claim)

    def cluster(self) -> KubernetesCluster:
        self.claims.tell()
        return self.world.cluster()

    def gang(self, name: str) -> PodGang:
        return next(gang for gang in self.cluster().gangs if gang.name == f"default.pod.{name}")

    def give(self, pod: Pod, node: str) -> None:
        """The pod's claims get what they need there, and are seen to have it."""
        stock = self.claims.stock
        needs = stock.needs(pod)
        assert isinstance(needs, Needs)
        found = stock.allot(pod, needs, NodeName(node), NOW)
        assert not isinstance(found, NoDevices)
        for allotment in found:
            claim, has = allotment.claim, written(allotment)
            stamp = {names.LEADER: "quorate-1", names.EPOCH: "1"}
            stamped = msgspec.structs.replace(claim.metadata, annotations=stamp)
            self.claims.claim(claim, ResourceClaim(stamped, has.spec, has.status))


def test_whole_gpus_of_claims_are_gpus_of_a_job() -> None:
    seen = Seen(a_claim(a_request("r", devices.DRIVER, count=2)))
    seen.claims.pod(None, a_pod("p", "c"))
    gang = seen.gang("p")
    assert (gang.refusals, gang.missing) == ((), None)
    assert gang.job is not None
    assert gang.job.spec.task_groups[0].shape.gpus == 2
    nodes = seen.cluster().nodes
    assert [(node.gpu_type, [gpu.id for gpu in node.gpus]) for node in nodes] == [
        (H100, ["GPU-n1-0", "GPU-n1-1"]),
        (H100, ["GPU-n2-0", "GPU-n2-1"]),
    ]


def test_a_pod_waits_for_claims_that_are_not_there_and_is_refused_what_can_t_be() -> None:
    seen = Seen()
    seen.claims.pod(None, a_pod("p", "c"))
    assert "ResourceClaim c, which is not there" in str(seen.gang("p").missing)
    claim = a_claim(a_request("r", devices.DRIVER, allocationMode="All"))
    seen.claims.claim(None, claim)
    assert [refusal.code for refusal in seen.gang("p").refusals] == ["claim-counts"]
    seen.claims.device_class(CLASSES[devices.DRIVER], None)
    assert [refusal.code for refusal in seen.gang("p").refusals] == ["no-device-class"]
    seen.claims.pod(a_pod("p", "c"), None)
    assert seen.cluster().gangs == ()


def test_an_instance_is_cut_out_on_the_node_where_it_was_given() -> None:
    seen = Seen(a_claim(profile("3g.40gb")))
    pod = a_pod("p", "c")
    seen.claims.pod(None, pod)
    job = seen.gang("p").job
    assert job is not None
    assert (job.spec.task_groups[0].shape.mig, job.placement) == ("3g.40gb", ())
    seen.give(pod, "n2")
    seen.claims.pod(pod, a_pod("p", "c", node="n2", phase="Running"))
    cluster = seen.cluster()
    first, second = cluster.nodes[1].gpus
    assert (first.instances, second.instances) == ((MigInstance("3g.40gb", 4),), None)
    placed = seen.gang("p").job
    assert placed is not None
    (task,) = placed.placement
    assert task.mig is not None
    assert (task.node, task.mig.gpu, task.mig.instance) == ("n2", "GPU-n2-0", MigInstance("3g.40gb", 4))
    assert all(gpu.instances is None for gpu in cluster.nodes[0].gpus)


def test_what_others_use_is_not_there_and_what_is_given_back_is() -> None:
    claim = a_claim(a_request("r", devices.DRIVER))
    seen = Seen(claim)
    needs = seen.claims.stock.needs(pod := a_pod("p", "c"))
    assert isinstance(needs, Needs)
    found = seen.claims.stock.allot(pod, needs, NodeName("n1"), NOW)
    assert not isinstance(found, NoDevices)
    foreign = written(found[0])
    seen.claims.claim(claim, foreign)
    assert [gpu.id for gpu in seen.cluster().nodes[0].gpus] == ["GPU-n1-1"]
    seen.claims.claim(foreign, ResourceClaim(claim.metadata, claim.spec, ClaimStatus()))
    assert [gpu.id for gpu in seen.cluster().nodes[0].gpus] == ["GPU-n1-0", "GPU-n1-1"]
    for part in slices_of(devices.mig_slices("n1", 2)):
        seen.claims.slice(part, None)
    assert [len(node.gpus) for node in seen.cluster().nodes] == [0, 2]


def test_a_pod_goes_where_its_claims_can_be_met() -> None:
    seen = Seen(
        a_claim(a_request("r", devices.DRIVER, f"device.attributes['{devices.DRIVER}'].uuid.startsWith('GPU-n2')"))
    )
    seen.claims.pod(None, a_pod("p", "c"))
    (known,) = seen.gang("p").node_sets
    assert known.nodes == ("n2",)


def test_pods_of_other_schedulers_are_left_as_they_are() -> None:
    seen = Seen(a_claim(a_request("r", devices.DRIVER)))
    seen.claims.pod(None, a_pod("p", "c", schedulerName="default-scheduler"))
    assert seen.cluster().gangs == ()


def test_what_changes_one_by_one_is_what_it_is_at_once() -> None:
    claim = a_claim(profile("1g.10gb"))
    slowly = Seen(claim)
    for node in ("", "n1"):
        slowly.claims.pod(None if not node else a_pod("p", "c"), a_pod("p", "c", node=node))
        slowly.cluster()
    slowly.claims.claim(claim, None)
    slowly.cluster()
    slowly.claims.claim(None, claim)
    at_once = Seen(claim)
    at_once.claims.pod(None, a_pod("p", "c", node="n1"))
    assert slowly.cluster() == at_once.cluster()


def with_plugin(name: str, gpus: int, allocatable: int | None = None) -> KubeNode:
    """A node of the world, as it is once a device plugin offers its GPUs as well."""
    there = {**READY["allocatable"], names.GPU: str(gpus)}
    status = {
        **READY,
        "capacity": there,
        "allocatable": {**there, names.GPU: str(gpus if allocatable is None else allocatable)},
    }
    return read({"metadata": {"name": name, "labels": {names.GPU_TYPE: H100}}, "status": status}, KubeNode)


def asking(name: str, gpus: int = 1, *claims: str) -> Pod:
    resources = {"requests": {"cpu": "1", names.GPU: str(gpus)}}
    return a_pod(name, *claims, containers=[{"name": "main", "resources": resources}])


def nodes_of(seen: Seen, name: str) -> list[NodeName]:
    """Where a pod may be, of the two nodes."""
    gang = seen.gang(name)
    assert gang.job is not None, gang.refusals
    group = gang.job.spec.task_groups[0]
    return sorted(
        next((one.nodes for one in gang.node_sets if one.name == group.nodes), (NodeName("n1"), NodeName("n2")))
    )


def test_pods_get_gpus_where_these_are_had_as_they_ask_for_them() -> None:
    seen = Seen(a_claim(a_request("r", devices.DRIVER)))
    seen.claims.pod(None, asking("plain"))
    assert "of 2 nodes there are 0 whose GPUs a device plugin offers" in str(seen.gang("plain").refusals[0])
    plain = read({"metadata": {"name": "n2"}, "status": READY}, KubeNode)
    seen.claims.node(plain, with_plugin("n2", 2))
    seen.claims.pod(None, a_pod("claims", "c"))
    seen.claims.pod(None, a_pod("neither", containers=[{"name": "main"}]))
    assert (nodes_of(seen, "plain"), nodes_of(seen, "claims"), nodes_of(seen, "neither")) == (
        ["n2"],
        ["n1"],
        ["n1", "n2"],
    )
    seen.claims.pod(None, asking("both", 1, "c"))
    assert [refusal.code for refusal in seen.gang("both").refusals] == ["mixed-gpus"]


def test_gpus_that_are_offered_in_both_ways_are_there_once() -> None:
    seen = Seen()
    plain = read({"metadata": {"name": "n1"}, "status": READY}, KubeNode)
    seen.claims.node(plain, both := with_plugin("n1", 2))
    first = seen.cluster().nodes[0]
    assert [gpu.id for gpu in first.gpus] == ["n1/0", "n1/1"]
    assert [(name, remark.code) for name, remark in seen.cluster().remarks] == [("n1", "gpus-twice")]
    seen.claims.node(both, gone := with_plugin("n1", 2, 0))
    assert [(gpu.id, gpu.healthy) for gpu in seen.cluster().nodes[0].gpus] == [("GPU-n1-0", True), ("GPU-n1-1", True)]
    assert seen.cluster().remarks == ()
    seen.claims.node(gone, both)
    assert seen.cluster().nodes[0] == first


def test_what_claims_of_others_have_is_not_there_for_a_plugin_either() -> None:
    claims = [a_claim(a_request("r", devices.DRIVER), name=name) for name in "cd"]
    seen = Seen(*claims)
    seen.claims.node(read({"metadata": {"name": "n1"}, "status": READY}, KubeNode), with_plugin("n1", 2))
    for number, claim in enumerate(claims, 1):
        needs = seen.claims.stock.needs(pod := a_pod("p", claim.metadata.name))
        assert isinstance(needs, Needs)
        found = seen.claims.stock.allot(pod, needs, NodeName("n1"), NOW)
        assert not isinstance(found, NoDevices)
        seen.claims.claim(claim, written(found[0]))
        assert len(seen.cluster().nodes[0].gpus) == 2 - number


def test_claims_that_no_node_can_meet_are_not_blamed_on_what_pods_select() -> None:
    seen = Seen(a_claim(a_request("r", devices.DRIVER, "false")))
    seen.claims.pod(None, a_pod("p", "c"))
    assert "of 2 nodes there are 0 that have devices for its ResourceClaims" in str(seen.gang("p").refusals[0])
