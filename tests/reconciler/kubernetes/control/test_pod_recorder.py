"""What is put on record of pods that come, run, are sent away and end, whoever looks when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.control.capacity import WATCH_GAP
from reconciler.kubernetes.control.views import PodHoldings, PodJobs
from reconciler.kubernetes.objects.wire import KubeNode, read
from reconciler.protocols.job_source import JobQuery
from reconciler.protocols.past_jobs import PastJob
from reconciler.store.store import SqlStore
from solver.model.cluster import DeviceId
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, QueueName
from tests.fresh_store import fresh_store
from tests.reconciler.kubernetes.control.recorded import EVICTED, Recorded, at, bound, over, written
from tests.reconciler.kubernetes.samples import node, pod

MIG_NODE = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    made = fresh_store(tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def cluster(store: SqlStore) -> Recorded:
    made = Recorded(store)
    made.look(0)
    return made


def test_a_pod_holds_from_its_binding_to_its_last_containers_end_however_late_it_is_seen(cluster: Recorded) -> None:
    train = bound("train", "n1", 10, 0, 1)
    cluster.put(train)
    cluster.look(100)
    assert cluster.told() == [("train", 1, 10, None, "")]
    cluster.put(over(train, 500))
    cluster.look(900.5)
    assert cluster.told() == [("train", 1, 10, 500, "succeeded")]
    account = cluster.account(0, 1_000)
    assert sum(piece.amount for piece in account.held) == 490 * 2 * 1_000_000
    assert sum(map(account.capacity, account.totals)) == 1_000 * 8 * 1_000_000


def test_what_is_seen_again_by_whoever_changes_nothing(cluster: Recorded) -> None:
    train, ended = bound("train", "n1", 10, 0, 1), over(bound("serve", "n1", 20, 2), 30, "Failed")
    cluster.put(train, ended)
    told = [("serve", 1, 20, 30, "failed"), ("train", 1, 10, None, "")]
    for second in (40, 41):
        cluster.look(second)
        assert cluster.told() == told
    for second in (50, 60):
        cluster.lead(second)
        cluster.look(second + 10)
        cluster.look(second + 11)
        assert cluster.told() == told
    jobs = cluster.store.past_jobs.between(at(0), at(100))
    assert [(job.name, job.ended_at) for job in jobs] == [("vision.pod.serve", at(30)), ("vision.pod.train", None)]


def test_what_came_and_went_between_two_looks_is_on_record(cluster: Recorded) -> None:
    cluster.put(pod("train", 2), pod("serve", 1))
    cluster.look(5)
    cluster.put(over(bound("train", "n1", 10, 0, 1), 20), over(bound("serve", "n1", 10, 2), 15))
    cluster.drop("serve")
    cluster.put(over(bound("never-seen", "n1", 12, 5), 18))
    cluster.look(60)
    assert cluster.told() == [
        ("never-seen", 1, 12, 18, "succeeded"),
        ("serve", 1, 10, 15, "succeeded"),
        ("train", 1, 10, 20, "succeeded"),
    ]
    ended = {job.name: job.ended_at for job in cluster.store.past_jobs.between(at(0), at(100))}
    assert ended == {"vision.pod.never-seen": at(18), "vision.pod.serve": at(15), "vision.pod.train": at(20)}


def test_after_an_hour_without_a_leader_what_is_there_counts_as_it_says(cluster: Recorded) -> None:
    stays, goes, ends = bound("stays", "n1", 10, 0), bound("goes", "n1", 10, 1), bound("ends", "n1", 10, 2)
    cluster.put(stays, goes, ends)
    cluster.look(20)
    cluster.store.capacities.watch(cluster.leader.led.store, at(60), WATCH_GAP)
    cluster.put(over(ends, 600), bound("new", "n1", 1_200, 3), over(bound("both", "n1", 1_300, 4), 1_400, "Failed"))
    cluster.drop("goes")
    cluster.lead(3_600)
    cluster.look(3_620)
    assert cluster.told() == [
        ("both", 1, 1_300, 1_400, "failed"),
        ("ends", 1, 10, 600, "succeeded"),
        ("goes", 1, 10, 60, "unseen"),
        ("new", 1, 1_200, None, ""),
        ("stays", 1, 10, None, ""),
    ]
    gone = [record for record in cluster.store.pod_placements.past(at(0), at(9_999)) if record.outcome]
    told = {record.name: (record.outcome.state, record.outcome.at) for record in gone if record.outcome}
    assert told[JobName("vision.pod.goes")] == ("cancelled", at(60))
    assert told[JobName("vision.pod.ends")] == ("succeeded", at(600))


def test_an_evicted_gang_that_its_controller_makes_anew_is_in_its_next_attempt(cluster: Recorded) -> None:
    owner = {"ownerReferences": [{"kind": "Job", "name": "train", "uid": "j1", "controller": True}]}
    first = bound("train", "n1", 10, 0, 1, metadata=owner)
    cluster.put(first)
    cluster.look(11)
    cluster.put(over(first, 100, "Failed", EVICTED, deleted=130))
    cluster.look(101)
    cluster.drop("train")
    cluster.look(102)
    again = bound("train", "n1", 300, 0, 1, metadata={**owner, "uid": "another"})
    cluster.put(again)
    cluster.look(301)
    assert cluster.told() == [("train", 1, 10, 100, "evicted"), ("train", 2, 300, None, "")]
    (job,) = cluster.store.past_jobs.between(at(0), at(400))
    assert (job.ended_at, job.gpus) == (None, MilliGpu.gpus(2))


def test_another_job_of_the_same_name_is_another_one(cluster: Recorded) -> None:
    first = bound("train", "n1", 10, 0)
    cluster.put(over(first, 20))
    cluster.look(30)
    cluster.drop("train")
    cluster.put(bound("train", "n1", 40, 0, 1, metadata={"uid": "another"}, created=written(39)))
    cluster.look(50)
    assert [(job, attempt) for job, attempt, *_ in cluster.told()] == [("train", 1), ("train#2", 1)]
    jobs = cluster.store.past_jobs.between(at(0), at(100))
    assert [(job.name, int(job.gpus)) for job in jobs] == [("vision.pod.train", 1_000), ("vision.pod.train#2", 2_000)]


def test_a_pod_that_is_deleted_before_it_says_how_it_ended_held_until_its_grace_was_over(cluster: Recorded) -> None:
    train = bound("train", "n1", 10, 0)
    cluster.put(train)
    cluster.look(20)
    cluster.put({**train, "metadata": train["metadata"] | {"deletionTimestamp": written(70)}})
    cluster.drop("train")
    cluster.look(400)
    assert cluster.told() == [("train", 1, 10, 70, "cancelled")]


def test_devices_of_a_node_are_never_held_twice_though_clocks_of_nodes_differ(cluster: Recorded) -> None:
    first = bound("first", "n1", 10, 0, 1)
    cluster.put(first)
    cluster.look(20)
    cluster.put(over(first, 33), bound("second", "n1", 30, 1, 2))  # the node's clock is three seconds ahead
    cluster.look(40)
    assert cluster.told() == [("first", 1, 10, 33, "succeeded"), ("second", 1, 33, None, "")]
    assert cluster.account(0, 100).overheld == 0


def test_fractions_and_devices_that_nobody_named(cluster: Recorded) -> None:
    half = {"gpu-fraction": "0.5"}
    for name in ("one", "two"):
        cluster.put(bound(name, "n1", 10, 0, annotations=half, requests={"nvidia.com/gpu": "0"}))
    lost = bound("lost", "n1", 10, 3, 4)
    lost["metadata"]["annotations"] = {}
    cluster.put(over(lost, 50))
    cluster.look(60)
    placed = {one.placement.job: one for one in cluster.store.placements.in_window(at(0), at(100))}
    assert placed[JobName("vision.pod.lost")].tasks[0].devices == (DeviceId("n1/1"), DeviceId("n1/2"))
    assert [int(placed[JobName(f"vision.pod.{name}")].gpus) for name in ("one", "two", "lost")] == [500, 500, 2_000]
    account = cluster.account(0, 100)
    assert account.overheld == 0
    assert sum(piece.amount for piece in account.held) == (90 + 80) * 1_000_000


def test_instances_are_held_by_their_part_of_a_gpu(cluster: Recorded) -> None:
    cut = {"nvidia.com/mig-1g.10gb": "7"}
    cluster.objects["node/n2"] = read(node("n2", 0, offers=cut, labels=MIG_NODE), KubeNode)
    for index in range(2):
        cluster.put(pod(f"small-{index}", 0, "n2", requests={"nvidia.com/mig-1g.10gb": "1"}))
    cluster.look(60)
    placed = cluster.store.placements.in_window(at(0), at(100))
    assert [(one.gpus, one.tasks[0].instance_of) for one in placed] == [(125, "n2/0"), (125, "n2/0")]
    account = cluster.account(60, 100)
    assert sum(account.capacity(kind) for kind in account.totals) == 9 * 40 * 1_000_000
    assert sum(of["allocated"] for of in account.totals.values()) == 2 * 125 * 40_000


def test_instances_whose_end_nobody_saw_are_no_whole_gpus(cluster: Recorded) -> None:
    cut = {"nvidia.com/mig-1g.10gb": "7"}
    cluster.objects["node/n2"] = read(node("n2", 0, offers=cut, labels=MIG_NODE), KubeNode)
    for name, count in (("one", 1), ("two", 2)):
        ran = bound(name, "n2", 10, requests={"nvidia.com/mig-1g.10gb": str(count)})
        instances = ",".join(f"n2/0/1g.10gb@{start}" for start in range(count))
        ran["metadata"]["annotations"]["quorate.dev/devices"] = instances
        cluster.put(over(ran, 50))
    cluster.look(60)
    placed = cluster.store.placements.in_window(at(0), at(100))
    assert [(one.gpus, one.tasks[0].instance_of) for one in placed] == [(125, "n2/0"), (250, "n2/0")]


def test_the_jobs_of_the_past_are_told_with_those_that_are_there(cluster: Recorded) -> None:
    cluster.put(over(bound("train", "n1", 10, 0), 20))
    cluster.look(30)
    cluster.drop("train")
    cluster.put(bound("train", "n1", 40, 0, metadata={"uid": "another"}, created=written(39)))
    sight = cluster.leader.look(at(50))
    jobs, ledger = PodJobs(lambda: sight, cluster.store.pod_placements.past), PodHoldings(lambda: sight)
    first, second = JobName("vision.pod.train"), JobName("vision.pod.train#2")
    assert {job.name: bool(job.outcome) for job in jobs.jobs()} == {first: False}
    asked = JobQuery(since=at(0))
    assert {job.name: bool(job.outcome) for job in jobs.jobs(query=asked)} == {first: True, second: False}
    assert [job.name for job in jobs.jobs(1, second, asked)] == [first]
    assert {job.name for job in jobs.jobs(query=JobQuery(since=at(25)))} == {second}
    assert ledger.of([second]).claims.keys() == {second}


def test_what_a_gang_is_and_until_when_it_saved(cluster: Recorded) -> None:
    notes = {"quorate.dev/checkpoint-interval": "10m", "quorate.dev/checkpointed": written(60)}
    status = {"startTime": written(11)}
    train = bound("train", "n1", 10, 0, 1, annotations=notes, labels={"quorate.dev/priority-class": "batch"})
    train["status"] |= status
    cluster.put(train)
    cluster.look(70)
    cluster.put(over(train, 100, "Failed", EVICTED, deleted=100))
    cluster.look(101)
    (job,) = cluster.store.past_jobs.between(at(0), at(100))
    came = at(-3_600)
    name = JobName("vision.pod.train")
    assert job == PastJob(name, QueueName("q"), "", "batch", MilliGpu.gpus(2), (), came, at(100))
    assert cluster.store.past_jobs.saved(at(0)) == {(name, 1): at(60)}
