"""Jobs tried over HTTP: the last snapshot with them in it, solved once and thrown away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from reconciler.api.answers import answer, answers, refuses
from reconciler.api.authorisation import Authorisation
from reconciler.api.group_payloads import Trial, TrialList
from reconciler.api.job_routes import bounded_body
from reconciler.api.services import Services
from reconciler.api.submission import (
    bare_spec,
    next_batch,
    queues_of,
    require_free,
    require_known_dependencies,
    require_startable,
)
from reconciler.api.views import verdict_words
from reconciler.documents.job import NamedJob
from reconciler.documents.pipeline import read_submission
from reconciler.lifecycle.jobs.containers import kept_to_containers
from reconciler.model.job_groups import NewJob
from reconciler.model.pipelines import NamedPipeline
from solver.model.document import digest
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job
from solver.plan.plan import Bind, Evict, Plan, Shrink
from solver.plan.reasons import AnyReason
from solver.round.solve import solve

JOBS_MAX = 100
"""Of one submission: what a round says of the hundredth element of an array it says of the others too."""

_DOCUMENT = {"schema": {"type": "object", "description": "A Job, with an array or without, or a Pipeline."}}

_BODY = {"requestBody": {"required": True, "content": {"application/json": _DOCUMENT, "application/yaml": _DOCUMENT}}}


def trials_of(services: Services, submitted: NamedJob | NamedPipeline, user: str) -> TrialList:
    """A trial of every job up to JOBS_MAX. Nothing is kept, and no job is asked to leave.

    Raises NotReadyError, NoPolicyError, DuplicateJobError for a name that is taken, RequestRefusedError for what
    depends on something unknown, or could not begin.
    """
    batch = next_batch(services, submitted)
    require_free(services, batch)
    require_known_dependencies(services, batch.jobs)
    require_startable(services, batch.jobs, user)
    snapshot, jobs = services.snapshot(), batch.jobs[:JOBS_MAX]
    refusals = dict(_refusals(services, jobs))
    begin = [job for job in jobs if not refusals[job.name] and not job.spec.depends_on]
    plan = _plan(services, snapshot, _at_a_time(begin), user)
    items = tuple(_trial(job, refusals[job.name], plan) for job in jobs)
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


def _at_a_time(jobs: Iterable[NewJob]) -> Iterator[NewJob]:
    """Those that a round would be asked about: of an array no more than may run at a time."""
    begun: Counter[str] = Counter()
    for job in jobs:
        array = job.array
        if array is None or array.max_running is None or begun[array.id] < array.max_running:
            yield job
        if array is not None:
            begun[array.id] += 1


def _plan(services: Services, snapshot: Snapshot, jobs: Iterable[NewJob], user: str) -> Plan:
    """Without the optimiser, which belongs to the loop: quick, and the same every time; a round may find better places."""
    _, policy = services.policy()
    specs = {job.name: kept_to_containers(bare_spec(job.spec), snapshot.node_sets) for job in jobs}
    asked = (Job(name, snapshot.time, spec, user) for name, spec in specs.items())
    world = snapshot_of(snapshot.time, snapshot.nodes, (*snapshot.jobs, *asked), snapshot.in_flight, snapshot.node_sets)
    return solve(world, policy, None)


def _trial(job: NewJob, refusals: tuple[AnyReason, ...], plan: Plan) -> Trial:
    verdict = next((each for each in plan.verdicts if each.job == job.name), None)
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
        tuple(map(str, refusals)) or (verdict_words(verdict) if verdict else ()),
    )
