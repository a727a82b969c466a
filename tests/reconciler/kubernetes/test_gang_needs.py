"""Gangs that are told to be larger or smaller while they run."""

from __future__ import annotations

from typing import Any

from reconciler.kubernetes.objects.jobs import PodGang
from solver.model.workload import Job
from tests.reconciler.kubernetes.rounds import placed
from tests.reconciler.kubernetes.samples import Sent, cluster, from_yaml, node, pod, the_gang

NODES = [node("n1", 4)]


def a_job(parallelism: int) -> Sent:
    spec = {"parallelism": parallelism, "completions": parallelism, "completionMode": "Indexed"}
    meta = {"name": "train", "namespace": "vision"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def of_job(index: int, on: str = "", needs: str = "", **said: Any) -> Sent:
    labels = {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/job-completion-index": str(index)}
    annotations = {"quorate.dev/attempt": "1", "quorate.dev/needs": needs} if needs else {}
    return pod(f"train-{index}", 1, on, labels=labels, annotations=annotations, **said)


def seen(parallelism: int, *pods: Sent) -> PodGang:
    return the_gang(cluster(NODES, pods, controllers=[a_job(parallelism)]))


def job_of(gang: PodGang) -> Job:
    assert gang.job is not None, gang.refusals
    return gang.job


def sizes(gang: PodGang) -> list[tuple[str, int, int]]:
    return [(group.name, group.replicas, group.least) for group in job_of(gang).spec.task_groups]


TWO = (of_job(0, "n1", "2/2"), of_job(1, "n1", "2/2"))


def test_a_gang_runs_on_while_it_is_told_to_be_larger_and_what_comes_joins_it() -> None:
    asked = seen(4, *TWO)
    assert (asked.missing, job_of(asked).phase) == (None, "running"), "its pods are not there yet"
    come = [*TWO, of_job(2), of_job(3)]
    assert (job_of(seen(4, *come)).phase, sizes(seen(4, *come))) == ("running", [("worker", 4, 2)])
    assert placed(cluster(NODES, come, controllers=[a_job(4)])) == {"vision.job.train": ["n1", "n1"]}
    crowded = [*come, pod("other", 1, "n1")]
    assert placed(cluster(NODES, crowded, controllers=[a_job(4)])) == {"vision.job.train": ["n1"]}, "one by one"
    assert {one.needs for one in seen(4, *come).members} == {"2/2"}, "what joins does not make it need more"


def test_a_gang_that_has_not_begun_needs_what_is_asked_for() -> None:
    gang = seen(3, of_job(0), of_job(1), of_job(2))
    assert (sizes(gang), {one.needs for one in gang.members}) == ([("worker", 3, 3)], {"3/3"})
    assert str(seen(4, of_job(0), of_job(1), of_job(2)).missing) == "waiting for 1 of 4 pods"


def test_a_pod_that_takes_the_place_of_one_is_needed_as_that_one_was() -> None:
    gang = seen(2, TWO[0], of_job(1))
    assert (sizes(gang), job_of(gang).phase) == ([("worker", 2, 2)], "starting")


def test_a_gang_that_was_told_to_be_smaller_says_so_on_its_pods_and_grows_again_like_any_other() -> None:
    leaving = of_job(1, "n1", "2/2", metadata={"deletionTimestamp": "2026-11-20T10:00:00Z"})
    less = seen(1, TWO[0], leaving)
    assert (sizes(less), job_of(less).phase) == ([("worker", 2, 1)], "running")
    assert [(one.name, one.needs) for one in less.outgrown] == [("train-0", "1/1"), ("train-1", "1/1")]
    one = of_job(0, "n1", "1/1")
    assert seen(1, one).outgrown == ()
    again = seen(2, one, of_job(1))
    assert (sizes(again), job_of(again).phase, again.outgrown) == ([("worker", 2, 1)], "running", ())


def a_ray_cluster(replicas: int) -> Sent:
    (found,) = from_yaml(
        f"""
        apiVersion: ray.io/v1
        kind: RayCluster
        metadata: {{name: tune, namespace: vision}}
        spec: {{headGroupSpec: {{}}, workerGroupSpecs: [{{groupName: gpu, replicas: {replicas}}}]}}
        """
    )
    return found


def of_ray(name: str, group: str, on: str = "", needs: str = "") -> Sent:
    notes = {"quorate.dev/needs": needs} if needs else {}
    return pod(name, 1, on, labels={"ray.io/cluster": "tune", "ray.io/group": group}, annotations=notes)


def test_workers_of_a_ray_cluster_come_and_go_beside_its_head() -> None:
    there = [of_ray("head", "headgroup", "n1", "1/2"), of_ray("gpu-a", "gpu", "n1", "1/2")]

    def of(replicas: int, *pods: Sent) -> PodGang:
        return the_gang(cluster(NODES, pods, controllers=[a_ray_cluster(replicas)]))

    more = of(3, *there, of_ray("gpu-b", "gpu"), of_ray("gpu-c", "gpu"))
    assert (job_of(more).phase, sizes(more)) == ("running", [("gpu", 3, 1), ("headgroup", 1, 1)])
    assert {(one.group, one.needs) for one in more.members} == {("gpu", "1/2"), ("headgroup", "1/2")}
    assert of(1, *there).outgrown == ()
    wide = [of_ray("head", "headgroup", "n1", "1/4"), *(of_ray(f"gpu-{one}", "gpu", "n1", "3/4") for one in "abc")]
    said = {(one.name, one.needs) for one in of(2, *wide).outgrown}
    assert said == {("head", "1/3"), ("gpu-a", "2/3"), ("gpu-b", "2/3"), ("gpu-c", "2/3")}


def test_what_is_written_otherwise_says_nothing() -> None:
    for odd in ("two", "1/2/3", "-1/2", "9999999999/1"):
        gang = seen(3, of_job(0, "n1", odd), of_job(1, "n1", odd), of_job(2))
        assert sizes(gang) == [("worker", 3, 3)]


def test_an_elastic_pytorchjob_starts_with_its_least() -> None:
    (job,) = from_yaml(
        """
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        metadata: {name: fine, namespace: vision}
        spec:
          elasticPolicy: {minReplicas: 1, maxReplicas: 3}
          pytorchReplicaSpecs: {Worker: {replicas: 3}}
        """
    )
    labels = {"training.kubeflow.org/job-name": "fine", "training.kubeflow.org/replica-type": "worker"}
    pods = [pod(f"fine-worker-{number}", labels=labels) for number in range(3)]
    assert sizes(the_gang(cluster(NODES, pods, controllers=[job]))) == [("worker", 3, 1)]
