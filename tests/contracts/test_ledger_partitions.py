"""Every ledger keeps claims and changes of GPUs apart; see reconciler/protocols/ledger.py."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.ledger import COUNTED_MS, Claim, ClaimRefusedError
from solver.model.cluster import DeviceId, MigInstance, NodeName
from solver.model.inflight import Repartitioning
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, MigSlot
from tests.contracts.stores import NOW, Stores, claim_of, intent_of, lead, submit, take

GPU = DeviceId("g1")
SMALL, LARGE = MigInstance("1g.10gb", 4), MigInstance("3g.40gb", 0)


def asked(attempt: int, *instances: MigInstance, gpu: str = "g1") -> Repartitioning:
    """A change of a GPU at NOW."""
    return Repartitioning(NodeName("n1"), DeviceId(gpu), attempt, NOW, NOW.after(60_000), instances)


def whole(attempt: int) -> Repartitioning:
    """The GPU is whole again."""
    return msgspec.structs.replace(asked(attempt), instances=None)


def claim_on(job: str, *instances: MigInstance) -> Claim:
    """One task per instance of the GPU."""
    slots = [MigSlot(GPU, instance, MilliGpu(125)) for instance in instances]
    claim = claim_of(job, *(slot.instance.id_on(GPU) for slot in slots))
    tasks = (msgspec.structs.replace(task, mig=slot) for task, slot in zip(claim.tasks, slots, strict=True))
    return msgspec.structs.replace(claim, tasks=tuple(tasks))


@pytest.fixture
def epoch(stores: Stores) -> Epoch:
    """Somebody leads, and three jobs wait."""
    for name in "abc":
        submit(stores, name)
    return lead(stores)


def test_a_change_is_in_flight_until_it_ends_and_counts_from_then_on(stores: Stores, epoch: Epoch) -> None:
    first = asked(1, SMALL, LARGE)
    stores.ledger.partitionings.begin(epoch, first)
    stores.reopen()
    assert stores.ledger.partitionings.in_flight() == (first,)
    stores.ledger.partitionings.end(epoch, GPU, 2)  # of another attempt: nothing happens
    assert stores.ledger.partitionings.in_flight() == (first,)
    for _ in range(2):
        stores.ledger.partitionings.end(epoch, GPU, 1)
        assert stores.ledger.partitionings.in_flight() == ()
    stores.reopen()
    assert stores.ledger.partitionings.last_attempts() == {GPU: 1}
    assert stores.ledger.partitionings.begun_since(NOW.after(-1)) == ((GPU, NOW),)
    assert stores.ledger.partitionings.begun_since(NOW) == ()


def test_the_next_change_takes_the_place_of_one_in_flight(stores: Stores, epoch: Epoch) -> None:
    stores.ledger.partitionings.begin(epoch, asked(1, SMALL))
    for attempt in (1, 3):
        with pytest.raises(ClaimRefusedError, match="not the next; its last was 1"):
            stores.ledger.partitionings.begin(epoch, asked(attempt, LARGE))
    stores.ledger.partitionings.begin(epoch, whole(2))
    stores.ledger.partitionings.begin(epoch, asked(1, SMALL, gpu="g2"))
    assert stores.ledger.partitionings.in_flight() == (whole(2), asked(1, SMALL, gpu="g2"))
    assert stores.ledger.partitionings.begun_since(NOW.after(-1)) == ((GPU, NOW), (GPU, NOW), (DeviceId("g2"), NOW))


def test_changes_are_counted_for_a_day(stores: Stores, epoch: Epoch) -> None:
    for attempt, ms in ((1, 0), (2, 1), (3, COUNTED_MS + 1)):
        change = msgspec.structs.replace(asked(attempt), asked_at=NOW.after(ms), instances=(SMALL,) * (attempt % 2))
        stores.ledger.partitionings.begin(epoch, change)
    kept = stores.ledger.partitionings.begun_since(NOW.after(-1))
    assert kept == ((GPU, NOW.after(1)), (GPU, NOW.after(COUNTED_MS + 1)))
    assert stores.ledger.partitionings.last_attempts() == {GPU: 3}


def test_nobody_loses_what_is_held(stores: Stores, epoch: Epoch) -> None:
    stores.ledger.partitionings.begin(epoch, asked(1, SMALL, LARGE))
    take(stores, epoch, claim_on("a", SMALL))
    for change in (asked(2, LARGE), whole(2)):
        with pytest.raises(ClaimRefusedError, match=r"g1/1g.10gb@4 by a"):
            stores.ledger.partitionings.begin(epoch, change)
    assert stores.ledger.partitionings.in_flight() == (asked(1, SMALL, LARGE),)
    assert stores.ledger.partitionings.begun_since(NOW.after(-1)) == ((GPU, NOW),)
    stores.ledger.partitionings.begin(epoch, asked(2, SMALL))
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    stores.ledger.partitionings.begin(epoch, whole(3))


def test_a_gpu_that_is_held_as_a_whole_is_not_partitioned(stores: Stores, epoch: Epoch) -> None:
    take(stores, epoch, claim_of("a", "g1"))
    with pytest.raises(ClaimRefusedError, match="g1 by a"):
        stores.ledger.partitionings.begin(epoch, asked(1, SMALL))


def test_a_gpu_is_held_as_a_whole_or_in_instances(stores: Stores, epoch: Epoch) -> None:
    take(stores, epoch, claim_on("a", SMALL))
    with pytest.raises(ClaimRefusedError, match=r"g1/1g.10gb@4 by a"):
        take(stores, epoch, claim_of("b", "g1"))
    with pytest.raises(ClaimRefusedError, match=r"g1/1g.10gb@4 by a"):
        take(stores, epoch, claim_on("b", SMALL))
    take(stores, epoch, claim_on("b", LARGE))
    both = msgspec.structs.replace(
        claim_on("c", SMALL), tasks=(*claim_of("c", "g1").tasks, *claim_on("c", SMALL).tasks)
    )
    with pytest.raises(ClaimRefusedError, match="g1 is wanted as a whole and in instances"):
        take(stores, epoch, both)
    take(stores, epoch, claim_of("c", "g2"))
    with pytest.raises(ClaimRefusedError, match=r"g2 by c"):
        stores.ledger.partitionings.begin(epoch, asked(1, SMALL, gpu="g2"))


def test_a_task_holds_all_its_instances(stores: Stores, epoch: Epoch) -> None:
    slots = [MigSlot(GPU, SMALL, MilliGpu(125)), MigSlot(DeviceId("g2"), SMALL, MilliGpu(125))]
    (task,) = claim_on("a", SMALL).tasks
    claim = msgspec.structs.replace(claim_on("a", SMALL), tasks=(task.on_slots(slots),))
    take(stores, epoch, claim)
    stores.reopen()
    assert [held.tasks for held in stores.ledger.claims()] == [claim.tasks]
    for other in ("g1", "g2"):
        with pytest.raises(ClaimRefusedError, match=rf"{other}/1g.10gb@4 by a"):
            take(stores, epoch, claim_of("b", other))
    with pytest.raises(ClaimRefusedError, match=r"g2/1g.10gb@4 by a"):
        stores.ledger.partitionings.begin(epoch, asked(1, LARGE, gpu="g2"))
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    take(stores, epoch, claim_of("b", "g1", "g2"))


def test_what_is_being_made_is_claimed_and_nothing_else(stores: Stores, epoch: Epoch) -> None:
    stores.ledger.partitionings.begin(epoch, asked(1, SMALL))
    for claim in (claim_on("a", LARGE), claim_of("a", "g1"), claim_on("a", SMALL, LARGE)):
        with pytest.raises(ClaimRefusedError, match="being partitioned"):
            take(stores, epoch, claim)
    take(stores, epoch, claim_on("a", SMALL))
    stores.ledger.release(epoch, JobName("a"), 1, NOW)
    stores.ledger.partitionings.begin(epoch, whole(2))
    with pytest.raises(ClaimRefusedError, match="being partitioned"):
        take(stores, epoch, claim_on("b", SMALL))
    take(stores, epoch, claim_of("b", "g1"))


def test_a_gang_grows_onto_what_is_being_made_whole(stores: Stores, epoch: Epoch) -> None:
    take(stores, epoch, claim_of("a", "g2"))
    stores.ledger.confirm_running(epoch, JobName("a"), 1, NOW)
    joining = msgspec.structs.replace(claim_of("a", "g1").tasks[0], index=1)
    grow = msgspec.structs.replace(intent_of(claim_of("a"), "grow"), tasks=(joining,))
    stores.ledger.partitionings.begin(epoch, asked(1, SMALL))
    with pytest.raises(ClaimRefusedError, match="being partitioned"):
        stores.ledger.grow(epoch, grow)
    stores.ledger.partitionings.begin(epoch, whole(2))
    assert stores.ledger.grow(epoch, grow).growth == 1


def test_what_ran_on_an_instance_counts_as_its_part_of_a_gpu(stores: Stores, epoch: Epoch) -> None:
    take(stores, epoch, claim_on("a", SMALL, LARGE))
    stores.ledger.confirm_running(epoch, JobName("a"), 1, NOW)
    stores.ledger.release(epoch, JobName("a"), 1, NOW.after(8_000))
    assert stores.ledger.served() == {JobName("a"): 2_000}


def test_a_stale_leader_partitions_nothing(stores: Stores, epoch: Epoch) -> None:
    stores.ledger.partitionings.begin(epoch, asked(1, SMALL))
    stores.ledger.resign(epoch)
    lead(stores, "second")
    with pytest.raises(StaleEpochError):
        stores.ledger.partitionings.begin(epoch, asked(2, LARGE))
    with pytest.raises(StaleEpochError):
        stores.ledger.partitionings.end(epoch, GPU, 1)
    assert stores.ledger.partitionings.in_flight() == (asked(1, SMALL),)
    assert stores.ledger.partitionings.begun_since(NOW.after(-1)) == ((GPU, NOW),)
