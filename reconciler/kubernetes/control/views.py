"""Pods as jobs on record, for callers of the API: what the last pass saw, read only, since the API server is where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reconciler.control.seen_plane import ElsewhereWords, SeenJobs
from reconciler.kubernetes.control.sight import Sight
from reconciler.model.job_record import JobRecord
from reconciler.protocols.job_source import JobsAreElsewhereError, NoJobYetError, UnknownJobError
from solver.model.workload import JobName

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


class PodJobs(SeenJobs):
    """Gangs of pods, and what is said of those that are no jobs yet."""

    def __init__(self, sight: Callable[[], Sight]) -> None:
        super().__init__(sight, _WORDS)
        self._pods = sight

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
