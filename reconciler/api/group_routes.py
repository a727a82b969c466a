"""Arrays and pipelines over HTTP: submit, look, cancel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response

from reconciler.access.rights import Action
from reconciler.api.answers import answer, answers, refuses
from reconciler.api.authorisation import Authorisation
from reconciler.api.group_payloads import GroupView, MemberView
from reconciler.api.job_routes import bounded_body
from reconciler.api.payloads import JobView
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.api.submitter import JobSubmitter
from reconciler.api.views import JobViews
from reconciler.documents.job import NamedJob
from reconciler.documents.pipeline import read_submission
from reconciler.model.job_groups import GroupRecord, NewJob
from reconciler.model.job_record import JobState
from reconciler.protocols.history import Event
from reconciler.protocols.job_source import UnknownJobError
from solver.model.workload import JobName

_DOCUMENT = {"schema": {"type": "object", "description": "A Job with an array, or a Pipeline: schemas/pipeline.json."}}
_BODY = {"requestBody": {"required": True, "content": {"application/json": _DOCUMENT, "application/yaml": _DOCUMENT}}}


class GroupRoutes:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services, authority: Authorisation) -> None:
        self._services = services
        self._authority, self._submitter = authority, JobSubmitter(services, authority)
        self.router = APIRouter(prefix="/v1/groups", tags=["jobs"])
        add = self.router.add_api_route
        add("", self.submit, methods=["POST"], responses=answers(GroupView, refuses(409, 413)), openapi_extra=_BODY)
        add("/{group}", self.get, responses=answers(GroupView, refuses(404)))
        add("/{group}/cancel", self.cancel, methods=["POST"], responses=answers(GroupView, refuses(404)))

    def submit(
        self,
        request: Request,
        body: Annotated[bytes, Depends(bounded_body)],
        idempotency_key: Annotated[str, Header(max_length=200)] = "",
    ) -> Response:
        """Accept an array or a pipeline with all its jobs, or nothing of it. The same key and name again is the same group."""
        submitted = read_submission(body, "job")
        if isinstance(submitted, NamedJob) and submitted.spec.array is None:
            message = "This is a job alone, neither an array nor a pipeline."
            raise RequestRefusedError(422, "no-group", message, "Submit it to /v1/jobs, or give it an array.")
        group, jobs = self._submitter.take_in_group(request, submitted, idempotency_key)
        if not jobs:
            # The same key from another user finds jobs that are not theirs.
            self._require_all(request, "see-job", group.name)
            return answer(self._view(group))
        return answer(_group_view(group, jobs, [_begun(job) for job in jobs]))

    def get(self, group: JobName, request: Request) -> Response:
        """One array or pipeline with its jobs."""
        found = self._group(group)
        self._require_all(request, "see-job", group)
        return answer(self._view(found))

    def cancel(self, group: JobName, request: Request) -> Response:
        """Ask for every job of it to end; harmless to repeat, without effect on those that have ended."""
        found = self._group(group)
        self._require_all(request, "steer-job", group)
        now, user = self._services.clock.now(), request.state.user
        # One line on record of the group as a whole: its jobs have histories of their own.
        asked = Event(now, "cancel-asked", group, "cancel was asked for all its jobs", user)
        with self._services.together():
            self._services.jobs.request_cancel_all(group, user)
            self._services.history.record_event(asked)
        self._services.cancelled(
            [record.name for record in self._services.jobs.members(group) if record.outcome is None]
        )
        self._services.wake()
        return answer(self._view(found))

    def _require_all(self, request: Request, action: Action, group: JobName) -> None:
        """Raises RequestRefusedError if the caller may not do this to one of its jobs."""
        for record in self._services.jobs.members(group):
            self._authority.require(request, action, record.spec.queue, record)

    def _group(self, name: JobName) -> GroupRecord:
        try:
            return self._services.jobs.group(name)
        except UnknownJobError as error:
            fix = "`quorate get` lists jobs with the arrays and pipelines that they belong to."
            raise RequestRefusedError(404, "unknown-group", f"There is no array or pipeline {name}.", fix) from error

    def _view(self, group: GroupRecord) -> GroupView:
        members = self._services.jobs.members(group.name)
        jobs = tuple(map(JobViews(self._services).of(members), members))
        return _group_view(group, jobs, [_member(job, job.state, _code(job)) for job in jobs])


def _group_view(group: GroupRecord, jobs: Sequence[NewJob | JobView], members: Sequence[MemberView]) -> GroupView:
    element = jobs[0].array if group.kind == "array" else None
    return GroupView(
        name=group.name,
        kind=group.kind,
        user=group.user,
        submitted_at=group.submitted_at,
        pipeline=group.pipeline,
        max_running=element.max_running if element else None,
        counts=dict(Counter(member.state for member in members)),
        jobs=tuple(members),
    )


def _begun(job: NewJob) -> MemberView:
    """How every job begins."""
    return _member(job, "queued", 0)


def _member(job: NewJob | JobView, state: JobState, code: int) -> MemberView:
    array, index = (job.array.id, job.array.index) if job.array else ("", None)
    return MemberView(job.name, state, code, array, index, job.spec.depends_on)


def _code(job: JobView) -> int:
    """A job that never had its turn has not gone wrong: whatever did speaks for itself."""
    outcome = job.outcome
    if outcome is None or outcome.state == "succeeded" or outcome.unmet is not None:
        return 0
    return outcome.exit_code or 1
