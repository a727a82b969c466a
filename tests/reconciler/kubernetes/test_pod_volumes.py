"""Pods with volume claims get nodes that can mount them, or say what they wait for."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kubernetes.control.actuator import UnreadyPods
from reconciler.kubernetes.dra.pod_claims import PodClaims
from reconciler.kubernetes.objects.pod_view import view_of
from reconciler.kubernetes.objects.pod_volumes import PodVolumes
from reconciler.kubernetes.objects.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import ClusterModel
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from solver.model.workload import QueueName
from solver.plan.plan import Inadmissible, Waits
from solver.policy.policy import Queue, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.reconciler.kubernetes.rounds import placed
from tests.reconciler.kubernetes.samples import Sent, codes, node, pod, the_gang
from tests.solver.worlds import quota_of

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
RACK = "cloud.provider.com/topology-rack"
Kind = Literal["pod", "claim", "volume", "storage_class", "driver", "capacity", "csi_node"]
KINDS: dict[Kind, Any] = {
    "pod": Pod,
    "claim": PersistentVolumeClaim,
    "volume": PersistentVolume,
    "storage_class": StorageClass,
    "driver": CsiDriver,
    "capacity": CsiStorageCapacity,
    "csi_node": CsiNode,
}


class Scene:
    """Two zones with a node each, and what is told of them."""

    def __init__(self, *, follows: bool = True) -> None:
        self.world = ClusterModel()
        for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "b")):
            self.world.node(None, read(node(name, 8, labels={ZONE: zone, HOST: name, RACK: zone}), KubeNode))
        self.volumes = PodVolumes(self.world, self.world.mountable)
        self.volumes.follow(follows)
        self.there: dict[tuple[Kind, str], Any] = {}

    def put(self, kind: Kind, sent: Sent | None, name: str = "") -> bool:
        key = kind, name or (sent or {})["metadata"]["name"]
        before, after = self.there.pop(key, None), None
        if sent is not None:
            after = self.there[key] = read(sent, KINDS[kind])
        return bool(getattr(self.volumes, kind)(before, after)) if before or after else False

    @property
    def gang(self) -> Any:
        return the_gang(self.world.cluster())

    def nodes(self) -> set[str]:
        """Where its only gang may be."""
        cluster = self.world.cluster()
        (group,) = the_gang(cluster).job.spec.task_groups  # type: ignore[union-attr]
        named = {one.name: set(map(str, one.nodes)) for one in cluster.node_sets}
        return named.get(group.nodes, {"n1", "n2", "n3"})

    def waits(self) -> str:
        return str(self.gang.missing)


def mounting(*claims: str, **said: Any) -> Sent:
    volumes = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in enumerate(claims)
    ]
    return pod("p", 1, spec={"volumes": volumes}, **said)


def a_claim(name: str, volume: str = "", made_by: str | None = "fast", **said: Any) -> Sent:
    notes = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    wanted = {"requests": {"storage": said.get("size", "10Gi")}}
    return {
        "metadata": {
            "name": name,
            "namespace": "vision",
            "annotations": notes | said.get("annotations", {}),
            **said.get("metadata", {}),
        },
        "spec": {"storageClassName": made_by, "volumeName": volume, "resources": wanted},
        "status": {"phase": said.get("phase", "Bound" if volume else "Pending")},
    }


def a_volume(name: str, zone: str = "", **said: Any) -> Sent:
    needs = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": needs}}} if zone else {}
    return {"metadata": {"name": name, **said}, "spec": affinity}


def a_class(name: str = "fast", mode: str = "WaitForFirstConsumer", **said: Any) -> Sent:
    return {"metadata": {"name": name}, "provisioner": "csi.example.com", "volumeBindingMode": mode, **said}


def some_capacity(zone: str, size: str) -> Sent:
    return {
        "metadata": {"name": f"in-{zone}", "namespace": "csi"},
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {ZONE: zone}} if zone else {},
        "capacity": size,
    }


def test_a_pod_runs_where_its_bound_volume_can_be_mounted() -> None:
    scene = Scene()
    scene.put("claim", a_claim("data", "pv1"))
    scene.put("volume", a_volume("pv1", "b"))
    scene.put("pod", mounting("data"))
    assert scene.nodes() == {"n2", "n3"}
    assert scene.gang.remarks == ()
    assert scene.put("volume", a_volume("pv1", "a"))
    assert scene.nodes() == {"n1"}
    assert scene.put("volume", a_volume("pv1"))
    assert scene.nodes() == {"n1", "n2", "n3"}


def test_pods_of_a_gang_go_each_where_its_own_volume_is() -> None:
    scene = Scene()
    for name, zone in (("one", "a"), ("two", "b")):
        scene.put("claim", a_claim(name, f"pv-{name}"))
        scene.put("volume", a_volume(f"pv-{name}", zone))
        sent = mounting(name, annotations={"quorate.dev/gang": "g", "quorate.dev/gang-size": "2"})
        sent["metadata"] |= {"name": name, "uid": name}
        scene.put("pod", sent)
    cluster = scene.world.cluster()
    named = {one.name: set(map(str, one.nodes)) for one in cluster.node_sets}
    groups = the_gang(cluster).job.spec.task_groups  # type: ignore[union-attr]
    assert [named[group.nodes] for group in groups] == [{"n1"}, {"n2", "n3"}]


def of_gang(name: str, zone: str, scene: Scene, on: str = "", notes: Sent | None = None) -> None:
    """A pod of an elastic gang of two or more, with its volume in a zone."""
    scene.put("claim", a_claim(name, f"pv-{name}"))
    scene.put("volume", a_volume(f"pv-{name}", zone))
    sent = mounting(name, annotations={"quorate.dev/gang": "g", "quorate.dev/gang-size": "2", **(notes or {})})
    sent["metadata"] |= {"name": name, "uid": name}
    sent["spec"]["nodeName"] = on
    sent["status"]["phase"] = "Running" if on else "Pending"
    scene.put("pod", sent)


def test_a_gang_with_volumes_runs_on_while_others_join_it_each_where_its_own_volume_is() -> None:
    scene = Scene()
    for name, on in (("one", "n1"), ("two", "n1")):
        of_gang(name, "a", scene, on)
    for name, zone in (("three", "a"), ("four", "b")):
        of_gang(name, zone, scene)
        assert scene.gang.job.phase == "running", "what joins it is of its own"
    named = {one.name: set(map(str, one.nodes)) for one in scene.gang.node_sets}
    groups = scene.gang.job.spec.task_groups
    assert [(named[group.nodes], group.replicas, group.least) for group in groups] == [
        ({"n1"}, 3, 2),
        ({"n2", "n3"}, 1, 0),
    ]
    assert placed(scene.world.cluster()) == {"vision.gang.g": ["n1", "n2"]}


def test_what_replaces_a_pod_with_a_volume_is_kept_to_what_its_gang_asks() -> None:
    scene = Scene()
    notes = {"kueue.x-k8s.io/podset-required-topology": RACK}
    of_gang("one", "b", scene, "n2", notes)
    of_gang("two", "b", scene, "", notes)
    assert codes(scene.gang) == []
    (group,) = scene.gang.job.spec.task_groups
    assert (group.replicas, scene.gang.job.spec.topology.required) == (2, "rack")


def test_what_it_requires_of_nodes_itself_holds_too() -> None:
    scene = Scene()
    scene.put("claim", a_claim("data", "pv1"))
    scene.put("volume", a_volume("pv1", "b"))
    on_n2 = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": ["n1", "n2"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": on_n2}}
    sent = mounting("data")
    sent["spec"]["affinity"] = {"nodeAffinity": required}
    scene.put("pod", sent)
    assert scene.nodes() == {"n2"}


def test_a_requirement_that_no_node_meets_is_met_by_none_with_a_volume_either() -> None:
    scene = Scene()
    scene.put("claim", a_claim("data", "pv1"))
    scene.put("volume", a_volume("pv1", "b"))
    sent = mounting("data")
    nothing: Sent = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    sent["spec"]["affinity"] = {"nodeAffinity": nothing}
    scene.put("pod", sent)
    assert codes(scene.gang) == ["no-node"]


def test_two_volumes_in_two_zones_leave_no_node() -> None:
    scene = Scene()
    for name, zone in (("one", "a"), ("two", "b")):
        scene.put("claim", a_claim(name, f"pv-{name}"))
        scene.put("volume", a_volume(f"pv-{name}", zone))
    scene.put("pod", mounting("one", "two"))
    assert codes(scene.gang) == ["no-node"]
    said = str(scene.gang.refusals[0])
    assert "1 that can mount its volumes, of these 0 that can mount its volumes" in said
    assert "nodeSelector" not in said


def test_a_volume_of_several_zones_says_so_by_its_label() -> None:
    scene = Scene()
    scene.put("claim", a_claim("data", "pv1"))
    scene.put("volume", a_volume("pv1", labels={ZONE: "a__c"}))
    scene.put("pod", mounting("data"))
    assert scene.nodes() == {"n1"}


@pytest.mark.parametrize(
    ("claim", "made_by", "says"),
    [
        (None, None, "waiting for its volume claim data, which is not there"),
        (
            a_claim("data", made_by=None),
            None,
            "waiting for its volume claim data to be bound: it names no StorageClass",
        ),
        (a_claim("data"), None, "waiting for its volume claim data to be bound: there is no StorageClass fast"),
        (a_claim("data"), a_class(mode="Immediate"), "waiting for its volume claim data to be bound"),
        (a_claim("data", "pv1"), None, "waiting for its volume claim data to be bound to pv1"),
        (
            a_claim("data", "pv1", metadata={"deletionTimestamp": "2026-11-20T08:00:00Z"}),
            None,
            "waiting for its volume claim data, which is being deleted, to be made anew",
        ),
    ],
)
def test_what_is_not_bound_yet_is_waited_for(claim: Sent | None, made_by: Sent | None, says: str) -> None:
    scene = Scene()
    scene.put("claim", claim, "data")
    scene.put("storage_class", made_by, "fast")
    scene.put("pod", mounting("data"))
    assert (scene.gang.job, scene.waits()) == (None, says)
    scene.put("claim", a_claim("data", "pv1"))
    scene.put("volume", a_volume("pv1"))
    assert scene.nodes() == {"n1", "n2", "n3"}


@pytest.mark.parametrize(
    ("claim", "made_by", "code"),
    [
        (a_claim("data", "pv1", phase="Lost"), None, "volume-lost"),
        (a_claim("data"), a_class(provisioner="kubernetes.io/no-provisioner"), "volume-unpicked"),
        (a_claim("data", size="5Ti"), a_class(), "volume-too-large"),
    ],
)
def test_what_will_never_be_bound_is_refused(claim: Sent, made_by: Sent | None, code: str) -> None:
    scene = Scene()
    scene.put("driver", {"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}})
    scene.put("capacity", some_capacity("a", "1Ti"))
    scene.put("claim", claim)
    scene.put("storage_class", made_by, "fast")
    scene.put("pod", mounting("data"))
    assert codes(scene.gang) == [code]


def test_a_volume_that_is_made_for_the_node_is_made_where_its_class_and_its_capacity_allow() -> None:
    scene = Scene()
    scene.put("claim", a_claim("data"))
    scene.put("storage_class", a_class())
    scene.put("pod", mounting("data"))
    sent = scene.there["pod", "p"]
    assert scene.nodes() == {"n1", "n2", "n3"}
    assert [claim.metadata.name for claim in scene.volumes.unbound(sent)] == ["data"]
    scene.put("storage_class", a_class(allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]))
    assert scene.nodes() == {"n2", "n3"}
    scene.put("driver", {"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}})
    assert codes(scene.gang) == ["volume-too-large"]
    scene.put("capacity", some_capacity("", "100Gi"))
    assert scene.nodes() == {"n2", "n3"}
    scene.put("capacity", None, "in-")
    scene.put("storage_class", a_class())
    scene.put("capacity", some_capacity("a", "100Gi"))
    scene.put("capacity", some_capacity("b", "9Gi"))
    assert scene.nodes() == {"n1"}
    scene.put("claim", a_claim("data", annotations={"volume.kubernetes.io/selected-node": "n3"}))
    assert scene.nodes() == {"n3"}
    scene.put("claim", a_claim("data", "pv1"))
    scene.put("volume", a_volume("pv1", "b"))
    assert scene.nodes() == {"n2", "n3"}
    assert scene.volumes.unbound(sent) == ()


def test_a_claim_that_is_made_for_the_pod_is_its_own() -> None:
    scene = Scene()
    scene.put("pod", pod("p", 1, spec={"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}))
    assert scene.waits() == "waiting for its volume claim p-scratch, which is not there"
    scene.put("claim", a_claim("p-scratch", "pv1"))
    scene.put("volume", a_volume("pv1", "a"))
    assert codes(scene.gang) == ["volume-of-another"]
    owner = {"ownerReferences": [{"kind": "Pod", "name": "p", "uid": "uid-of-p"}]}
    scene.put("claim", a_claim("p-scratch", "pv1", metadata=owner))
    assert scene.nodes() == {"n1"}


def test_many_things_that_are_waited_for_are_counted() -> None:
    scene = Scene()
    scene.put("pod", mounting(*(f"c{number}" for number in range(5))))
    assert scene.waits().endswith("claim c2, which is not there; and 2 more")


def test_a_pod_is_ready_once_all_its_claims_have_volumes() -> None:
    scene = Scene()
    unready = UnreadyPods(
        view_of(read(sent, Pod) for sent in (mounting("data"), gated())), scene.volumes, PodClaims(scene.world)
    )
    assert ("vision", "p") in unready, "the claim is not there"
    scene.put("storage_class", a_class())
    scene.put("claim", a_claim("data"))
    assert ("vision", "p") in unready, "it is bound once it says on which node its pod will be"
    scene.put("claim", a_claim("data", "pv1"))
    scene.put("volume", a_volume("pv1"))
    assert ("vision", "p") not in unready
    assert ("vision", "gated") in unready
    assert ("vision", "gone") not in unready
    asking = pod("claims", 0, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]})
    assert ("vision", "claims") in UnreadyPods(view_of([read(asking, Pod)]), scene.volumes, PodClaims(scene.world)), (
        "its claim has no devices"
    )


def gated() -> Sent:
    return pod("gated", spec={"schedulingGates": [{"name": "example.com/not-yet"}]})


def test_where_claims_can_not_be_read_it_is_said_that_they_are_not_looked_at() -> None:
    scene = Scene(follows=False)
    scene.put("pod", mounting("data"))
    assert scene.nodes() == {"n1", "n2", "n3"}
    assert [remark.code for remark in scene.gang.remarks] == ["volumes"]
    scene.volumes.follow(True)
    assert scene.waits() == "waiting for its volume claim data, which is not there"


def test_a_pod_that_has_a_node_keeps_it_whatever_becomes_of_its_claims() -> None:
    scene = Scene()
    scene.put("pod", mounting("data", on="n1"))
    assert scene.gang.job is not None
    assert scene.gang.refusals == ()
    assert not scene.put("claim", a_claim("data", "pv1"))


class Deed(NamedTuple):
    """Something is written, or (None) deleted by its name."""

    kind: Kind
    name: str
    sent: Sent | None


def deeds(kind: Kind, name: str, *choices: Sent) -> st.SearchStrategy[Deed]:
    return st.builds(Deed, st.just(kind), st.just(name), st.sampled_from([None, *choices]))


DEEDS = st.lists(
    st.one_of(
        deeds("pod", "p", mounting("one"), mounting("one", "two"), mounting("two", on="n1")),
        deeds("claim", "one", a_claim("one"), a_claim("one", "pv1"), a_claim("one", "pv2")),
        deeds(
            "claim",
            "two",
            a_claim("two", "pv1"),
            a_claim("two", annotations={"volume.kubernetes.io/selected-node": "n2"}),
        ),
        deeds("volume", "pv1", a_volume("pv1", "a"), a_volume("pv1", "b")),
        deeds("volume", "pv2", a_volume("pv2", "a"), a_volume("pv2")),
        deeds("storage_class", "fast", a_class(), a_class(mode="Immediate")),
        deeds(
            "driver", "csi.example.com", {"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}}
        ),
        deeds("capacity", "in-a", some_capacity("a", "100Gi"), some_capacity("a", "1Gi")),
    ),
    max_size=30,
)


@worlds(200)
@given(DEEDS)
def test_after_any_changes_it_is_what_all_objects_are_at_once(drawn: list[Deed]) -> None:
    changed = Scene()
    for deed in drawn:
        before = changed.world.cluster()
        differs = changed.put(deed.kind, deed.sent, deed.name)
        assert differs or changed.world.cluster() == before
    at_once = Scene()
    for (kind, name), there in changed.there.items():
        at_once.there[kind, name] = there
        getattr(at_once.volumes, kind)(None, there)
    assert changed.world.cluster() == at_once.world.cluster()


def a_csi_node(name: str, **limits: int | None) -> Sent:
    drivers = [
        {
            "name": f"{driver}.example.com",
            "nodeID": name,
            "topologyKeys": None,
            **({} if most is None else {"allocatable": {"count": most}}),
        }
        for driver, most in limits.items()
    ]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


def with_driver(volume: Sent, driver: str = "csi.example.com") -> Sent:
    return {**volume, "spec": {**volume["spec"], "csi": {"driver": driver, "volumeHandle": volume["metadata"]["name"]}}}


def alone(name: str, *claims: str, on: str = "", **said: Any) -> Sent:
    sent = mounting(*claims, on=on, **said)
    sent["metadata"] |= {"name": name, "uid": name}
    return sent


def a_scene_of(limit: int | None) -> Scene:
    """Three claims whose volumes any node can mount, and one node that mounts only so many; the others none."""
    scene = Scene()
    scene.put("storage_class", a_class())
    for name in ("one", "two", "three"):
        scene.put("claim", a_claim(name, f"pv-{name}"))
        scene.put("volume", with_driver(a_volume(f"pv-{name}")))
    for name, most in (("n1", limit), ("n2", 0), ("n3", 0)):
        scene.put("csi_node", a_csi_node(name, csi=most))
    return scene


def test_no_more_volumes_are_mounted_on_a_node_than_its_driver_can() -> None:
    scene = a_scene_of(2)
    for name in ("one", "two", "three"):
        scene.put("pod", alone(name, name), name)
    assert sorted(placed(scene.world.cluster()).values()) == [["n1"], ["n1"]]
    scene.put("pod", alone("one", "one", on="n1"), "one")
    assert sorted(placed(scene.world.cluster()).values()) == [["n1"]]
    assert scene.put("csi_node", a_csi_node("n1", csi=3))
    assert sorted(placed(scene.world.cluster()).values()) == [["n1"], ["n1"]]
    assert scene.put("csi_node", a_csi_node("n2", csi=None)), "it can mount any number"
    assert len(placed(scene.world.cluster())) == 2


def test_a_pod_that_waits_for_a_mount_names_the_driver() -> None:
    scene = a_scene_of(1)
    scene.put("pod", alone("one", "one", "two"), "one")
    snapshot = snapshot_of(Instant(0), scene.world.cluster().nodes, scene.world.cluster().jobs)
    policy = policy_of((Queue(QueueName("q"), quota=(quota_of("H100-SXM5-80GB", 32),)),))
    (verdict,) = solve(snapshot, policy, None).verdicts
    assert isinstance(verdict, Waits | Inadmissible)
    assert "2 volumes of csi.example.com" in " ".join(str(reason) for reason in verdict.reasons)


def test_volumes_of_pods_of_other_schedulers_and_those_to_be_made_count_and_those_of_other_drivers_do_not() -> None:
    scene = a_scene_of(2)
    scene.put("claim", a_claim("three"))
    other = alone("other", "one", on="n1")
    other["spec"]["schedulerName"] = "default-scheduler"
    scene.put("pod", other, "other")
    scene.put("volume", with_driver(a_volume("pv-two"), "files.example.com"))
    scene.put("pod", alone("two", "two"), "two")
    scene.put("pod", alone("three", "three"), "three")
    assert sorted(placed(scene.world.cluster())) == ["vision.pod.three", "vision.pod.two"]
    scene.put("csi_node", a_csi_node("n1", csi=1))
    assert sorted(placed(scene.world.cluster())) == ["vision.pod.two"]


def test_a_volume_that_several_pods_of_a_node_have_is_mounted_there_once() -> None:
    scene = a_scene_of(2)
    for number in range(3):
        scene.put("pod", alone(f"p{number}", "one", on="n1"), f"p{number}")
    scene.put("pod", alone("more", "two"), "more")
    assert placed(scene.world.cluster()) == {"vision.pod.more": ["n1"]}
    scene.put("pod", alone("more", "two", "three"), "more")
    assert placed(scene.world.cluster()) == {}
    for number in range(3):
        scene.put("pod", None, f"p{number}")
    assert placed(scene.world.cluster()) == {"vision.pod.more": ["n1"]}


def of_one_pod(name: str, volume: str = "") -> Sent:
    sent = a_claim(name, volume)
    sent["spec"]["accessModes"] = ["ReadWriteOncePod"]
    return sent


def test_a_claim_of_one_pod_is_waited_for_until_that_pod_is_gone() -> None:
    scene = a_scene_of(None)
    scene.put("claim", of_one_pod("one", "pv-one"))
    scene.put("pod", alone("first", "one", on="n1"), "first")
    scene.put("pod", alone("second", "one"), "second")
    second = the_gang(scene.world.cluster(), "vision.pod.second")
    said = "waiting for its volume claim one (ReadWriteOncePod), which the pod first mounts"
    assert (second.job, str(second.missing)) == (None, said)
    scene.put("pod", None, "first")
    assert placed(scene.world.cluster()) == {"vision.pod.second": ["n1"]}


def test_a_gang_whose_pods_share_a_claim_of_one_pod_is_refused() -> None:
    scene = a_scene_of(None)
    scene.put("claim", of_one_pod("one", "pv-one"))
    said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "2"}
    for name in ("a", "b"):
        scene.put("pod", alone(name, "one", annotations=said), name)
    assert codes(scene.gang) == ["volume-of-one-pod"]


def test_pods_of_a_job_without_indices_have_a_claim_of_one_pod_one_after_the_other() -> None:
    scene = a_scene_of(None)
    scene.put("claim", of_one_pod("one", "pv-one"))
    said = {"batch.kubernetes.io/job-name": "map"}
    scene.put("pod", alone("map-a", "one", on="n1", labels=said), "map-a")
    scene.put("pod", alone("map-b", "one", labels=said), "map-b")
    second = the_gang(scene.world.cluster(), "vision.pod.map-b")
    assert (codes(second), "which the pod map-a mounts" in str(second.missing)) == ([], True)
