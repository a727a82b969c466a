"""Partitioning acted on: a task begins once its instance is there, what fails is tried again, and changes are counted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.control.ledger_site import one_pass
from reconciler.control.metrics import reason_code
from reconciler.control.partition import PARTITION_DEADLINE
from reconciler.control.plan_executor import PlanExecutor
from reconciler.protocols.backend import StaleEpochError
from solver.model.cluster import DeviceId, GpuType, MigInstance
from solver.model.quantities import Duration, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import foreseen
from solver.model.workload import JobName, JobSpec, MigSlot, QueueName, TaskGroup, TaskPlacement
from solver.plan.plan import Bind, Certificate, Nominate, Plan, Repartition, Step, Waits
from solver.policy.division import MigChanges, MigGeometry
from solver.policy.harm import Protection
from solver.policy.policy import PriorityClass, Queue, Quota, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.reconciler.control.plane import START_DEADLINE, Site, site_at

HOUR_S = 3_600
RUNS = ("sleep", "forever")
SMALL = MigInstance("1g.10gb", 6)


@pytest.fixture
def divided(site: Site) -> Site:
    """Rounds may partition two GPUs in an hour."""
    return changing(site, 2)


def changing(site: Site, changes: int) -> Site:
    """Rounds may partition so many GPUs in an hour."""
    geometry = MigGeometry("parts", "pool", "free", "H100-80GB", changes=MigChanges(per_pool_per_hour=changes))
    scheduling = SchedulingPolicy(start_deadline=START_DEADLINE)
    site.policy = policy_of((Queue(QueueName("q")),), (), scheduling, mig=(geometry,))
    return site


def submit(site: Site, name: str, profile: str = "1g.10gb", tasks: int = 1) -> JobName:
    """Accept a gang with one instance for each task."""
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", tasks, Shape(mig=profile)),), command=RUNS)
    return site.store.jobs.submit(JobName(name), spec, "ada", site.clock.now(), f"key-of-{name}").name


def partitioned(site: Site) -> list[str]:
    """What is in MIG mode, as it really is."""
    gpus = [gpu for node in site.declared for gpu in site.cluster.node(node.name).gpus]
    return [one.id_on(gpu.id) for gpu in gpus for one in gpu.instances or ()]


def told(site: Site, gpu: str) -> list[str]:
    """What happened to a GPU."""
    return site.events(gpu)


def test_a_task_begins_once_its_instance_is_made(divided: Site) -> None:
    site = divided
    site.faults(effect_delay=Duration(20_000))
    submit(site, "small")
    changed = [step for step in site.one_pass().plan.steps if isinstance(step, Repartition)]
    assert [step.device for step in changed] == ["n1/0"]
    assert site.state("small") == "starting"
    while not partitioned(site):
        site.one_pass()
        assert site.ran("small") == [], "there is nothing to run on yet"
    site.faults(effect_delay=Duration(0))
    site.rest()
    assert (site.state("small"), site.ran("small")) == ("running", ["running"])
    assert told(site, "n1/0") == ["partitions", "partitioned"]
    assert site.store.ledger.partitionings.in_flight() == ()
    assert site.cluster.mishaps == []


def test_the_next_one_finds_an_instance_that_is_being_made(divided: Site) -> None:
    site = divided
    site.faults(effect_delay=Duration(600_000))
    submit(site, "gang", "3g.40gb", tasks=2)
    site.one_pass()
    submit(site, "small", "3g.40gb")
    plan = site.one_pass().plan
    assert {step.device for step in plan.steps if isinstance(step, Repartition)} == {"n1/1"}
    (asked, _) = site.store.ledger.partitionings.in_flight()
    assert asked.instances == (MigInstance("3g.40gb", 0), MigInstance("3g.40gb", 4))
    snapshot = site.one_pass().snapshot
    assert snapshot.nodes[0].gpus[0].instances is None, "as it is"
    assert foreseen(snapshot).nodes[0].gpus[0].instances == asked.instances, "as it is to be"


def test_a_lost_order_is_sent_again(divided: Site) -> None:
    site = divided
    site.faults(lost=1.0)
    submit(site, "small")
    for _ in range(5):
        site.one_pass()
    assert partitioned(site) == []
    site.faults(lost=0.0)
    site.rest()
    assert site.state("small") == "running"
    assert len(site.store.ledger.partitionings.begun_since(site.clock.now().after(-HOUR_S * 1000))) == 1, (
        "one change, asked often"
    )


def test_what_fails_sends_the_gang_back_and_is_tried_again(site: Site) -> None:
    changing(site, 100)
    site.faults(unpartitioned=1.0)
    submit(site, "small")
    for _ in range(4):
        site.one_pass()
    assert "partition-failed" in told(site, "n1/0")
    site.faults(unpartitioned=0.0)
    site.rest()
    assert site.state("small") == "running"
    assert site.ran("small") == ["running"]
    assert site.store.ledger.attempts()[JobName("small")] > 1


def test_changes_of_the_hour_are_counted_whatever_became_of_them(divided: Site, tmp_path: Path) -> None:
    site = divided
    site.faults(unpartitioned=1.0)
    submit(site, "small")
    for _ in range(20):
        site.one_pass()
    done = site.one_pass()
    (waits,) = [verdict for verdict in done.plan.verdicts if isinstance(verdict, Waits)]
    assert reason_code(waits) == "mig-geometry"
    assert sum(counter.count for counter in done.snapshot.in_flight.counters) == 2
    site.store.close()
    with site_at(tmp_path / "quorate.db") as again:  # another process, on the same file
        changing(again, 2).clock.advance(site.clock.now() - again.clock.now())
        again.rest()
        assert again.state("small") == "queued"
        again.one_pass(after_s=HOUR_S)
        again.rest()
        assert again.state("small") == "running"


def test_an_overdue_gpu_is_left_out_until_it_is_known(divided: Site) -> None:
    site = divided
    submit(site, "small")
    site.faults(lost=1.0)
    site.one_pass()
    site.clock.advance(PARTITION_DEADLINE)
    for gpu in range(8):
        site.submit(f"whole-{gpu}", RUNS)
    plan = site.one_pass().plan
    assert len([step for step in plan.steps if isinstance(step, Bind)]) == 7
    site.faults(lost=0.0)
    site.rest()
    assert told(site, "n1/0")[-1] == "partitioned"
    running = [name for name in ("small", *(f"whole-{gpu}" for gpu in range(8))) if site.state(name) == "running"]
    assert len(running) == 8, "the small one, or the last whole one, for which the GPU becomes whole again"


def test_whole_jobs_take_back_what_nobody_uses(divided: Site) -> None:
    site = divided
    small = submit(site, "small")
    site.rest()
    site.store.jobs.request_cancel(small, "ada")
    site.rest()
    assert partitioned(site) == ["n1/0/1g.10gb@6"]
    site.submit("whole", RUNS, tasks=2, gpus=4)
    site.rest()
    assert (site.state("whole"), partitioned(site)) == ("running", [])
    assert site.cluster.mishaps == []


def test_a_change_that_the_ledger_refuses_takes_its_binds_along(divided: Site) -> None:
    site = divided
    site.submit("whole", RUNS, tasks=2, gpus=4)
    site.rest()
    submit(site, "small")
    node, gpu = site.declared[0].name, DeviceId("n1/0")
    task = TaskPlacement("worker", 0, node, (SMALL.id_on(gpu),), mig=MigSlot(gpu, SMALL, MilliGpu(125)))
    steps: tuple[Step, ...] = (
        Repartition(node, gpu, (SMALL,)),
        Bind(JobName("small"), 1, (task,), START_DEADLINE),
    )
    epoch = site.store.ledger.lead("only", site.clock.now(), Duration(10_000))
    leader = PlanExecutor(site.only_plane, epoch)
    assert leader.act(Plan("", "", steps, (), Certificate("none", (), 0.0, "", 0))) == 2
    assert told(site, gpu) == ["partition-refused"]
    assert (site.events("small"), site.state("small")) == (["bind-refused"], "queued")
    assert partitioned(site) == []


def test_a_leader_that_was_replaced_partitions_nothing(divided: Site) -> None:
    site = divided
    old, new = site.plane("old"), site.plane("new")
    site.store.ledger.resign(site.one_pass().epoch)
    epoch = one_pass(old).epoch
    site.store.ledger.resign(epoch)
    one_pass(new)
    step = Repartition(site.declared[0].name, DeviceId("n1/0"), (SMALL,))
    with pytest.raises(StaleEpochError):
        PlanExecutor(old, epoch).act(Plan("", "", (step,), (), Certificate("none", (), 0.0, "", 0)))
    assert (site.store.ledger.partitionings.in_flight(), partitioned(site)) == ((), [])


def test_a_recorded_round_with_a_change_in_flight_is_solved_again_alike(divided: Site) -> None:
    site = divided
    site.faults(effect_delay=Duration(600_000))
    submit(site, "one")
    site.one_pass()
    submit(site, "two", "3g.40gb")
    number = site.one_pass().round
    assert number is not None
    record = site.store.history.round(number)
    assert record.snapshot.in_flight.repartitions
    again = solve(record.snapshot, record.policy, None)
    assert msgspec.structs.replace(again, certificate=record.plan.certificate) == record.plan


def test_others_leave_a_gpu_and_then_it_is_made_whole(site: Site) -> None:
    drains = MigGeometry("parts", "pool", "free", "H100-80GB", changes=MigChanges(100, "entitled"))
    everything = (Quota(GpuType("H100"), guaranteed=MilliGpu.gpus(8)),)
    queues = (Queue(QueueName("q")), Queue(QueueName("owner"), quota=everything))
    protected = PriorityClass("plain", protection=Protection(min_runtime=Duration(0)))
    scheduling = SchedulingPolicy(start_deadline=START_DEADLINE, default_priority_class="plain")
    site.policy = policy_of(queues, (protected,), scheduling, mig=(drains,))
    for name in ("lent-1", "lent-2"):
        submit(site, name, "3g.40gb", tasks=8)
    site.rest()
    assert len(partitioned(site)) == 16, "every GPU in two halves"
    site.faults(effect_delay=Duration(5_000))
    whole = site.submit("whole", RUNS, tasks=2, gpus=4, queue="owner")
    asked = site.one_pass().plan
    assert [step.job for step in asked.steps if isinstance(step, Nominate)] == [whole]
    assert not [step for step in site.one_pass().plan.steps if isinstance(step, Repartition)], "they are still there"
    site.faults(effect_delay=Duration(0))
    site.rest()
    assert (site.state("whole"), partitioned(site)) == ("running", [])
    assert (site.state("lent-1"), site.state("lent-2")) == ("queued", "queued")
    assert site.cluster.mishaps == []
