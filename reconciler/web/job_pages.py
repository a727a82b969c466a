"""Jobs as a list that can be narrowed down, and a page of each: why it is where it is, what it holds, what happened to it."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Final, Literal, NamedTuple, get_args
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from reconciler.access.rights import Rights
from reconciler.api.cursors import CURSOR_MAX
from reconciler.api.job_reader import JobFilter, JobReader
from reconciler.api.job_requests import JobRequests, JobVerb
from reconciler.api.payloads import JobView
from reconciler.api.redaction import readable_view
from reconciler.api.services import Services
from reconciler.api.views import job_view
from reconciler.lifecycle.jobs.tail import Read, start_of_last_lines
from reconciler.model.job_record import TERMINAL, JobRecord, JobState
from reconciler.model.task_log import GapNotice, offset_after
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import HEADERS, page, require_origin
from reconciler.web.submit_pages import open_queues
from solver.model.workload import JobName

PAGE: Final = 50
LINES: Final = 500
"""Of a log."""
BYTES_MAX: Final = 200_000
TASKS_MAX: Final = 500
"""That can be chosen; others by their address."""
EVENTS: Final = 100


class JobPages:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._reader, self._requests = JobReader(services), JobRequests(services)
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/jobs", self.jobs)
        self.router.add_api_route("/jobs/{name}", self.job)
        # Of one with the name of a page.
        self.router.add_api_route("/jobs/{name}/", self.job)
        self.router.add_api_route("/jobs/{name}/logs", self.logs)
        self.router.add_api_route("/jobs/{name}/{verb}", self.ask, methods=["POST"])

    def jobs(
        self,
        request: Request,
        queue: Annotated[str, Query(max_length=63)] = "",
        user: Annotated[str, Query(max_length=200)] = "",
        state: Annotated[JobState | Literal[""], Query()] = "",
        prefix: Annotated[str, Query(max_length=253)] = "",
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """The newest jobs that the user may see, page by page."""
        # A form sends what was left empty, too.
        asked = JobFilter(queue.strip(), user.strip(), (state,) if state else (), prefix.strip())
        found = self._reader.newest(asked, request.state.rights, PAGE, cursor)
        queues = [queue.name for queue in self._services.policy()[1].queues]
        older = f"/jobs?{_query(asked, found.next)}" if found.next else ""
        shown = {"jobs": found.items, "asked": asked, "queues": queues, "states": get_args(JobState)}
        return page(
            request,
            "jobs.html",
            **shown,
            older=older,
            is_first=not cursor,
            first=f"/jobs?{_query(asked)}",
            may_submit=bool(open_queues(self._services, request.state.rights)),
        )

    def job(self, name: JobName, request: Request) -> Response:  # noqa: ARG002  (in the path)
        """One job."""
        record: JobRecord = request.state.record
        rights: Rights = request.state.rights
        view = readable_view(job_view(self._services, record), rights)
        why, events = self._reader.why(record, rights), self._reader.events(record, rights, EVENTS)
        may = rights.may("steer-job", record.spec.queue, record.user)
        shown = {"job": view, "why": why, "events": events.items[::-1], "has_older": bool(events.next)}
        return page(request, "job.html", **shown, verbs=_verbs(view) if may else (), may_read=not view.redacted)

    def logs(
        self,
        name: JobName,
        request: Request,
        task: Annotated[str, Query(max_length=100)] = "",
        attempt: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """The last lines that a task wrote; of the first group's first task in the newest attempt unless others are named."""
        record: JobRecord = request.state.record
        tasks = [f"{group.name}/{index}" for group in record.spec.task_groups for index in range(group.replicas)]
        chosen = task or tasks[0]
        newest = job_view(self._services, record).attempt
        group, _, index = chosen.rpartition("/")

        def read(offset: int, limit: int) -> bytes:
            return self._services.logs.read_log(name, attempt or newest, group, int(index), offset, limit)

        try:
            text = _last_lines(read) if chosen in tasks else None
        except KeyError:
            text = None
        shown = {"tasks": tasks[:TASKS_MAX], "chosen": chosen, "attempt": attempt or newest, "newest": newest}
        return page(request, "logs.html", name=name, text=text, lines=LINES, **shown)

    def ask(self, name: JobName, verb: JobVerb, request: Request) -> Response:
        """Put on record what the user asks of a job, and show what came of it."""
        require_origin(request)
        self._requests.ask(verb, name, request.state.user)
        return RedirectResponse(f"/jobs/{quote(name, safe='')}", HTTPStatus.SEE_OTHER, dict(HEADERS))


class Offered(NamedTuple):
    """Something that may be asked of a job now, and what follows."""

    verb: JobVerb
    follows: str


def _last_lines(read: Read) -> str:
    """What is kept of them; a gap in the log is said where it is."""
    offset, pieces, kept = start_of_last_lines(read, LINES), list[str](), 0
    while kept < BYTES_MAX and (piece := read(offset, BYTES_MAX - kept)):
        pieces.append(f"\n[{piece.decode()}]\n" if isinstance(piece, GapNotice) else piece.decode(errors="replace"))
        kept += len(piece)
        offset = offset_after(offset, piece)
    return "".join(pieces)


def _verbs(job: JobView) -> Iterator[Offered]:
    """What makes sense as the job stands."""
    if job.state in TERMINAL or job.cancel_requested_by:
        return
    if job.suspended_by:
        yield Offered("resume", "It goes on, as one that waits.")
    else:
        yield Offered("suspend", "It gives back what it holds, and waits until it is resumed.")
    if job.tasks:
        yield Offered("requeue", "It gives back what it holds, and begins anew as one that waits.")
    yield Offered("cancel", "It ends for good.")


def _query(asked: JobFilter, cursor: str = "") -> str:
    stated = [("queue", asked.queue), ("user", asked.user), ("prefix", asked.prefix), ("cursor", cursor)]
    return urlencode([*((name, value) for name, value in stated if value), *(("state", each) for each in asked.state)])
