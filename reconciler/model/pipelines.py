"""Pipelines: jobs that wait for each other and hand files on, written out as jobs that know of one another by name. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from reconciler.model.expansion import SPEC_BYTES_MAX, UnfitBatchError, elements, require_name, require_room, with_env
from reconciler.model.job_groups import Batch, NewGroup, NewJob
from reconciler.model.job_runs import folder_name
from solver.model.document import Document, encode
from solver.model.workload import Dependency, JobName, JobSpec


class PipelineJob(Document, frozen=True):
    """One job of a pipeline. `depends_on` names others of it; what `spec` depends on was submitted before.

    `outputs`: the files or folders that it writes for those that depend on it, by the name they know them by.
    """

    name: JobName
    spec: JobSpec
    depends_on: tuple[Dependency, ...] = ()
    outputs: dict[str, str] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)


class PipelineSpec(Document, frozen=True):
    """The `spec` of a Pipeline document. `artifacts`: the folder, as a URL or an absolute path, below which outputs lie."""

    jobs: tuple[PipelineJob, ...]
    artifacts: str = ""


class NamedPipeline(Document, frozen=True):
    """A pipeline as its owner wrote it."""

    name: JobName
    spec: PipelineSpec


def expand_pipeline(pipeline: NamedPipeline) -> Batch:
    """Its jobs, named PIPELINE-JOB, with those of its arrays. Raises UnfitBatchError for what is too large."""
    groups = [NewGroup(pipeline.name, "pipeline")]
    jobs: list[NewJob] = []
    for job in pipeline.spec.jobs:
        name, spec = _name_of(pipeline, job.name), _spec_of(pipeline, job)
        require_name(name)
        require_room(1, spec)
        if spec.array is None:
            jobs.append(NewJob(name, spec, pipeline=pipeline.name))
        else:
            groups.append(NewGroup(name, "array", pipeline.name))
            jobs += elements(name, spec, pipeline.name)
    if sum(len(encode(job.spec)) for job in jobs) > SPEC_BYTES_MAX:
        problem = f"the jobs of the pipeline have together more than the {SPEC_BYTES_MAX} bytes that are kept of one"
        raise UnfitBatchError(problem, "Put what the commands hold into files that the tasks read.")
    return Batch(tuple(groups), tuple(jobs))


def environment_of(pipeline: NamedPipeline, job: PipelineJob) -> Iterator[tuple[str, str]]:
    """Where the job writes its outputs, and where those lie of the jobs that it depends on; a variable for each."""
    for output in job.outputs:
        yield f"QUORATE_OUTPUT_{_upper(output)}", _place(pipeline, job, output)
    named = {each.name: each for each in pipeline.spec.jobs}
    for dependency in job.depends_on:
        producer = named[dependency.job]
        for output in producer.outputs:
            yield f"QUORATE_INPUT_{_upper(producer.name)}_{_upper(output)}", _place(pipeline, producer, output)


def is_complete(place: str) -> bool:
    """A URL or an absolute path, which says by itself where it is."""
    return place.startswith("/") or bool(urlsplit(place).scheme)


def _spec_of(pipeline: NamedPipeline, job: PipelineJob) -> JobSpec:
    inside = tuple(Dependency(_name_of(pipeline, each.job), each.condition) for each in job.depends_on)
    env = {"QUORATE_PIPELINE": pipeline.name, **dict(environment_of(pipeline, job))}
    spec = with_env(job.spec, {**job.spec.env, **env})
    return msgspec.structs.replace(spec, depends_on=(*inside, *spec.depends_on))


def _name_of(pipeline: NamedPipeline, job: JobName) -> JobName:
    return JobName(f"{pipeline.name}-{job}")


def _place(pipeline: NamedPipeline, producer: PipelineJob, output: str) -> str:
    """Where an output lies: a folder for each pipeline and job, so that two runs never write over each other."""
    written = producer.outputs[output]
    if not is_complete(written):
        written = f"{pipeline.spec.artifacts.rstrip('/')}/{folder_name(pipeline.name)}/{producer.name}/{written}"
    # A task opens files by their path; what lies elsewhere it has to fetch by its URL.
    return urlsplit(written).path if written.startswith("file://") else written


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")
