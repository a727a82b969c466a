"""What is submitted at once, written out as jobs: an array as its elements. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from reconciler.model.indices import read_indices
from reconciler.model.job_groups import Batch, NewGroup, NewJob
from reconciler.model.job_record import ArrayElement
from reconciler.model.job_runs import called
from solver.model.document import encode
from solver.model.workload import JobName, JobSpec

NAME_CHARACTERS_MAX = 63
SPEC_BYTES_MAX = 100_000_000
"""Of all jobs of a batch together: every one is kept as a whole."""


class UnfitBatchError(ValueError):
    """What was to be submitted at once can't be; says why, and `fix` what to do."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


def expand_array(name: JobName, spec: JobSpec) -> Batch:
    """The elements of an array, named NAME-INDEX. Raises ValueError for bad indices and UnfitBatchError for what is too large."""
    return Batch((NewGroup(name, "array"),), tuple(elements(name, spec)))


def elements(name: JobName, spec: JobSpec, pipeline: str = "") -> Iterator[NewJob]:
    """The jobs of an array; raises as `expand_array`."""
    array = spec.array
    if array is None:
        raise ValueError(f"{name} is no array")
    indices = read_indices(array.indices)
    require_room(len(indices), spec)
    require_name(JobName(f"{name}-{indices[-1]}"))
    for index in indices:
        env = {
            **spec.env,
            "QUORATE_ARRAY_ID": name,
            "QUORATE_ARRAY_INDEX": str(index),
            "QUORATE_ARRAY_COUNT": str(len(indices)),
        }
        own = with_env(msgspec.structs.replace(spec, array=None), env)
        element = ArrayElement(name, index, len(indices), array.max_running)
        yield NewJob(JobName(f"{name}-{index}"), own, element, pipeline)


def with_env(spec: JobSpec, env: Mapping[str, str]) -> JobSpec:
    """The spec with another environment."""
    return msgspec.structs.replace(spec, env=dict(env))


def require_room(jobs: int, spec: JobSpec) -> None:
    """Raise UnfitBatchError where so many jobs of a spec are too large to be kept."""
    size = jobs * len(encode(spec))
    if size > SPEC_BYTES_MAX:
        problem = (
            f"{jobs} jobs of this size are {size} bytes, at most {SPEC_BYTES_MAX} are kept of what is submitted at once"
        )
        raise UnfitBatchError(problem, "Put what the command holds into a file that the tasks read.")


def require_name(job: JobName) -> None:
    """Raise UnfitBatchError where the name of a job would be too long. Its number is no part of it: what fits once always does."""
    name = called(job)
    if len(name) > NAME_CHARACTERS_MAX:
        problem = f"a job of it would be named {name}, which has more than {NAME_CHARACTERS_MAX} characters"
        raise UnfitBatchError(problem, "Choose a shorter name.")
