"""Samples become minutes: what is not measured is left out, and no sample counts twice."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reconciler.model.clock import VirtualClock
from reconciler.model.gpu_use import Metric, NodeMinute, UseFigures, UseSource, UseSpread, use_of
from reconciler.node.use.minutes import GpuSample, MinuteAggregator
from reconciler.node.use.recorder import KEPT_MINUTES, UseRecorder
from reconciler.node.use.simulation import SimulatedUse
from solver.model.cluster import DeviceId, Gpu, GpuType, MigInstance, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory

START = Instant.parse("2026-03-01T12:00:00Z")
GPU = DeviceId("n1/0")


def sample(
    active: float, source: UseSource = "gpm", uuid: str = "GPU-1", others: Mapping[Metric, float] = MappingProxyType({})
) -> GpuSample:
    return GpuSample(GPU, uuid, source, {"active": active, **others})


def uses(minute: NodeMinute | None) -> list[UseFigures | None]:
    assert minute is not None
    return [use_of(gpu.record) for gpu in minute.gpus]


def test_a_minute_is_over_when_the_next_begins_and_has_what_was_measured_in_it() -> None:
    aggregator = MinuteAggregator()
    for second in range(0, 60, 5):
        assert aggregator.add(START.after(second * 1_000), [sample(second + 1.0, others={"nvlink": 0.0})]) is None
    over = aggregator.add(START.after(60_000), [sample(99.0)])
    assert over is not None
    assert over.start == START
    # Twelve samples of 1, 6, ... 56: half per cents, and nearest ranks.
    assert uses(over) == [
        UseFigures("gpm", 12, active=UseSpread(28.5, 1.0, 6.0, 51.0), nvlink=UseSpread(0.0, 0.0, 0.0, 0.0))
    ]


def test_of_too_few_samples_there_are_no_quantiles_and_a_metric_has_its_own() -> None:
    aggregator = MinuteAggregator()
    aggregator.add(START, [sample(10.0)])
    aggregator.add(START.after(30_000), [sample(20.0, others={"tensor": 4.0})])
    assert uses(aggregator.add(START.after(60_000), [])) == [
        UseFigures("gpm", 2, active=UseSpread(15.0, 10.0), tensor=UseSpread(4.0, 4.0))
    ]


def test_a_minute_without_a_sample_is_none() -> None:
    aggregator = MinuteAggregator()
    assert aggregator.add(START, []) is None
    assert aggregator.add(START.after(60_000), []) is None
    assert aggregator.add(START.after(120_000), [sample(1.0)]) is None
    assert aggregator.add(START.after(600_000), []) is not None
    assert aggregator.add(START.after(660_000), []) is None


def test_two_sources_of_one_minute_are_not_mixed() -> None:
    aggregator = MinuteAggregator()
    for _ in range(5):
        aggregator.add(START, [sample(100.0, "utilisation")])
    aggregator.add(START, [sample(10.0)])
    assert uses(aggregator.add(START.after(60_000), [])) == [UseFigures("gpm", 1, active=UseSpread(10.0, 10.0))]


def test_a_board_that_was_swapped_within_a_minute_is_another() -> None:
    aggregator = MinuteAggregator()
    aggregator.add(START, [sample(10.0)])
    aggregator.add(START.after(1), [sample(20.0, uuid="GPU-2")])
    over = aggregator.add(START.after(60_000), [])
    assert over is not None
    assert [gpu.uuid for gpu in over.gpus] == ["GPU-1", "GPU-2"]


def test_a_clock_that_is_set_back_ends_the_minute_and_what_was_told_stays() -> None:
    aggregator = MinuteAggregator()
    aggregator.add(START.after(60_000), [sample(10.0)])
    over = aggregator.add(START, [sample(20.0)])
    assert over is not None
    assert over.start == START.after(60_000)
    over = aggregator.add(START.after(60_000), [])
    assert over is not None
    assert over.start == START


class Faulty:
    """A read that fails as long as it is told to."""

    def __init__(self) -> None:
        self.failure = ""

    def __call__(self) -> list[GpuSample]:
        if self.failure:
            raise OSError(self.failure)
        return [sample(50.0)]


def test_a_recorder_keeps_the_newest_minutes_and_numbers_them() -> None:
    clock, told = VirtualClock(START), list[NodeMinute]()
    recorder = UseRecorder(Faulty(), lambda: Duration(5_000), clock, lambda why: None, told.append)
    for _ in range(KEPT_MINUTES + 11):
        recorder.look()
        clock.advance(60_000)
    kept, number = recorder.after(0)
    assert number == KEPT_MINUTES + 10 == len(told)
    assert list(kept) == told[-KEPT_MINUTES:]
    assert recorder.after(number) == ((), number)
    recorder.look()
    assert [minute.start for minute in recorder.after(number)[0]] == [told[-1].start]


def test_what_can_not_be_read_is_told_once_and_sampling_goes_on() -> None:
    clock, why, read = VirtualClock(START), list[str](), Faulty()
    recorder = UseRecorder(read, lambda: Duration(5_000), clock, why.append)
    for failure in ("", "no disk", "no disk", "", "no disk"):
        read.failure = failure
        recorder.look()
        clock.advance(1_000)
    assert why == ["no disk", "no disk"]
    clock.advance(60_000)
    recorder.look()
    (minute,), _ = recorder.after(0)
    (use,) = uses(minute)
    assert use is not None
    assert use.covered == 2


def test_use_that_is_made_up_says_so_and_is_the_same_for_a_seed() -> None:
    gpus = (Gpu(GPU, 0), Gpu(DeviceId("n1/1"), 1), Gpu(DeviceId("n1/2"), 2, instances=(MigInstance("1g.10gb", 0),)))
    node = Node(NodeName("n1"), "pool", Cpu(64_000), Memory(2**38), GpuType("H100-SXM5-80GB"), gpus)
    clock = VirtualClock(START)

    def read(seed: int) -> list[GpuSample]:
        return list(SimulatedUse(lambda: [node], lambda: {GPU}, clock, seed).read())

    busy, idle = read(1)
    assert (busy.source, busy.gpu, idle.gpu) == ("simulated", GPU, "n1/1")
    assert busy.values["active"] > 0
    assert idle.values["active"] == 0
    assert read(1) == read(1)
    assert read(1) != read(2)
