"""What runs now over HTTP: joined from the ledger and what the last pass saw of the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fastapi import APIRouter, Request, Response

from reconciler.api.answers import answer, answers
from reconciler.api.payloads import JobView
from reconciler.api.problems import NotReadyError
from reconciler.api.services import Services
from reconciler.api.top import Top, TopLine
from reconciler.api.views import JobViews
from reconciler.control.use_summary import JobUse
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.protocols.backend import ENDED, MemoryUse, Progress, TaskStatus
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName


class TopRoutes:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(tags=["jobs"])
        self.router.add_api_route("/v1/top", self.top, responses=answers(Top))

    def top(self, request: Request) -> Response:
        """What runs of what the caller may see, how far it is, and what memory it has."""
        sighted, rights = self._services.sighted(), request.state.rights
        # What waits has no line: of tens of thousands of jobs nothing is read.
        holding = self._services.jobs.named([claim.job for claim in self._services.ledger.claims()])
        held_by = [record for record in holding.values() if record.outcome is None]
        view = JobViews(self._services).of(held_by)
        seen = (view(record) for record in held_by if rights.may("see-job", record.spec.queue, record.user))
        held = [job for job in seen if job.tasks]
        use = self._use() if held else {}
        lines = [line_of(job, sighted, use.get(job.name)) for job in held]
        return answer(Top(items=tuple(sorted(lines, key=lambda line: (-line.gpus, line.name)))))

    def _use(self) -> Mapping[JobName, JobUse]:
        use = self._services.use
        try:
            return use.latest.of(self._services.snapshot()).jobs
        except NotReadyError:
            return {}


def line_of(job: JobView, sighted: BackendReports, use: JobUse | None = None) -> TopLine:
    """One line, from what the backend said of the tasks that the job holds devices for."""
    own = {(task.group, task.index) for task in job.tasks}
    tasks = [task for task in sighted.attempt(job.name, job.attempt).tasks if (task.group, task.index) in own]
    return TopLine(
        job.name,
        job.spec.queue,
        job.state,
        job.attempt,
        len(job.tasks),
        sum(task.state == "running" for task in tasks),
        MilliGpu(sum(task.gpus for task in job.tasks)),
        job.running_since,
        _furthest_behind(tasks),
        _fullest(tasks),
        job.activity.active_at if job.activity else None,
        use.measured if use else 0,
        round(100 * use.active / use.measured, 1) if use and use.measured else None,
        job.work,
    )


def _furthest_behind(tasks: Iterable[TaskStatus]) -> Progress | None:
    said = [task.progress for task in tasks if task.progress is not None and task.state not in ENDED]
    return min(said, key=lambda progress: (progress.step, progress.rate, progress.at), default=None)


def _fullest(tasks: Iterable[TaskStatus]) -> MemoryUse | None:
    seen = [task.memory for task in tasks if task.memory is not None]
    return max(seen, key=lambda use: (use.peak / use.limit if use.limit else 0.0, use.peak), default=None)
