"""Passes put on record which GPUs there are: what has changed and nothing else, whatever another leader wrote meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from reconciler.control.capacity import WATCH_GAP, CapacityRecorder
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.capacity import Capacities, NodeCapacity
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.inflight import InFlight, Intent, Repartitioning, Reservation, declared_holder
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import JobName, TaskPlacement
from tests.contracts.stores import LEASE, NOW, SqlStores, lead, sqlite_stores

LATER = LEASE + 1


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[SqlStores]:
    with sqlite_stores(tmp_path) as made:
        yield made


def node(name: str, gpus: int = 3, **changes: object) -> Node:
    devices = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(gpus))
    made = Node(NodeName(name), "pool", Cpu(1000), Memory(1), GpuType("H100"), devices)
    return msgspec.structs.replace(made, **changes)


def seen(*nodes: Node, at: int = 0, in_flight: InFlight = InFlight()) -> Snapshot:
    return snapshot_of(NOW.after(at), nodes, (), in_flight)


def whole(name: str, *gpus: int, share: int | None = None) -> TaskPlacement:
    devices = tuple(DeviceId(f"{name}/{index}") for index in gpus)
    return TaskPlacement("w", 0, NodeName(name), devices, share=None if share is None else MilliGpu(share))


class Counted:
    """Capacities that say how many nodes were written."""

    def __init__(self, capacities: Capacities) -> None:
        self._capacities, self.written = capacities, 0

    def keep(self, epoch: Epoch, changed: Mapping[NodeName, NodeCapacity | None], at: Instant) -> None:
        self.written += len(changed)
        self._capacities.keep(epoch, changed, at)

    def __getattr__(self, name: str) -> object:
        return getattr(self._capacities, name)


def states(stores: SqlStores, name: str = "n1") -> tuple[str, ...]:
    return stores.capacities.current()[NodeName(name)].states


def test_gpus_are_what_the_pass_sees_of_them(stores: SqlStores) -> None:
    recorder, epoch = CapacityRecorder(stores.capacities), lead(stores)
    sick = node("n2", gpus=2)
    sick = msgspec.structs.replace(sick, gpus=(sick.gpus[0], msgspec.structs.replace(sick.gpus[1], healthy=False)))
    snapshot = seen(node("n1"), sick, node("n3", ready=False), node("n4", 1, cordoned=True), node("cpu", 0))
    recorder.keep(epoch, snapshot)
    found = {name: capacity.states for name, capacity in stores.capacities.current().items()}
    assert found == {
        "n1": ("idle",) * 3,
        "n2": ("idle", "unhealthy"),
        "n3": ("unhealthy",) * 3,
        "n4": ("unhealthy",),
    }


def test_what_is_kept_for_somebody_is_reserved_from_when_on_others_may_not_use_it(stores: SqlStores) -> None:
    recorder, epoch = CapacityRecorder(stores.capacities), lead(stores)
    promised = Intent("nominate", JobName("a"), 1, NOW, NOW, (whole("n1", 0), whole("n1", 1, share=500)))
    later = Reservation(JobName("b"), (whole("n1", 1),), NOW.after(10))
    document = Reservation(declared_holder("x"), (whole("n1", 2),), NOW, NOW.after(20))
    in_flight = InFlight(intents=(promised,), reservations=(later, document))
    recorder.keep(epoch, seen(node("n1"), in_flight=in_flight))
    assert states(stores) == ("reserved", "idle", "reserved")
    recorder.keep(epoch, seen(node("n1"), at=10, in_flight=in_flight))
    assert states(stores) == ("reserved",) * 3
    recorder.keep(epoch, seen(node("n1"), at=20, in_flight=in_flight))
    assert states(stores) == ("reserved", "reserved", "idle")


def test_a_gpu_that_is_partitioned_is_neither_idle_nor_reserved_but_may_be_unwell(stores: SqlStores) -> None:
    recorder, epoch = CapacityRecorder(stores.capacities), lead(stores)
    change = Repartitioning(NodeName("n1"), DeviceId("n1/0"), 1, NOW, NOW)
    promised = Intent("nominate", JobName("a"), 1, NOW, NOW, (whole("n1", 0),))
    in_flight = InFlight(intents=(promised,), repartitions=(change,))
    recorder.keep(epoch, seen(node("n1"), in_flight=in_flight))
    assert states(stores) == ("partitioning", "idle", "idle")
    recorder.keep(epoch, seen(node("n1", ready=False), at=1, in_flight=in_flight))
    assert states(stores) == ("unhealthy",) * 3


def test_only_what_has_changed_is_written(stores: SqlStores) -> None:
    counted, epoch = Counted(stores.capacities), lead(stores)
    recorder = CapacityRecorder(counted)  # type: ignore[arg-type]
    nodes = [node(f"n{number}") for number in range(20)]
    recorder.keep(epoch, seen(*nodes))
    assert counted.written == 20
    recorder.keep(epoch, seen(*nodes, at=1))
    recorder.keep(epoch, seen(*(node(one.name) for one in nodes), at=2))
    assert counted.written == 20
    recorder.keep(epoch, seen(*nodes[1:], node("new"), at=3))
    assert (counted.written, set(stores.capacities.current())) == (22, {*(one.name for one in nodes[1:]), "new"})


def test_a_process_that_begins_anew_goes_on_with_what_is_on_record(stores: SqlStores) -> None:
    CapacityRecorder(stores.capacities).keep(lead(stores), seen(node("n1"), node("n2")))
    counted = Counted(stores.capacities)
    CapacityRecorder(counted).keep(lead(stores), seen(node("n1", ready=False), at=5))  # type: ignore[arg-type]
    assert counted.written == 2
    spans = stores.capacities.spans(NOW, NOW.after(10))
    assert [(one.node, one.since - NOW, one.until and one.until - NOW) for one in spans] == [
        ("n1", 0, 5),
        ("n1", 5, None),
        ("n2", 0, 5),
    ]


def test_what_another_leader_wrote_is_read_first(stores: SqlStores) -> None:
    recorder, other = CapacityRecorder(stores.capacities), CapacityRecorder(stores.capacities)
    old = lead(stores)
    recorder.keep(old, seen(node("n1")))
    other.keep(lead(stores, "second", NOW.after(LATER)), seen(node("n1", ready=False), at=LATER))
    recorder.keep(lead(stores, "first", NOW.after(3 * LATER)), seen(node("n1"), at=3 * LATER))
    assert states(stores) == ("idle",) * 3


def test_one_that_leads_no_more_keeps_nothing(stores: SqlStores) -> None:
    recorder, old = CapacityRecorder(stores.capacities), lead(stores)
    recorder.keep(old, seen(node("n1")))
    lead(stores, "second", NOW.after(LATER))
    with pytest.raises(StaleEpochError):
        recorder.keep(old, seen(node("n1", cordoned=True), at=LATER))
    assert states(stores) == ("idle",) * 3


def test_it_is_on_record_when_a_leader_was_there(stores: SqlStores) -> None:
    for after in (0, 1_000, WATCH_GAP, 3 * WATCH_GAP):
        CapacityRecorder(stores.capacities).keep(lead(stores), seen(node("n1"), at=after))
    found = stores.capacities.watches(NOW.after(-1), NOW.after(10 * WATCH_GAP))
    assert [(since - NOW, until - NOW) for since, until in found] == [(0, WATCH_GAP), (3 * WATCH_GAP, 3 * WATCH_GAP)]
