"""Checkpoints of a job over HTTP: what there is to go on from, and what was found wrong with it."""

from __future__ import annotations

from fastapi import APIRouter, Response

from reconciler.api.answers import answer, answers
from reconciler.api.payloads import ApiProblem, CheckpointList
from reconciler.api.problems import RefusedError
from reconciler.api.services import Services
from reconciler.store.job_source import UnknownJobError
from solver.world.workload import JobName


class CheckpointRoutes:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=answers(ApiProblem, 404))
        self.router.add_api_route("/{name}/checkpoints", self.list, responses=answers(CheckpointList))

    def list(self, name: JobName) -> Response:
        """A job's checkpoints, newest first, the deleted ones among them."""
        try:
            self._services.jobs.job(name)
        except UnknownJobError as error:
            fix = "List the jobs to see their names; ended ones are among them."
            raise RefusedError(404, "unknown-job", f"There is no job {name}.", fix) from error
        return answer(CheckpointList(items=self._services.checkpoints.of(name)))
