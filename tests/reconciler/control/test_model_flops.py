"""What jobs report of their work: MFU by the peak of the GPUs that report, unknown where anything of it is, and never above 1."""

from __future__ import annotations

import pytest

from reconciler.control.model_flops import FRESH, ReportedWork, together, work_lines, work_of
from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.model.gpu_peaks import BF16_TFLOPS, peaks_of
from reconciler.model.gpu_products import TYPE_OF_PRODUCT
from reconciler.protocols.backend import Progress, TaskState, TaskStatus
from reconciler.server.work_figures import WorkFigures
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.policy.policy import GpuPeak

NOW = Instant.parse("2026-03-01T12:00:00Z")
H100, A100, ODD = GpuType("H100-SXM5-80GB"), GpuType("A100-SXM4-80GB"), GpuType("Odd-9000")
TFLOP = 1e12
PEAK_OF = peaks_of(())


def held(index: int, gpus: int = 2, node: str = "n1", share: int | None = None) -> TaskPlacement:
    devices = tuple(DeviceId(f"{node}/{index * 2 + at}") for at in range(gpus))
    return TaskPlacement("worker", index, NodeName(node), devices, None if share is None else MilliGpu(share))


def said(
    index: int,
    flops: float = 0.0,
    tokens: float = 0.0,
    ago_ms: int = 1_000,
    state: TaskState = "running",
    job: str = "a",
) -> TaskStatus:
    progress = Progress(7, 1.0, NOW.after(-ago_ms), flops, tokens)
    return TaskStatus(JobName(job), 1, "worker", index, NodeName("n1"), state, NOW, progress=progress)


def work(
    *reports: TaskStatus, tasks: tuple[TaskPlacement, ...] = (held(0), held(1)), of: GpuType = H100
) -> ReportedWork | None:
    return work_of(tasks, reports, lambda _: of, PEAK_OF, NOW)


def test_mfu_is_what_is_reported_by_the_peak_of_the_gpus_that_report() -> None:
    found = work(said(0, 800 * TFLOP, 10_000), said(1, 400 * TFLOP))
    assert found == ReportedWork(4, 1_200 * TFLOP, 10_000, 4 * 989.4 * TFLOP, 1_200 * TFLOP / (4 * 989.4 * TFLOP))
    assert str(found) == "MFU 30.3 % of 3.96 PFLOP/s, 1.2 PFLOP/s on 4 GPUs, 10 ktokens/s"
    # A task that reports nothing has no part in either.
    only = work(said(0, 800 * TFLOP))
    assert only is not None
    assert only.gpus == 2
    assert only.mfu == pytest.approx(800 / (2 * 989.4))


@pytest.mark.parametrize(
    ("found", "mfu"),
    [
        (work(said(0, tokens=9)), None),
        (work(said(0, 500 * TFLOP), of=ODD), None),
        (work(said(0, 3_000 * TFLOP)), None),
        (work(said(0, 2 * 989.4 * TFLOP)), 1.0),
    ],
)
def test_it_is_unknown_without_operations_without_a_peak_and_where_they_are_more_than_can_be(
    found: ReportedWork | None, mfu: float | None
) -> None:
    assert found is not None
    assert found.mfu == mfu


@pytest.mark.parametrize(
    "found",
    [
        work(),
        work(said(0)),
        work(said(0, TFLOP, ago_ms=FRESH)),
        work(said(0, TFLOP, ago_ms=-FRESH)),
        work(said(0, TFLOP, state="succeeded")),
        work(said(0, TFLOP), tasks=(held(0, 1, share=500),)),
        work(said(0, TFLOP), tasks=(held(0, 0),)),
        work(said(5, TFLOP)),
    ],
)
def test_what_is_old_over_in_parts_or_of_no_task_reports_nothing(found: ReportedWork | None) -> None:
    assert found is None


def test_peaks_are_of_types_that_there_are_and_policy_states_others() -> None:
    known = {name: type_ for type_ in TYPE_OF_PRODUCT.values() for name in BF16_TFLOPS if type_.startswith(f"{name}-")}
    assert known.keys() == BF16_TFLOPS.keys()
    own = peaks_of((GpuPeak(ODD, 100.0), GpuPeak(H100, 800.0)))
    assert [own(each) for each in (ODD, H100, A100)] == [100 * TFLOP, 800 * TFLOP, 312 * TFLOP]
    # H200-NVL is another board than H200-SXM5, and H100-NVL-94GB is no H100-SXM5.
    assert [PEAK_OF(GpuType(name)) for name in ("H200-NVL-141GB", "T4-16GB", "H100")] == [None, None, None]
    assert PEAK_OF(GpuType("H100-NVL-94GB")) == 835 * TFLOP


def node(name: str, gpu_type: GpuType) -> Node:
    gpus = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(8))
    return Node(NodeName(name), "pool", Cpu(64_000), Memory(2**38), gpu_type, gpus)


def running(name: str, queue: str, *tasks: TaskPlacement) -> Job:
    spec = JobSpec(QueueName(queue), (TaskGroup("worker", len(tasks), Shape(gpus=2)),))
    return Job(JobName(name), NOW, spec, "ada", "running", 1, started_at=NOW, placement=tasks)


def world() -> tuple[Snapshot, BackendReports]:
    jobs = running("a", "x", held(0)), running("b", "x", held(1)), running("c", "y", held(0, node="n2"))
    seen = snapshot_of(NOW, (node("n1", H100), node("n2", ODD)), jobs)
    told = {
        (JobName(name), 1): AttemptReport((said(index, 500 * TFLOP, job=name),))
        for name, index in (("a", 0), ("b", 1), ("c", 0))
    }
    return seen, BackendReports({}, told)


def test_lines_add_up_by_queue_and_type_and_what_has_no_peak_is_in_no_mfu() -> None:
    lines = work_lines(*world(), PEAK_OF, NOW)
    assert [(line.queue, line.gpu_type, line.work.gpus, line.work.mfu) for line in lines] == [
        ("x", H100, 4, pytest.approx(1_000 / (4 * 989.4))),
        ("y", ODD, 2, None),
    ]
    both = together(line.work for line in lines)
    assert both == lines[0].work
    assert together([lines[1].work]) is None


def test_figures_are_a_sum_and_a_peak_and_name_no_job() -> None:
    lines = work_lines(*world(), PEAK_OF, NOW)
    told = {(s.name, *s.labels.values()): s.value for f in WorkFigures(lambda: lines).collect() for s in f.samples}
    assert told == {
        ("quorate_reported_flops", "x", H100): 1_000 * TFLOP,
        ("quorate_reported_flops_peak", "x", H100): 4 * 989.4 * TFLOP,
    }
