"""Job documents, as `quorate submit -f job.yaml` and the API take them: read, checked, and turned into a spec."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final, NamedTuple

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator

from reconciler.documents.declarations import Declaration, declare
from reconciler.documents.job_topology import topology_wish_problems
from reconciler.documents.json_text import plain_json
from reconciler.documents.reader import Located, read_yaml
from reconciler.documents.schemas import resolve_reference, schema_of
from reconciler.documents.shape import kind_of, shape_problems
from reconciler.documents.sizes import bare_size
from reconciler.model.indices import read_indices
from reconciler.model.problem import START, InvalidDocumentsError, Path, Problem, problem_at
from reconciler.supervisor.container import VARIABLE_BYTES_MAX, unsayable
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec
from solver.plan.reason import count
from solver.plan.words import with_article

LIMITED = "sets of nodes are in snapshots alone: no job can name one"

LIMITED_FIX = "Delete nodes, and say with gpuTypes and topology what the tasks need."

_ENV_FIX: Final = "Put it into a file of the image, or write it so that it needs one line, as base64 does."

JOB_NODES_MAX: Final = 30_000
"""Values of a job, with room for 1,000 variables and 100 groups of tasks: what is refused is read with all its places,
and while that goes on nothing else is."""

ALIKE_MAX: Final = 1_000
"""Documents that are remembered, each of at most 16 kB: many jobs that come differ in their names alone."""

_ANY_NAME: Final = "job"


class NamedJob(NamedTuple):
    """A job as its owner wrote it."""

    name: JobName
    spec: JobSpec


def read_job(raw: bytes, file: str) -> NamedJob:
    """The one job of a file, YAML or JSON; raises InvalidDocumentsError with everything that is wrong.

    Of JSON documents that differ in nothing but the name, the first is checked.
    """
    known = _read_alike(raw)
    return _read_with_places(raw, file) if known is None else known


def _read_alike(raw: bytes) -> NamedJob | None:
    """The job of a JSON document; None where it is not JSON, or anything is wrong."""
    try:
        value = plain_json(raw)
    except ValueError:
        return None
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict):
        return None
    name = metadata.get("name")
    if not isinstance(name, str) or not _name_validator().is_valid(name):
        return None
    spec = _spec_of(msgspec.json.encode({**value, "metadata": {**metadata, "name": _ANY_NAME}}))
    return None if spec is None else NamedJob(JobName(name), spec)


@lru_cache(maxsize=ALIKE_MAX)
def _spec_of(document: bytes) -> JobSpec | None:
    """What a document asks for; None where anything is wrong with it."""
    try:
        return job_of(Located(msgspec.json.decode(document), {}, {}), "job").spec
    except InvalidDocumentsError:
        return None


@cache
def _name_validator() -> Validator:
    metadata, file = resolve_reference(schema_of("Job")["properties"]["metadata"], "job.json")
    name, _ = resolve_reference(metadata["properties"]["name"], file)
    return Draft202012Validator(name)


def _read_with_places(raw: bytes, file: str) -> NamedJob:
    documents = read_yaml(raw, file, nodes_max=JOB_NODES_MAX)
    if len(documents) != 1:
        found, fix = (
            (f"has {len(documents)} documents", "Submit one file for each job.") if documents else ("is empty", "")
        )
        message = f"the file {found}, expected one Job"
        raise InvalidDocumentsError([problem_at(file, START, "one-job", message, fix)])
    return job_of(documents[0], file)


def job_of(document: Located, file: str) -> NamedJob:
    """The job of a document; raises InvalidDocumentsError with everything that is wrong."""
    kind = kind_of(document, file)
    if isinstance(kind, Problem):
        raise InvalidDocumentsError([kind])
    if kind != "Job":
        message = f"this is {with_article(kind)}, expected a Job"
        raise InvalidDocumentsError(
            [
                problem_at(
                    file,
                    document.place(("kind",)),
                    "one-job",
                    message,
                    "Policy is committed to Git, and validated as a whole: name the folder of its repository.",
                )
            ]
        )
    shape = shape_problems(document, kind, file)
    if shape:
        raise InvalidDocumentsError(shape)
    job = declare(document, file, document.value["spec"], JobSpec)
    problems = list(job_problems(job))
    if problems:
        raise InvalidDocumentsError(problems)
    return NamedJob(JobName(job.name), job.value)


def job_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    """What no schema can say of a job."""
    yield from _array_problems(job)
    yield from _service_problems(job)
    yield from _terminal_problems(job)
    yield from _finish_problems(job)
    yield from _launcher_problems(job)
    yield from _container_problems(job)
    yield from _secret_problems(job)
    yield from _stuck_problems(job)
    yield from topology_wish_problems(job)
    if job.value.idle_limit is not None and job.value.type != "interactive":
        message = (
            f"{with_article(job.value.type)} has no idle limit: only an interactive job is ended for doing nothing"
        )
        fix = "Delete idleLimit, or set type: interactive."
        yield job.problem(("spec", "idleLimit"), "idle-not-interactive", message, fix)
    seen: set[str] = set()
    for index, group in enumerate(job.value.task_groups):
        at: Path = ("spec", "taskGroups", index)
        if group.name in seen:
            message = f"there are two task groups {group.name}"
            yield job.problem((*at, "name"), "duplicate-task-group", message, "Give each role a name of its own.")
        seen.add(group.name)
        yield from _gpu_problems(job, (*at, "shape"), group.shape)
        if group.nodes:
            yield job.problem((*at, "nodes"), "nodes-in-snapshots", LIMITED, LIMITED_FIX)
        if group.least > group.replicas:
            message = f"the task group {group.name} starts with at least {count(group.least, 'task')} and has {group.replicas}"
            yield job.problem(
                (*at, "minReplicas"), "min-above-replicas", message, "Lower minReplicas, or raise replicas."
            )
        elif (group.replicas - group.least) % group.replica_step:
            more = group.replicas - group.least
            wish = f"{count(more, 'task')} beyond its least, by {group.replica_step} at once"
            message = f"the task group {group.name} may have {wish}"
            fix = f"Let replicas be minReplicas and a multiple of {group.replica_step} more."
            yield job.problem((*at, "replicaStep"), "steps-do-not-fit", message, fix)
        if group.replica_step > 1 and job.value.type == "service" and not job.value.is_in_units(group):
            message = "the replicas of a service are each of their own, and come one by one"
            yield job.problem((*at, "replicaStep"), "one-by-one", message, "Delete replicaStep, or submit a gang.")
        if group.replica_step > 1 and group.least == group.replicas and not job.value.is_in_units(group):
            message = f"the task group {group.name} always has {count(group.replicas, 'task')}"
            yield job.problem((*at, "replicaStep"), "never-grows", message, "Add minReplicas, or delete replicaStep.")
        idle = job.value.launcher is not None and not group.launcher
        if not (group.command or job.value.command or idle):
            message = f"the task group {group.name} has no command"
            yield job.problem(at, "no-command", message, "Add spec.command for all groups, or a command to this one.")


def _array_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    if job.value.array is None:
        return
    try:
        read_indices(job.value.array.indices)
    except ValueError as error:
        fix = "Write them like 0-99, 1,3,7-9 or 0-20:5."
        yield job.problem(("spec", "array", "indices"), "bad-indices", str(error), fix)


def _secret_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    """Each is given in one way, and nothing is given twice."""
    given = set(job.value.env)
    for index, use in enumerate(job.value.secrets):
        at: Path = ("spec", "secrets", index)
        if bool(use.env) == bool(use.file):
            message = f"the secret {use} is given {'both as a variable and as a file' if use.env else 'in no way'}"
            yield job.problem(at, "choose-one", message, "Say either env or file; name it twice to have both.")
        taken = given & {use.env, f"file {use.file}"}
        if taken:
            message = f"there is a second {use.file or use.env} beside that of the secret {use}"
            yield job.problem(at, "duplicate-secret", message, "Give each variable and file a name of its own.")
        given |= {use.env, f"file {use.file}"} - {"", "file "}


def _stuck_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    stuck = job.value.stuck
    if stuck is None:
        return
    if job.value.type == "service":
        message = "a service is never stuck: its replicas wait for work, each of its own"
        yield job.problem(("spec", "stuck"), "service-never-stuck", message, "Delete stuck.")
    elif stuck.action == "retry" and not job.value.retry_policy:
        message = "action: retry leaves it to the job's retryPolicy, and it has none"
        fix = "Name a retryPolicy, or set action to notify or fail."
        yield job.problem(("spec", "stuck", "action"), "retry-without-policy", message, fix)


def _service_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    """What only gangs may say: a service has one role, and does not fail by how its replicas end."""
    if job.value.type != "service":
        return
    if len(job.value.task_groups) > 1:
        message = f"a service has one task group, not {len(job.value.task_groups)}: its replicas are each of their own"
        fix = "Submit one service for each role, or a gang."
        yield job.problem(("spec", "taskGroups", 1), "one-role", message, fix)
    if job.value.retry_policy:
        message = "a service has no retry policy: its replicas begin again by themselves"
        yield job.problem(("spec", "retryPolicy"), "service-never-fails", message, "Delete retryPolicy.")
    for index, group in enumerate(job.value.task_groups):
        if group.rejoin:
            at: Path = ("spec", "taskGroups", index, "rejoin")
            yield job.problem(
                at, "service-never-fails", "the replicas of a service always begin again", "Delete rejoin."
            )


def _terminal_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    """A user who attaches must find one terminal, and the job must end by itself once it is forgotten."""
    if not job.value.terminal:
        return
    if job.value.type != "interactive":
        message = f"{with_article(job.value.type)} has no terminal: no user works in it"
        yield job.problem(("spec", "terminal"), "terminal-not-interactive", message, "Set type: interactive.")
    if job.value.tasks != 1:
        message = f"a job with a terminal has one task, not {job.value.tasks}"
        fix = "Keep one task group with one replica; start the others from the terminal, or submit a gang."
        yield job.problem(("spec", "taskGroups"), "one-terminal", message, fix)
    if job.value.task_groups[0].rejoin:
        at: Path = ("spec", "taskGroups", 0, "rejoin")
        yield job.problem(at, "one-terminal", "a terminal ends with its task", "Delete rejoin.")


def _finish_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    if job.value.finish_by is not None and job.value.finish_within is not None:
        yield job.problem(
            ("spec", "finishWithin"), "choose-one", "finishWithin beside finishBy", "Keep only one of them."
        )


def _gpu_problems(job: Declaration[JobSpec], at: Path, shape: Shape) -> Iterator[Problem]:
    """GPUs are asked for in one way: whole ones, a part of one, as much of one as has some memory, or a MIG instance."""
    asked = {
        "gpus": shape.gpus > 0,
        "gpuFraction": shape.gpu_fraction is not None,
        "gpuMemory": shape.gpu_memory is not None,
        "mig": shape.mig is not None,
    }
    ways = [way for way, is_asked in asked.items() if is_asked]
    if len(ways) > 1:
        message = f"the shape mixes {' and '.join(ways)}"
        yield job.problem((*at, ways[-1]), "choose-one", message, "Keep only one of them.")
    if shape.min_gpu_memory is not None and not ways:
        message = "minGpuMemory says what GPUs must have, and the shape asks for none"
        yield job.problem((*at, "minGpuMemory"), "missing-field", message, "Add gpus, or delete it.")
    if shape.devices > 1 and shape.mig is None and not shape.is_shared:
        message = (
            "devices says of how many GPUs a task has a part, or how many MIG instances, and the shape asks for neither"
        )
        fix = "Raise gpus instead, and delete devices." if shape.gpus else "Add gpuFraction or mig, or delete devices."
        yield job.problem((*at, "devices"), "missing-field", message, fix)
    if shape.gpu_memory == 0:
        message = "gpuMemory is 0, which asks for no part of a GPU"
        yield job.problem((*at, "gpuMemory"), "out-of-range", message, "Give an amount, or delete it.")
    for field, size in (("minGpuMemory", shape.min_gpu_memory), ("gpuMemory", shape.gpu_memory)):
        if found := bare_size(field, size):
            yield job.problem((*at, field), "bare-size", *found)


def _container_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    """Variables reach a container by lines of a file, so that they are on no command line."""
    if job.value.container is None:
        return
    for name, value in job.value.env.items():
        if unsayable(name, value):
            message = f"a container can't be given {name}: it has more than one line, or {VARIABLE_BYTES_MAX} bytes"
            yield job.problem(("spec", "env", name), "env-of-container", message, _ENV_FIX)


def _launcher_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    """One task starts the work of others, in a number that is fixed once it has begun."""
    launcher = job.value.launcher
    if launcher is None:
        return
    groups = job.value.task_groups
    for index, group in enumerate(groups):
        at: Path = ("spec", "taskGroups", index)
        if group.launcher and group is not launcher:
            message = f"both {launcher.name} and {group.name} are launchers"
            yield job.problem((*at, "launcher"), "one-launcher", message, "Keep one of them.")
        if group.least != group.replicas:
            message = f"the task group {group.name} may be smaller than {group.replicas}, which a launcher never learns"
            yield job.problem((*at, "minReplicas"), "launcher-is-rigid", message, "Delete minReplicas.")
        if group.rejoin:
            message = f"the launcher is not told when a task of {group.name} begins again"
            yield job.problem((*at, "rejoin"), "launcher-is-rigid", message, "Delete rejoin.")
    at = ("spec", "taskGroups", groups.index(launcher))
    if job.value.type == "service":
        message = "a service has no launcher: its replicas are each of their own"
        yield job.problem((*at, "launcher"), "service-never-fails", message, "Delete launcher.")
    if launcher.replicas != 1:
        message = f"the launcher {launcher.name} has {launcher.replicas} tasks"
        yield job.problem((*at, "replicas"), "one-launcher", message, "Set replicas: 1.")
    if len(groups) == 1:
        message = f"there are no other tasks for the launcher {launcher.name} to start anything on"
        yield job.problem(
            (*at, "launcher"), "launcher-alone", message, "Add a task group for them, or delete launcher."
        )
