"""Pods as jobs on record, for callers of the API: what the last pass saw, read only, since the API server is where they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from reconciler.control.seen_plane import ElsewhereWords, SeenHoldings, SeenJobs
from reconciler.kubernetes.control.sight import Sight
from reconciler.model.job_record import JobRecord
from reconciler.model.job_runs import called
from reconciler.protocols.job_source import JobQuery, JobsAreElsewhereError, NoJobYetError, UnknownJobError
from reconciler.protocols.ledger import JobHoldings
from solver.model.quantities import Instant
from solver.model.workload import JobName

_FOR_EVER: Final = Instant(2**62)

_WHERE: Final = "Jobs of this cluster are pods"
_WORDS: Final = ElsewhereWords(
    _WHERE,
    {
        "submit": "Create pods with schedulerName: quorate.",
        "cancel": "Delete what made the pods, such as their Job.",
        "suspend": "Set `suspend: true` on what made the pods, such as their Job.",
        "resume": "Set `suspend: false` on what made the pods, such as their Job.",
        "requeue": "Delete the pods; what made them makes them anew.",
        "retry": "Say it to what made the pods, such as their Job's backoffLimit.",
        "end": "Delete what made the pods, such as their Job.",
    },
)


PastGangs = Callable[[Instant, Instant], Iterable[JobRecord]]
"""Gangs that were there in a window, by the names under which they are on record."""


class PodJobs(SeenJobs):
    """Gangs of pods, and what is said of those that are no jobs yet. Asked since when, it also tells of those that are gone."""

    def __init__(self, sight: Callable[[], Sight], past: PastGangs = lambda _, __: ()) -> None:
        super().__init__(sight, _WORDS)
        self._pods = sight
        self._past = past

    def job(self, name: JobName) -> JobRecord:
        """A gang whose pods are there. Raises UnknownJobError, of a gang that is refused or not whole NoJobYetError."""
        try:
            return super().job(name)
        except UnknownJobError:
            gang = self._pods().gangs.get(name)
            if gang is None or not gang.members:
                raise
        message = f"The pods of {name} are no job yet: they are refused, or some are not there."
        pod = gang.members[0]
        raise NoJobYetError(message, f"Ask with `kubectl quorate why {pod.name} -n {pod.namespace}`.")

    def _records(self, query: JobQuery) -> tuple[JobRecord, ...]:
        """Of jobs that are called the same, the one that is there is told by the name under which it is on record."""
        if query.since is None:
            return self.live_jobs()
        past = tuple(self._past(query.since, query.to or _FOR_EVER))
        ids = {called(record.name): record.name for record in past if record.outcome is None}
        live = (msgspec.structs.replace(one, name=ids.get(one.name, one.name)) for one in self.live_jobs())
        return (*live, *(record for record in past if record.outcome is not None))


class PodHoldings(SeenHoldings):
    """What gangs hold, also of those that are told by the name under which they are on record."""

    def of(self, names: Collection[JobName]) -> JobHoldings:
        """By these names."""
        known = {claim.job for claim in self.claims()}
        ids = {called(name): name for name in names if name not in known}
        found = super().of((*names, *ids))
        claims = {ids.get(job, job): claim for job, claim in found.claims.items()}
        attempts = {ids.get(job, job): attempt for job, attempt in found.attempts.items()}
        return found._replace(claims=claims, attempts=attempts)


class Logless:
    """Implements Logs: what pods write is kept by their nodes, and read with `kubectl logs`."""

    def __init__(self, sight: Callable[[], Sight]) -> None:
        self._sight = sight

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        """Raises JobsAreElsewhereError with what to ask instead, KeyError for a task that is not known."""
        del attempt, offset, limit
        gang = self._sight().gangs.get(job)
        pods = [one for one in gang.members if (one.group, one.task_index) == (group, index)] if gang else []
        if not pods:
            raise KeyError(f"{job} has no task {group}/{index}")
        fix = f"Read it with `kubectl logs {pods[0].name} -n {pods[0].namespace}`."
        raise JobsAreElsewhereError(f"{_WHERE}, so Quorate does not keep what is written by them.", fix)
