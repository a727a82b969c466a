"""Pods as gangs: what makes them one, how many there have to be, whose they are, and where they run."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kubernetes.objects.podgroups import group_of
from reconciler.kubernetes.objects.queue_names import LOCAL_QUEUES, LocalQueue
from reconciler.kubernetes.objects.wire import read
from solver.model.cluster import DeviceId, MigInstance, NodeName
from solver.model.quantities import Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import QueueName, TaskPlacement
from solver.policy.namespace_rules import NamespaceRules
from solver.policy.policy import NamespaceAccess, Queue, QueueAccess, policy_of
from tests.reconciler.kubernetes.rounds import placed
from tests.reconciler.kubernetes.samples import Sent, cluster, codes, from_yaml, node, pod, queued, the_gang

NODES = [node("n1"), node("n2")]


def test_a_pod_alone_is_a_job() -> None:
    gang = the_gang(cluster(NODES, [pod("notebook", gpus=2)]))
    assert gang.job is not None
    assert (gang.name, gang.job.phase, gang.job.spec.queue, gang.job.attempt) == (
        "vision.pod.notebook",
        "pending",
        "q",
        0,
    )
    (group,) = gang.job.spec.task_groups
    assert (group.name, group.replicas, group.shape.gpus, group.shape.cpu, group.shape.memory) == (
        "worker",
        1,
        2,
        1000,
        2**30,
    )
    assert gang.job.submitted_at == Instant.parse("2026-11-20T08:00:00Z")
    assert gang.members[0] == ("vision", "notebook", "uid-of-notebook", "7", "worker", 0, "")


def test_pods_of_other_schedulers_are_no_jobs() -> None:
    assert cluster(NODES, [pod("web", spec={"schedulerName": "default-scheduler"})]).gangs == ()


LABELS: dict[str, tuple[Sent, Sent, str]] = {
    "quorate": ({}, {"quorate.dev/gang": "train", "quorate.dev/gang-size": "2"}, "vision.gang.train"),
    "lightweight": (
        {"pod-group.scheduling.sigs.k8s.io/name": "train", "pod-group.scheduling.sigs.k8s.io/min-available": "2"},
        {},
        "vision.gang.train",
    ),
    "kueue": (
        {"kueue.x-k8s.io/pod-group-name": "train"},
        {"kueue.x-k8s.io/pod-group-total-count": "2"},
        "vision.kueue.train",
    ),
    "leader-worker-set": (
        {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "3"},
        {"leaderworkerset.sigs.k8s.io/size": "2"},
        "vision.lws.serve-3",
    ),
    "job": (
        {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/job-completion-index": "0"},
        {"quorate.dev/gang-size": "2"},
        "vision.job.train",
    ),
}


@pytest.mark.parametrize("kind", LABELS)
def test_what_is_written_on_pods_makes_them_a_gang(kind: str) -> None:
    labels, annotations, name = LABELS[kind]
    pods = [pod(f"train-{number}", labels=labels, annotations=annotations) for number in range(2)]
    half, whole = the_gang(cluster(NODES, pods[:1])), the_gang(cluster(NODES, pods))
    assert (half.name, half.job, str(half.missing)) == (name, None, "waiting for 1 of 2 pods")
    assert whole.missing is None
    assert whole.job is not None
    assert sum(group.replicas for group in whole.job.spec.task_groups) == 2


POD_GROUPS: dict[str, tuple[str, Sent]] = {
    "kubernetes-v1alpha2": (
        """
        apiVersion: scheduling.k8s.io/v1alpha2
        kind: PodGroup
        metadata: {name: train, namespace: vision, labels: {quorate.dev/queue: research}}
        spec:
          podGroupTemplateRef: {workload: {workloadName: train, podGroupTemplateName: workers}}
          schedulingPolicy: {gang: {minCount: 2}}
          schedulingConstraints: {topology: [{key: cloud.provider.com/topology-rack}]}
          priorityClassName: training
        """,
        {"spec": {"schedulingGroup": {"podGroupName": "train"}}},
    ),
    "kubernetes-v1beta1": (
        """
        apiVersion: scheduling.k8s.io/v1beta1
        kind: PodGroup
        metadata: {name: train, namespace: vision, labels: {kueue.x-k8s.io/queue-name: research}}
        spec:
          schedulingPolicy: {gang: {minCount: 2}}
          schedulingConstraints: {topology: [{key: cloud.provider.com/topology-rack}]}
          disruptionMode: {all: {}}
          priorityClassName: training
        """,
        {"spec": {"schedulingGroup": {"podGroupName": "train"}}},
    ),
    "volcano": (
        """
        apiVersion: scheduling.volcano.sh/v1beta1
        kind: PodGroup
        metadata: {name: train, namespace: vision}
        spec: {minMember: 2, queue: research, priorityClassName: training, minResources: {cpu: "2"}}
        """,
        {
            "annotations": {
                "scheduling.k8s.io/group-name": "train",
                "kueue.x-k8s.io/podset-required-topology": "cloud.provider.com/topology-rack",
            }
        },
    ),
    "kai": (
        """
        apiVersion: scheduling.run.ai/v2alpha2
        kind: PodGroup
        metadata: {name: train, namespace: vision}
        spec:
          minMember: 2
          queue: research
          priorityClassName: training
          topologyConstraint: {topology: default, requiredTopologyLevel: cloud.provider.com/topology-rack}
        """,
        {"annotations": {"pod-group-name": "train"}},
    ),
}


def in_racks(*names: str) -> list[Sent]:
    return [node(name, labels={"cloud.provider.com/topology-rack": name[0]}) for name in names]


@pytest.mark.parametrize("maker", POD_GROUPS)
def test_pod_groups_of_every_maker_say_size_queue_class_and_topology(maker: str) -> None:
    text, said = POD_GROUPS[maker]
    pods = [pod(f"w-{number}", labels=queued({}), **said) for number in range(3)]
    without = the_gang(cluster(NODES, pods))
    assert (without.job, str(without.missing)) == (None, "waiting for its PodGroup train, which is not there yet")
    half = the_gang(cluster(in_racks("a1", "a2"), pods[:1], from_yaml(text)))
    assert (half.job, str(half.missing)) == (None, "waiting for 1 of 2 pods")
    gang = the_gang(cluster(in_racks("a1", "a2"), pods, from_yaml(text)))
    assert gang.job is not None, gang.refusals
    assert (gang.job.spec.queue, gang.job.spec.priority_class, gang.job.spec.topology.required) == (
        "research",
        "training",
        "rack",
    )
    assert [(group.replicas, group.least) for group in gang.job.spec.task_groups] == [(3, 2)]


@pytest.mark.parametrize(
    ("maker", "said", "code"),
    [
        ("volcano", {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}, "hyper-nodes"),
        ("volcano", {"subGroupPolicy": [{"name": "x"}]}, "sub-groups"),
        ("kai", {"minSubGroup": 2, "subGroups": [{"name": "a"}]}, "sub-groups"),
        (
            "kai",
            {"subGroups": [{"name": "a", "topologyConstraint": {"requiredTopologyLevel": "x"}}]},
            "not-a-level",
        ),
        ("kubernetes-v1alpha2", {"resourceClaims": [{"name": "x"}]}, "resource-claims"),
        ("kubernetes-v1beta1", {"schedulingPolicy": {"basic": {}}}, "topology-without-gang"),
        (
            "kubernetes-v1beta1",
            {"schedulingConstraints": {"topology": [{"key": "kubernetes.io/hostname"}]}},
            "not-a-level",
        ),
    ],
)
def test_what_a_pod_group_asks_that_can_not_be_kept_is_refused(maker: str, said: Sent, code: str) -> None:
    text, in_pod = POD_GROUPS[maker]
    (group,) = from_yaml(text)
    group["spec"] |= said
    pods = [pod(f"w-{number}", **in_pod) for number in range(2)]
    assert {refused for gang in cluster(in_racks("a1", "a2"), pods, [group]).gangs for refused in codes(gang)} == {code}


def test_topology_of_sub_groups_of_kai_is_that_of_roles() -> None:
    (group,) = from_yaml(POD_GROUPS["kai"][0])
    rack = {"topology": "default", "requiredTopologyLevel": "cloud.provider.com/topology-rack"}
    soft = {"topology": "default", "preferredTopologyLevel": "cloud.provider.com/topology-rack"}
    group["spec"] |= {
        "topologyConstraint": None,
        "subGroups": [
            {"name": "serve", "topologyConstraint": rack},
            {"name": "leader", "parent": "serve"},
            {"name": "worker", "parent": "serve"},
            {"name": "cache", "topologyConstraint": soft},
        ],
    }
    said = POD_GROUPS["kai"][1]
    pods = [
        pod(f"w-{role}", labels={"kai.scheduler/subgroup-name": role}, **said) for role in ("leader", "worker", "cache")
    ]
    job = the_gang(cluster(in_racks("a1", "a2"), pods, [group])).job
    assert job is not None
    assert [(set(known.groups), known.within) for known in job.spec.topology.together] == [
        ({"leader", "worker"}, "rack")
    ]
    assert {known.name: known.topology.preferred for known in job.spec.task_groups} == {
        "cache": ("rack",),
        "leader": None,
        "worker": None,
    }


def test_pods_of_a_group_without_a_gang_are_each_of_their_own() -> None:
    group = """
        apiVersion: scheduling.k8s.io/v1alpha2
        kind: PodGroup
        metadata: {name: web, namespace: vision, labels: {quorate.dev/queue: serving}}
        spec: {schedulingPolicy: {basic: {}}}
        """
    pods = [
        pod(f"w-{number}", labels=queued({}), spec={"schedulingGroup": {"podGroupName": "web"}}) for number in range(2)
    ]
    seen = cluster(NODES, pods, from_yaml(group))
    assert [(gang.name, gang.job and gang.job.spec.queue) for gang in seen.gangs] == [
        ("vision.pod.w-0", "serving"),
        ("vision.pod.w-1", "serving"),
    ]


def test_roles_are_groups_with_minima_of_their_own() -> None:
    group = """
        apiVersion: scheduling.volcano.sh/v1beta1
        kind: PodGroup
        metadata: {name: train, namespace: vision}
        spec: {minMember: 3, minTaskMember: {ps: 1, worker: 2}}
        """
    pods = [
        pod(
            f"{role}-{number}",
            gpus=gpus,
            annotations={"scheduling.volcano.sh/group-name": "train", "volcano.sh/task-spec": role},
        )
        for role, gpus, many in (("ps", 0, 1), ("worker", 4, 4))
        for number in range(many)
    ]
    gang = the_gang(cluster(NODES, pods, from_yaml(group)))
    assert gang.job is not None
    assert [(group.name, group.replicas, group.least, group.shape.gpus) for group in gang.job.spec.task_groups] == [
        ("ps", 1, 1, 0),
        ("worker", 4, 2, 4),
    ]


CONTROLLERS: dict[str, tuple[str, list[Sent], dict[str, int], str]] = {
    "indexed Job": (
        """
        apiVersion: batch/v1
        kind: Job
        metadata: {name: sweep, namespace: vision, labels: {kueue.x-k8s.io/queue-name: research}}
        spec: {parallelism: 3, completions: 3, completionMode: Indexed, template: {}}
        """,
        [
            {"batch.kubernetes.io/job-name": "sweep", "batch.kubernetes.io/job-completion-index": str(n)}
            for n in range(3)
        ],
        {"worker": 3},
        "vision.job.sweep",
    ),
    "JobSet": (
        """
        apiVersion: jobset.x-k8s.io/v1alpha2
        kind: JobSet
        metadata: {name: llm, namespace: vision, labels: {kueue.x-k8s.io/queue-name: research}}
        spec:
          replicatedJobs:
            - {name: driver, replicas: 1, template: {spec: {parallelism: 1, completions: 1}}}
            - {name: workers, replicas: 2, template: {spec: {parallelism: 2, completions: 2}}}
        """,
        [
            {
                "jobset.sigs.k8s.io/jobset-name": "llm",
                "jobset.sigs.k8s.io/replicatedjob-name": role,
                "jobset.sigs.k8s.io/job-index": job,
            }
            for role, job in (("driver", "0"), ("workers", "0"), ("workers", "0"), ("workers", "1"), ("workers", "1"))
        ],
        {"driver": 1, "workers": 4},
        "vision.jobset.llm",
    ),
    "PyTorchJob": (
        """
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        metadata: {name: bert, namespace: vision, labels: {kueue.x-k8s.io/queue-name: research}}
        spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: {}}, Worker: {replicas: 2, template: {}}}}
        """,
        [
            {"training.kubeflow.org/job-name": "bert", "training.kubeflow.org/replica-type": role}
            for role in ("master", "worker", "worker")
        ],
        {"master": 1, "worker": 2},
        "vision.kubeflow.bert",
    ),
    "MPIJob": (
        """
        apiVersion: kubeflow.org/v2beta1
        kind: MPIJob
        metadata: {name: ring, namespace: vision, labels: {kueue.x-k8s.io/queue-name: research}}
        spec: {slotsPerWorker: 8, mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 2}}}
        """,
        [
            {"training.kubeflow.org/job-name": "ring", "training.kubeflow.org/job-role": role}
            for role in ("launcher", "worker", "worker")
        ],
        {"launcher": 1, "worker": 2},
        "vision.kubeflow.ring",
    ),
    "RayCluster": (
        """
        apiVersion: ray.io/v1
        kind: RayCluster
        metadata: {name: tune, namespace: vision, labels: {kueue.x-k8s.io/queue-name: research}}
        spec: {headGroupSpec: {}, workerGroupSpecs: [{groupName: gpu, replicas: 2, minReplicas: 1, numOfHosts: 1}]}
        """,
        [
            {"ray.io/cluster": "tune", "ray.io/group": group, "ray.io/node-type": "x"}
            for group in ("headgroup", "gpu", "gpu")
        ],
        {"gpu": 2, "headgroup": 1},
        "vision.ray.tune",
    ),
}


@pytest.mark.parametrize("kind", CONTROLLERS)
def test_controllers_say_how_many_pods_there_will_be(kind: str) -> None:
    text, labels, roles, name = CONTROLLERS[kind]
    pods = [pod(f"p-{number}", labels=queued(said)) for number, said in enumerate(labels)]
    early = the_gang(cluster(NODES, pods[:-1], controllers=from_yaml(text)))
    assert (early.job, str(early.missing)) == (None, f"waiting for 1 of {len(pods)} pods")
    gang = the_gang(cluster(NODES, pods, controllers=from_yaml(text)))
    assert gang.job is not None, gang.refusals
    assert (gang.name, gang.job.spec.queue) == (name, "research")
    assert {group.name: group.least for group in gang.job.spec.task_groups} == roles
    assert codes(the_gang(cluster(NODES, pods))) == ["gang-size-unknown", "no-queue"]


def test_pods_of_a_job_without_indices_are_each_of_their_own() -> None:
    pods = [pod(f"p-{number}", labels={"batch.kubernetes.io/job-name": "map"}) for number in range(2)]
    assert [gang.name for gang in cluster(NODES, pods).gangs] == ["vision.pod.p-0", "vision.pod.p-1"]


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "DaemonSet", "Workflow"])
def test_pods_of_makers_without_gangs_are_each_of_their_own(kind: str) -> None:
    owner = [{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u", "controller": True}]
    pods = [pod(f"web-{number}", metadata={"ownerReferences": owner}) for number in range(2)]
    pods += [pod("web-2", labels={"quorate.dev/gang": "g", "quorate.dev/gang-size": "1"})]
    assert [gang.name for gang in cluster(NODES, pods).gangs] == [
        "vision.gang.g",
        "vision.pod.web-0",
        "vision.pod.web-1",
    ]


def test_an_elastic_ray_cluster_starts_with_its_least() -> None:
    text, labels, _, _ = CONTROLLERS["RayCluster"]
    (ray,) = from_yaml(text)
    ray["spec"]["enableInTreeAutoscaling"] = True
    pods = [pod(f"p-{number}", labels=queued(said)) for number, said in enumerate(labels)]
    gang = the_gang(cluster(NODES, pods[:2], controllers=[ray]))
    assert gang.job is not None
    grown = the_gang(cluster(NODES, pods, controllers=[ray])).job
    assert grown is not None
    assert [(group.name, group.replicas, group.least) for group in grown.spec.task_groups] == [
        ("gpu", 2, 1),
        ("headgroup", 1, 1),
    ]


REFUSED: dict[str, tuple[list[Sent], str]] = {
    "no queue": ([pod("p", labels=queued({}))], "no-queue"),
    "two queues": (
        [
            pod(f"p-{q}", labels={"quorate.dev/queue": q, "quorate.dev/gang": "g", "quorate.dev/gang-size": "2"})
            for q in "ab"
        ],
        "several-queues",
    ),
    "two sizes": (
        [pod(f"p-{n}", annotations={"quorate.dev/gang": "g", "quorate.dev/gang-size": n}) for n in ("1", "2")],
        "gang-size-differs",
    ),
    "two classes": (
        [
            pod(
                f"p-{c}",
                annotations={"quorate.dev/gang": "g", "quorate.dev/gang-size": "2"},
                spec={"priorityClassName": c},
            )
            for c in "ab"
        ],
        "several-classes",
    ),
    "claims": (
        [pod("p", gpus=0, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]})],
        "resource-claims",
    ),
    "instances": (
        [pod("p", gpus=0, requests={"nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-3g.40gb": "1"})],
        "several-profiles",
    ),
    "whole and part": ([pod("p", annotations={"gpu-fraction": "0.5"})], "mixed-gpus"),
    "odd part": ([pod("p", gpus=0, annotations={"gpu-fraction": "1.5"})], "unreadable-fraction"),
    "odd limit": ([pod("p", annotations={"quorate.dev/time-limit": "a while"})], "unreadable-time-limit"),
    "no time at all": ([pod("p", annotations={"quorate.dev/time-limit": "0s"})], "unreadable-time-limit"),
    "odd least memory": ([pod("p", annotations={"quorate.dev/min-gpu-memory": "large"})], "unreadable-memory"),
    "odd memory": ([pod("p", gpus=0, annotations={"gpu-memory": "8Gi"})], "unreadable-fraction"),
    "odd number of parts": (
        [pod("p", gpus=0, annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "some"})],
        "unreadable-fraction",
    ),
    "exclusive": (
        [pod("p", annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"})],
        "exclusive-topology",
    ),
    "replica": ([pod("p", gpus=0, requests={"nvidia.com/gpu.shared": "1"})], "shared-resource"),
    "more cores than there are": ([pod("p", gpus=0, requests={"cpu": "9E"})], "too-much"),
    "more memory than there is": ([pod("p", gpus=0, requests={"memory": "16Ei"})], "too-much"),
    "more GPUs than there are": ([pod("p", gpus=0, requests={"nvidia.com/gpu": "9E"})], "too-much"),
    "more disk than there is": ([pod("p", gpus=0, requests={"ephemeral-storage": "2Pi"})], "too-much"),
    "odd quantity": ([pod("p", gpus=0, requests={"cpu": "lots"})], "unreadable-quantity"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_can_not_be_kept_is_refused_with_what_would_work(why: str) -> None:
    pods, code = REFUSED[why]
    gang = the_gang(cluster(NODES, pods))
    assert gang.job is None
    assert codes(gang) == [code]
    assert gang.refusals[0].fix.endswith(".")


def test_pods_behind_gates_wait() -> None:
    gang = the_gang(cluster(NODES, [pod("p", spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})]))
    assert (gang.job, str(gang.missing)) == (None, "held by scheduling gates: kueue.x-k8s.io/admission")


@pytest.mark.parametrize(
    ("said", "shape"),
    [
        ({"annotations": {"gpu-fraction": "0.25"}}, Shape(gpu_fraction=MilliGpu(250))),
        ({"annotations": {"gpu-memory": "8192"}}, Shape(gpu_memory=Memory(8 * 2**30))),
        ({"requests": {"nvidia.com/mig-1g.10gb.me": "1"}}, Shape(mig="1g.10gb+me")),
        ({"requests": {"nvidia.com/mig-1g.10gb": "3"}}, Shape(mig="1g.10gb", devices=3)),
        (
            {"annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}},
            Shape(gpu_fraction=MilliGpu(500), devices=2),
        ),
        ({"annotations": {"quorate.dev/min-gpu-memory": "64Gi"}}, Shape(min_gpu_memory=Memory(64 * 2**30))),
    ],
)
def test_parts_of_gpus(said: Sent, shape: Shape) -> None:
    job = the_gang(cluster(NODES, [pod("p", gpus=0, **said)])).job
    assert job is not None
    found = job.spec.task_groups[0].shape
    for name in ("gpu_fraction", "gpu_memory", "mig", "devices", "min_gpu_memory"):
        assert getattr(found, name) == getattr(shape, name), name


@pytest.mark.parametrize(
    ("labels", "annotations", "queue", "priority"),
    [
        ({"quorate.dev/queue": "a", "kueue.x-k8s.io/queue-name": "b"}, {}, "a", "pods-own"),
        ({"kueue.x-k8s.io/queue-name": "b", "kueue.x-k8s.io/priority-class": "high"}, {}, "b", "high"),
        ({"kai.scheduler/queue": "c"}, {"quorate.dev/priority-class": "ours"}, "c", "ours"),
        ({}, {"scheduling.volcano.sh/queue-name": "d"}, "d", "pods-own"),
    ],
)
def test_queue_and_class_are_ours_before_everybody_elses(
    labels: Sent, annotations: Sent, queue: str, priority: str
) -> None:
    sent = pod("p", labels=queued(labels), annotations=annotations, spec={"priorityClassName": "pods-own"})
    job = the_gang(cluster(NODES, [sent])).job
    assert job is not None
    assert (job.spec.queue, job.spec.priority_class) == (queue, priority)


RULES = NamespaceRules.of(
    policy_of(
        (
            Queue(QueueName("research"), access=QueueAccess(namespaces=(NamespaceAccess("vision", default=True),))),
            Queue(
                QueueName("product"),
                access=QueueAccess(namespaces=(NamespaceAccess("vi*", default=True, local_queues=("main", "fast")),)),
            ),
        )
    )
)
KUEUE = "kueue.x-k8s.io/queue-name"
IN_VISION = LocalQueue("vision", "main", "vision-cq")


@pytest.mark.parametrize(
    ("labels", "local_queues", "queue"),
    [
        ({}, (), "research"),
        ({"quorate.dev/queue": "other"}, (), "other"),
        ({KUEUE: "main"}, (), "product"),
        ({KUEUE: "main"}, (IN_VISION,), "vision-cq"),
        ({KUEUE: "main"}, (LocalQueue("language", "main", "language-cq"),), "product"),
        ({KUEUE: "fast"}, (IN_VISION,), "product"),
        ({KUEUE: "research"}, (IN_VISION,), "research"),
        ({KUEUE: "research"}, (LocalQueue("vision", "research", "vision-cq"),), "vision-cq"),
        ({KUEUE: "of-nobody"}, (IN_VISION,), "of-nobody"),
        ({"quorate.dev/queue": "main", KUEUE: "fast"}, (IN_VISION,), "main"),
        ({"kai.scheduler/queue": "main"}, (IN_VISION,), "main"),
    ],
)
def test_a_namespace_has_a_queue_by_default_and_names_of_its_own(
    labels: Sent, local_queues: tuple[LocalQueue, ...], queue: str
) -> None:
    sent = pod("p", labels=queued(labels))
    job = the_gang(cluster(NODES, [sent], namespaces=RULES, local_queues=local_queues)).job
    assert job is not None
    assert (job.namespace, job.spec.queue, type(job.spec.queue)) == ("vision", queue, str)
    named, by_object = labels.get(KUEUE, ""), {one.name for one in local_queues if one.namespace == "vision"}
    is_own = bool(labels) and KUEUE not in labels
    called = None if is_own or "quorate.dev/queue" in labels or named in by_object else named
    assert job.queue_called == called
    assert NamespaceRules(RULES.entries).queue_of(job) == queue


def test_what_makes_pods_may_name_a_local_queue_too() -> None:
    sent = from_yaml("""
        apiVersion: batch/v1
        kind: Job
        metadata: {name: train, namespace: vision, labels: {kueue.x-k8s.io/queue-name: main}}
        spec: {parallelism: 1, completions: 1, completionMode: Indexed}
    """)
    labels = queued({"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/job-completion-index": "0"})
    seen = cluster(NODES, [pod("p", labels=labels)], controllers=sent, namespaces=RULES, local_queues=[IN_VISION])
    job = the_gang(seen).job
    assert job is not None
    assert job.spec.queue == "vision-cq"


def test_two_names_of_one_queue_are_one_queue() -> None:
    gang = {"quorate.dev/gang": "pair", "quorate.dev/gang-size": "2"}
    both = [
        pod("one", labels=queued({KUEUE: "main"}), annotations=gang),
        pod("two", labels=queued({"quorate.dev/queue": "vision-cq"}), annotations=gang),
    ]
    assert codes(the_gang(cluster(NODES, both, local_queues=[IN_VISION]))) == []
    assert codes(the_gang(cluster(NODES, both))) == ["several-queues"]


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_a_local_queue_names_a_cluster_queue(version: str) -> None:
    sent = {"metadata": {"name": "main", "namespace": "vision"}, "spec": {"clusterQueue": "vision-cq", "x": 1}}
    assert f"kueue.x-k8s.io/{version}" in {resource.version for resource in LOCAL_QUEUES.resources}
    assert LOCAL_QUEUES.read(read(sent, LOCAL_QUEUES.written)) == IN_VISION


@pytest.mark.parametrize("said", ["999999999999999w", "100000h", "3650000d"])
def test_a_time_limit_that_no_machine_lives_to_see_can_be_written_and_read_again(said: str) -> None:
    job = the_gang(cluster(NODES, [pod("p", annotations={"quorate.dev/time-limit": said})])).job
    assert job is not None
    limit = job.spec.time_limit
    assert limit is not None
    assert limit == min(Duration.parse(said), Duration.parse("36500d"))
    assert Duration.parse(str(limit)) == limit
    assert Instant.parse(str(job.submitted_at.after(limit))) == job.submitted_at.after(limit)


def test_time_limits_are_the_shortest_that_is_said() -> None:
    said = {"quorate.dev/time-limit": "2m"}
    sent = pod(
        "p", labels={"kueue.x-k8s.io/max-exec-time-seconds": "60"}, spec={"activeDeadlineSeconds": 90}, annotations=said
    )
    job = the_gang(cluster(NODES, [sent])).job
    assert job is not None
    assert job.spec.time_limit == Duration.parse("60s")


def test_what_a_gang_is_called_is_one_line_and_no_part_of_a_gang() -> None:
    said = {"quorate.dev/gang": "a/b%\nc.job  running\x1b", "quorate.dev/gang-size": "1"}
    assert the_gang(cluster(NODES, [pod("p", annotations=said)])).name == "vision.gang.a%2Fb%25%0Ac.job  running%1B"


def running(name: str, on: str, devices: str = "", **said: Any) -> Sent:
    annotations = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "2", "quorate.dev/attempt": "3"}
    sent = pod(
        name,
        gpus=2,
        on=on,
        annotations={**annotations, **({"quorate.dev/devices": devices} if devices else {})},
        **said,
    )
    sent["status"]["startTime"] = f"2026-11-20T09:00:0{name[-1]}Z"
    return sent


def test_a_gang_that_runs_holds_the_devices_that_its_binding_wrote_down() -> None:
    pods = [running("w-0", "n1", "n1/2,n1/5"), running("w-1", "n1")]
    job = the_gang(cluster(NODES, pods)).job
    assert job is not None
    assert (job.phase, job.attempt, job.started_at) == ("running", 3, Instant.parse("2026-11-20T09:00:00Z"))
    on = NodeName("n1")
    assert job.placement == (
        TaskPlacement("worker", 0, on, (DeviceId("n1/2"), DeviceId("n1/5"))),
        TaskPlacement("worker", 1, on, (DeviceId("n1/0"), DeviceId("n1/1"))),
    )


def test_devices_that_are_not_the_nodes_or_are_held_twice_are_not_believed() -> None:
    pods = [running("w-0", "n1", "n1/2,n1/3"), running("w-1", "n1", "n1/3,n1/4"), running("w-2", "n1", "n1/6,n9/0")]
    job = the_gang(cluster(NODES, pods)).job
    assert job is not None
    devices = [device for task in job.placement for device in task.devices]
    assert devices == ["n1/2", "n1/3", "n1/0", "n1/1", "n1/4", "n1/5"]


@pytest.mark.parametrize("written", ["n1/0", "n1/0,n1/0", "n1/0,n1/1,n1/2", "n1/6,n1/0"])
def test_a_pod_has_as_many_devices_as_it_asks_for_and_of_that_kind(written: str) -> None:
    """n1/6 holds MIG instances. A pod that names more than it asks for would keep them from others."""
    offers = {"nvidia.com/gpu": "6", "nvidia.com/mig-3g.40gb": "2"}
    sent = pod("p", gpus=2, on="n1", annotations={"quorate.dev/devices": written, "quorate.dev/share": "0.1"})
    job = the_gang(cluster([node("n1", offers=offers)], [sent])).job
    assert job is not None
    assert [(task.devices, task.share) for task in job.placement] == [(("n1/0", "n1/1"), None)]


def test_parts_of_a_gpu_are_held_side_by_side() -> None:
    pods = [
        pod(f"p-{n}", gpus=0, on="n1", annotations={"gpu-fraction": "0.5", "quorate.dev/sharing": "mps"})
        for n in range(3)
    ]
    jobs = cluster(NODES, pods).jobs
    held = [(task.devices[0], task.share, task.sharing) for job in jobs for task in job.placement]
    assert held == [("n1/0", 500, "mps"), ("n1/0", 500, "mps"), ("n1/1", 500, "mps")]


def test_phases() -> None:
    one, other = running("w-0", "n1"), running("w-1", "", phase="Pending")
    assert [the_gang(cluster(NODES, [one, other])).bound] == [1]
    leaving: dict[str, Any] = {"metadata": {"deletionTimestamp": "2026-11-20T10:00:00Z"}}
    cases = {
        "starting": [one, other],
        "running": [one, running("w-1", "n2")],
        "stopping": [running("w-0", "n1", **leaving), running("w-1", "n2", **leaving)],
    }
    for phase, pods in cases.items():
        job = the_gang(cluster(NODES, pods)).job
        assert job is not None
        assert job.phase == phase


def test_an_elastic_gang_runs_with_as_many_as_it_takes_and_no_other_does_before_all_are_bound() -> None:
    pods = [running("w-0", "n1"), running("w-1", "n1"), running("w-2", ""), running("w-3", "")]

    def phase() -> str:
        job = the_gang(cluster(NODES, pods)).job
        assert job is not None
        return job.phase

    assert phase() == "running"
    pods[0]["metadata"]["annotations"]["quorate.dev/gang-plan"] = "of four"
    assert phase() == "running"
    pods[1]["status"]["phase"] = "Pending"
    assert phase() == "starting"
    pods[1]["status"]["phase"] = "Running"
    del pods[2:]
    assert phase() == "starting"  # as many as it takes, and one more of them is to be bound
    del pods[0]["metadata"]["annotations"]["quorate.dev/gang-plan"]
    assert phase() == "running"


def test_of_unlike_pods_those_that_run_are_enough_and_what_joins_them_is_of_its_own() -> None:
    said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "2"}
    unlike = [(1, "n1"), (2, "n1"), (3, "n1"), (4, "")]
    pods = [pod(f"w-{gpus}", gpus, on=on, annotations=said) for gpus, on in unlike]

    def least(*there: Sent) -> list[int]:
        job = the_gang(cluster([*NODES, node("n3")], there)).job
        assert job is not None
        return [group.least for group in job.spec.task_groups]

    assert least(*pods) == [1, 1, 0, 0]
    assert least(pods[0], pods[3]) == [1, 1], "one alone is not enough"


def test_a_pod_that_has_ended_well_is_not_waited_for() -> None:
    job = the_gang(cluster(NODES, [running("w-0", ""), running("w-1", "n1", phase="Succeeded")])).job
    assert job is not None
    assert [(group.replicas, group.least) for group in job.spec.task_groups] == [(1, 1)]


def test_a_mig_instance_is_held_by_its_place() -> None:
    nodes = [
        node(
            "n1",
            gpus=0,
            labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            offers={"nvidia.com/mig-3g.40gb": "2"},
        )
    ]
    sent = pod(
        "p",
        gpus=0,
        on="n1",
        requests={"nvidia.com/mig-3g.40gb": "1"},
        annotations={"quorate.dev/devices": "n1/0/3g.40gb@4"},
    )
    job = the_gang(cluster(nodes, [sent])).job
    assert job is not None
    (task,) = job.placement
    assert task.mig is not None
    assert (task.devices, task.mig.gpu, task.mig.instance, task.mig.cost) == (
        (),
        "n1/0",
        MigInstance("3g.40gb", 4),
        500,
    )


def test_several_mig_instances_are_held_by_their_places_or_the_first_that_are_free() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    there = [node("n1", gpus=0, labels=labels, offers={"nvidia.com/mig-3g.40gb": "4"})]
    asks = {"nvidia.com/mig-3g.40gb": "2"}
    written = {"quorate.dev/devices": "n1/0/3g.40gb@4,n1/1/3g.40gb@0"}
    bound = cluster(
        there, [pod("p", gpus=0, on="n1", requests=asks, annotations=written), pod("q", gpus=0, on="n1", requests=asks)]
    )
    held = {gang.name: gang.job.placement[0] for gang in bound.gangs if gang.job}
    places = {name: [(slot.gpu, slot.instance.start) for slot in task.slots] for name, task in held.items()}
    assert sorted(places.values()) == [[("n1/0", 0), ("n1/1", 4)], [("n1/0", 4), ("n1/1", 0)]]
    assert {int(task.gpus) for task in held.values()} == {1000}


def test_pods_of_a_refused_gang_that_run_count_as_use() -> None:
    """Nobody may be given GPUs that somebody has, whatever is wrong with whose they are."""
    (seen, _) = cluster(NODES, [pod("p", gpus=3, on="n1", labels=queued({}))]).nodes
    assert len(seen.gpus) == 5


ELSEWHERE: dict[str, Sent] = {
    "nodeSelector": {"nodeSelector": {"zone": "z"}},
    "affinity to nodes": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
                }
            }
        }
    },
    "affinity to pods": {
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "gone"}}}
                ]
            }
        }
    },
    "gates": {"schedulingGates": [{"name": "example.com/not-yet"}]},
}


@pytest.mark.parametrize("why", ELSEWHERE)
@pytest.mark.parametrize("gpus", [0, 2])
def test_what_replaces_a_pod_of_a_gang_that_runs_gets_no_node_where_it_may_be_nowhere(why: str, gpus: int) -> None:
    """Its gang runs on: the groups are limited to a set without nodes, which is not the same as to none."""
    said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "1"}
    spec = ELSEWHERE[why]
    runs = {key: value for key, value in spec.items() if key != "schedulingGates"}
    pods = [pod("w-0", gpus, on="n1", annotations=said, spec=runs), pod("w-1", gpus, annotations=said, spec=spec)]
    gang = the_gang(cluster([*NODES, node("n3", 0)], pods))
    assert gang.job is not None
    assert (gang.job.phase, gang.bound) == ("running", 1)
    assert [known.nodes for known in gang.node_sets] == [()]
    assert {group.nodes for group in gang.job.spec.task_groups} == {gang.node_sets[0].name}
    assert bool(gang.refusals) == (why != "gates")


UNFIT: dict[str, Sent] = {
    "several-queues": {"labels": {"quorate.dev/queue": "a"}},
    "several-classes": {"labels": {"quorate.dev/priority-class": "a"}},
    "gang-size-differs": {"annotations": {"quorate.dev/gang": "g", "quorate.dev/gang-size": "3"}},
    "unreadable-time-limit": {"annotations": {"quorate.dev/time-limit": "a while"}},
    "mixed-gpus": {"annotations": {"gpu-fraction": "0.5"}},
    "unreadable-quantity": {"requests": {"cpu": "lots"}},
    "resource-claims": {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}},
    "exclusive-topology": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}},
}
"""What is written on a pod alone, and can't be kept wherever it is."""


