"""Names over HTTP: which job, array or pipeline is meant now by one that was used again."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from reconciler.access.rights import Rights
from reconciler.api.answers import answer, answers, refuses
from reconciler.api.group_payloads import NameView
from reconciler.api.job_reader import JobFilter, JobReader
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.model.job_runs import number_of
from solver.model.workload import JobName


class NameRoutes:
    """The one endpoint; `router` has it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._reader = JobReader(services)
        self.router = APIRouter(tags=["jobs"])
        self.router.add_api_route("/v1/names/{called}", self.get, responses=answers(NameView, refuses(404)))

    def get(self, called: JobName, request: Request) -> Response:
        """The id that a name means now: the newest job, array or pipeline that is called so, of those the caller may see."""
        rights: Rights = request.state.rights
        found = [*self._job(called, rights), *self._group(called, rights)]
        if not found:
            fix = "List the jobs to see their names; ended ones are among them."
            raise RequestRefusedError(404, "unknown-name", f"Nothing is called {called}.", fix)
        return answer(max(found, key=lambda each: number_of(each.id)))

    def _job(self, called: JobName, rights: Rights) -> list[NameView]:
        return [
            NameView(id=job.name, kind="job")
            for job in self._reader.page(JobFilter(called=called), rights, 1, "").items
        ]

    def _group(self, called: JobName, rights: Rights) -> list[NameView]:
        group = self._services.jobs.newest_group(called, *rights.where("see-job"))
        return [NameView(id=group.name, kind=group.kind)] if group else []
