"""Jobs tried over HTTP: the last snapshot with them in it, solved once and thrown away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from reconciler.api.answers import answer, answers, refuses
from reconciler.api.authorisation import Authorisation
from reconciler.api.group_payloads import Trial, TrialList
from reconciler.api.job_routes import bounded_body
from reconciler.api.prompt_starts import JOBS_MAX, late_start, plan_with
from reconciler.api.services import Services
from reconciler.api.submission import (
    bare_spec,
    next_batch,
    queues_of,
    require_end_in_time,
    require_free,
    require_known_dependencies,
    require_startable,
)
from reconciler.api.views import verdict_words
from reconciler.documents.job import NamedJob
from reconciler.documents.pipeline import read_submission
from reconciler.model.job_groups import NewJob
from reconciler.model.pipelines import NamedPipeline
from solver.model.document import digest
from solver.model.quantities import Instant
from solver.model.workload import Job
from solver.plan.plan import Bind, Evict, Plan, Shrink
from solver.plan.reasons import AnyReason
from solver.policy.policy import PriorityClass
from solver.round.advice import what_would_fit

_DOCUMENT = {"schema": {"type": "object", "description": "A Job, with an array or without, or a Pipeline."}}

_BODY = {"requestBody": {"required": True, "content": {"application/json": _DOCUMENT, "application/yaml": _DOCUMENT}}}


def trials_of(services: Services, submitted: NamedJob | NamedPipeline, user: str) -> TrialList:
    """A trial of every job up to JOBS_MAX. Nothing is kept, and no job is asked to leave.

    Raises NotReadyError, NoPolicyError, DuplicateJobError for a name that is taken, RequestRefusedError for what
    depends on something unknown, could not begin, or can't have ended by its `finish_by`.
    """
    batch = next_batch(services, submitted)
    require_free(services, batch)
    require_known_dependencies(services, batch.jobs)
    require_startable(services, batch.jobs, user)
    require_end_in_time(services, submitted.name, batch.jobs, user, "")
    snapshot, jobs = services.snapshot(), batch.jobs[:JOBS_MAX]
    refusals = dict(_refusals(services, jobs))
    begin = [job for job in jobs if not refusals[job.name] and not job.spec.depends_on]
    plan = plan_with(services, snapshot, begin, user)
    _, policy = services.policy()
    known = {
        each.name: policy.priority_class(each) for each in (Job(j.name, snapshot.time, j.spec, user) for j in jobs)
    }
    items = tuple(_trial(job, refusals[job.name], plan, known[job.name], snapshot.time) for job in jobs)
    return TrialList(time=snapshot.time, items=items, untried=len(batch.jobs) - len(jobs))


class TrialRoutes:
    """The one endpoint; `router` has it."""

    def __init__(self, services: Services, authority: Authorisation) -> None:
        self._services = services
        self._authority = authority
        self.router = APIRouter(tags=["jobs"])
        responses = answers(TrialList, refuses(409, 413))
        self.router.add_api_route(
            "/v1/jobs:test", self.test, methods=["POST"], responses=responses, openapi_extra=_BODY
        )

    def test(self, request: Request, body: Annotated[bytes, Depends(bounded_body)]) -> Response:
        """What would become of a Job, an array or a Pipeline if it were submitted now. Nothing is kept."""
        submitted = read_submission(body, "job")
        for queue in queues_of(submitted):
            self._authority.require(request, "submit", queue)
        self._services.jobs.accepts()
        return answer(trials_of(self._services, submitted, request.state.user))


def _refusals(services: Services, jobs: Iterable[NewJob]) -> Iterator[tuple[str, tuple[AnyReason, ...]]]:
    known: dict[str, tuple[AnyReason, ...]] = {}
    for job in jobs:
        bare = bare_spec(job.spec)
        key = digest(bare)
        if key not in known:
            known[key] = services.admit(bare)
        yield job.name, known[key]


def _trial(
    job: NewJob, refusals: tuple[AnyReason, ...], plan: Plan, priority_class: PriorityClass | None, now: Instant
) -> Trial:
    verdict = next((each for each in plan.verdicts if each.job == job.name), None)
    late = late_start(priority_class, verdict, now)
    bound = next((step for step in plan.steps if isinstance(step, Bind) and step.job == job.name), None)
    leave = (step.job for step in plan.steps if isinstance(step, Evict | Shrink) and step.beneficiary == job.name)
    waits_for = tuple(map(str, job.spec.depends_on))
    if not waits_for and not refusals and verdict is None and job.array:
        waits_for = (f"others of array {job.array.id}",)
    return Trial(
        job.name,
        refusals,
        verdict,
        bound.tasks if bound else (),
        tuple(leave),
        waits_for,
        _refused(refusals)
        or (*(verdict_words(verdict) if verdict else ()), *((f"it would be refused: {late}",) if late else ())),
        late,
    )


def _refused(refusals: tuple[AnyReason, ...]) -> tuple[str, ...]:
    """Why it could never run, and what could."""
    return (*map(str, refusals), what_would_fit(refusals)) if refusals else ()
