"""Gangs of Kubernetes' own Workloads: of 1.35, which no server here serves, and parts of composite groups of 1.37."""

from __future__ import annotations

from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.workload_groups import WORKLOAD_GROUPS
from reconciler.kubernetes.objects.world import ClusterModel
from tests.reconciler.kubernetes.rounds import placed
from tests.reconciler.kubernetes.samples import Sent, cluster, codes, from_yaml, node, pod, the_gang

WORKLOAD = """
    apiVersion: scheduling.k8s.io/v1alpha1
    kind: Workload
    metadata: {name: train, namespace: vision, labels: {quorate.dev/queue: q}}
    spec:
      controllerRef: {apiGroup: batch, kind: Job, name: train}
      podGroups:
        - {name: workers, policy: {gang: {minCount: 2}}}
        - {name: helpers, policy: {basic: {}}}
    """


def of_group(name: str, group: str = "workers", key: str = "") -> Sent:
    ref = {"name": "train", "podGroup": group, **({"podGroupReplicaKey": key} if key else {})}
    return pod(name, labels={"quorate.dev/queue": ""}, spec={"workloadRef": ref})


def seen(*pods: Sent, workload: str = WORKLOAD) -> ClusterModel:
    world = ClusterModel()
    world.node(None, read(node("n1"), KubeNode))
    for sent in pods:
        world.pod(None, read(sent, Pod))
    for sent in from_yaml(workload) if workload else ():
        world.workload_groups(None, WORKLOAD_GROUPS.read(read(sent, WORKLOAD_GROUPS.written)))
    return world


def test_pods_that_name_a_group_of_a_workload_are_one_gang_of_its_size() -> None:
    alone = the_gang(seen(of_group("a")).cluster())
    assert (alone.name, str(alone.missing)) == ("vision.workload.train:workers", "waiting for 1 of 2 pods")
    assert placed(seen(of_group("a"), of_group("b")).cluster()) == {"vision.workload.train:workers": ["n1", "n1"]}


def test_each_replica_of_a_group_is_a_gang_and_a_basic_group_is_none() -> None:
    pods = [of_group(f"{key}-{number}", key=key) for key in ("r0", "r1") for number in range(2)]
    names = ["vision.workload.train:workers:r0", "vision.workload.train:workers:r1"]
    assert sorted(placed(seen(*pods).cluster())) == names
    loose = seen(of_group("a", "helpers"), of_group("b", "helpers"))
    assert sorted(placed(loose.cluster())) == ["vision.pod.a", "vision.pod.b"]


def test_a_workload_that_is_not_there_yet_is_waited_for_and_a_new_one_counts() -> None:
    world = seen(of_group("a", key="r0"), of_group("b", key="r0"), workload="")
    waits = "waiting for its PodGroup train:workers:r0, which is not there yet"
    assert waits in str(the_gang(world.cluster()).missing)
    (sent,) = from_yaml(WORKLOAD)
    groups = WORKLOAD_GROUPS.read(read(sent, WORKLOAD_GROUPS.written))
    assert world.workload_groups(None, groups)
    assert list(placed(world.cluster())) == ["vision.workload.train:workers:r0"]
    assert world.workload_groups(groups, None)
    assert placed(world.cluster()) == {}


def test_a_part_of_a_composite_group_is_refused() -> None:
    groups = from_yaml(
        """
        apiVersion: scheduling.k8s.io/v1alpha3
        kind: PodGroup
        metadata: {name: part, namespace: vision}
        spec: {parentCompositePodGroupName: whole, schedulingPolicy: {gang: {minCount: 1}}}
        """
    )
    member = pod("a", spec={"schedulingGroup": {"podGroupName": "part"}})
    assert codes(the_gang(cluster([node("n1")], [member], groups))) == ["composite-groups"]
