"""Jobs that are called the same, one after the other: `train` is the first for ever, then come `train#2` and `train#3`.

These are ids: all that is kept of a job is kept under its own, so that nothing of one run is taken for that of another. Names of
documents can't have a `#`, so no id but the first is ever given by hand.
"""

from __future__ import annotations

import re
from typing import Final

from solver.model.workload import JobName

_RUN: Final = re.compile(r"(?P<called>[^#]+)#(?P<number>[1-9][0-9]*)")


def called(job: JobName) -> JobName:
    """What a job is called: `train` of `train#2`."""
    matched = _RUN.fullmatch(job)
    return JobName(matched["called"]) if matched else job


def run_after(job: JobName) -> JobName:
    """The id of the next job that is called the same."""
    matched = _RUN.fullmatch(job)
    return JobName(f"{matched['called']}#{int(matched['number']) + 1}") if matched else JobName(f"{job}#2")


def as_id(written: JobName) -> JobName | None:
    """The job that is meant for ever: `train#2`, and `train` for `train#1`; None: a name, of which the newest is meant."""
    matched = _RUN.fullmatch(written)
    if matched is None:
        return None
    return JobName(matched["called"]) if matched["number"] == "1" else written