@pytest.mark.parametrize("code", UNFIT)
def test_what_replaces_a_pod_and_is_refused_for_itself_gets_no_node_while_its_gang_keeps_what_it_holds(
    code: str,
) -> None:
    said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "2"}
    labels = {"quorate.dev/queue": "q", "quorate.dev/priority-class": "high"}
    wrong = {"annotations": said, **UNFIT[code]}
    wrong["annotations"] = {**said, **wrong["annotations"]}
    wrong["labels"] = {**labels, **wrong.get("labels", {})}
    held = {**said, "quorate.dev/devices": "n1/2,n1/3"}
    # The one that is refused comes first by name: nothing that it says is its gang's.
    pods = [pod("w-0", **wrong), pod("w-1", 2, on="n1", annotations=held, labels=labels)]
    seen = cluster(NODES, pods)
    gang = the_gang(seen)
    assert gang.job is not None
    assert codes(gang) == [code]
    assert [device for task in gang.job.placement for device in task.devices] == ["n1/2", "n1/3"]
    assert [len(known.gpus) for known in seen.nodes] == [8, 8], "its GPUs are its own, not what others use"
    assert (gang.job.spec.queue, gang.job.spec.priority_class) == ("q", "high")
    assert [known.nodes for known in gang.node_sets] == [()]
    assert {group.nodes for group in gang.job.spec.task_groups} == {gang.node_sets[0].name}
    assert placed(seen) == {}


