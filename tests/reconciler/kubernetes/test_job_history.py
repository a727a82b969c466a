"""What a recorder that looks again and again makes of pods that come, run, are sent away, come back and end."""

from __future__ import annotations

import json

import msgspec
import pytest

from reconciler.analysis.backtest.history_file import Attempt, RecordedJob
from reconciler.documents.schemas import validator_of
from reconciler.kubernetes.control.job_history import KEPT, JobHistory
from reconciler.kubernetes.objects.controllers import Controller, controller_of
from reconciler.kubernetes.objects.pod_ownership import INCUMBENTS, PodOwnership
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import ClusterModel
from solver.model.document import decode, encode
from solver.model.quantities import Instant
from solver.model.workload import JobName
from tests.reconciler.kubernetes.samples import Sent, node, pod

BEGAN = Instant.parse("2026-11-20T08:00:00Z")
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
LOST = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
BY_VOLCANO = {"type": "Ready", "status": "False", "reason": "Evict"}


def at(minute: int) -> Instant:
    return Instant(BEGAN + minute * 60_000)


def said(minute: int) -> str:
    return str(at(minute))


class Incumbent:
    """A cluster that somebody else schedules: pods are put, changed and taken away; each look is a minute after the one before."""

    def __init__(self, happened: JobHistory | None = None) -> None:
        self.happened = happened or JobHistory()
        self.world = ClusterModel(PodOwnership(frozenset(INCUMBENTS), "everybody"))
        self.world.node(None, read(node("n1"), KubeNode))
        self.pods: dict[tuple[str, str], Pod] = {}
        self.minute = 0
        self.writes = 0

    def put(
        self,
        sent: Sent,
        *conditions: Sent,
        phase: str = "",
        started: int | None = None,
        scheduler: str = "default-scheduler",
    ) -> None:
        sent["spec"]["schedulerName"] = scheduler
        self.writes += 1
        sent["metadata"]["resourceVersion"] = str(self.writes)
        sent["status"] |= {"conditions": list(conditions)} | ({"phase": phase} if phase else {})
        if started is not None:
            sent["status"]["startTime"] = said(started)
        made = read(sent, Pod)
        self.world.pod(self.pods.get(made.key), made)
        self.pods[made.key] = made

    def take(self, name: str) -> None:
        self.world.pod(self.pods.pop(("vision", name)), None)

    def look(self, minute: int | None = None) -> tuple[RecordedJob, ...]:
        self.minute = self.minute + 1 if minute is None else minute
        cluster = self.world.cluster()
        self.happened.look(at(self.minute), {gang.name: gang for gang in cluster.gangs}, self.pods)
        return self.happened.jobs()


def a_pod(name: str, *, on: str = "", created: int = 0, uid: str = "", owner: str = "") -> Sent:
    made = pod(name, on=on, created=said(created), labels={"quorate.dev/queue": ""})
    made["metadata"]["uid"] = uid or f"uid-of-{name}"
    made["metadata"]["ownerReferences"] = [{"kind": "Job", "name": owner, "uid": owner, "controller": True}] * bool(
        owner
    )
    return made


@pytest.fixture
def there() -> Incumbent:
    """Looked at since minute 0, when nothing was there."""
    made = Incumbent()
    made.look(0)
    return made


def the_only(jobs: tuple[RecordedJob, ...]) -> RecordedJob:
    (found,) = jobs
    return found


def test_from_submission_to_success(there: Incumbent) -> None:
    there.put(a_pod("a", created=1))
    waits = the_only(there.look(2))
    assert (waits.name, waits.spec.queue, waits.submitted_at) == ("vision.pod.a", "everybody", at(1))
    assert (waits.attempts, waits.ended_at) == ((), None)
    there.put(a_pod("a", on="n1", created=1), started=5)
    assert the_only(there.look(6)).attempts == (Attempt(at(5)),)
    over = {"type": "Ready", "status": "False", "reason": "PodCompleted", "lastTransitionTime": said(9)}
    there.put(a_pod("a", on="n1", created=1), over, phase="Succeeded", started=5)
    ended = the_only(there.look(10))
    assert (ended.attempts, ended.ended_at, ended.ended_as) == ((Attempt(at(5), at(9)),), at(9), "succeeded")
    there.take("a")
    assert there.look(11) == (ended,)
    validator = validator_of("History").evolve(schema={"$ref": "history.json#/$defs/recordedJob"})
    validator.validate(json.loads(encode(ended)))


