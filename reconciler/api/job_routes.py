"""Jobs over HTTP: submit, look, ask why, read logs, cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from reconciler.api.answers import answer, answers
from reconciler.api.named_policies import require_retry_policy
from reconciler.api.payloads import LOG_BYTES_MAX, ApiProblem, EventList, JobList, JobView, Why
from reconciler.api.problems import NotReadyError, RefusedError
from reconciler.api.services import Services
from reconciler.api.views import job_viewer, words_of
from reconciler.documents.job import read_job
from reconciler.documents.problem import did_you_mean
from reconciler.jobs.record import JobRecord
from reconciler.store.job_source import UnknownJobError
from reconciler.store.protocols import Event
from solver.plan.advice import what_would_fit
from solver.world.cluster import Node
from solver.world.workload import JobName

BODY_BYTES_MAX = 1_000_000
"""A job of a hundred groups, each with a long command, has some 100 kB."""

_JOB_DOCUMENT = {"schema": {"type": "object", "description": "A Job document, as in schemas/job.json."}}
_SUBMIT_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": _JOB_DOCUMENT, "application/yaml": _JOB_DOCUMENT},
    }
}


async def bounded_body(request: Request) -> bytes:
    """The body, read no further than BODY_BYTES_MAX; raises RefusedError beyond it."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise RefusedError(413, "too-large", f"The body has more than {BODY_BYTES_MAX} bytes.", "Send less.")
    return bytes(body)


class JobRoutes:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=answers(ApiProblem, 404))
        add = self.router.add_api_route
        add("", self.submit, methods=["POST"], responses=answers(JobView), openapi_extra=_SUBMIT_BODY)
        add("", self.list, responses=answers(JobList))
        add("/{name}", self.get, responses=answers(JobView))
        add("/{name}/events", self.events, responses=answers(EventList))
        add("/{name}/why", self.why, responses=answers(Why))
        add("/{name}/logs", self.logs, responses={200: {"content": {"application/octet-stream": {}}}})
        for verb in (self.cancel, self.suspend, self.resume, self.requeue):
            add(f"/{{name}}/{verb.__name__}", verb, methods=["POST"], responses=answers(JobView))

    def submit(
        self,
        request: Request,
        body: Annotated[bytes, Depends(bounded_body)],
        idempotency_key: Annotated[str, Header(max_length=200)] = "",
    ) -> Response:
        """Accept a Job document; refuse one that could never run. The same key and name again is the same job."""
        name, spec = read_job(body, "job")
        require_retry_policy(spec, self._services.operations())
        reasons = self._services.admit(spec)
        if reasons:
            told = "; ".join(str(reason) for reason in reasons)
            raise RefusedError(
                422, "inadmissible", f"{name} could never run: {told}.", what_would_fit(reasons), reasons
            )
        now, user = self._services.clock.now(), request.state.user
        record = self._services.jobs.submit(name, spec, user, now, idempotency_key)
        if record.submitted_at == now:
            self._services.history.record_event(Event(now, "submitted", name, f"to {spec.queue}", user, "queued"))
        self._services.wake()
        return answer(self._viewer()(record))

    def list(self, limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000) -> Response:
        """The newest jobs, live and ended."""
        view = self._viewer()
        return answer(JobList(items=tuple(view(record) for record in self._services.jobs.jobs(limit))))

    def get(self, name: JobName) -> Response:
        """One job."""
        return answer(self._view(name))

    def events(self, name: JobName, limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> Response:
        """What happened to a job."""
        self._record(name)
        return answer(EventList(items=self._services.history.events(name, limit)))

    def why(self, name: JobName) -> Response:
        """Why a job is where it is."""
        view = self._view(name)
        verdict = self._services.verdict(name) if view.outcome is None else None
        return answer(Why(name=name, state=view.state, verdict=verdict, words=words_of(view, verdict, self._nodes())))

    def logs(
        self,
        name: JobName,
        group: str = "",
        index: Annotated[int, Query(ge=0)] = 0,
        attempt: Annotated[int, Query(ge=0)] = 0,
        offset: Annotated[int, Query(ge=0, lt=2**63)] = 0,
        limit: Annotated[int, Query(ge=1, le=LOG_BYTES_MAX)] = LOG_BYTES_MAX,
    ) -> Response:
        """A task's output from `offset`; empty at the end of what there is so far.

        By default the first group's first task in the newest attempt.
        """
        view = self._view(name)
        group = group or view.spec.task_groups[0].name
        attempt = attempt or view.attempt
        try:
            piece = self._services.logs.read_log(name, attempt, group, index, offset, limit)
        except KeyError as error:
            why = "it has not started yet" if not attempt else f"attempt {attempt} has no task {group}/{index}"
            raise RefusedError(404, "no-log", f"Job {name} has no such log: {why}.", "See the job's tasks.") from error
        return Response(
            piece,
            headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
            media_type="application/octet-stream",
        )

    def cancel(self, name: JobName, request: Request) -> Response:
        """Ask for a job to end; harmless to repeat, without effect on one that has ended."""
        self._record(name)
        return self._asked(self._services.jobs.request_cancel(name, request.state.user), "cancel", request)

    def suspend(self, name: JobName, request: Request) -> Response:
        """Let a job give back what it holds, and wait until it is resumed; harmless to repeat."""
        self._record(name)
        return self._asked(self._services.jobs.request_suspend(name, request.state.user), "suspend", request)

    def resume(self, name: JobName, request: Request) -> Response:
        """Let a suspended job go on; harmless to repeat."""
        self._record(name)
        return self._asked(self._services.jobs.resume(name), "resume", request)

    def requeue(self, name: JobName, request: Request) -> Response:
        """Let a job that holds devices give them back and begin anew; harmless to repeat, without effect on one that waits."""
        self._record(name)
        attempt = next((claim.attempt for claim in self._services.ledger.claims() if claim.job == name), 0)
        return self._asked(self._services.jobs.request_requeue(name, attempt, request.state.user), "requeue", request)

    def _asked(self, record: JobRecord, verb: str, request: Request) -> Response:
        """Put on record who asked for what, and let the loop know."""
        view = self._viewer()(record)
        event = Event(
            self._services.clock.now(),
            f"{verb}-asked",
            record.name,
            f"{verb} was asked for",
            request.state.user,
            view.state,
        )
        self._services.history.record_event(event)
        self._services.wake()
        return answer(view)

    def _viewer(self) -> Callable[[JobRecord], JobView]:
        return job_viewer(self._services)

    def _view(self, name: JobName) -> JobView:
        return self._viewer()(self._record(name))

    def _nodes(self) -> tuple[Node, ...]:
        try:
            return self._services.snapshot().nodes
        except NotReadyError:
            # What a job holds is known from the ledger before the first round has looked at the nodes.
            return ()

    def _record(self, name: JobName) -> JobRecord:
        try:
            return self._services.jobs.job(name)
        except UnknownJobError as error:
            known = (record.name for record in self._services.jobs.jobs())
            fix = did_you_mean(name, known) or "List the jobs to see their names; ended ones are among them."
            raise RefusedError(404, "unknown-job", f"There is no job {name}.", fix) from error
