"""Beside another scheduler its pods are jobs, if they ask for GPUs; nobody else's are."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kubernetes.objects.pod_ownership import INCUMBENTS, OURS, PodOwnership
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import ClusterModel, cluster_of
from tests.reconciler.kubernetes.samples import codes, node, pod

THEIRS = PodOwnership(frozenset(INCUMBENTS))
NODES = [read(node("n1"), KubeNode)]
BY_DEFAULT = {"schedulerName": "default-scheduler"}


def a_pod(name: str, gpus: int = 1, **said: Any) -> Pod:
    return read(pod(name, gpus, **({"spec": BY_DEFAULT} | said)), Pod)


@pytest.mark.parametrize(
    ("known", "ours", "theirs"),
    [
        (a_pod("a", spec={}), True, True),
        (a_pod("a", 0, spec={}), True, True),
        (a_pod("a"), False, True),
        (a_pod("a", 0), False, False),
        (a_pod("a", 0, requests={"nvidia.com/mig-1g.10gb": "1"}), False, True),
        (a_pod("a", 0, annotations={"gpu-fraction": "0.5"}), False, True),
        (a_pod("a", 0, requests={"nvidia.com/gds": "1"}), False, False),
        (a_pod("a", spec={"schedulerName": "somebody"}), False, False),
    ],
)
def test_whose_pods_are_jobs(known: Pod, ours: bool, theirs: bool) -> None:
    assert (OURS.are_jobs(known), THEIRS.are_jobs(known)) == (ours, theirs)


def test_gpus_of_an_incumbents_pods_are_held_by_jobs_and_its_other_pods_are_use() -> None:
    pods = [a_pod("train", 4, on="n1"), a_pod("web", 0, on="n1")]
    seen = cluster_of(NODES, pods, whose=THEIRS)
    (job,) = seen.jobs
    assert (job.name, len(job.placement[0].devices)) == ("vision.pod.train", 4)
    # To Quorate as the scheduler they are use of the node, of which it has so much less.
    assert (cluster_of(NODES, pods).jobs, len(cluster_of(NODES, pods).nodes[0].gpus)) == ((), 4)
    assert (len(seen.nodes[0].gpus), seen.nodes[0].cpu) == (8, 95_000)


def test_who_names_no_queue_is_in_the_one_for_them_and_who_names_one_in_that() -> None:
    nameless, named = (
        a_pod("a", labels={"quorate.dev/queue": ""}),
        a_pod("b", labels={"quorate.dev/queue": "", "kueue.x-k8s.io/queue-name": "k"}),
    )
    both = cluster_of(NODES, [nameless, named], whose=THEIRS._replace(queue="everybody"))
    assert [job.spec.queue for job in both.jobs] == ["everybody", "k"]
    (refused,) = cluster_of(NODES, [nameless], whose=THEIRS).gangs
    assert "no-queue" in codes(refused)


def test_a_pod_that_comes_to_ask_for_a_part_of_a_gpu_becomes_a_job() -> None:
    world, before = ClusterModel(THEIRS), a_pod("a", 0)
    world.node(None, *NODES)
    after = a_pod("a", 0, annotations={"gpu-fraction": "0.5"})
    assert not world.pod(None, before)
    assert world.pod(before, after)
    assert [job.name for job in world.cluster().jobs] == ["vision.pod.a"]
    assert world.pod(after, before)
    assert world.cluster().gangs == ()