@pytest.mark.parametrize("written", [{"gpu-fraction": "0.5"}, {"gpu-memory": "8Gi"}])
def test_of_a_pod_that_runs_it_is_not_said_what_it_holds_where_that_can_not_be_read(written: Sent) -> None:
    seen = cluster(NODES, [pod("p", gpus=3, on="n1", annotations=written)])
    assert the_gang(seen).job is None
    assert [len(known.gpus) for known in seen.nodes] == [5, 8]


def test_what_replaces_a_pod_asks_for_what_that_one_has() -> None:
    """A pod that runs has it, whatever its node has left: rounds count it for the one that is to come."""
    said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "2"}
    nodes = [node("n1", offers={"rdma/hca": "1"}), node("n2"), node("n3", offers={"rdma/hca": "2"})]
    pods = [pod(f"w-{n}", on=on, annotations=said, requests={"rdma/hca": "1"}) for n, on in enumerate(("n1", ""))]
    seen = cluster(nodes, pods)
    gang = the_gang(seen)
    assert gang.job is not None
    assert (gang.refusals, gang.node_sets) == ((), ())
    assert [group.shape.resources["rdma/hca"] for group in gang.job.spec.task_groups] == [1]
    assert {known.name: known.resources.get("rdma/hca", 0) for known in seen.nodes} == {"n1": 1, "n2": 0, "n3": 2}


def test_an_object_that_is_no_pod_group_is_told() -> None:
    with pytest.raises(ValueError, match="is no PodGroup that is understood"):
        group_of({"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload", "metadata": {"name": "x"}})


def test_tasks_are_numbered_as_controllers_number_pods_and_else_by_name() -> None:
    said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "3"}
    by_name = [pod(f"w-{number}", annotations=said) for number in (10, 2, 9)]
    index = "batch.kubernetes.io/job-completion-index"
    by_index = [
        pod(name, annotations=said, labels={index: number}) for name, number in (("a", "10"), ("b", "2"), ("c", "9"))
    ]
    for pods, expected in ((by_name, ["w-2", "w-9", "w-10"]), (by_index, ["b", "c", "a"])):
        assert [member.name for member in the_gang(cluster(NODES, pods)).members] == expected
