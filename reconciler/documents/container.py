"""What no schema can say of a job that runs in containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Problem
from reconciler.supervisor.container import VARIABLE_BYTES_MAX, unsayable
from solver.model.workload import JobSpec

_FIX: Final = "Put it into a file of the image, or write it so that it needs one line, as base64 does."


def container_problems(job: Declaration[JobSpec]) -> Iterator[Problem]:
    """Variables reach a container by lines of a file, so that they are on no command line."""
    if job.value.container is None:
        return
    for name, value in job.value.env.items():
        if unsayable(name, value):
            message = f"a container can't be given {name}: it has more than one line, or {VARIABLE_BYTES_MAX} bytes"
            yield job.problem(("spec", "env", name), "env-of-container", message, _FIX)
