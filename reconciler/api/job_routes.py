"""Jobs over HTTP: submit, look, ask why, read logs, and the verbs that change one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from reconciler.api.answers import BARE, answer, answers, refuses
from reconciler.api.authorisation import Authorisation
from reconciler.api.batches import Batches
from reconciler.api.cursors import CURSOR_MAX, link_to
from reconciler.api.job_reader import JobFilter, JobReader
from reconciler.api.job_requests import JobRequests, JobVerb
from reconciler.api.payloads import LOG_BYTES_MAX, NEXT_OFFSET, CheckpointList, EventList, JobList, JobView, Why
from reconciler.api.problems import RequestRefusedError
from reconciler.api.prompt_starts import asks_for_prompt_starts
from reconciler.api.redaction import readable_view
from reconciler.api.services import Services
from reconciler.api.submitter import JobSubmitter
from reconciler.api.views import NOTHING_HELD, JobViews, job_view, job_viewer
from reconciler.documents.job import read_job
from reconciler.documents.json_text import BYTES_MAX
from reconciler.model.job_groups import Submission
from reconciler.model.job_record import JobRecord
from reconciler.model.task_log import offset_after
from reconciler.protocols.job_source import AcceptedJob, DuplicateJobError
from solver.model.workload import JobName, TaskGroup
from solver.plan.reason import some_of

BODY_BYTES_MAX = 1_000_000
"""A job of a hundred groups, each with a long command, has some 100 kB."""

TOGETHER_MAX = 200
"""Submissions in one write: others write meanwhile, such as the loop, and wait no longer than some hundredths of a second."""

_JOB_DOCUMENT = {
    "schema": {"type": "object", "description": "A Job document, as in schemas/job.json."},
    "example": {
        "apiVersion": "quorate.dev/v1",
        "kind": "Job",
        "metadata": {"name": "training"},
        "spec": {
            "queue": "team",
            "taskGroups": [{"name": "worker", "replicas": 2, "shape": {"gpus": 4}}],
            "command": ["python", "train.py"],
        },
    },
}

_SUBMIT_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": _JOB_DOCUMENT, "application/yaml": _JOB_DOCUMENT},
    }
}


async def bounded_body(request: Request) -> bytes:
    """The body, read no further than BODY_BYTES_MAX; raises RequestRefusedError beyond it, and where it breaks off."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                raise RequestRefusedError(
                    413, "too-large", f"The body has more than {BODY_BYTES_MAX} bytes.", "Send less."
                )
    except ClientDisconnect as error:
        # It is not waited for; unforeseen, it would stand in the log with a traceback.
        raise RequestRefusedError(
            400, "body-broken-off", "The connection ended before the body.", "Send it again."
        ) from error
    return bytes(body)


class _Sent(NamedTuple):
    """A submission as it came."""

    request: Request
    body: bytes
    idempotency_key: str


