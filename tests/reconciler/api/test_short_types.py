"""GPU types that a job names in short: taken for the one that begins so, and left as they are where that could be several."""

from __future__ import annotations

import pytest

from reconciler.api.submission import batch_of, with_whole_types
from reconciler.documents.job import NamedJob
from reconciler.model.pipelines import NamedPipeline, PipelineJob, PipelineSpec
from solver.model.cluster import GpuType
from solver.model.shape import Shape
from solver.model.workload import JobArray, JobName, JobSpec, QueueName, TaskGroup

KNOWN = tuple(map(GpuType, ("H100-SXM5-80GB", "H200-SXM5-141GB", "A100-SXM4-40GB", "A100-SXM4-80GB", "L40S", "L40")))


def asking(*types: str) -> JobSpec:
    shape = Shape(gpus=1, gpu_types=tuple(map(GpuType, types)))
    return JobSpec(QueueName("team"), (TaskGroup("driver", 1, Shape()), TaskGroup("worker", 2, shape)))


def asked(spec: JobSpec) -> tuple[str, ...]:
    return spec.task_groups[1].shape.gpu_types


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (("H100",), ("H100-SXM5-80GB",)),
        (("h200",), ("H200-SXM5-141GB",)),
        (("H100-SXM5",), ("H100-SXM5-80GB",)),
        (("H1",), ("H1",)),
        (("A100",), ("A100",)),
        (("A100-SXM4-80GB",), ("A100-SXM4-80GB",)),
        (("L40",), ("L40",)),
        (("l40s",), ("L40S",)),
        (("V100",), ("V100",)),
        (("H100", "H100-SXM5-80GB", "H200"), ("H100-SXM5-80GB", "H200-SXM5-141GB")),
        ((), ()),
    ],
)
def test_a_name_that_begins_as_one_type_alone_is_that_type(written: tuple[str, ...], meant: tuple[str, ...]) -> None:
    assert asked(with_whole_types(asking(*written), KNOWN)) == meant


def test_what_is_written_whole_is_the_same_object() -> None:
    spec = asking("L40", "H100-SXM5-80GB")
    assert with_whole_types(spec, KNOWN) is spec


def test_jobs_of_arrays_and_pipelines_too() -> None:
    array = asking("H100")
    array = JobSpec(array.queue, array.task_groups, array=JobArray("0-2"))
    pipeline = PipelineSpec((PipelineJob(JobName("train"), asking("H100")),))
    for submitted in (NamedJob(JobName("a"), array), NamedPipeline(JobName("p"), pipeline)):
        batch = batch_of(submitted, KNOWN)
        assert {asked(job.spec) for job in batch.jobs} == {("H100-SXM5-80GB",)}
