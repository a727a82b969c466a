"""What a submission must pass before it is kept: it could run, and what it waits for is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.documents.job import NamedJob
from reconciler.documents.operations import Operations
from reconciler.lifecycle.checkpoints.turns import unknown_storage
from reconciler.model.expansion import UnfitBatchError, expand_array
from reconciler.model.job_groups import Batch, NewJob
from reconciler.model.job_runs import called, numbered
from reconciler.model.pipelines import NamedPipeline, expand_pipeline
from reconciler.model.problem import did_you_mean
from reconciler.protocols.job_source import DuplicateJobError
from solver.model.cluster import GpuType
from solver.model.document import digest
from solver.model.quantities import Duration
from solver.model.workload import Job, JobName, JobSpec, QueueName, SecretUse
from solver.plan.reason import sentence
from solver.round.advice import what_would_fit


def batch_of(submitted: NamedJob | NamedPipeline, gpu_types: Collection[GpuType], number: int = 1) -> Batch:
    """The jobs that a document stands for, one alone without a group. Raises RequestRefusedError for what is too large.

    `gpu_types`: those that there are, and that may be named in short. `number`: for which time it is called so.
    """
    name = numbered(submitted.name, number)
    try:
        if isinstance(submitted, NamedPipeline):
            jobs = tuple(
                msgspec.structs.replace(job, spec=with_whole_types(job.spec, gpu_types)) for job in submitted.spec.jobs
            )
            return expand_pipeline(NamedPipeline(name, msgspec.structs.replace(submitted.spec, jobs=jobs)))
        spec = with_whole_types(submitted.spec, gpu_types)
        if spec.array is not None:
            return expand_array(name, spec)
    except UnfitBatchError as error:
        raise RequestRefusedError(422, "unfit", f"{error}.", error.fix) from error
    return Batch((), (NewJob(name, spec),))


def next_batch(services: Services, submitted: NamedJob | NamedPipeline) -> Batch:
    """As `batch_of`, with ids that nothing of these names has had, and those of what its jobs depend on."""
    gpu_types = services.gpu_types()
    batch = batch_of(submitted, gpu_types)
    number = services.jobs.next_number(_names_of(batch))
    if number != 1:
        batch = batch_of(submitted, gpu_types, number)
    return msgspec.structs.replace(batch, jobs=with_dependencies(services, batch.jobs))


def require_free(services: Services, batch: Batch) -> None:
    """Raise DuplicateJobError where what has a name of the batch has not ended. A write that follows has to find out by itself."""
    newest = services.jobs.resolved(_names_of(batch))
    tallies = services.jobs.tallies(newest.values())
    living = sorted(name for name, job in newest.items() if job in tallies and tallies[job].live)
    if living:
        raise DuplicateJobError(f"{living[0]} exists already, and has not ended")


def queues_of(submitted: NamedJob | NamedPipeline) -> list[QueueName]:
    """Those that its jobs are charged to, sorted."""
    specs = [job.spec for job in submitted.spec.jobs] if isinstance(submitted, NamedPipeline) else [submitted.spec]
    return sorted({spec.queue for spec in specs})


def with_whole_types(spec: JobSpec, gpu_types: Collection[GpuType]) -> JobSpec:
    """The spec with `H100` as the one type that begins so, `H100-SXM5-80GB`; what fits several stays, and is refused."""
    if all(known in gpu_types for group in spec.task_groups for known in group.shape.gpu_types):
        return spec
    groups = tuple(
        msgspec.structs.replace(
            group,
            shape=msgspec.structs.replace(
                group.shape,
                gpu_types=tuple(dict.fromkeys(_whole_type(known, gpu_types) for known in group.shape.gpu_types)),
            ),
        )
        for group in spec.task_groups
    )
    return msgspec.structs.replace(spec, task_groups=groups)


def _whole_type(name: GpuType, known: Collection[GpuType]) -> GpuType:
    begins = [each for each in known if f"{each.lower()}-".startswith(f"{name.lower()}-")]
    return begins[0] if name not in known and len(begins) == 1 else name


def require_admissible(services: Services, jobs: Iterable[NewJob]) -> None:
    """Raise RequestRefusedError where one of the jobs could never run, JobsAreElsewhereError where none is submitted here.

    Those that differ only in their environment are judged once.
    """
    services.jobs.accepts()
    asked, last = set[str](), None
    for job in jobs:
        bare = bare_spec(job.spec)
        # The jobs of an array are alike, and follow each other.
        if bare == last:
            continue
        last, key = bare, digest(bare)
        if key in asked:
            continue
        asked.add(key)
        _require_named_policies(bare, services.operations())
        _require_allowed_image(bare, services.operations())
        reasons = services.admit(bare)
        if reasons:
            told = sentence("; ".join(str(reason) for reason in reasons))
            raise RequestRefusedError(
                422, "inadmissible", f"{job.name} could never run: {told}", what_would_fit(reasons), reasons
            )


def require_startable(services: Services, jobs: Iterable[NewJob], user: str) -> None:
    """Raise RequestRefusedError where a job lacks what its tasks need to begin: a secret, an account to run as, or podman."""
    asked: list[tuple[QueueName, tuple[SecretUse, ...], bool]] = []
    for job in jobs:
        needs = job.spec.queue, job.spec.secrets, job.spec.container is not None
        if needs in asked:
            continue
        asked.append(needs)
        found = services.unstartable(job.spec, user)
        if found:
            raise RequestRefusedError(422, found.code, f"{job.name} could not begin: {found.message}.", found.fix)


def require_end_in_time(
    services: Services, name: JobName, jobs: Iterable[NewJob], user: str, idempotency_key: str
) -> None:
    """Raise RequestRefusedError where a job can't have ended by its `finish_by`, even if it starts at once and has its limit.

    What was submitted under this name and key before is not judged: that is what the answer is about.
    """
    (_, policy), now = services.policy(), services.clock.now()
    for job in jobs:
        by = job.spec.to_finish_by(now)
        if by is None:
            continue
        limit = policy.time_limit(Job(job.name, now, job.spec, user)) or Duration(0)
        if now.after(limit) <= by or services.jobs.was_submitted(name, idempotency_key):
            continue
        if by <= now:
            message, fix = f"The finishBy of {job.name}, {by}, has passed.", "Write a later finishBy."
        else:
            left = f"{Duration((by - now) // 60_000 * 60_000)} are left until {by}"
            message = f"{job.name} may run for {limit}, and {left}."
            fix = "Lower timeLimit, or write a later finishBy."
            if job.spec.finish_within is not None:
                message = f"{job.name} may run for {limit}, and is to have ended within {job.spec.finish_within}."
                fix = "Lower timeLimit, or raise finishWithin."
        raise RequestRefusedError(422, "too-late", message, fix)


def with_dependencies(services: Services, jobs: Iterable[NewJob]) -> tuple[NewJob, ...]:
    """The jobs with the ids of what they depend on: of a name the newest that is called so now, whatever is called so later.

    What is submitted with them comes first. A job, an array or a pipeline that names itself means the one before it.
    """
    batch = tuple(jobs)
    together = _together(batch) if len(batch) > 1 else set[JobName]()
    ids = {called(name): name for name in together}
    wanted = {each.job for job in batch for each in job.spec.depends_on} - together - ids.keys()
    if wanted:
        ids |= services.jobs.resolved(wanted)

    def settled(job: NewJob) -> NewJob:
        if not any(each.job in ids for each in job.spec.depends_on):
            return job
        depends_on = tuple(
            msgspec.structs.replace(each, job=ids.get(each.job, each.job)) for each in job.spec.depends_on
        )
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, depends_on=depends_on))

    return tuple(map(settled, batch))


def require_known_dependencies(services: Services, jobs: Iterable[NewJob]) -> None:
    """Raise RequestRefusedError where a job depends on itself, or on something that is neither there nor submitted with it.

    A job alone may wait for an earlier one that is called as it is.
    """
    batch = tuple(jobs)
    wanted = {dependency.job: job.name for job in batch for dependency in job.spec.depends_on}
    there = services.jobs.tallies(wanted.keys()).keys() if wanted else set[JobName]()
    earlier = there if len(batch) == 1 and not batch[0].array else set[JobName]()
    for job in batch:
        own = job.array.id if job.array else job.name
        if any(each.job in {job.name, own} - earlier for each in job.spec.depends_on):
            message = f"{own} depends on itself, and would wait for ever."
            raise RequestRefusedError(422, "depends-on-itself", message, "Name another job in dependsOn, or none.")
    together = _together(batch)
    missing = sorted(wanted.keys() - together - there)
    if missing:
        known = {record.name for record in services.jobs.jobs()} | together - {wanted[missing[0]]}
        fix = did_you_mean(missing[0], known) or "Submit what it depends on first."
        message = f"{wanted[missing[0]]} depends on {missing[0]}, and there is no such job."
        raise RequestRefusedError(422, "unknown-dependency", message, fix)


def _together(batch: Iterable[NewJob]) -> set[JobName]:
    """What jobs of a batch may wait for in it: each other, and whole arrays of their pipeline."""
    jobs = tuple(batch)
    return {job.name for job in jobs} | {job.array.id for job in jobs if job.array and job.pipeline}


def _names_of(batch: Batch) -> set[JobName]:
    return {called(name) for name in batch.names}


def bare_spec(spec: JobSpec) -> JobSpec:
    """The spec without what no round reads and jobs of a batch differ in."""
    return msgspec.structs.replace(spec, env={}, array=None, depends_on=())


def _require_named_policies(spec: JobSpec, operations: Operations) -> None:
    """Raises RequestRefusedError where the job names a RetryPolicy or a CheckpointPolicy that there is not."""
    known = [policy.name for policy in operations.retry]
    if spec.retry_policy and spec.retry_policy not in known:
        fix = did_you_mean(spec.retry_policy, known) or "Commit it to policies/, or name none."
        message = f"There is no RetryPolicy {spec.retry_policy}."
        raise RequestRefusedError(422, "unknown-retry-policy", message, fix)
    unknown = unknown_storage(spec, operations.checkpoints)
    if unknown:
        raise RequestRefusedError(422, "unknown-checkpoint-policy", *unknown)


def _require_allowed_image(spec: JobSpec, operations: Operations) -> None:
    """Raises RequestRefusedError where policy does not allow the image that the job names."""
    refusal = operations.images.refusal(spec.container.image) if spec.container else None
    if refusal:
        message, fix = refusal
        raise RequestRefusedError(422, "image-not-allowed", f"{message[0].upper()}{message[1:]}.", fix)
