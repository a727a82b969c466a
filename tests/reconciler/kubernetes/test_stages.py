"""Controllers that make some pods only once others run or have ended: what is made together is a gang, and waits for no more."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.controllers import controller_of
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import ClusterModel, cluster_of
from solver.model.quantities import Instant
from tests.reconciler.kubernetes.rounds import placed
from tests.reconciler.kubernetes.samples import Sent, cluster, codes, from_yaml, node, pod, the_gang

NODES = [node("n1"), node("n2")]

TORCHTUNE = """
    apiVersion: jobset.x-k8s.io/v1alpha2
    kind: JobSet
    metadata: {name: tune, namespace: vision, creationTimestamp: "2026-11-20T07:00:00Z"}
    spec:
      replicatedJobs:
        - {name: dataset, template: {spec: {parallelism: 1, completions: 1}}}
        - {name: model, template: {spec: {parallelism: 1, completions: 1}}}
        - name: node
          dependsOn: [{name: dataset, status: Complete}, {name: model, status: Complete}]
          template: {spec: {parallelism: 2, completions: 2}}
    """
"""As Kubeflow Trainer has it: two initializers, then the nodes."""
DEEPSPEED = """
    apiVersion: jobset.x-k8s.io/v1alpha2
    kind: JobSet
    metadata: {name: tune, namespace: vision, creationTimestamp: "2026-11-20T07:00:00Z"}
    spec:
      replicatedJobs:
        - {name: node, template: {spec: {parallelism: 2, completions: 2}}}
        - {name: launcher, dependsOn: [{name: node, status: Ready}], template: {spec: {parallelism: 1, completions: 1}}}
    """
IN_ORDER = """
    apiVersion: jobset.x-k8s.io/v1alpha2
    kind: JobSet
    metadata: {name: tune, namespace: vision, creationTimestamp: "2026-11-20T07:00:00Z"}
    spec:
      startupPolicy: {startupPolicyOrder: InOrder}
      replicatedJobs:
        - {name: node, template: {spec: {parallelism: 2, completions: 2}}}
        - {name: launcher, template: {spec: {parallelism: 1, completions: 1}}}
    """
MPI = """
    apiVersion: kubeflow.org/v2beta1
    kind: MPIJob
    metadata: {name: tune, namespace: vision, creationTimestamp: "2026-11-20T07:00:00Z"}
    spec:
      launcherCreationPolicy: WaitForWorkersReady
      mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 2}}
    """
LWS = """
    apiVersion: leaderworkerset.x-k8s.io/v1
    kind: LeaderWorkerSet
    metadata: {name: tune, namespace: vision, creationTimestamp: "2026-11-20T07:00:00Z"}
    spec: {replicas: 2, startupPolicy: LeaderReady, leaderWorkerTemplate: {size: 3}}
    """


def of_jobset(role: str, number: int = 0, **said: Any) -> Sent:
    labels = {"jobset.sigs.k8s.io/jobset-name": "tune", "jobset.sigs.k8s.io/replicatedjob-name": role}
    return pod(f"tune-{role}-{number}", labels=labels, **said)


def of_mpi(role: str, number: int = 0, **said: Any) -> Sent:
    """As the mpi-operator labels them, which writes no replica type."""
    labels = {"training.kubeflow.org/job-name": "tune", "training.kubeflow.org/job-role": role}
    return pod(f"tune-{role}-{number}", labels=labels, **said)


def of_lws(group: int, worker: int, **said: Any) -> Sent:
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "tune",
        "leaderworkerset.sigs.k8s.io/group-index": str(group),
        "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
    }
    return pod(f"tune-{group}-{worker}", labels=labels, annotations={"leaderworkerset.sigs.k8s.io/size": "3"}, **said)


def seen(text: str, *pods: Sent) -> KubernetesCluster:
    return cluster(NODES, pods, controllers=from_yaml(text))


def tasks(gang: PodGang) -> list[tuple[str, int, int]]:
    assert gang.job is not None, (gang.refusals, gang.missing)
    return [(group.name, group.replicas, group.least) for group in gang.job.spec.task_groups]


def test_what_waits_for_nothing_starts_alone_and_what_comes_once_it_is_complete_is_a_gang_of_its_own() -> None:
    early = the_gang(seen(TORCHTUNE, of_jobset("dataset")))
    assert (early.name, str(early.missing)) == ("vision.jobset.tune:dataset+model", "waiting for 1 of 2 pods")
    first = seen(TORCHTUNE, of_jobset("dataset"), of_jobset("model"))
    assert tasks(the_gang(first)) == [("dataset", 1, 1), ("model", 1, 1)]
    assert placed(first).keys() == {"vision.jobset.tune:dataset+model"}
    assert [str(one) for one in the_gang(first).remarks] == [
        "pods of node are made once dataset is Complete and model is Complete: nothing is kept free for them until then"
    ]
    ended = [of_jobset(role, on="n1", phase="Succeeded") for role in ("dataset", "model")]
    half = the_gang(seen(TORCHTUNE, *ended, of_jobset("node", 0)))
    assert (half.name, str(half.missing)) == ("vision.jobset.tune:node", "waiting for 1 of 2 pods")
    then = seen(TORCHTUNE, *ended, of_jobset("node", 0), of_jobset("node", 1))
    assert tasks(the_gang(then)) == [("node", 2, 2)]
    assert the_gang(then).remarks == ()
    assert placed(then).keys() == {"vision.jobset.tune:node"}


RUN_BEFORE = {
    "dependsOn Ready": (DEEPSPEED, of_jobset, "node", "vision.jobset.tune:", "node is Ready"),
    "InOrder": (IN_ORDER, of_jobset, "node", "vision.jobset.tune:", "node is Ready"),
    "WaitForWorkersReady": (MPI, of_mpi, "worker", "vision.kubeflow.tune:", "worker is Ready"),
}


@pytest.mark.parametrize("how", RUN_BEFORE)
def test_what_comes_once_others_run_does_not_hold_these_up_and_has_their_place_in_line(how: str) -> None:
    text, made, role, prefix, after = RUN_BEFORE[how]
    first = seen(text, made(role, 0), made(role, 1))
    assert tasks(the_gang(first)) == [(role, 2, 2)]
    assert [str(one) for one in the_gang(first).remarks] == [
        f"pods of launcher are made once {after}: nothing is kept free for them until then"
    ]
    assert placed(first) == {f"{prefix}{role}": ["n1", "n1"]}
    run = [made(role, number, on="n1") for number in range(2)]
    both = seen(text, *run, made("launcher", created="2026-11-20T09:00:00Z"))
    assert {gang.name: gang.job and gang.job.phase for gang in both.gangs} == {
        f"{prefix}{role}": "running",
        f"{prefix}launcher": "pending",
    }
    launcher = the_gang(both, f"{prefix}launcher")
    assert launcher.job is not None
    assert launcher.job.submitted_at == Instant.parse("2026-11-20T07:00:00Z")
    assert placed(both).keys() == {f"{prefix}launcher"}


def test_each_leader_that_is_to_be_ready_first_starts_alone_and_then_its_workers_together() -> None:
    first = seen(LWS, of_lws(0, 0), of_lws(1, 0))
    assert placed(first).keys() == {"vision.lws.tune-0:leader", "vision.lws.tune-1:leader"}
    half = seen(LWS, of_lws(0, 0, on="n1"), of_lws(0, 1))
    workers = the_gang(half, "vision.lws.tune-0:worker")
    assert str(workers.missing) == "waiting for 1 of 2 pods"
    then = seen(LWS, of_lws(0, 0, on="n1"), of_lws(0, 1), of_lws(0, 2), of_lws(1, 0))
    assert tasks(the_gang(then, "vision.lws.tune-0:worker")) == [("worker", 2, 2)]
    assert placed(then).keys() == {"vision.lws.tune-0:worker", "vision.lws.tune-1:leader"}


def test_a_leader_that_need_not_be_ready_starts_with_its_workers() -> None:
    (lws,) = from_yaml(LWS)
    lws["spec"]["startupPolicy"] = "LeaderCreated"
    pods = [of_lws(0, worker) for worker in range(3)]
    early = the_gang(cluster(NODES, pods[:1], controllers=[lws]))
    assert (early.name, str(early.missing)) == ("vision.lws.tune-0", "waiting for 2 of 3 pods")
    whole = the_gang(cluster(NODES, pods, controllers=[lws]))
    assert (tasks(whole), whole.remarks) == ([("leader", 1, 1), ("worker", 2, 2)], ())


def test_the_queue_of_a_leader_worker_set_may_stand_on_it() -> None:
    (lws,) = from_yaml(LWS)
    lws["metadata"]["labels"] = {"quorate.dev/queue": "serving"}
    sent = of_lws(0, 0)
    del sent["metadata"]["labels"]["quorate.dev/queue"]
    gang = the_gang(cluster(NODES, [sent], controllers=[lws]))
    assert gang.job is not None
    assert gang.job.spec.queue == "serving"


def test_jobs_without_an_order_and_orders_of_one_job_are_one_gang() -> None:
    (jobset,) = from_yaml(IN_ORDER)
    jobset["spec"]["startupPolicy"] = {"startupPolicyOrder": "AnyOrder"}
    assert the_gang(cluster(NODES, [of_jobset("node")], controllers=[jobset])).name == "vision.jobset.tune"
    (alone,) = from_yaml(IN_ORDER)
    del alone["spec"]["replicatedJobs"][1]
    pods = [of_jobset("node", number) for number in range(2)]
    gang = the_gang(cluster(NODES, pods, controllers=[alone]))
    assert (gang.name, tasks(gang)) == ("vision.jobset.tune", [("node", 2, 2)])


def test_a_size_that_pods_name_may_be_less_than_a_stage_has_and_is_never_more() -> None:
    def gang(size: str) -> PodGang:
        notes = {"quorate.dev/gang-size": size}
        return the_gang(seen(TORCHTUNE, *(of_jobset("node", number, annotations=notes) for number in range(2))))

    assert tasks(gang("1")) == [("node", 2, 1)]
    assert tasks(gang("4")) == [("node", 2, 2)], "what comes in turn is not waited for"


def test_roles_that_people_name_are_not_what_is_made_in_turn() -> None:
    notes = {"quorate.dev/role": "trainer"}
    gang = the_gang(seen(TORCHTUNE, *(of_jobset("node", number, annotations=notes) for number in range(2))))
    assert (gang.name, tasks(gang)) == ("vision.jobset.tune:node", [("trainer", 2, 2)])


def test_of_a_role_that_the_controller_does_not_make_the_size_is_not_known() -> None:
    assert codes(the_gang(seen(TORCHTUNE, of_jobset("other")))) == ["gang-size-unknown"]


def test_one_domain_for_all_of_it_is_said_to_be_one_for_each_stage() -> None:
    (lws,) = from_yaml(LWS)
    lws["metadata"]["annotations"] = {"kai.scheduler/topology-required-placement": "cloud.provider.com/topology-rack"}
    gang = the_gang(cluster(NODES, [of_lws(0, 0)], controllers=[lws]))
    assert str(gang.remarks[-1]) == (
        "each of its stages is in one domain of cloud.provider.com/topology-rack, which need not be that of the others"
    )


@pytest.mark.parametrize("text", [LWS, TORCHTUNE])
def test_whatever_is_known_first_and_whatever_goes_the_gangs_are_those_of_all_objects_at_once(text: str) -> None:
    notes = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "4"}
    sent = [
        of_lws(0, 0),
        of_lws(0, 1),
        of_lws(1, 0),
        of_jobset("node"),
        of_jobset("model"),
        of_jobset("dataset", annotations=notes),
    ]
    controller = controller_of(from_yaml(text)[0])
    pods = [read(one, Pod) for one in sent]
    nodes = [read(one, KubeNode) for one in NODES]
    whole, without = cluster_of(nodes, pods, controllers=[controller]), cluster_of(nodes, pods)
    assert whole != without
    for at in range(len(pods) + 1):
        world = ClusterModel()
        for known in nodes:
            world.node(None, known)
        for one in pods[:at]:
            world.pod(None, one)
        world.cluster()
        world.controller(None, controller)
        world.cluster()
        for one in pods[at:]:
            world.pod(None, one)
        assert world.cluster() == whole
        world.controller(controller, None)
        assert world.cluster() == without
        world.controller(None, controller)
        for one in pods:
            world.pod(one, None)
            world.cluster()
        assert world.cluster().gangs == ()
        for one in pods:
            world.pod(None, one)
        assert world.cluster() == whole


COUNTED_IN: dict[str, tuple[Sent, str, str]] = {
    "by people": ({"annotations": {"quorate.dev/gang": "g", "quorate.dev/gang-size": "3"}}, "", "gang g"),
    "by a PodGroup": (
        {"annotations": {"scheduling.k8s.io/group-name": "g"}},
        """
        apiVersion: scheduling.volcano.sh/v1beta1
        kind: PodGroup
        metadata: {name: g, namespace: vision}
        spec: {minMember: 3}
        """,
        "volcano g",
    ),
}


@pytest.mark.parametrize("how", COUNTED_IN)
def test_a_gang_that_waits_for_what_comes_only_once_it_runs_is_told_so_at_once(how: str) -> None:
    said, group, name = COUNTED_IN[how]
    made = [of_jobset(role, **said) for role in ("dataset", "model")]
    groups = from_yaml(group) if group else []
    early = the_gang(cluster(NODES, made, groups, from_yaml(TORCHTUNE)))
    assert str(early.missing) == (
        "waiting for 1 of 3 pods: pods of node are made once dataset is Complete and model is Complete, "
        f"so {name} must not count them in"
    )
    nodes = [of_jobset("node", number, **said) for number in range(2)]
    whole = the_gang(cluster(NODES, [*made, *nodes], groups, from_yaml(TORCHTUNE)))
    assert (whole.missing, whole.job is None) == (None, False)
    assert str(the_gang(cluster(NODES, made, groups)).missing) == "waiting for 1 of 3 pods"


def test_a_pod_group_that_counts_all_that_is_made_in_turn_is_a_gang_for_each_stage() -> None:
    """Kubeflow Trainer writes such a PodGroup of coscheduling for each TrainJob, its initializers counted in."""
    group = from_yaml(
        """
        apiVersion: scheduling.x-k8s.io/v1alpha1
        kind: PodGroup
        metadata: {name: tune, namespace: vision}
        spec: {minMember: 4}
        """
    )

    def grouped(role: str, number: int = 0, **said: Any) -> Sent:
        made = of_jobset(role, number, **said)
        made["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = "tune"
        return made

    first = cluster(NODES, [grouped("dataset"), grouped("model")], group, from_yaml(TORCHTUNE))
    assert (the_gang(first).name, tasks(the_gang(first))) == (
        "vision.coscheduling.tune:dataset+model",
        [("dataset", 1, 1), ("model", 1, 1)],
    )
    assert placed(first).keys() == {"vision.coscheduling.tune:dataset+model"}
    ended = [grouped(role, on="n1", phase="Succeeded") for role in ("dataset", "model")]
    half = the_gang(cluster(NODES, [*ended, grouped("node", 0)], group, from_yaml(TORCHTUNE)))
    assert str(half.missing) == "waiting for 1 of 2 pods"
    then = cluster(NODES, [*ended, grouped("node", 0), grouped("node", 1)], group, from_yaml(TORCHTUNE))
    assert tasks(the_gang(then)) == [("node", 2, 2)]


def test_a_worker_of_before_that_is_ending_does_not_make_the_new_leader_refused() -> None:
    """A LeaderWorkerSet of another size and queue makes the leader of a group anew beside workers of the size before."""
    leader = of_lws(0, 0)
    leader["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/size"] = "2"
    leader["metadata"]["labels"]["quorate.dev/queue"] = "another"
    before = of_lws(0, 1, on="n1", metadata={"deletionTimestamp": "2026-11-20T08:00:00Z"})
    plain = LWS.replace("startupPolicy: LeaderReady, ", "")
    waits = the_gang(seen(plain, leader, before))
    assert (waits.refusals, waits.job is None, waits.bound) == ((), False, 1)
    runs = of_lws(0, 1, on="n1")
    assert codes(the_gang(seen(plain, leader, runs))) == ["gang-size-differs", "several-queues"]
