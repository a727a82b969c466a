"""Pods with claims and nodes with devices, as a round sees them."""

from __future__ import annotations

from typing import Any

from hack.kubernetes import devices
from reconciler.backends.kubernetes.dra.seen import ClaimsSeen
from reconciler.backends.kubernetes.dra.stock import Needs
from reconciler.backends.kubernetes.dra.wire import ClaimStatus, ResourceClaim
from reconciler.backends.kubernetes.objects import names
from reconciler.backends.kubernetes.objects.cluster import Cluster
from reconciler.backends.kubernetes.objects.jobs import Gang
from reconciler.backends.kubernetes.objects.wire import Node, Pod, read
from reconciler.backends.kubernetes.objects.world import World
from solver.world.cluster import MigInstance, NodeName
from tests.backends.kubernetes.dra.test_stock import written
from tests.backends.kubernetes.dra.worlds import CLASSES, NOW, a_claim, a_request, profile, slices_of

H100 = "H100-SXM5-80GB"


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
        self.world = World()
        self.claims = ClaimsSeen(self.world)
        for name in ("n1", "n2"):
            status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "20"}, "conditions": [{"type": "Ready", "status": "True"}]}
            self.claims.node(None, read({"metadata": {"name": name}, "status": status}, Node))
            for part in slices_of(devices.mig_slices(name, gpus)):
                self.claims.slice(None, part)
        for known in CLASSES.values():
            self.claims.device_class(None, known)
        for claim in claims:
            self.claims.claim(None, claim)

    def cluster(self) -> Cluster:
        self.claims.tell()
        return self.world.cluster()

    def gang(self, name: str) -> Gang:
        return next(gang for gang in self.cluster().gangs if gang.name == f"default.pod.{name}")

    def give(self, pod: Pod, node: str) -> None:
        """The pod's claims get what they need there, and are seen to have it."""
        stock = self.claims.stock
        needs = stock.needs(pod)
        assert isinstance(needs, Needs)
        for allotment in stock.allot(pod, needs, NodeName(node), NOW):
            assert not isinstance(allotment, str)
            before = allotment.claim
            has = written(allotment)
            stamped = {**before.metadata.annotations, names.LEADER: "l"}
            meta = read({"name": before.metadata.name, "namespace": "default", "uid": before.metadata.uid, "annotations": stamped}, type(before.metadata))
            self.claims.claim(before, ResourceClaim(meta, has.spec, has.status))


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
