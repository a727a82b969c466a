"""GPUs as a backend gives them to tasks: by UUID, as the driver shows them now, and never another one in a lost one's place."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from reconciler.model.clock import SystemClock
from reconciler.node.local import LocalBackend
from reconciler.node.local.machine import Equipment
from reconciler.node.local_driver import driver_for, gpus_of, use_of
from reconciler.node.nvml.driver import DriverError
from reconciler.node.nvml.gpus import NvmlGpus
from reconciler.node.nvml.library.nvml import NvmlDriver
from reconciler.protocols.backend import ENDED, Cursor, Epoch, GpuPartitioned, PartitionGpu, StartGang
from solver.model.cluster import DeviceId, Gpu, GpuType, MigInstance, Node, NodeName
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, MigSlot, QueueName, TaskGroup, TaskPlacement
from tests.reconciler.node.nvml.card import Card
from tests.reconciler.node.nvml.conftest import Install
from tests.reconciler.node.nvml.library import Library
from tests.reconciler.node.nvml.made import card_of

AT = Instant(1_000)
GPU = DeviceId("n1/0")
SMALL, LARGE = MigInstance("1g.10gb", 6), MigInstance("3g.40gb", 0)

Open = Callable[[], NvmlGpus]


def node_of(count: int) -> Node:
    gpus = tuple(Gpu(DeviceId(f"n1/{number}"), number) for number in range(count))
    return Node(NodeName("n1"), "pool", Cpu(64_000), Memory(2**38), GpuType("H100-SXM5-80GB"), gpus)


NODE = node_of(3)


@pytest.fixture
def cards(install: Install) -> list[Card]:
    """Three, of a machine."""
    return install(Library(card_of("H100-80GB", number) for number in range(3))).cards


@pytest.fixture
def opened(cards: list[Card], tmp_path: Path) -> Open:
    """The agent's GPUs, as after each of its restarts."""
    return lambda: NvmlGpus(tmp_path / "gpus", NvmlDriver())


def whole(*devices: str) -> TaskPlacement:
    return TaskPlacement("worker", 0, NODE.name, tuple(map(DeviceId, devices)))


def on(instance: MigInstance) -> TaskPlacement:
    return TaskPlacement("worker", 0, NODE.name, (instance.id_on(GPU),), mig=MigSlot(GPU, instance, MilliGpu(125)))


def on_both(*instances: MigInstance) -> TaskPlacement:
    slots = [MigSlot(GPU, instance, MilliGpu(125)) for instance in instances]
    return TaskPlacement("worker", 0, NODE.name).on_slots(slots)


def order(attempt: int, *instances: MigInstance) -> PartitionGpu:
    return PartitionGpu(NODE.name, GPU, attempt, instances)


def now(gpus: NvmlGpus) -> tuple[Gpu, ...]:
    return gpus.as_partitioned([NODE])[0].gpus


def test_whole_gpus_are_called_by_their_uuids(opened: Open, cards: list[Card]) -> None:
    gpus = opened()
    assert gpus.called([whole("n1/2", "n1/0")], now(gpus)) == {"n1/2": cards[2].uuid, "n1/0": cards[0].uuid}


def test_an_instance_is_called_as_its_driver_does(opened: Open, cards: list[Card]) -> None:
    gpus = opened()
    gpus.partition(order(1, SMALL, LARGE), [NODE], (), AT)
    names = {part.start: name for part in cards[0].parts for name in part.names.values()}
    assert gpus.called([on(SMALL), on(LARGE)], now(gpus)) == {
        SMALL.id_on(GPU): names[6],
        LARGE.id_on(GPU): names[0],
    }
    assert gpus.called([on_both(SMALL, LARGE)], now(gpus)) == gpus.called([on(SMALL), on(LARGE)], now(gpus))
    assert gpus.called([whole("n1/0")], now(gpus)) == {}, "it is whole no more"
    assert gpus.called([on(MigInstance("1g.10gb", 4))], now(gpus)) == {}
    assert "n1/0" in gpus.lacking([GPU])


