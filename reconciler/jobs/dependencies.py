"""What a job waits for: whether what it depends on has come true, may still, or never will. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from reconciler.jobs.groups import Tally
from reconciler.jobs.record import JobRecord
from solver.world.workload import Dependency, JobName

Standing = Literal["met", "open", "hopeless"]


def standing_of(dependency: Dependency, tally: Tally) -> Standing:
    """Whether the condition holds of what has become of those jobs, may come to hold, or can't any more."""
    without_success = tally.failed + tally.cancelled
    match dependency.condition:
        case "afterok" if without_success:
            return "hopeless"
        case "afternotok" if not tally.live and not without_success:
            return "hopeless"
    return "open" if tally.live else "met"


def depended_on(records: Iterable[JobRecord]) -> set[JobName]:
    """Every name that jobs depend on."""
    return {dependency.job for record in records for dependency in record.spec.depends_on}


def unmet(record: JobRecord, tallies: Mapping[JobName, Tally]) -> tuple[Dependency, ...]:
    """What a job still waits for."""
    return tuple(each for each in record.spec.depends_on if standing_of(each, tallies[each.job]) != "met")


def hopeless(record: JobRecord, tallies: Mapping[JobName, Tally]) -> Dependency | None:
    """The first condition of a job that can't come true any more; None: all of them may."""
    for each in record.spec.depends_on:
        if standing_of(each, tallies[each.job]) == "hopeless":
            return each
    return None