class JobRoutes:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services, authority: Authorisation) -> None:
        self._services = services
        self._authority = authority
        self._reader, self._requests = JobReader(services), JobRequests(services)
        self._submitter = JobSubmitter(services, authority)
        self._submissions = Batches(self._judge_and_take_in, TOGETHER_MAX)
        self.router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
        add = self.router.add_api_route
        submitted = answers(JobView, refuses(409, 413))
        add("", self.submit, methods=["POST"], responses=submitted, openapi_extra=_SUBMIT_BODY)
        add("", self.list, responses=answers(JobList))
        add("/{name}", self.get, responses=answers(JobView, refuses(404)))
        add("/{name}/events", self.events, responses=answers(EventList, refuses(404)))
        add("/{name}/why", self.why, responses=answers(Why, refuses(404)))
        log = {"description": "A piece of the log.", "content": {"application/octet-stream": {}}}
        add("/{name}/logs", self.logs, responses={200: log, **refuses(404)}, response_class=Response)
        # Each needs a line in rules.py too.
        for verb in (self.cancel, self.suspend, self.resume, self.requeue):
            add(f"/{{name}}/{verb.__name__}", verb, methods=["POST"], responses=answers(JobView, refuses(404)))

    async def submit(
        self,
        request: Request,
        body: Annotated[bytes, Depends(bounded_body)],
        idempotency_key: Annotated[str, Header(max_length=200)] = "",
    ) -> Response:
        """Accept a Job document; refuse one that could never run. The same key and name again is the same job."""
        sent = _Sent(request, body, idempotency_key)
        # Others do not wait until a large one is read, or until a round has been tried for one.
        quick = len(body) <= BYTES_MAX and not asks_for_prompt_starts(self._services)
        asked = sent if quick else await run_in_threadpool(self._judged, sent)
        record, view = await self._submissions(asked)
        # The same key from another user finds a job that is not theirs.
        self._authority.require(request, "see-job", record.spec.queue, record)
        self._submitter.tell((record.name,))
        return answer(readable_view(view, request.state.rights))

    def _judge_and_take_in(self, asked: Sequence[_Sent | Submission]) -> list[tuple[JobRecord, JobView] | Exception]:
        """What came of each: judged here where it is not yet, and all that pass taken in together."""
        judged: list[Submission | Exception] = []
        for each in asked:
            try:
                judged.append(self._judged(each) if isinstance(each, _Sent) else each)
            except Exception as error:  # noqa: BLE001  (raised again by the one that asked)
                judged.append(error)
        taken_in = iter(self._take_in([each for each in judged if isinstance(each, Submission)]))
        return [next(taken_in) if isinstance(each, Submission) else each for each in judged]

    def _judged(self, sent: _Sent) -> Submission:
        """What is asked for, if nothing is against it. Raises RequestRefusedError."""
        return self._submitter.judged(sent.request, read_job(sent.body, "job"), sent.idempotency_key)

    def _take_in(self, asked: Sequence[Submission]) -> list[tuple[JobRecord, JobView] | DuplicateJobError]:
        """Accept jobs that came together: one write, and one reading for all answers."""
        if not asked:
            return []
        became = self._submitter.take_in(asked)
        accepted = [each for each in became if isinstance(each, AcceptedJob)]
        records = [each.record for each in accepted]
        # One that was known may have begun, and ended, before it is looked at.
        all_new = all(each.is_new for each in accepted)
        views = JobViews(self._services)
        view = job_viewer(self._services, records, NOTHING_HELD) if all_new else views.of(records)
        return [each if isinstance(each, DuplicateJobError) else (each.record, view(each.record)) for each in became]

    def list(
        self,
        request: Request,
        asked: Annotated[JobFilter, Depends()],
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """Jobs, live and ended, that the caller may see, the newest first unless another order is asked for, page by page."""
        found = self._reader.page(asked, request.state.rights, limit, cursor)
        return answer(found, headers=link_to(request, found.next))

    def get(self, name: JobName, request: Request) -> Response:  # noqa: ARG002  (in the path)
        """One job."""
        return self._answer(request, _judged_record(request))

    def events(
        self,
        name: JobName,  # noqa: ARG002  (in the path)
        request: Request,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """What happened to a job: the newest events, oldest first; the next page has those before them."""
        found = self._reader.events(_judged_record(request), request.state.rights, limit, cursor)
        return answer(found, headers=link_to(request, found.next))

    def why(self, name: JobName, request: Request) -> Response:  # noqa: ARG002  (in the path)
        """Why a job is where it is."""
        return answer(self._reader.why(_judged_record(request), request.state.rights))

    def logs(
        self,
        name: JobName,
        request: Request,
        group: str = "",
        index: Annotated[int, Query(ge=0)] = 0,
        attempt: Annotated[int, Query(ge=0)] = 0,
        offset: Annotated[int, Query(ge=0, lt=2**63)] = 0,
        limit: Annotated[int, Query(ge=1, le=LOG_BYTES_MAX)] = LOG_BYTES_MAX,
    ) -> Response:
        """A task's output from `offset`; empty at the end of what there is so far. The next piece begins at `Quorate-Next-Offset`.

        By default the first group's first task in the newest attempt.
        """
        record = _judged_record(request)
        group = group or record.spec.task_groups[0].name
        attempt = attempt or job_view(self._services, record).attempt
        try:
            piece = self._services.logs.read_log(name, attempt, group, index, offset, limit)
        except KeyError as error:
            raise _no_log(record, attempt, group, index) from error
        headers = {**BARE, NEXT_OFFSET: str(offset_after(offset, piece))}
        return Response(piece, headers=headers, media_type="application/octet-stream")

    def cancel(self, name: JobName, request: Request) -> Response:
        """Ask for a job to end; harmless to repeat, without effect on one that has ended."""
        return self._asked("cancel", name, request)

    def suspend(self, name: JobName, request: Request) -> Response:
        """Let a job give back what it holds, and wait until it is resumed; harmless to repeat."""
        return self._asked("suspend", name, request)

    def resume(self, name: JobName, request: Request) -> Response:
        """Let a suspended job go on; harmless to repeat."""
        return self._asked("resume", name, request)

    def requeue(self, name: JobName, request: Request) -> Response:
        """Let a job that holds devices give them back and begin anew; harmless to repeat, without effect on one that waits."""
        return self._asked("requeue", name, request)

    def _asked(self, verb: JobVerb, name: JobName, request: Request) -> Response:
        view = self._requests.ask(verb, name, request.state.user)
        return answer(readable_view(view, request.state.rights))

    def _answer(self, request: Request, record: JobRecord) -> Response:
        return answer(readable_view(job_view(self._services, record), request.state.rights))


def _judged_record(request: Request) -> JobRecord:
    """The job that the path names, as it was read to judge whether the caller may ask."""
    record: JobRecord = request.state.record
    return record


class CheckpointRoutes:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
        self.router.add_api_route("/{name}/checkpoints", self.list, responses=answers(CheckpointList, refuses(404)))

    def list(self, name: JobName) -> Response:
        """A job's checkpoints, newest first, the deleted ones among them."""
        return answer(CheckpointList(items=self._services.checkpoints.of(name)))


def _no_log(record: JobRecord, attempt: int, group: str, index: int) -> RequestRefusedError:
    if not attempt:
        why, fix = "it has not started yet", f"`quorate why {record.name}` says what it waits for; `-f` waits with it."
    elif any(known.name == group and index < known.replicas for known in record.spec.task_groups):
        why = f"attempt {attempt} has no task {group}/{index} that wrote any, or has none any more"
        fix = "See the job's tasks; --keep-logs of the server says how long logs are kept."
    else:
        why = f"it has no task {group}/{index}"
        tasks = (_tasks_in_words(known) for known in record.spec.task_groups)
        fix = f"Its tasks are {some_of(list(tasks))}."
    return RequestRefusedError(404, "no-log", f"Job {record.name} has no such log: {why}.", fix)


def _tasks_in_words(group: TaskGroup) -> str:
    return f"{group.name}/0" + (f" to {group.name}/{group.replicas - 1}" if group.replicas > 1 else "")
