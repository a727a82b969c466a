"""Checkpoint, then evict: a gang that goes on later saves its work first, in its turn and within its grace."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.control.settler import Settler
from reconciler.documents.operations import Operations
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.checkpoint_record import CheckpointKey, CheckpointRecord
from reconciler.protocols.backend import Epoch
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Memory
from solver.model.shape import Shape
from solver.model.workload import Checkpoint, JobName, JobSpec, QueueName, TaskGroup
from solver.policy.policy import PriorityClass
from solver.quota.entitlement import charge_of_tasks
from solver.quota.victims import Holder, lost_gpu_s
from tests.reconciler.control.plane import Site

GRACE = Duration(20_000)
POLICY = CheckpointPolicy("default", "memory://", max_concurrent_checkpoints=1)


@pytest.fixture
def saving(site: Site) -> Site:
    site.operations = Operations(checkpoints=(POLICY,))
    return site


def run(site: Site, name: str) -> JobName:
    """A gang of two that saves its work whenever it is told to, and runs."""
    group = TaskGroup("worker", 2, Shape(gpus=1))
    spec = JobSpec(QueueName("q"), (group,), checkpoint=Checkpoint(Duration(60_000), GRACE), command=("save", "3s"))
    job = site.store.jobs.submit(JobName(name), spec, "ada", site.clock.now(), f"key-of-{name}").name
    site.until(job, "running")
    return job


def epoch_of(site: Site) -> Epoch:
    plane = site.only_plane
    return plane.ledger.lead(plane.holder, site.clock.now(), plane.lease)


def publish(site: Site, job: JobName, step: int, answers: int = 0, attempt: int = 1) -> None:
    """What the keeper does once the parts of all tasks are there."""
    known = CheckpointRecord(
        job, attempt, step, "default", f"memory://{job}/{step}", 2, Memory(1), "d", site.clock.now(), answers
    )
    site.store.checkpoints.record(epoch_of(site), known)


def judge_all(site: Site, job: JobName) -> None:
    for known in site.store.checkpoints.of(job):
        site.store.checkpoints.judge(epoch_of(site), known.key, ())


def told(site: Site, job: JobName) -> set[int]:
    attempts = [task for key, known in site.sighted().attempts.items() if key[0] == job for task in known.tasks]
    return {task.told for task in attempts}


def told_to_save(site: Site) -> tuple[JobName, int]:
    """A job that was suspended; every task of it was told to save, with the same number."""
    job = run(site, "job")
    site.store.jobs.request_suspend(job, "ada")
    site.passes(4)
    assert site.state(job) == "checkpointing"
    (number,) = told(site, job)
    assert number
    return job, number


def why_it_ended(site: Site, job: JobName) -> str:
    (ends,) = (event.cause for event in site.store.history.events(job) if event.kind == "ends")
    return ends


def test_a_gang_that_is_suspended_is_told_to_save_and_then_to_end(saving: Site) -> None:
    job, number = told_to_save(saving)
    publish(saving, job, 40, number - 1)
    saving.passes(3)
    assert saving.state(job) == "checkpointing", "that one answers something else"
    publish(saving, job, 50, number)
    saving.until(job, "suspended")
    assert saving.states(job) == ["starting", "running", "checkpointing", "evicting", "suspended"]
    assert why_it_ended(saving, job) == "it has saved step 50"


def test_a_gang_has_answered_though_it_has_saved_once_more_since(saving: Site) -> None:
    """It saves on at its interval while a busy control plane looks elsewhere: what came later answers nothing by itself."""
    job, number = told_to_save(saving)
    publish(saving, job, 50, number)
    publish(saving, job, 60)
    saving.until(job, "suspended")
    assert why_it_ended(saving, job) == "it has saved step 60"


def test_a_gang_has_answered_though_policy_keeps_the_answer_no_longer(saving: Site) -> None:
    job, number = told_to_save(saving)
    publish(saving, job, 50, number)
    publish(saving, job, 60)
    saving.store.checkpoints.delete(epoch_of(saving), CheckpointKey(job, 1, 50))
    saving.until(job, "suspended")
    assert why_it_ended(saving, job) == "it has saved step 60"


def test_who_does_not_save_in_time_is_told_to_end_all_the_same(saving: Site) -> None:
    job = run(saving, "job")
    saving.store.jobs.request_requeue(job, 1, "ada")
    saving.passes(2)
    begun = saving.clock.now()
    saving.until(job, "evicting")
    assert GRACE - 3_000 <= saving.clock.now() - begun <= GRACE + 3_000


def test_only_so_many_save_at_once_and_the_others_wait_for_their_turn(saving: Site) -> None:
    first, second = run(saving, "first"), run(saving, "second")
    for job in (first, second):
        saving.store.jobs.request_suspend(job, "ada")
    saving.passes(3)
    stages = {intent.job: intent.stage for intent in saving.store.ledger.intents() if intent.kind == "stop"}
    assert stages == {first: "saves", second: "waits-to-save"}
    assert told(saving, second) == {0}
    publish(saving, first, 1, max(told(saving, first)))
    saving.passes(4)
    stages = {intent.job: intent.stage for intent in saving.store.ledger.intents() if intent.kind == "stop"}
    assert stages[second] == "saves"


def test_who_is_cancelled_need_not_save(saving: Site) -> None:
    job = run(saving, "job")
    saving.store.jobs.request_suspend(job, "ada")
    saving.passes(2)
    saving.store.jobs.request_cancel(job, "ada")
    saving.until(job, "cancelled")
    assert "what it would save is not needed" in " ".join(event.cause for event in saving.store.history.events(job))


@pytest.mark.parametrize("policies", [(), (msgspec.structs.replace(POLICY, name="other"),)])
def test_without_a_storage_a_gang_is_told_to_end_at_once(saving: Site, policies: tuple[CheckpointPolicy, ...]) -> None:
    saving.operations = Operations(checkpoints=policies)
    job = run(saving, "job")
    saving.store.jobs.request_suspend(job, "ada")
    saving.passes(2)
    assert saving.state(job) == "evicting"


def test_an_attempt_goes_on_from_what_was_read_again_since(saving: Site, cluster_orders: list[dict[str, str]]) -> None:
    job = run(saving, "job")
    for step in (10, 20):
        publish(saving, job, step)
    judge_all(saving, job)
    saving.store.jobs.request_requeue(job, 1, "ada")
    saving.until(job, "evicting")
    saving.until(job, "queued")
    saving.passes(5)
    assert saving.state(job) == "queued", "its checkpoints are still to be read again"
    newest, _ = saving.store.checkpoints.of(job)
    saving.store.checkpoints.judge(epoch_of(saving), newest.key, ())
    saving.until(job, "running")
    assert [event.cause for event in saving.store.history.events(job) if event.kind == "resumes"] == [
        "going on from step 20"
    ]
    assert cluster_orders[-1]["QUORATE_RESUME_STEP"] == "20"
    assert "QUORATE_RESUME_STEP" not in cluster_orders[0]


def test_what_is_lost_is_said_when_the_devices_are_given_back(saving: Site) -> None:
    job = run(saving, "job")
    saving.passes(30)
    publish(saving, job, 40)
    saving.passes(10)
    saving.store.jobs.request_requeue(job, 1, "ada")
    saving.until(job, "evicting")
    saving.until(job, "queued")
    (released,) = (event.cause for event in saving.store.history.events(job) if event.kind == "released")
    assert "GPU-seconds of work since its checkpoint of step 40 are lost" in released


def test_who_is_resumed_before_it_has_left_goes_on(saving: Site) -> None:
    job = run(saving, "job")
    saving.store.jobs.request_suspend(job, "ada")
    saving.passes(2)
    saving.store.jobs.resume(job)
    saving.passes(2)
    assert saving.states(job) == ["starting", "running", "checkpointing", "running"]
    assert saving.store.ledger.attempts()[job] == 1
    assert [intent for intent in saving.store.ledger.intents() if intent.kind == "stop"] == []


def test_an_eviction_is_called_off_when_its_beneficiary_goes_away(saving: Site) -> None:
    job = run(saving, "job")
    owner = saving.submit("owner", ("sleep", "forever"), gpus=4)
    plane, now = saving.only_plane, saving.clock.now()
    stop = Intent("stop", job, 1, now, now.after(GRACE), beneficiary=owner, purpose="evict")
    Settler(plane, epoch_of(saving)).stop(stop, "it gives up 2 GPUs")
    assert saving.state(job) == "checkpointing"
    assert saving.store.ledger.evictions()
    saving.store.jobs.request_cancel(owner, "bob")
    saving.passes(2)
    assert (saving.state(job), saving.store.ledger.evictions()) == ("running", {})


def test_rounds_know_until_when_work_is_saved(saving: Site) -> None:
    """So that of two victims the one leaves that loses less in fact, whatever interval it states."""
    job = run(saving, "job")
    (claim,) = saving.store.ledger.claims()
    seen = saving.one_pass().snapshot.jobs
    assert [known.saved_at for known in seen] == [claim.running_since]
    saving.passes(20)
    publish(saving, job, 10)
    saved = saving.clock.now()
    snapshot = saving.one_pass(after_s=5).snapshot
    (later,) = snapshot.jobs
    assert later.saved_at == saved
    gang = Holder(later, charge_of_tasks(later.placement, snapshot.gpu_types), PriorityClass("plain"))
    assert lost_gpu_s(gang, saved.after(7_000), Duration(0)) == 14
    saving.operations = Operations()
    (unknown,) = saving.one_pass().snapshot.jobs
    assert unknown.saved_at is None


@pytest.fixture
def cluster_orders(saving: Site, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environments that starts add, in the order in which they came."""
    seen: list[dict[str, str]] = []
    sound = saving.backend.submit

    def submit(order: object, epoch: Epoch) -> None:
        if hasattr(order, "environment"):
            seen.append(dict(order.environment))
        sound(order, epoch)  # type: ignore[arg-type]

    monkeypatch.setattr(saving.backend, "submit", submit)
    assert isinstance(saving.cluster, SimulatedCluster)
    return seen
