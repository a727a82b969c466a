"""Two utilisations side by side: allocated of healthy, active of allocated; what is not known is in no average."""

from __future__ import annotations

from reconciler.control.use_summary import FRESH, GpuUtilisation, JobUse, LatestUse, use_now
from reconciler.model.clock import VirtualClock
from reconciler.model.gpu_use import GpuMinute, NodeMinute, UseFigures, UseSpread, record_of
from solver.model.cluster import DeviceId, Gpu, GpuType, MigInstance, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, MigSlot, QueueName, TaskGroup, TaskPlacement

NOW = Instant.parse("2026-03-01T12:00:00Z")
N1 = NodeName("n1")
H100 = GpuType("H100")
JUST_NOW = -90_000


def node_of(name: NodeName, count: int, *broken: int) -> Node:
    gpus = tuple(Gpu(DeviceId(f"{name}/{each}"), each, healthy=each not in broken) for each in range(count))
    return Node(name, "pool", Cpu(64_000), Memory(2**38), H100, gpus)


def job_of(name: str, queue: str, *tasks: TaskPlacement, priority: str = "") -> Job:
    spec = JobSpec(QueueName(queue), (TaskGroup("worker", 1, Shape(gpus=1)),), priority_class=priority)
    return Job(JobName(name), NOW, spec, phase="running", attempt=1, started_at=NOW, placement=tasks)


def on(*numbers: int, share: int | None = None, index: int = 0) -> TaskPlacement:
    devices = tuple(DeviceId(f"n1/{number}") for number in numbers)
    if share is None:
        return TaskPlacement("worker", index, N1, devices)
    return TaskPlacement("worker", index, N1, devices, share=MilliGpu(share), sharing="time-slicing")


def minute(figures: dict[int, float | None], at: int = JUST_NOW) -> dict[NodeName, NodeMinute]:
    gpus = tuple(
        GpuMinute(
            DeviceId(f"n1/{number}"),
            f"GPU-{number}",
            record_of(
                UseFigures("gpm", 12, active=None if active is None else UseSpread(active), memory=UseSpread(10.0))
            ),
        )
        for number, active in figures.items()
    )
    return {N1: NodeMinute(NOW.after(at), gpus)}


def snapshot(*jobs: Job, broken: tuple[int, ...] = ()) -> Snapshot:
    return snapshot_of(NOW, (node_of(N1, 8, *broken),), jobs)


def test_both_utilisations_by_type_queue_class_and_job() -> None:
    seen = snapshot(job_of("a", "x", on(0, 1), priority="high"), job_of("b", "y", on(2), priority="low"), broken=(6, 7))
    now = use_now(seen, minute({0: 100.0, 1: 50.0, 2: 0.0, 3: 90.0}), NOW)
    assert now.types == (GpuUtilisation(H100, 3, 3, 1.5, healthy=6),)
    assert now.queues == {"x": (GpuUtilisation(H100, 2, 2, 1.5),), "y": (GpuUtilisation(H100, 1, 1, 0.0),)}
    assert now.classes == {"high": (GpuUtilisation(H100, 2, 2, 1.5),), "low": (GpuUtilisation(H100, 1, 1, 0.0),)}
    assert now.jobs == {"a": JobUse(2, 2, 1.5), "b": JobUse(1, 1, 0.0)}


def test_what_is_not_known_is_allocated_and_not_measured() -> None:
    seen = snapshot(job_of("a", "x", on(0, 1, 2)))
    now = use_now(seen, minute({0: 40.0, 1: None}), NOW)
    assert now.queues == {"x": (GpuUtilisation(H100, 3, 1, 0.4),)}
    assert use_now(seen, {}, NOW).jobs == {"a": JobUse(3, 0, 0.0)}


def test_a_figure_that_is_old_or_of_the_future_is_not_what_a_gpu_does_now() -> None:
    seen = snapshot(job_of("a", "x", on(0)))
    for at, measured in ((-FRESH + 1, 1), (-FRESH, 0), (FRESH, 0)):
        assert use_now(seen, minute({0: 40.0}, at), NOW).jobs == {"a": JobUse(1, measured, 0.4 * measured)}


def test_of_a_gpu_that_is_shared_or_partitioned_it_is_not_known_which_job_used_it() -> None:
    cut = MigInstance("1g.10gb", 0)
    slot = MigSlot(DeviceId("n1/5"), cut, MilliGpu(125))
    mig = TaskPlacement("worker", 0, N1, (cut.id_on(DeviceId("n1/5")),), mig=slot)
    seen = snapshot(job_of("a", "x", on(0, share=500)), job_of("b", "y", on(0, share=500)), job_of("c", "z", mig))
    now = use_now(seen, minute({0: 80.0, 5: 80.0}), NOW)
    assert now.types == (GpuUtilisation(H100, 2, 0, 0.0, healthy=8),)
    assert now.jobs == {"a": JobUse(1, 0, 0.0), "b": JobUse(1, 0, 0.0), "c": JobUse(1, 0, 0.0)}
    shared = now.gpus[0]
    assert [(holder.job, holder.queue, holder.is_whole) for holder in shared.holders] == [
        ("a", "x", False),
        ("b", "y", False),
    ]


def test_a_gpu_that_one_job_shares_with_itself_counts_once() -> None:
    seen = snapshot(job_of("a", "x", on(0, share=300), on(0, share=300, index=1)))
    assert use_now(seen, {}, NOW).queues == {"x": (GpuUtilisation(H100, 1, 0, 0.0),)}


def test_a_held_gpu_of_a_broken_node_is_held_and_the_quotient_is_at_most_one() -> None:
    seen = snapshot(job_of("a", "x", on(0)), broken=tuple(range(8)))
    assert use_now(seen, {}, NOW).types == (GpuUtilisation(H100, 1, 0, 0.0, healthy=1),)


class Counting(VirtualClock):
    """Working something out takes some seconds."""

    def __init__(self, takes_ms: int) -> None:
        super().__init__(NOW)
        self.takes = Duration(takes_ms)
        self.asked = 0

    def minutes(self) -> dict[NodeName, NodeMinute]:
        self.asked += 1
        self.advance(self.takes)
        return {}


def test_it_is_worked_out_for_at_most_a_twentieth_of_the_time() -> None:
    clock, seen = Counting(1_000), snapshot()
    latest = LatestUse(clock.minutes, clock)
    first = latest.of(seen)
    clock.advance(19_999)
    assert latest.of(snapshot()) is first
    clock.advance(1)
    assert latest.of(seen) is not first
    assert clock.asked == 2
