"""What a job waits for: whether what it depends on has come true, may still, or never will. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Literal

from reconciler.lifecycle.jobs.settlements import Abandon
from reconciler.model.job_groups import Tally
from reconciler.model.job_record import JobRecord
from solver.model.document import Document
from solver.model.workload import Dependency, JobName


class Depends(Document, frozen=True, tag_field="block", tag="depends"):
    """What it waits for has not come true yet."""

    unmet: tuple[Dependency, ...]

    def __str__(self) -> str:
        return f"begins only after: {', '.join(map(str, self.unmet))}"


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
    return tuple(each for each in record.spec.depends_on if not _is_met(each, tallies.get(each.job)))


def _is_met(dependency: Dependency, tally: Tally | None) -> bool:
    """What is not known has not ended."""
    return tally is not None and standing_of(dependency, tally) == "met"


def abandoned_jobs(
    records: Iterable[JobRecord], holding: Collection[JobName], tallies: Mapping[JobName, Tally]
) -> Iterator[Abandon]:
    """The jobs that can never begin any more. What has begun goes on: what it waited for had come true, and stays so."""
    for record in records:
        if record.outcome is None and not record.cancel_requested_by and record.name not in holding:
            yield from islice(_hopeless(record, tallies), 1)


def _hopeless(record: JobRecord, tallies: Mapping[JobName, Tally]) -> Iterator[Abandon]:
    for each in record.spec.depends_on:
        tally = tallies.get(each.job)
        if tally is not None and standing_of(each, tally) == "hopeless":
            yield Abandon(record.name, each, str(tally))
