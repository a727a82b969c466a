"""What the loop makes of health: nothing new on what is cordoned, who is on what is drained leaves, people may say otherwise."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.control.control import LEASE
from reconciler.control.ledger_site import one_pass
from reconciler.control.node_health import Ward
from reconciler.documents.operations import Operations
from reconciler.lifecycle.health.cap import held_back
from reconciler.lifecycle.health.figures import HealthFigures
from reconciler.lifecycle.health.trials import due
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.facts import GpuFacts, NodeFacts, Xid
from reconciler.model.health_policy import EccActions, HealthPolicy, NodeTest, StragglerRule
from reconciler.model.health_record import HealthTrial, NodeHealth, PartHealth
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.history import Event
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration
from solver.model.shape import Shape
from solver.model.workload import Checkpoint, JobName, JobSpec, QueueName, TaskGroup
from solver.round.solve import solve
from tests.reconciler.control.plane import Site

FOREVER = ("sleep", "forever")
A, B = JobName("a"), JobName("b")
N1 = NodeName("n1")


@pytest.fixture
def ward(site: Site) -> Site:
    """A site with a HealthPolicy, and a place for checkpoints."""
    site.operations = Operations(checkpoints=(CheckpointPolicy("default", "memory://"),), health=HealthPolicy())
    return site


def tell(site: Site, node: str, xid: int | None = None, gpu: str = "", **facts: object) -> None:
    """A node tells of one of its GPUs, its first unless stated."""
    now = site.clock.now()
    xids = () if xid is None else (Xid(xid, now),)
    told = msgspec.structs.replace(GpuFacts(DeviceId(gpu or f"{node}/0"), xids=xids), **facts)
    site.cluster.report(NodeFacts(NodeName(node), now, (told,)), now)


def news(site: Site, node: str = "n1") -> list[str]:
    return [event.kind for event in site.store.history.events(node) if event.kind.startswith("node-")]


def said(site: Site, name: str, kind: str) -> list[Event]:
    return [event for event in site.store.history.events(name) if event.kind == kind]


def nodes_of(site: Site, job: JobName) -> set[str]:
    return {task.node for claim in site.store.ledger.claims() if claim.job == job for task in claim.tasks}


def devices_of(site: Site, job: JobName) -> set[str]:
    return {
        device
        for claim in site.store.ledger.claims()
        if claim.job == job
        for task in claim.tasks
        for device in task.devices
    }


def test_nothing_new_starts_on_a_cordoned_gpu_and_what_runs_stays(ward: Site) -> None:
    ward.submit(A, FOREVER, gpus=4)
    ward.until(A, "running")
    (node,) = nodes_of(ward, A)
    tell(ward, node, remap_pending=True)
    ward.passes(3)
    assert news(ward, node) == ["node-cordoned"]
    ward.submit(B, ("sleep", "2s"), gpus=4)
    ward.until(B, "succeeded")
    assert ward.state(A) == "running"
    ward.store.jobs.request_cancel(A, "ada")
    ward.until(A, "cancelled")
    ward.submit(JobName("whole"), FOREVER, tasks=2, gpus=4)
    ward.submit(JobName("rest"), FOREVER, tasks=7, gpus=1)
    ward.until("rest", "running")
    assert ward.state("whole") == "queued", "one GPU of the eight is closed"
    assert f"{node}/0" not in devices_of(ward, JobName("rest"))


def test_who_is_on_a_drained_gpu_leaves_and_goes_on_elsewhere_and_the_neighbour_stays(ward: Site) -> None:
    ward.submit(A, FOREVER, gpus=2)
    ward.submit(B, FOREVER, gpus=2)
    ward.until(A, "running")
    ward.until(B, "running")
    (device, _), (node,) = sorted(devices_of(ward, A)), nodes_of(ward, A)
    tell(ward, node, 48, gpu=device)
    ward.passes(5)
    ward.until(A, "running")
    attempts = ward.store.ledger.attempts()
    assert (attempts[A], attempts[B]) == (2, 1)
    assert device not in devices_of(ward, A)
    (asked,) = said(ward, A, "asked-to-stop")
    assert (asked.purpose, asked.cause) == ("requeue", f"GPU {device} of {node} is drained (XID 48)")
    assert ward.store.jobs.job(A).failures == ()


def test_who_leaves_a_drained_node_saves_its_work_first(ward: Site) -> None:
    ward.operations = msgspec.structs.replace(ward.operations, health=HealthPolicy(lost="drain"))
    group = TaskGroup("worker", 1, Shape(gpus=4))
    spec = JobSpec(
        QueueName("q"), (group,), checkpoint=Checkpoint(Duration(60_000), Duration(30_000)), command=("save", "3s")
    )
    ward.store.jobs.submit(A, spec, "ada", ward.clock.now(), "key")
    ward.until(A, "running")
    (node,) = nodes_of(ward, A)
    for index in range(4):
        tell(ward, node, 79, gpu=f"{node}/{index}")
    ward.until(A, "checkpointing")
    assert ward.states(A) == ["starting", "running", "checkpointing"]
    ward.until(A, "starting")
    assert ward.states(A)[:4] == ["starting", "running", "checkpointing", "evicting"]
    assert nodes_of(ward, A).isdisjoint({node})


def test_an_elastic_gang_goes_on_without_those_on_a_drained_gpu(ward: Site) -> None:
    group = TaskGroup("worker", 4, Shape(gpus=1), min_replicas=2)
    spec = JobSpec(QueueName("q"), (group,), command=FOREVER)
    ward.store.jobs.submit(A, spec, "ada", ward.clock.now(), "key")
    ward.until(A, "running")
    ward.rest()
    (device, *_) = sorted(devices_of(ward, A))
    tell(ward, device.partition("/")[0], 48, gpu=device)
    ward.passes(5)
    ward.rest()
    assert ward.store.ledger.attempts()[A] == 1
    assert device not in devices_of(ward, A)
    assert len(devices_of(ward, A)) == 4, "the round gives it another"
    assert ward.events(A).count("asked-to-shrink") == 1


def train(site: Site, name: str) -> None:
    """A gang on both nodes whose tasks say how fast they are, for long enough to be judged."""
    site.submit(name, ("train", "4"), tasks=8)
    site.until(name, "running")
    site.passes(25)


def test_a_slow_node_is_suspect_for_one_gang_and_cordoned_for_two(ward: Site) -> None:
    rule = StragglerRule(held=Duration(20_000))
    ward.operations = msgspec.structs.replace(ward.operations, health=HealthPolicy(straggler=rule))
    train(ward, "a")
    assert (news(ward), news(ward, "n2")) == ([], [])
    ward.cluster.pace[N1] = 0.5
    ward.passes(25)
    assert news(ward) == ["node-suspect"]
    ward.store.jobs.request_cancel(A, "ada")
    ward.until(A, "cancelled")
    train(ward, "b")
    assert (news(ward), news(ward, "n2")) == (["node-suspect", "node-cordoned"], [])
    assert ward.state(B) == "running"
    (cordon,) = ward.one_pass().by_hand
    assert (cordon.author, cordon.subject.name) == ("health", "n1")
    assert "task worker/" in cordon.reason


def test_what_a_person_ends_stays_ended(ward: Site) -> None:
    tell(ward, "n1", remap_failed=True)
    ward.passes(3)
    ward.store.health.forgive(N1, ward.clock.now())
    ward.passes(40)
    assert news(ward) == ["node-drained", "node-well"]
    ward.submit(A, FOREVER, tasks=2, gpus=4)
    ward.until(A, "running")


def test_a_gpu_takes_work_again_when_its_time_is_over(ward: Site) -> None:
    short = HealthPolicy(bad_node_ttl=Duration(900_000), suspect_ttl=Duration(900_000))
    ward.operations = msgspec.structs.replace(ward.operations, health=short)
    tell(ward, "n1", 48)
    ward.passes(3)
    ward.submit(A, FOREVER, tasks=2, gpus=4)
    ward.passes(5)
    assert ward.state(A) == "queued"
    ward.one_pass(900)
    ward.until(A, "running")
    assert news(ward) == ["node-drained", "node-well"]


def test_without_a_policy_nobody_judges_and_what_was_known_is_forgotten(ward: Site) -> None:
    tell(ward, "n1", 48)
    ward.passes(3)
    assert len(ward.store.health.all()) == 1
    ward.operations = Operations()
    ward.passes(2)
    assert (ward.store.health.all(), news(ward)) == ((), ["node-drained", "node-well"])


def test_who_leads_next_goes_on_from_what_was_known_and_a_stale_leader_judges_nothing(ward: Site) -> None:
    tell(ward, "n1", uncorrectable_errors=3)
    ward.passes(3)
    (known,) = ward.store.health.all()
    stale = ward.one_pass().epoch
    other = ward.plane("other")
    ward.clock.advance(60_000)
    other.ledger.lead(other.holder, ward.clock.now(), other.lease)
    assert ward.operations.health is not None
    strict = msgspec.structs.replace(ward.operations.health, ecc=EccActions(uncorrectable="drain"))
    with pytest.raises(StaleEpochError):
        Ward(ward.only_plane, stale).settle(ward.sighted(), strict, ward.declared)
    assert ward.store.health.all() == (known,)
    epoch = other.ledger.lead(other.holder, ward.clock.now(), other.lease)
    assert Ward(other, epoch).settle(ward.sighted(), strict, ward.declared) == 1
    assert Ward(other, epoch).settle(ward.sighted(), strict, ward.declared) == 0
    assert ward.store.health.all()[0].findings == known.findings


def test_rounds_with_closed_gpus_replay(ward: Site) -> None:
    tell(ward, "n1", 48)
    ward.passes(2)
    ward.submit(A, FOREVER, tasks=7, gpus=1)
    ward.until(A, "running")
    history = ward.store.history
    records = [history.round(summary.number) for summary in history.rounds(100)]
    assert all(solve(record.snapshot, record.policy, None) == record.plan for record in records)
    (gpu,) = {gpu.id for record in records for node in record.snapshot.nodes for gpu in node.gpus if not gpu.healthy}
    assert gpu == "n1/0"


def test_nodes_that_git_does_not_know_are_not_remembered(ward: Site) -> None:
    tell(ward, "n1", 48)
    ward.passes(3)
    epoch = ward.one_pass().epoch
    Ward(ward.only_plane, epoch).settle(BackendReports({}, {}), ward.operations.health, ward.declared[1:])
    assert [record.node for record in ward.store.health.all()] == ["n2"]


@pytest.fixture
def tested(ward: Site) -> Site:
    """A drained GPU is tested a quarter of an hour after it was found, and again each minute."""
    test = NodeTest(("sleep", "5s"), every=Duration(60_000), timeout=Duration(20_000))
    short = HealthPolicy(bad_node_ttl=Duration(900_000), suspect_ttl=Duration(900_000), test=test)
    ward.operations = msgspec.structs.replace(ward.operations, health=short)
    return ward


def retest(site: Site, *command: str) -> None:
    health = site.operations.health
    assert health is not None
    assert health.test is not None
    test = msgspec.structs.replace(health.test, command=command)
    site.operations = msgspec.structs.replace(site.operations, health=msgspec.structs.replace(health, test=test))


def test_a_drained_gpu_takes_work_again_once_it_has_passed_its_test(tested: Site) -> None:
    retest(tested, "fail", "3", "5s")
    tell(tested, "n1", 48)
    tested.passes(3)
    tested.one_pass(880)
    assert tested.ran("health:n1") == []
    tested.one_pass(20)
    tested.passes(20)
    assert (tested.ran("health:n1"), news(tested)) == (["failed"], ["node-drained", "node-tested"])
    assert said(tested, "n1", "node-tested")[0].cause == "it failed its test: it failed with exit code 3"
    tested.passes(30)
    assert len(tested.ran("health:n1")) == 1, "not again so soon"
    retest(tested, "sleep", "5s")
    tested.passes(40)
    assert tested.ran("health:n1") == ["failed", "succeeded"]
    assert news(tested) == ["node-drained", "node-tested", "node-tested", "node-well"]
    assert {task.devices for task in tested.cluster.intervals} == {("n1/0",)}
    tested.submit(A, FOREVER, tasks=2, gpus=4)
    tested.until(A, "running")
    assert tested.sighted().attempts.keys() == {(A, 1)}, "nothing is left of the tests"


def test_a_test_that_takes_too_long_is_ended_and_has_failed(tested: Site) -> None:
    retest(tested, "sleep", "forever")
    tell(tested, "n1", 48)
    tested.passes(3)
    tested.one_pass(900)
    tested.passes(60)
    assert tested.ran("health:n1") == ["stopped"]
    assert said(tested, "n1", "node-tested")[0].cause == "it failed its test: it took longer than 20s"
    assert news(tested) == ["node-drained", "node-tested"]


def test_whoever_leads_next_goes_on_with_a_test(tested: Site) -> None:
    tell(tested, "n1", 48)
    tested.passes(3)
    tested.faults(lost=1.0)
    tested.one_pass(900)
    (decided,) = tested.store.health.all()
    assert decided.trial is not None
    tested.faults(lost=0.0)
    other = tested.plane("other")
    for after_s in (LEASE.seconds + 1, 6, 1):
        tested.clock.advance(int(after_s * 1_000))
        one_pass(other)
    assert tested.ran("health:n1") == ["succeeded"]
    assert news(tested) == ["node-drained", "node-tested", "node-well"]


def test_no_test_begins_where_something_runs(tested: Site) -> None:
    tested.submit(A, ("sleep", "forever"), tasks=1, gpus=4)
    tested.until(A, "running")
    (claim,) = tested.store.ledger.claims()
    health = NodeHealth(N1, parts=(PartHealth("n1/0", "drained", tested.clock.now(), "XID", None, tested.clock.now()),))
    test = NodeTest(("true",))
    node, now = tested.declared[0], tested.clock.now()
    held = {task.node for task in claim.tasks} | {device for task in claim.tasks for device in task.devices}
    assert (due(health, test, node, held, now) is None) == ("n1/0" in held)
    begun = due(health, test, node, set(), now)
    assert begun == HealthTrial(now, ("n1/0",), ("n1/0",))
    assert due(msgspec.structs.replace(health, trial=begun), test, node, set(), now.after(10**9)) is None


def tell_all(site: Site, node: str, xid: int) -> None:
    """A node tells the same of all its GPUs."""
    now = site.clock.now()
    gpus = tuple(GpuFacts(DeviceId(f"{node}/{index}"), xids=(Xid(xid, now),)) for index in range(4))
    site.cluster.report(NodeFacts(NodeName(node), now, gpus), now)


def test_a_detector_that_is_wrong_closes_no_more_of_a_pool_than_policy_allows(ward: Site) -> None:
    """Of two nodes a fifth, rounded up, is one: four GPUs."""
    ward.submit(A, FOREVER, tasks=4, gpus=1)
    ward.until(A, "running")
    tell(ward, "n1", 79)
    ward.passes(2)
    tell_all(ward, "n2", 79)
    ward.passes(5)
    states = {part.part: part.state for record in ward.store.health.all() for part in record.parts}
    assert states == {
        "n1/0": "drained",
        **{f"n2/{index}": "drained" for index in range(3)},
        "n2/3": "suspect",
    }
    (kept,) = held_back(ward.store.health.all())
    assert kept == "n2/3"
    assert sorted(news(ward, "n2")) == ["node-drained"] * 3 + ["node-suspect"]
    (event,) = said(ward, "n2", "node-suspect")
    assert event.cause == "GPU n2/3: XID 79; it is not drained, since no more than 20% of its pool may be closed"
    kept_records = ward.store.health.all()
    ward.passes(3)
    assert ward.store.health.all() == kept_records, "it rests"
    figures = HealthFigures(ward.store.health)
    assert [sample.value for family in figures.collect() for sample in family.samples] == [1]

    ward.store.health.forgive(N1, ward.clock.now())
    ward.passes(2)
    assert held_back(ward.store.health.all()) == ()
    assert "node-drained" in news(ward, "n2")[0:1], "there is room for it now"
