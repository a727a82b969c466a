"""Checkpoints of a job over HTTP: what there is to go on from, and what was found wrong with it."""

from __future__ import annotations

from fastapi import APIRouter, Response

from reconciler.api.answers import answer, answers, refuses
from reconciler.api.payloads import CheckpointList
from reconciler.api.services import Services
from solver.model.workload import JobName


class CheckpointRoutes:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
        self.router.add_api_route("/{name}/checkpoints", self.list, responses=answers(CheckpointList, refuses(404)))

    def list(self, name: JobName) -> Response:
        """A job's checkpoints, newest first, the deleted ones among them."""
        return answer(CheckpointList(items=self._services.checkpoints.of(name)))