def test_what_came_of_an_order_is_kept_with_what_the_driver_shows(opened: Open) -> None:
    opened().partition(order(3, SMALL, LARGE), [NODE], (), AT)
    later = opened()
    assert later.reports() == (GpuPartitioned(GPU, 3, AT, (SMALL, LARGE)),)
    assert now(later)[0].instances == (SMALL, LARGE)
    assert now(later)[1].instances is None


def test_a_refused_order_says_what_is_there(opened: Open, cards: list[Card]) -> None:
    gpus = opened()
    gpus.partition(order(1, SMALL), [NODE], (), AT)
    cards[0].pids = [(4711, cards[0].parts[0].id)]
    gpus.partition(order(2, LARGE), [NODE], (), AT)
    (report,) = gpus.reports()
    assert (report.attempt, report.instances) == (2, (SMALL,))
    assert "4711" in report.refused


def test_an_older_order_is_not_done_any_more(opened: Open, cards: list[Card]) -> None:
    gpus = opened()
    gpus.partition(order(2, SMALL), [NODE], (), AT)
    gpus.partition(order(1, LARGE), [NODE], (), AT)
    assert cards[0].geometry() == {"1g.10gb@6"}


def test_an_agent_that_is_killed_on_the_way_finishes_when_it_is_asked_again(opened: Open, cards: list[Card]) -> None:
    cards[0].breaks_after = 2
    with pytest.raises(KeyboardInterrupt):
        opened().partition(order(1, SMALL, LARGE), [NODE], (), AT)
    cards[0].breaks_after = None
    later = opened()
    assert later.reports() == (), "nothing is claimed of what nobody saw done"
    assert now(later)[0].instances == (), "an instance in which nothing can run yet is none"
    later.partition(order(1, SMALL, LARGE), [NODE], (), AT)
    assert later.reports()[0].refused == ""
    assert cards[0].geometry() == {"1g.10gb@6", "3g.40gb@0"}


def test_after_a_restart_of_the_node_its_instances_are_gone_and_said_so(opened: Open, cards: list[Card]) -> None:
    opened().partition(order(1, SMALL), [NODE], (), AT)
    cards[0].restart()
    later = opened()
    assert now(later)[0].instances is None
    assert later.called([on(SMALL)], now(later)) == {}


def test_a_lost_gpu_is_not_healthy_and_nobody_gets_its_number(
    opened: Open, install: Install, cards: list[Card]
) -> None:
    opened().partition(order(1, SMALL), [NODE], (), AT)
    cards[0].lost = True
    gpus = opened()
    assert [gpu.healthy for gpu in now(gpus)] == [False, True, True]
    assert now(gpus)[0].instances == (SMALL,), "it is what it was made, for all that is known"
    assert gpus.called([whole("n1/1")], now(gpus)) == {"n1/1": cards[1].uuid}
    assert gpus.called([on(SMALL)], now(gpus)) == {}
    install(Library(cards[1:]))
    after_a_restart = opened()
    assert after_a_restart.called([whole("n1/1")], now(after_a_restart)) == {"n1/1": cards[1].uuid}
    assert [gpu.healthy for gpu in now(after_a_restart)] == [False, True, True]


def test_boards_that_changed_places_stay_who_they_are(opened: Open, install: Install, cards: list[Card]) -> None:
    opened().seats()
    cards[0].slot, cards[1].slot = 1, 0
    install(Library([cards[1], cards[0], cards[2]]))
    gpus = opened()
    assert gpus.called([whole("n1/0", "n1/1")], now(gpus)) == {"n1/0": cards[0].uuid, "n1/1": cards[1].uuid}
    install(Library([cards[1], card_of("H100-80GB", 7), cards[2]])).cards[1].slot = 1
    replaced = opened()
    assert replaced.called([whole("n1/0")], now(replaced)) == {"n1/0": card_of("H100-80GB", 7).uuid}


def test_a_gpu_that_is_lost_from_the_first_does_not_hide_the_others(opened: Open, cards: list[Card]) -> None:
    cards[0].lost = True
    gpus = opened()
    assert [gpu.healthy for gpu in now(gpus)] == [True, True, False], "it has no name yet, so it is the last"
    cards[0].lost = False
    assert [seat.uuid for seat in gpus.seats()] == [cards[1].uuid, cards[2].uuid, cards[0].uuid]


