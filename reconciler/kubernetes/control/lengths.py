"""How long gangs ran that are no more, as far as their pods were seen: what rounds expect of those that come. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from reconciler.analysis.backtest.history_file import RecordedJob
from reconciler.kubernetes.binder.intents import Pods
from reconciler.kubernetes.control.job_history import JobHistory
from reconciler.kubernetes.objects.jobs import PodGang
from solver.model.inflight import Ended
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName

FROM_THE_BEGINNING: Final = Instant(0)


class Lengths:
    """Looks at the cluster in every pass of one leader; a gang that ended while nobody led is not known.

    Gangs that run at the first look count from when their kubelets began them, without attempts that were over by then.
    """

    def __init__(self) -> None:
        self._happened = JobHistory(since=FROM_THE_BEGINNING)

    def look(self, now: Instant, gangs: Mapping[JobName, PodGang], pods: Pods) -> tuple[Ended, ...]:
        """Who has ended since the last look. One that comes back and ends again is told again, with what it ran in all."""
        self._happened.look(now, gangs, pods)
        ended = tuple(found for job in self._happened.take_ended() for found in _ended(job))
        if ended:
            self._happened.forget(now)
        return ended


def _ended(job: RecordedJob) -> Iterator[Ended]:
    """Not one that was sent away, and has not done its work by that; nor one that never ran, or has no GPUs."""
    if not job.attempts or job.attempts[-1].stopped_for is not None or not job.spec.gpus:
        return
    ran = sum(one.ended_at - one.started_at for one in job.attempts if one.ended_at is not None)
    spec = job.spec
    yield Ended(spec.queue, spec.gpus, job.submitted_at, job.name, Duration(ran), spec.priority_class)