@pytest.mark.parametrize("sign", [PREEMPTED, BY_VOLCANO])
def test_who_is_evicted_and_comes_back_is_in_its_next_attempt(there: Incumbent, sign: Sent) -> None:
    there.put(a_pod("a", on="n1", created=0), started=1)
    there.look(1)
    there.put(a_pod("a", on="n1", created=0), sign, started=1)
    there.look(4)
    there.take("a")
    gone = the_only(there.look(5))
    assert (gone.attempts, gone.ended_as) == ((Attempt(at(1), at(5), "evict"),), "failed")
    there.put(a_pod("a", created=6, uid="another"))
    assert the_only(there.look(6)).ended_at is None
    there.put(a_pod("a", on="n1", created=6, uid="another"), started=8)
    assert the_only(there.look(8)).attempts == (Attempt(at(1), at(5), "evict"), Attempt(at(8)))


def test_a_node_that_is_lost_evicts_nobody(there: Incumbent) -> None:
    there.put(a_pod("a", on="n1", created=0), started=1)
    there.look(1)
    there.put(a_pod("a", on="n1", created=0), LOST, phase="Failed", started=1)
    lost = the_only(there.look(3))
    assert (lost.attempts, lost.ended_as) == ((Attempt(at(1), at(3)),), "failed")


def test_pods_of_a_controller_that_come_back_without_a_word_were_sent_back(there: Incumbent) -> None:
    there.put(a_pod("a", on="n1", owner="job"), started=1)
    there.put(a_pod("b", on="n1"), started=1)
    there.look(1)
    for name in ("a", "b"):
        there.take(name)
    assert {job.ended_as for job in there.look(2)} == {"cancelled"}
    there.put(a_pod("a", created=3, uid="new", owner="job"))
    there.put(a_pod("b", created=3, uid="new"))
    jobs = {str(job.name): job for job in there.look(3)}
    assert jobs["vision.pod.a"].attempts == (Attempt(at(1), at(2), "requeue"),)
    # Nobody makes the other anew: it is another job, though it has the same name.
    assert (jobs["vision.pod.b"].ended_at, jobs["vision.pod.b"].ended_as) == (at(2), "cancelled")
    assert (jobs["vision.pod.b#2"].submitted_at, jobs["vision.pod.b#2"].attempts) == (at(3), ())


def test_pods_that_are_replaced_between_two_looks_end_an_attempt(there: Incumbent) -> None:
    there.put(a_pod("a", on="n1"), started=1)
    there.look(1)
    there.take("a")
    there.put(a_pod("a", on="n1", created=2, uid="new"), started=3)
    assert the_only(there.look(4)).attempts == (Attempt(at(1), at(4), "requeue"), Attempt(at(4)))


def a_gang(index: int, *, on: str = "", uid: str = "") -> Sent:
    made = a_pod(f"g{index}", on=on, uid=uid)
    made["metadata"]["annotations"] = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "2"}
    return made


def test_a_gang_runs_when_all_of_it_runs_and_keeps_its_size_while_tasks_end(there: Incumbent) -> None:
    there.put(a_gang(0, on="n1"), started=1)
    assert the_only(there.look(1)).attempts == ()
    there.put(a_gang(1, on="n1"), started=2)
    assert the_only(there.look(2)).attempts == (Attempt(at(2)),)
    there.put(a_gang(0, on="n1"), phase="Succeeded", started=1)
    half = the_only(there.look(3))
    assert (half.spec.tasks, half.attempts) == (2, (Attempt(at(2)),))
    there.put(a_gang(1, on="n1"), phase="Failed", started=2)
    ended = the_only(there.look(4))
    assert (ended.spec.tasks, ended.attempts, ended.ended_as) == (2, (Attempt(at(2), at(4)),), "failed")


def test_a_gang_of_which_one_was_evicted_first_was_evicted(there: Incumbent) -> None:
    for index in (0, 1):
        there.put(a_gang(index, on="n1"), started=1)
    there.look(1)
    there.put(a_gang(0, on="n1"), PREEMPTED, started=1)
    there.look(2)
    there.take("g0")
    there.look(3)
    there.take("g1")
    assert the_only(there.look(4)).attempts == (Attempt(at(1), at(4), "evict"),)


def test_what_began_and_ended_between_two_looks_ran(there: Incumbent) -> None:
    there.put(a_pod("a"))
    there.look(1)
    there.put(a_pod("a", on="n1"), phase="Succeeded", started=2)
    assert the_only(there.look(5)).attempts == (Attempt(at(2), at(5)),)


