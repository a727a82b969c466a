"""What is submitted, as `quorate submit -f` and the API take it: a Job, or a Pipeline, read and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from reconciler.documents.declarations import Declaration, declare
from reconciler.documents.job import NamedJob, job_of, job_problems
from reconciler.documents.reader import Located, read_yaml
from reconciler.documents.shape import kind_of, shape_problems
from reconciler.model.indices import read_indices
from reconciler.model.pipelines import NamedPipeline, PipelineJob, PipelineSpec, environment_of, is_complete
from reconciler.model.problem import START, InvalidDocumentsError, Path, Problem, did_you_mean, problem_at
from solver.model.workload import JobName


def read_submission(raw: bytes, file: str) -> NamedJob | NamedPipeline:
    """The one Job or Pipeline of a file, YAML or JSON; raises InvalidDocumentsError with everything that is wrong."""
    documents = read_yaml(raw, file)
    if len(documents) == 1 and kind_of(documents[0], file) == "Pipeline":
        return _pipeline_of(documents[0], file)
    if len(documents) != 1:
        found, fix = (f"has {len(documents)} documents", "Submit one file for each.") if documents else ("is empty", "")
        message = f"the file {found}, expected one Job or Pipeline"
        raise InvalidDocumentsError([problem_at(file, START, "one-job", message, fix)])
    return job_of(documents[0], file)


def _pipeline_of(document: Located, file: str) -> NamedPipeline:
    shape = shape_problems(document, "Pipeline", file)
    if shape:
        raise InvalidDocumentsError(shape)
    pipeline = declare(document, file, document.value["spec"], PipelineSpec)
    named = NamedPipeline(JobName(pipeline.name), pipeline.value)
    problems = list(_reference_problems(pipeline))
    if not problems:
        problems = [*_cycle_problems(pipeline), *_output_problems(pipeline, named)]
    for index, job in enumerate(pipeline.value.jobs):
        at: Path = ("spec", "jobs", index, "spec")
        problems += job_problems(Declaration(file, job.name, _below(document, at), job.spec))
    if problems:
        raise InvalidDocumentsError(problems)
    return named


def _below(document: Located, at: Path) -> Located:
    """The document of a job that stands at a path of a pipeline, with its places in the file."""

    def moved(path: Path) -> Path | None:
        return ("spec", *path[len(at) :]) if path[: len(at)] == at else None

    places = {own: place for path, place in document.places.items() if (own := moved(path))}
    keys = {own: place for path, place in document.key_places.items() if (own := moved(path))}
    return Located({}, places, keys)


def _reference_problems(pipeline: Declaration[PipelineSpec]) -> Iterator[Problem]:
    """Names are unique, and dependencies name jobs of the pipeline."""
    names = Counter(job.name for job in pipeline.value.jobs)
    for index, job in enumerate(pipeline.value.jobs):
        at: Path = ("spec", "jobs", index)
        if names[job.name] > 1:
            message = f"there are {names[job.name]} jobs {job.name}"
            yield pipeline.problem((*at, "name"), "duplicate-job", message, "Give each job a name of its own.")
        array = next(_arrays_of(job.name, pipeline.value.jobs), None)
        if array is not None:
            message = f"{job.name} is also the name of an element of the array {array}"
            yield pipeline.problem((*at, "name"), "duplicate-job", message, "Give one of the two another name.")
        for place, dependency in enumerate(job.depends_on):
            if dependency.job not in names:
                message = f"the pipeline has no job {dependency.job}"
                fix = did_you_mean(dependency.job, names)
                yield pipeline.problem((*at, "dependsOn", place, "job"), "unknown-job", message, fix)


def _arrays_of(name: JobName, jobs: Sequence[PipelineJob]) -> Iterator[JobName]:
    """The arrays among these jobs that have an element of that name."""
    array, _, index = name.rpartition("-")
    for job in jobs:
        if job.name != array or job.spec.array is None:
            continue
        # Indices that can't be read are told of where the job is looked at by itself.
        with suppress(ValueError):
            if index in map(str, read_indices(job.spec.array.indices)):
                yield job.name


def _cycle_problems(pipeline: Declaration[PipelineSpec]) -> Iterator[Problem]:
    # Every process that takes jobs in would load it before it begins, and few take pipelines.
    import networkx

    waits: networkx.DiGraph[str] = networkx.DiGraph()
    for job in pipeline.value.jobs:
        waits.add_edges_from((job.name, dependency.job) for dependency in job.depends_on)
    position = {job.name: index for index, job in enumerate(pipeline.value.jobs)}
    for knot in networkx.strongly_connected_components(waits):
        first = min(knot, key=lambda name: position[JobName(name)])
        if len(knot) > 1 or waits.has_edge(first, first):
            around = networkx.find_cycle(waits.subgraph(knot), first)
            cycle = " -> ".join([around[0][0], *(end for _, end in around)])
            message = f"these jobs would wait for each other for ever: {cycle}"
            at: Path = ("spec", "jobs", position[JobName(first)], "dependsOn")
            yield pipeline.problem(at, "dependency-cycle", message, "Take one of these dependencies out.")


def _output_problems(pipeline: Declaration[PipelineSpec], named: NamedPipeline) -> Iterator[Problem]:
    """Outputs have a place, one for each job, and a variable of their own in every job that is told of them."""
    for index, job in enumerate(pipeline.value.jobs):
        at: Path = ("spec", "jobs", index)
        relative = [output for output, place in job.outputs.items() if not is_complete(place)]
        if relative and not pipeline.value.artifacts:
            message = (
                f"the output {relative[0]} of {job.name} has a path below the artifacts, and the pipeline names none"
            )
            fix = "Add spec.artifacts, or write where the output lies as a URL or an absolute path."
            yield pipeline.problem((*at, "outputs", relative[0]), "no-artifacts", message, fix)
        if job.outputs and job.spec.array is not None:
            message = f"{job.name} is an array: all its jobs would write the same output"
            yield pipeline.problem(
                (*at, "outputs"), "array-output", message, "Delete outputs, or have one job write them."
            )
        yield from _variable_problems(pipeline, at, named, job)


def _variable_problems(
    pipeline: Declaration[PipelineSpec], at: Path, named: NamedPipeline, job: PipelineJob
) -> Iterator[Problem]:
    told: dict[str, str] = {}
    for variable, place in environment_of(named, job):
        if told.setdefault(variable, place) != place:
            message = f"{job.name} would be told two places as {variable}"
            yield pipeline.problem(at, "same-variable", message, "Rename one of the outputs.")
