"""Jobs and groups that are called the same, one after the other: `train` is the first for ever, then come `train#2`, `train#3`.

These are ids: all that is kept of one is kept under its own, so that nothing of one run is taken for that of another. Names of
documents can't have a `#`, so no id but the first is ever given by hand. What belongs to a group has the number where the group
has it: element 7 of `sweep#2` is `sweep#2-7`, and called `sweep-7`. Of all that are called the same the numbers rise, whatever
they are, so that a name and a number are one id.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from solver.model.workload import JobName

_RUN: Final = re.compile(r"(?P<name>[^#]+)#(?P<number>[1-9][0-9]*)(?P<member>-[^#]+)?")


class JobRun(NamedTuple):
    """What is called so for the `number`th time."""

    called: JobName
    number: int


def run_of(job: JobName) -> JobRun:
    """What an id says: `train#2` is the second called `train`, `sweep#2-7` is called `sweep-7`, `train` is the first of itself."""
    matched = _RUN.fullmatch(job)
    return JobRun(JobName(_named(matched)), int(matched["number"])) if matched else JobRun(job, 1)


def called(job: JobName) -> JobName:
    """What a job or group is called: `train` of `train#2`."""
    return run_of(job).called


def number_of(job: JobName) -> int:
    """How often its name had been used, with it: 2 of `train#2`."""
    return run_of(job).number


def numbered(name: JobName, number: int) -> JobName:
    """The id of the job alone, or of the array or pipeline, that is the `number`th of its name."""
    return name if number == 1 else JobName(f"{name}#{number}")


def as_id(written: JobName) -> JobName | None:
    """The one that is meant for ever: `train#2`, and `train` for `train#1`; None: a name, of which the newest is meant."""
    matched = _RUN.fullmatch(written)
    if matched is None:
        return None
    return JobName(_named(matched)) if matched["number"] == "1" else written


def folder_name(job: str) -> str:
    """How folders and URLs have an id: `train.2`, since readers of URLs cut them at a `#`. Names can't have a full stop."""
    return job.replace("#", ".")


def _named(matched: re.Match[str]) -> str:
    return f"{matched['name']}{matched['member'] or ''}"