def test_what_was_there_before_anybody_looked_counts_from_then_on() -> None:
    there = Incumbent()
    there.put(a_pod("a", on="n1", created=-500), started=-400)
    first = the_only(there.look(10))
    assert (first.submitted_at, first.attempts) == (at(10), (Attempt(at(10)),))


def a_job(name: str, created: int, **spec: int) -> Controller:
    meta = {"name": name, "namespace": "vision", "creationTimestamp": said(created)}
    return controller_of({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})


def of_job(name: str, pod_name: str, created: int) -> Sent:
    made = a_pod(pod_name, created=created, owner=name)
    made["metadata"]["labels"]["batch.kubernetes.io/job-name"] = name
    return made


def test_what_a_queue_held_back_came_when_what_makes_its_pods_did(there: Incumbent) -> None:
    there.world.controller(None, a_job("train", 1))
    there.put(of_job("train", "train-x", created=40))
    assert the_only(there.look(41)).submitted_at == at(1)
    # It failed, and another pod takes its place: that one did not wait since then.
    there.take("train-x")
    there.put(of_job("train", "train-y", created=60))
    assert [job.submitted_at for job in there.look(61)] == [at(1), at(60)]


def test_pods_that_come_as_others_end_did_not_wait_for_a_queue(there: Incumbent) -> None:
    there.world.controller(None, a_job("many", 1, parallelism=1, completions=9))
    there.put(of_job("many", "many-x", created=40))
    assert the_only(there.look(41)).submitted_at == at(40)


def test_pods_for_quorate_came_when_they_were_created(there: Incumbent) -> None:
    there.world.controller(None, a_job("train", 1))
    there.put(of_job("train", "train-x", created=40), scheduler="quorate")
    assert the_only(there.look(41)).submitted_at == at(40)


def resumed(there: Incumbent) -> Incumbent:
    """Another process, which has but the file."""
    jobs = [decode(encode(job), RecordedJob) for job in there.happened.jobs()]
    after = Incumbent(JobHistory(jobs, at(there.minute)))
    after.world, after.pods = there.world, there.pods
    return after


def test_another_process_goes_on_where_the_first_one_stopped(there: Incumbent) -> None:
    for name in ("stays", "ends", "restarts"):
        there.put(a_pod(name, on="n1"), started=1)
    there.look(2)
    after = resumed(there)
    there.take("ends")
    there.take("restarts")
    there.put(a_pod("restarts", on="n1", created=3, uid="new"), started=4)
    jobs = {str(job.name).rpartition(".")[2]: job for job in after.look(6)}
    assert jobs["stays"].attempts == (Attempt(at(1)),)
    assert (jobs["ends"].attempts, jobs["ends"].ended_as) == ((Attempt(at(1), at(6)),), None)
    # Nobody saw it stop; it ran until it was looked at last, at least.
    assert jobs["restarts"].attempts == (Attempt(at(1), at(2), "requeue"), Attempt(at(4)))


def test_a_look_that_shows_nothing_new_changes_nothing(there: Incumbent) -> None:
    there.put(a_pod("a", on="n1"), started=1)
    there.look(1)
    cluster = there.world.cluster()
    assert not there.happened.look(at(9), {gang.name: gang for gang in cluster.gangs}, there.pods)


def test_what_ended_long_ago_is_forgotten_and_its_name_is_free_again(there: Incumbent) -> None:
    there.put(a_pod("a", on="n1"), started=1)
    there.look(1)
    there.take("a")
    ended_at = the_only(there.look(2)).ended_at
    assert ended_at is not None
    there.happened.forget(ended_at.after(KEPT))
    assert len(there.happened.jobs()) == 1
    there.happened.forget(Instant(ended_at.after(KEPT) + 1))
    assert there.happened.jobs() == ()
    there.put(a_pod("a", created=4))
    assert the_only(there.look(5)).name == JobName("vision.pod.a")


def test_nodes_that_a_task_is_limited_to_are_not_told(there: Incumbent) -> None:
    there.world.node(None, read(node("n2", labels={"zone": "b"}), KubeNode))
    limited = a_pod("a")
    limited["spec"]["nodeSelector"] = {"zone": "b"}
    there.put(limited)
    spec = the_only(there.look(1)).spec
    assert [group.nodes for group in spec.task_groups] == [""]
    assert msgspec.structs.replace(spec.task_groups[0], nodes="") == spec.task_groups[0]
