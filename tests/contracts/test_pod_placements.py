"""Every store keeps what pods held; see reconciler/protocols/pod_placements.py."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.placements import PlacedTask
from reconciler.protocols.pod_placements import GangEnd, HeldPod, PodChanges, PodRelease, RecordedGang
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from tests.contracts.stores import NOW, Stores, lead

TRAIN, NODE = JobName("vision.gang.train"), NodeName("n1")
GANG = RecordedGang(TRAIN, JobSpec(QueueName("q"), (TaskGroup("w", 2, Shape(gpus=1)),)), NOW, ("made-by",))
FIRST, SECOND = (
    HeldPod(
        f"uid-{index}",
        TRAIN,
        QueueName("q"),
        GpuType("H100"),
        NODE,
        PlacedTask("w", index, (DeviceId(f"{NODE}/{index}"),), MilliGpu.gpus(1)),
        NOW.after(index),
    )
    for index in range(2)
)
BEGUN = PodChanges(NOW.after(10), (GANG,), (FIRST, SECOND))


def told(stores: Stores) -> list[tuple[str, int, int, int | None, str]]:
    found = stores.placements.in_window(NOW, NOW.after(10_000))
    return [
        (
            one.tasks[0].devices[0],
            one.placement.attempt,
            one.placement.since - NOW,
            None if one.placement.until is None else one.placement.until - NOW,
            one.placement.ended,
        )
        for one in found
    ]


def test_what_pods_hold_is_known_after_a_restart_and_said_again_changes_nothing(stores: Stores) -> None:
    epoch = lead(stores)
    for _ in range(2):
        stores.pod_placements.keep(epoch, BEGUN)
        stores.reopen()
        epoch = lead(stores)
        assert told(stores) == [("n1/0", 1, 0, None, ""), ("n1/1", 1, 1, None, "")]
    assert stores.pod_placements.held() == {"uid-0": FIRST, "uid-1": SECOND}
    assert stores.pod_placements.gangs() == {TRAIN: GANG}
    assert stores.pod_placements.on_record({"uid-0", "uid-7"}) == {"uid-0"}
    (job,) = stores.past_jobs.between(NOW, NOW.after(1))
    assert (job.name, job.gpus, job.gpu_types, job.ended_at) == (TRAIN, 2_000, (), None)


def test_how_pods_and_gangs_end(stores: Stores) -> None:
    epoch = lead(stores)
    stores.pod_placements.keep(epoch, BEGUN)
    left = {"uid-0": PodRelease(NOW.after(500), "evicted", "other", NOW.after(400)), "uid-1": PodRelease(NOW, "failed")}
    over = PodChanges(NOW.after(600), left=left, ended={TRAIN: GangEnd(NOW.after(500), "failed")})
    for _ in range(2):
        stores.pod_placements.keep(epoch, over)
        # The other's clock was behind: it held for no time.
        assert told(stores) == [("n1/0", 1, 0, 500, "evicted"), ("n1/1", 1, 1, 1, "failed")]
    assert stores.past_jobs.saved(NOW) == {(TRAIN, 1): NOW.after(400)}
    (record,) = stores.pod_placements.past(NOW, NOW.after(900))
    assert record.outcome is not None
    assert (record.outcome.state, record.outcome.at) == ("failed", NOW.after(500))
    assert stores.pod_placements.past(NOW.after(500), NOW.after(900)) == ()
    # It comes back, and is the same job in its next attempt.
    again = msgspec.structs.replace(FIRST, uid="uid-2", since=NOW.after(700))
    stores.pod_placements.keep(epoch, PodChanges(NOW.after(710), (GANG,), (again,)))
    assert told(stores)[-1] == ("n1/0", 2, 700, None, "")


def test_a_pod_that_holds_something_else_does_so_from_then_on(stores: Stores) -> None:
    epoch = lead(stores)
    stores.pod_placements.keep(epoch, BEGUN)
    moved = msgspec.structs.replace(FIRST, task=msgspec.structs.replace(FIRST.task, devices=(DeviceId("n1/5"),)))
    for _ in range(2):
        stores.pod_placements.keep(epoch, PodChanges(NOW.after(300), came=(moved,)))
    assert told(stores) == [("n1/0", 1, 0, 300, "restarted"), ("n1/1", 1, 1, None, ""), ("n1/5", 1, 300, None, "")]


def test_what_a_gpu_is_given_to_begins_when_what_had_it_ended(stores: Stores) -> None:
    epoch = lead(stores)
    stores.pod_placements.keep(epoch, BEGUN)
    other = msgspec.structs.replace(FIRST, uid="uid-9", since=NOW.after(200))
    known = PodChanges(NOW.after(400), came=(other,), left={"uid-0": PodRelease(NOW.after(250), "succeeded")})
    stores.pod_placements.keep(epoch, known)
    assert told(stores)[0] == ("n1/0", 1, 0, 250, "succeeded")
    assert ("n1/0", 1, 250, None, "") in told(stores)
    # Where it is not known when it ended, it was over by then.
    last = msgspec.structs.replace(FIRST, uid="uid-10", since=NOW.after(600))
    vague = PodRelease(NOW.after(900), "cancelled", is_at_most=True)
    stores.pod_placements.keep(epoch, PodChanges(NOW.after(950), came=(last,), left={"uid-9": vague}))
    assert [one for one in told(stores) if one[0] == "n1/0"][1:] == [
        ("n1/0", 1, 250, 600, "cancelled"),
        ("n1/0", 1, 600, None, ""),
    ]


def test_gangs_go_with_what_they_held(stores: Stores) -> None:
    epoch = lead(stores)
    left = {uid: PodRelease(NOW.after(50), "succeeded") for uid in ("uid-0", "uid-1")}
    ended = {TRAIN: GangEnd(NOW.after(50), "succeeded")}
    stores.pod_placements.keep(epoch, BEGUN._replace(left=left, ended=ended))
    assert stores.placements.prune(epoch, NOW.after(49)) == 0
    assert len(stores.pod_placements.past(NOW, NOW.after(9))) == 1
    assert stores.placements.prune(epoch, NOW.after(50)) == 2
    assert stores.pod_placements.past(Instant(0), NOW.after(9)) == ()


def test_who_leads_no_more_writes_nothing(stores: Stores) -> None:
    old = lead(stores)
    lead(stores, "two", NOW.after(100_000))
    with pytest.raises(StaleEpochError):
        stores.pod_placements.keep(old, BEGUN)
    assert stores.pod_placements.held() == {}