def test_a_driver_that_does_not_answer_shows_no_healthy_gpu(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = opened()
    gpus.seats()
    monkeypatch.setattr(gpus._driver, "gpus", failing)
    monkeypatch.setattr(gpus._driver, "mig", failing)
    assert [gpu.healthy for gpu in now(gpus)] == [False] * 3
    assert len(gpus.seats()) == 3


def failing(*_: object) -> None:
    raise DriverError("NVIDIA's driver: Unknown Error")


def test_an_order_for_a_lost_gpu_is_refused_with_what_it_was(opened: Open, cards: list[Card]) -> None:
    gpus = opened()
    gpus.partition(order(1, SMALL), [NODE], (), AT)
    cards[0].lost = True
    gpus.partition(order(2, LARGE), [NODE], (), AT)
    (report,) = gpus.reports()
    assert "Restart the node" in report.refused
    assert report.instances == (SMALL,)


def test_a_gpu_that_git_declares_and_the_machine_has_not_is_not_healthy(opened: Open) -> None:
    gpus, node = opened(), node_of(4)
    assert [gpu.healthy for gpu in gpus.as_partitioned([node])[0].gpus] == [True, True, True, False]
    gpus.partition(msgspec.structs.replace(order(1, SMALL), device=DeviceId("n1/3")), [node], (), AT)
    assert gpus.reports()[0].refused == "n1 has no GPU n1/3"


def test_what_git_declares_partitioned_is_left_as_it_is(opened: Open, cards: list[Card]) -> None:
    gpus = (msgspec.structs.replace(NODE.gpus[0], instances=(SMALL,)), *NODE.gpus[1:])
    there = opened()
    there.partition(order(1, LARGE), [msgspec.structs.replace(NODE, gpus=gpus)], (), AT)
    assert "Git declares" in there.reports()[0].refused
    assert cards[0].changes == []


def test_a_driver_that_does_something_else_is_not_believed(
    opened: Open, cards: list[Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = opened()
    monkeypatch.setattr("reconciler.node.nvml.gpus.partition", lambda *_: "")
    there.partition(order(1, SMALL), [NODE], (), AT)
    (report,) = there.reports()
    assert "shows something else" in report.refused
    assert report.instances is None


def test_a_task_of_a_backend_sees_the_uuid_of_its_gpu(cards: list[Card], tmp_path: Path) -> None:
    driver = driver_for("nvml", tmp_path / "state" / "gpus")
    backend = LocalBackend(tmp_path / "state", lambda: (NODE,), SystemClock(), gpus=partial(gpus_of, driver))
    spec = JobSpec(
        QueueName("q"), (TaskGroup("worker", 1, Shape(gpus=1)),), command=("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    )
    job = JobName("job")
    backend.submit(StartGang(job, 1, (whole("n1/1"),), spec), Epoch(1))
    while (state := backend.changes(Cursor(0)).tasks[0].state) not in ENDED:
        time.sleep(0.02)
    assert state == "succeeded"
    assert backend.read_log(job, 1, "worker", 0, 0, 1_000).decode().strip() == cards[1].uuid


def test_a_task_counts_as_ended_once_nobody_is_on_its_gpu_any_more(cards: list[Card], tmp_path: Path) -> None:
    state = tmp_path / "state"
    driver = driver_for("nvml", state / "gpus")
    use = use_of(driver, state / "gpus", lambda: [NODE])
    backend = LocalBackend(
        state, lambda: (NODE,), SystemClock(), partial(gpus_of, driver), equipment=Equipment(gpu_use=use)
    )
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(gpus=1)),), command=("true",))
    cards[1].pids = [(4711, None)]
    backend.submit(StartGang(JobName("job"), 1, (whole("n1/1"),), spec), Epoch(1))
    while "4711" not in backend.changes(Cursor(0)).tasks[0].detail:
        time.sleep(0.02)
    (task,) = backend.changes(Cursor(0)).tasks
    assert task.state == "running"
    cards[1].pids = []
    (task,) = backend.changes(Cursor(0)).tasks
    assert task.state == "succeeded"
