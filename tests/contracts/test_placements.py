"""Every store keeps what was held of which node, written with the ledger; see reconciler/protocols/placements.py."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.model.failure import Failure
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.ledger import Claim, ClaimRefusedError
from reconciler.protocols.placements import NodePlacement, PlacedTask, PlacementEnd, Steps
from solver.model.cluster import DeviceId, GpuType, MigInstance, NodeName
from solver.model.inflight import Intent, StopPurpose
from solver.model.quantities import Duration, MilliGpu
from solver.model.workload import JobName, MigSlot, QueueName, TaskPlacement
from tests.contracts.stores import NOW, Stores, intent_of, lead, submit

HOUR = 3_600_000
NODES = tuple(NodeName(f"n{number}") for number in range(3))
H100, NO_TYPE = GpuType("H100"), GpuType("")


def whole(index: int, node: NodeName, *gpus: int) -> TaskPlacement:
    return TaskPlacement("worker", index, node, tuple(DeviceId(f"{node}/{gpu}") for gpu in gpus))


def instance(index: int, node: NodeName, gpu: int, start: int) -> TaskPlacement:
    on, cut = DeviceId(f"{node}/{gpu}"), MigInstance("1g.10gb", start)
    return TaskPlacement("worker", index, node, (cut.id_on(on),), mig=MigSlot(on, cut, MilliGpu(125)))


def share(index: int, node: NodeName, gpu: int, milli: int) -> TaskPlacement:
    return TaskPlacement(
        "worker", index, node, (DeviceId(f"{node}/{gpu}"),), share=MilliGpu(milli), sharing="time-slicing"
    )


def of(job: str, *tasks: TaskPlacement, at: int = 0, attempt: int = 1) -> Claim:
    return Claim(JobName(job), attempt, tasks, NOW.after(at), gpu_types=(("worker", H100),))


def take(stores: Stores, epoch: Epoch, claim: Claim) -> None:
    if claim.attempt == 1:
        submit(stores, claim.job)
    stores.ledger.claim(epoch, claim, intent_of(claim))


def told(stores: Stores, start: int = -HOUR, end: int = 24 * HOUR) -> tuple[NodePlacement, ...]:
    return stores.placements.on_nodes(NODES, NOW.after(start), NOW.after(end), 10_000)


def times(placed: NodePlacement) -> tuple[int, int | None]:
    until = placed.placement.until
    return placed.placement.since - NOW, None if until is None else until - NOW


def test_what_is_held_is_told_by_node_with_its_tasks_and_devices(stores: Stores) -> None:
    epoch = lead(stores)
    take(stores, epoch, of("a", whole(0, NODES[0], 0, 1), whole(1, NODES[1], 3), instance(2, NODES[1], 5, 2)))
    stores.reopen()
    first, second = told(stores)
    placement = first.placement
    assert (placement.job, placement.attempt, placement.queue, placement.user) == ("a", 1, "q", "ada")
    assert (placement.gpu_type, placement.gpus, times(first)) == (H100, MilliGpu(3125), (0, None))
    assert second.placement == placement
    assert (first.node, first.gpus, second.node, second.gpus) == (NODES[0], 2000, NODES[1], 1125)
    assert first.tasks == (PlacedTask("worker", 0, (DeviceId("n0/0"), DeviceId("n0/1")), MilliGpu(2000)),)
    assert second.tasks == (
        PlacedTask("worker", 1, (DeviceId("n1/3"),), MilliGpu(1000)),
        PlacedTask("worker", 2, (DeviceId("n1/5/1g.10gb@2"),), MilliGpu(125), DeviceId("n1/5")),
    )


def test_ids_of_devices_need_not_begin_with_their_node(stores: Stores) -> None:
    ids = tuple(map(DeviceId, ("GPU-5d5ba0d6", "n0", "n0/=x", "=y", "/z", "n0/", "n0/n0/1")))
    take(stores, lead(stores), of("a", TaskPlacement("worker", 0, NODES[0], ids)))
    (placed,) = told(stores)
    assert placed.tasks[0].devices == ids


def test_jobs_without_gpus_are_told_too(stores: Stores) -> None:
    take(stores, lead(stores), of("a", TaskPlacement("driver", 0, NODES[0])))
    (placed,) = told(stores)
    assert (placed.placement.gpu_type, placed.placement.gpus, placed.tasks) == (NO_TYPE, 0, (PlacedTask("driver", 0),))
    assert stores.placements.use_of_queues(Steps(NOW, Duration(HOUR), 2), NOW.after(HOUR)) == {}


def test_each_gpu_type_of_an_attempt_is_told_by_itself(stores: Stores) -> None:
    claim = of("a", whole(0, NODES[0], 0), TaskPlacement("actor", 0, NODES[1], (DeviceId("n1/0"), DeviceId("n1/1"))))
    types = (("worker", H100), ("actor", GpuType("A100")))
    take(stores, lead(stores), msgspec.structs.replace(claim, gpu_types=types))
    assert [(each.placement.gpu_type, each.gpus) for each in told(stores)] == [(H100, 1000), ("A100", 2000)]
    used = stores.placements.use_of_queues(Steps(NOW, Duration(HOUR), 1), NOW.after(HOUR))
    assert used == {("q", H100): (1000 * HOUR,), ("q", "A100"): (2000 * HOUR,)}


def stopped(job: str, purpose: StopPurpose) -> Intent:
    beneficiary = JobName("winner") if purpose == "evict" else None
    return Intent("stop", JobName(job), 1, NOW, NOW.after(60_000), purpose=purpose, beneficiary=beneficiary)


@pytest.mark.parametrize(
    ("purpose", "ended", "beneficiary"),
    [("evict", "evicted", "winner"), ("suspend", "suspended", ""), ("requeue", "requeued", ""), ("end", "", "")],
)
def test_what_was_sent_back_says_why(
    stores: Stores, purpose: StopPurpose, ended: PlacementEnd, beneficiary: str
) -> None:
    epoch = lead(stores)
    take(stores, epoch, of("a", whole(0, NODES[0], 0)))
    stores.ledger.ask(epoch, stopped("a", purpose))
    stores.ledger.release(epoch, JobName("a"), 1, NOW.after(HOUR))
    (placed,) = told(stores)
    assert (placed.placement.ended, placed.placement.beneficiary, times(placed)) == (ended, beneficiary, (0, HOUR))


def test_an_outcome_says_more_than_a_failure_and_that_more_than_a_stop(stores: Stores) -> None:
    epoch = lead(stores)
    take(stores, epoch, of("a", whole(0, NODES[0], 0)))
    stores.ledger.ask(epoch, stopped("a", "evict"))
    stores.jobs.retry(epoch, JobName("a"), Failure(1, "node", NOW, NOW))
    stores.ledger.release(epoch, JobName("a"), 1, NOW.after(1))
    take(stores, epoch, of("a", whole(0, NODES[0], 0), at=2, attempt=2))
    stores.jobs.finish(epoch, JobName("a"), JobOutcome("succeeded", NOW.after(3)))
    stores.ledger.release(epoch, JobName("a"), 2, NOW.after(3))
    ends = [(each.placement.attempt, each.placement.ended) for each in stores.placements.of_job(JobName("a"))]
    assert ends == [(1, "node"), (2, "succeeded")]


def test_growing_and_shrinking_leave_no_gap(stores: Stores) -> None:
    epoch = lead(stores)
    take(stores, epoch, of("a", whole(0, NODES[0], 0)))
    stores.ledger.confirm_running(epoch, JobName("a"), 1, NOW)
    grow = Intent("grow", JobName("a"), 1, NOW.after(10), NOW.after(99), (whole(1, NODES[1], 0, 1),))
    stores.ledger.grow(epoch, grow)
    stores.ledger.confirm_grown(epoch, JobName("a"), 1)
    shrink = Intent("shrink", JobName("a"), 1, NOW.after(20), NOW.after(99), grow.tasks)
    stores.ledger.ask(epoch, shrink)
    stores.ledger.confirm_shrunk(epoch, JobName("a"), 1, NOW.after(30))
    found = [
        (*times(each), each.node, each.gpus, each.placement.ended) for each in stores.placements.of_job(JobName("a"))
    ]
    assert found == [
        (0, 10, "n0", 1000, "grew"),
        (10, 30, "n0", 1000, "shrank"),
        (10, 30, "n1", 2000, "shrank"),
        (30, None, "n0", 1000, ""),
    ]


def test_a_clock_that_was_set_back_makes_no_two_holders(stores: Stores) -> None:
    epoch = lead(stores)
    take(stores, epoch, of("a", whole(0, NODES[0], 0), at=100))
    stores.ledger.release(epoch, JobName("a"), 1, NOW.after(200))
    take(stores, epoch, of("b", whole(0, NODES[0], 0), at=50))
    take(stores, epoch, of("c", whole(0, NODES[1], 0), at=50))
    stores.ledger.release(epoch, JobName("b"), 1, NOW.after(60))
    assert [(each.placement.job, times(each)) for each in told(stores)] == [
        ("a", (100, 200)),
        ("b", (200, 200)),
        ("c", (50, None)),
    ]


def test_a_refused_claim_leaves_nothing(stores: Stores) -> None:
    epoch = lead(stores)
    take(stores, epoch, of("a", whole(0, NODES[0], 0)))
    with pytest.raises(ClaimRefusedError):
        take(stores, epoch, of("b", whole(0, NODES[0], 0)))
    with pytest.raises(StaleEpochError):
        stores.ledger.release(Epoch(epoch - 1), JobName("a"), 1, NOW.after(1))
    assert [(each.placement.job, times(each)) for each in told(stores)] == [("a", (0, None))]


def test_use_is_exact_in_each_step(stores: Stores) -> None:
    epoch = lead(stores)
    take(stores, epoch, of("a", whole(0, NODES[0], 0, 1), at=-HOUR))
    take(stores, epoch, of("b", whole(0, NODES[1], 0), at=100))
    stores.ledger.release(epoch, JobName("b"), 1, NOW.after(350))
    stores.ledger.release(epoch, JobName("a"), 1, NOW.after(2_500))
    steps = Steps(NOW, Duration(1_000), 4)
    assert stores.placements.use_of_queues(steps, steps.end) == {("q", H100): (2_250_000, 2_000_000, 1_000_000, 0)}
    used = stores.placements.use_of_nodes(NODES, steps, steps.end)
    assert used == {"n0": (2_000_000, 2_000_000, 1_000_000, 0), "n1": (250_000, 0, 0, 0)}


def test_what_is_held_counts_until_now(stores: Stores) -> None:
    epoch = lead(stores)
    take(stores, epoch, of("a", whole(0, NODES[0], 0), at=500))
    steps = Steps(NOW, Duration(1_000), 3)
    assert stores.placements.use_of_queues(steps, NOW.after(1_700)) == {("q", H100): (500_000, 700_000, 0)}
    assert stores.placements.use_of_queues(steps, NOW.after(500)) == {}


def test_what_is_old_goes_and_what_is_held_stays(stores: Stores) -> None:
    epoch = lead(stores)
    for number in range(7):
        take(stores, epoch, of(f"j{number}", whole(0, NODES[0], 0), at=number))
        stores.ledger.release(epoch, JobName(f"j{number}"), 1, NOW.after(number + 1))
    take(stores, epoch, of("held", whole(0, NODES[0], 0), at=8))
    before = NOW.after(5)
    assert [stores.placements.prune(epoch, before, 3) for _ in range(3)] == [3, 2, 0]
    assert [each.placement.job for each in told(stores)] == ["j5", "j6", "held"]
    with pytest.raises(StaleEpochError):
        stores.placements.prune(Epoch(epoch - 1), NOW.after(HOUR))
    assert stores.placements.prune(epoch, NOW.after(HOUR)) == 2
    take(stores, epoch, of("next", whole(0, NODES[1], 0), at=9))
    assert [each.placement.job for each in told(stores)] == ["held", "next"]


def test_windows_and_limits(stores: Stores) -> None:
    epoch = lead(stores)
    for number in range(4):
        take(stores, epoch, of(f"j{number}", whole(0, NODES[0], 0), at=number * 10))
        stores.ledger.release(epoch, JobName(f"j{number}"), 1, NOW.after(number * 10 + 10))
    assert [each.placement.job for each in told(stores, 10, 30)] == ["j1", "j2"]
    read = stores.placements.in_queues
    assert [each.job for each in read([QueueName("q")], NOW.after(10), NOW.after(30), 9)] == ["j1", "j2"]
    assert read([QueueName("other")], NOW, NOW.after(30), 9) == ()
    assert len(read([QueueName("q")], NOW, NOW.after(HOUR), 3)) == 3
    assert len(stores.placements.on_nodes(NODES, NOW, NOW.after(HOUR), 3)) == 3
