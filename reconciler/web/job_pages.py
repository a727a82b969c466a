"""Jobs as a list that can be narrowed down, and a page of each: why it is where it is, what it holds, what happened to it."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Final, Literal, NamedTuple, get_args
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from reconciler.access.rights import Rights
from reconciler.api.cursors import CURSOR_MAX
from reconciler.api.gpu_routes import job_history
from reconciler.api.intervention_requests import InterventionRequests
from reconciler.api.job_reader import JobFilter, JobReader
from reconciler.api.job_requests import JobRequests, JobVerb
from reconciler.api.payloads import EventList, JobView, Why
from reconciler.api.problems import NotReadyError
from reconciler.api.redaction import readable_view
from reconciler.api.services import Services
from reconciler.api.views import job_view
from reconciler.lifecycle.jobs.tail import Read, start_of_last_lines
from reconciler.model.job_record import TERMINAL, JobRecord, JobState
from reconciler.model.task_log import GapNotice, offset_after
from reconciler.protocols.gpu_use import STEPS
from reconciler.protocols.job_source import JobOrder
from reconciler.web.gpu_use_rows import holder_of
from reconciler.web.intervention_pages import offered
from reconciler.web.job_map import JobMap, job_map
from reconciler.web.job_timeline import JobTimeline, job_timeline
from reconciler.web.job_use import LOOKS_BACK, job_use_picture
from reconciler.web.origins import Piece, linked
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import HEADERS, page, require_origin
from reconciler.web.submit_pages import gpu_types_of, open_queues
from reconciler.web.time_window import window_asked
from solver.model.workload import JobName
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Inadmissible, Waits

PAGE: Final = 50
LINES: Final = 500
"""Of a log."""
BYTES_MAX: Final = 200_000
TASKS_MAX: Final = 500
"""That can be chosen; others by their address."""
EVENTS: Final = 100
CHECKPOINTS: Final = 20
PLACEMENTS: Final = 500
"""On nodes."""
_ORDERS: Final[Mapping[JobOrder, str]] = {
    "newest": "the newest first",
    "waiting": "the longest waiting first",
    "biggest": "the most GPUs first",
}


class JobPages:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._reader, self._requests = JobReader(services), JobRequests(services)
        self._by_hand = InterventionRequests(services)
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
        text: Annotated[str, Query(max_length=253)] = "",
        prefix: Annotated[str, Query(max_length=253)] = "",
        group: Annotated[str, Query(max_length=253)] = "",
        priority_class: Annotated[str, Query(alias="class", max_length=253)] = "",
        gpu_type: Annotated[str, Query(alias="gpuType", max_length=253)] = "",
        ended: Annotated[Literal["", "0", "1"], Query()] = "",
        sort: Annotated[JobOrder, Query()] = "newest",
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """Jobs that the user may see, page by page: those that live, unless ended ones are asked for."""
        # A form sends what was left empty, too.
        asked = JobFilter(
            queue.strip(),
            user.strip(),
            (state,) if state else (),
            prefix.strip(),
            text.strip(),
            priority_class.strip(),
            gpu_type.strip(),
            not ended.strip("0") and state not in TERMINAL,
            sort,
            group=group.strip(),
        )
        rights: Rights = request.state.rights
        found = self._reader.page(asked, rights, PAGE, cursor)
        _, policy = self._services.policy()
        return page(
            request,
            "jobs.html",
            jobs=found.items,
            asked=asked,
            count=self._reader.count(asked, rights),
            chips=_chips(asked),
            any_state=_path(replace(asked, state=())),
            orders=_ORDERS,
            queues=[queue.name for queue in policy.queues],
            classes=[each.name for each in policy.priority_classes],
            gpu_types=gpu_types_of(self._services),
            older=_path(asked, found.next) if found.next else "",
            is_first=not cursor,
            first=_path(asked),
            may_submit=bool(open_queues(self._services, rights)),
        )

    def job(self, name: JobName, request: Request) -> Response:  # noqa: ARG002  (in the path)
        """One job."""
        record: JobRecord = request.state.record
        rights: Rights = request.state.rights
        view = readable_view(job_view(self._services, record), rights)
        why, events = self._reader.why(record, rights), self._reader.events(record, rights, EVENTS)
        may = rights.may("steer-job", record.spec.queue, record.user)
        takes_turns = self._by_hand.takes_turns(record.spec.queue)
        may_read = not view.redacted
        kept = self._services.checkpoints.of(record.name) if may_read else ()
        shown = {
            "job": view,
            **_linked(why),
            "events": events.items[::-1],
            "has_older": bool(events.next),
            "hands": tuple(offered(self._services.interventions.in_force(), record, rights, takes_turns=takes_turns)),
            "verbs": _verbs(view) if may else (),
            "may_read": may_read,
            "places": self._places(view),
            "timeline": self._timeline(view, why, events),
            **self._used(record.name),
            "checkpoints": kept[:CHECKPOINTS],
            "has_older_checkpoints": len(kept) > CHECKPOINTS,
        }
        return page(request, "job.html", **shown)

    def _places(self, view: JobView) -> JobMap | None:
        """Where its tasks are; None before a pass has looked at the nodes."""
        try:
            return job_map(view.tasks, self._services.snapshot().nodes) if view.tasks else None
        except NotReadyError:
            return None

    def _used(self, name: JobName) -> dict[str, object]:
        """What its GPUs do now, and did in the last hours, as far as that is known."""
        shown = window_asked(LOOKS_BACK, "now", self._services.clock.now())
        uses, placements = self._services.use.past, self._services.placements
        picture = None
        if uses is not None and placements is not None:
            told = job_history(name, uses, placements.of_job(name, PLACEMENTS), "minute", shown.past)
            picture = job_use_picture(told.points, STEPS["minute"], shown)
        try:
            snapshot = self._services.snapshot()
        except NotReadyError:
            return {"used_now": None, "used": picture, "used_in": shown}
        known = next((job for job in snapshot.jobs if job.name == name), None)
        now = holder_of(self._services.use.latest.of(snapshot), name, known)
        return {"used_now": now, "used": picture, "used_in": shown}

    def _timeline(self, view: JobView, why: Why, events: EventList) -> JobTimeline:
        """What it was and held when."""
        placements, verdict = self._services.placements, why.verdict
        estimate = verdict.estimate if isinstance(verdict, Waits) else None
        return job_timeline(
            view,
            events.items,
            placements.of_job(view.name, PLACEMENTS) if placements is not None else (),
            self._services.clock.now(),
            estimate.at if isinstance(estimate, EarliestStart) else None,
            has_older=bool(events.next),
        )

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
            tail = _last_lines(read) if chosen in tasks else None
        except KeyError:
            tail = None
        shown = {"tasks": tasks[:TASKS_MAX], "chosen": chosen, "attempt": attempt or newest, "newest": newest}
        shown |= {"group": group, "index": index, "is_known": chosen in tasks, "is_newest": not attempt}
        return page(request, "logs.html", name=name, tail=tail, lines=LINES, **shown)

    def ask(self, name: JobName, verb: JobVerb, request: Request) -> Response:
        """Put on record what the user asks of a job, and show what came of it."""
        require_origin(request)
        self._requests.ask(verb, name, request.state.user)
        return RedirectResponse(f"/jobs/{quote(name, safe='')}", HTTPStatus.SEE_OTHER, dict(HEADERS))


class Offered(NamedTuple):
    """Something that may be asked of a job now, and what follows."""

    verb: JobVerb
    follows: str


def _linked(why: Why) -> dict[str, list[tuple[Piece, ...]]]:
    """What is said of a job, with links to the lines in Git that its reasons state."""
    reasons = why.verdict.reasons if isinstance(why.verdict, Waits | Inadmissible) else ()
    places = {str(getattr(reason, "origin", "")) for reason in reasons}
    return {
        "why_words": [linked(word, places) for word in why.words],
        "helps": [linked(word, places) for word in why.would_help],
    }


class LogTail(NamedTuple):
    """The end of a log, and where what is written next begins."""

    text: str
    offset: int


def _last_lines(read: Read) -> LogTail:
    """What is kept of them; a gap in the log is said where it is."""
    offset, pieces, kept = start_of_last_lines(read, LINES), list[str](), 0
    decoder = getincrementaldecoder("utf-8")("replace")
    while kept < BYTES_MAX and (piece := read(offset, BYTES_MAX - kept)):
        pieces.append(f"\n[{piece.decode()}]\n" if isinstance(piece, GapNotice) else decoder.decode(piece))
        kept += len(piece)
        offset = offset_after(offset, piece)
    # A character of which the rest is still to be written is read again with it.
    return LogTail("".join(pieces), offset - len(decoder.getstate()[0]))


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


def _chips(asked: JobFilter) -> list[tuple[JobState, str]]:
    """Each state, and the list of jobs in it."""
    states: tuple[JobState, ...] = get_args(JobState)
    return [(each, _path(replace(asked, state=(each,), live=each not in TERMINAL))) for each in states]


def _path(asked: JobFilter, cursor: str = "") -> str:
    """Of the list as it was narrowed down and sorted."""
    stated = [
        ("queue", asked.queue),
        ("user", asked.user),
        ("text", asked.text),
        ("prefix", asked.prefix),
        ("group", asked.group),
        ("class", asked.priority_class),
        ("gpuType", asked.gpu_type),
        *(("state", each) for each in asked.state),
        ("ended", "" if asked.live or asked.state else "1"),
        ("sort", "" if asked.sort == "newest" else asked.sort),
        ("cursor", cursor),
    ]
    query = urlencode([(name, value) for name, value in stated if value])
    return f"/jobs?{query}" if query else "/jobs"
