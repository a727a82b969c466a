"""Workloads of Kueue whose pods name Quorate are jobs before their pods are there."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.controllers import Controller, controller_of
from reconciler.kubernetes.objects.queue_names import LocalQueue
from reconciler.kubernetes.objects.suspended_jobs import SuspendedJobs
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.workloads import Workload, stand_in
from reconciler.kubernetes.objects.world import ClusterModel
from solver.model.quantities import Instant
from tests.reconciler.kubernetes.rounds import placed
from tests.reconciler.kubernetes.samples import Sent, codes, node, pod, the_gang

AT = "2026-11-20T09:00:00Z"
HELD = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "lastTransitionTime": AT}


class Scene:
    """Two nodes with four GPUs each, and the queue `q` under the name of a LocalQueue."""

    def __init__(self) -> None:
        self.world = ClusterModel()
        for name in ("n1", "n2"):
            self.world.node(None, read(node(name, 4), KubeNode))
        self.world.local_queue(None, LocalQueue("vision", "team", "q"))
        self.jobs = SuspendedJobs(self.world, self.world)
        self._there: dict[tuple[str, str], Any] = {}

    def workload(self, sent: Sent | None, name: str = "job-train-1f2e3") -> None:
        self.jobs.workload(*self._change("workload", name, read(sent, Workload) if sent else None))

    def pod(self, sent: Sent | None, name: str = "") -> None:
        change = self._change("pod", name or (sent or {})["metadata"]["name"], read(sent, Pod) if sent else None)
        self.world.pod(*change)
        self.jobs.pod(*change)

    def controller(self, sent: Sent) -> None:
        found: tuple[Controller | None, Controller] = None, controller_of(sent)
        self.world.controller(*found)
        self.jobs.controller(*found)

    def _change(self, kind: Literal["workload", "pod"], name: str, after: Any) -> tuple[Any, Any]:
        before = self._there.pop((kind, name), None)
        self._there[kind, name] = after
        return before, after

    @property
    def cluster(self) -> KubernetesCluster:
        return self.world.cluster()

    @property
    def names(self) -> list[str]:
        return [gang.name for gang in self.cluster.gangs]


def a_pod_set(name: str = "main", count: int = 2, gpus: int = 1, **said: Any) -> Sent:
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    containers = [{"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}]
    spec = {"schedulerName": "quorate", "containers": containers, **said.pop("spec", {})}
    return {"name": name, "count": count, "template": {"metadata": said.pop("metadata", {}), "spec": spec}, **said}


def a_workload(*pod_sets: Sent, owner: str = "Job", status: Sent | None = None, **said: Any) -> Sent:
    owners = [{"kind": owner, "name": "train", "uid": "u", "controller": True, "apiVersion": "batch/v1"}]
    return {
        "metadata": {
            "name": "job-train-1f2e3",
            "namespace": "vision",
            "uid": "uid-of-workload",
            "resourceVersion": "3",
            "creationTimestamp": AT,
            "ownerReferences": owners,
            **said.pop("metadata", {}),
        },
        "spec": {"queueName": "team", "podSets": list(pod_sets) or [a_pod_set()], **said},
        "status": status or {},
    }


def admitted(*counts: tuple[str, int], more: tuple[Sent, ...] = ()) -> Sent:
    assigned = [{"name": name, "count": count} for name, count in counts]
    return {"conditions": [HELD, *more], "admission": {"clusterQueue": "q", "podSetAssignments": assigned}}


def of_train(number: int, on: str = "") -> Sent:
    return pod(
        f"train-{number}", 1, on, labels={"batch.kubernetes.io/job-name": "train"}, created="2026-11-20T10:00:00Z"
    )


JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "vision"},
    "spec": {"parallelism": 2, "suspend": True},
}


def test_a_suspended_job_is_one_gang_of_its_queue_since_its_workload_was_made() -> None:
    scene = Scene()
    scene.workload(
        a_workload(maximumExecutionTimeSeconds=60, priorityClassRef={"group": "kueue.x-k8s.io", "name": "high"})
    )
    gang = the_gang(scene.cluster)
    job = gang.job
    assert job is not None, gang.refusals
    assert (gang.name, job.spec.queue, job.spec.priority_class) == ("vision.kueue.job-train-1f2e3", "q", "high")
    assert (job.submitted_at, job.spec.time_limit) == (Instant.parse(AT), 60_000)
    assert [(group.name, group.replicas, group.least) for group in job.spec.task_groups] == [("main", 2, 2)]
    assert {stand_in(one.name) for one in gang.members} == {("job-train-1f2e3", "main")}
    scene.workload(a_workload())
    assert placed(scene.cluster) == {"vision.kueue.job-train-1f2e3": ["n1", "n1"]}


def test_all_pod_sets_start_together_and_one_with_a_min_count_with_fewer() -> None:
    scene = Scene()
    scene.workload(a_workload(a_pod_set("driver", 1, 0), a_pod_set("workers", 3, 2)))
    assert placed(scene.cluster) == {"vision.kueue.job-train-1f2e3": ["n1", "n1", "n1", "n2"]}
    scene.workload(a_workload(a_pod_set("main", 12, 1, minCount=3)))
    assert len(placed(scene.cluster)["vision.kueue.job-train-1f2e3"]) == 8
    scene.workload(a_workload(a_pod_set("main", 12, 1)))
    assert placed(scene.cluster) == {}


def test_its_topology_request_is_that_of_its_pods() -> None:
    scene = Scene()
    asked = {"kueue.x-k8s.io/podset-required-topology": "example.com/hall"}
    scene.workload(a_workload(a_pod_set(metadata={"annotations": asked})))
    assert codes(the_gang(scene.cluster)) == ["not-a-level"], "no node here has such a label"


def test_what_is_admitted_keeps_its_place_until_its_pods_take_it() -> None:
    """They are one gang, as they were admitted, though pods of such a Job are each of their own; with the place in line of it."""
    scene = Scene()
    scene.controller(JOB)
    scene.workload(a_workload())
    scene.workload(a_workload(status=admitted(("main", 2))))
    assert scene.names == ["vision.kueue.job-train-1f2e3"]
    scene.pod(of_train(0))
    assert scene.names == ["vision.job.train", "vision.kueue.job-train-1f2e3"]
    assert str(the_gang(scene.cluster, "vision.job.train").missing) == "waiting for 1 of 2 pods"
    scene.pod(of_train(1))
    assert scene.names == ["vision.job.train"]
    job = the_gang(scene.cluster).job
    assert job is not None
    assert job.submitted_at == Instant.parse(AT)
    scene.pod(of_train(0, "n1"))
    scene.pod(None, "train-1")
    assert scene.names == ["vision.job.train"], "one that is lost is not waited for by another"
    scene.workload(None)
    scene.pod(None, "train-0")
    scene.pod(of_train(1))
    assert scene.names == ["vision.pod.train-1"], "what Kueue knows nothing of is as it was"


def test_fewer_that_are_admitted_are_no_more_than_these() -> None:
    scene = Scene()
    scene.workload(a_workload(a_pod_set(count=4, minCount=1), status=admitted(("main", 3))))
    job = the_gang(scene.cluster).job
    assert job is not None
    assert [(group.replicas, group.least) for group in job.spec.task_groups] == [(3, 3)]


REQUEUED = {"type": "Requeued", "status": "False", "reason": "PodsReadyTimeout"}
EVICTED = {"type": "Evicted", "status": "True", "reason": "Preempted"}
NOT_NOW: dict[str, Sent] = {
    "deactivated": a_workload(active=False),
    "finished": a_workload(status={"conditions": [{"type": "Finished", "status": "True"}]}),
    "resting": a_workload(status={"requeueState": {"requeueAt": AT}}),
    "not requeued": a_workload(status={"conditions": [REQUEUED]}),
    "being stopped": a_workload(status=admitted(("main", 2), more=(EVICTED,))),
    "of another scheduler": a_workload(a_pod_set(spec={"schedulerName": "default-scheduler"})),
    "going": a_workload(metadata={"deletionTimestamp": AT}),
}


@pytest.mark.parametrize("why", NOT_NOW)
def test_what_is_not_to_be_admitted_now_is_no_job(why: str) -> None:
    scene = Scene()
    scene.workload(a_workload())
    assert len(scene.names) == 1
    scene.workload(NOT_NOW[why])
    assert scene.names == []


REFUSED: dict[str, tuple[Sent, str]] = {
    "schedulers": (
        a_workload(a_pod_set(), a_pod_set("other", spec={"schedulerName": "default-scheduler"})),
        "workload-schedulers",
    ),
    "kind": (a_workload(owner="RayJob"), "workload-kind"),
    "checks": (a_workload(status={"admissionChecks": [{"name": "prov", "state": "Pending"}]}), "workload-checks"),
    "clusters": (a_workload(status={"nominatedClusterNames": ["west"]}), "workload-clusters"),
    "slices": (
        a_workload(metadata={"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "vision/x"}}),
        "workload-slices",
    ),
    "claims": (
        a_workload(a_pod_set(spec={"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]})),
        "workload-claims",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_can_not_be_admitted_here_is_refused_with_the_reason(why: str) -> None:
    scene = Scene()
    sent, code = REFUSED[why]
    scene.workload(sent)
    assert codes(the_gang(scene.cluster)) == [code]


def test_of_a_jobset_that_makes_pods_in_turn_the_first_take_the_place() -> None:
    scene = Scene()
    scene.controller(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "train", "namespace": "vision"},
            "spec": {
                "replicatedJobs": [
                    {"name": "load", "template": {"spec": {"parallelism": 1}}},
                    {"name": "node", "dependsOn": [{"name": "load", "status": "Complete"}]},
                ]
            },
        }
    )
    status = admitted(("load", 1), ("node", 1))
    scene.workload(a_workload(a_pod_set("load", 1), a_pod_set("node", 1), owner="JobSet", status=status))
    assert scene.names == ["vision.kueue.job-train-1f2e3"]
    labels = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": "load"}
    scene.pod(pod("train-load-0", labels=labels))
    assert scene.names == ["vision.jobset.train:load"]
