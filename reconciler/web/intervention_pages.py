"""What people do by hand: a page of what is in force and was, and a form for each deed that says what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from reconciler.access.rights import Action, Rights
from reconciler.api.cursors import CURSOR_MAX, cursor_of, number_of
from reconciler.api.intervention_requests import InterventionRequests
from reconciler.api.payloads import ApiProblem, InterventionAsked
from reconciler.api.problems import RequestRefusedError, problem_of
from reconciler.api.redaction import readable_interventions
from reconciler.api.services import Services
from reconciler.lifecycle.health.effects import NEVER, cordons
from reconciler.model.intervention_record import (
    DEFAULT_SPAN,
    REASON_MAX,
    Ending,
    Intervention,
    InterventionKind,
    Subject,
)
from reconciler.model.job_record import JobRecord
from reconciler.web.cluster_summary import NO_RACK
from reconciler.web.forms import FormFields
from reconciler.web.node_sight import NodeSights
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import HEADERS, page, require_origin
from solver.model.workload import JobName, QueueName

PAGE: Final = 50
IN_FORCE_MAX: Final = 500
"""Shown at once: an array that is held job by job has thousands."""


class Deed(NamedTuple):
    """Something that is begun or ended by hand. `verb`: in the address, and on the button."""

    verb: str
    kind: InterventionKind
    begins: bool
    follows: str


CORDON: Final = Deed("cordon", "cordon", True, "No new job begins there. What runs there stays.")
UNCORDON: Final = Deed(
    "uncordon", "cordon", False, "New jobs begin there again, also where health checks had closed it or GPUs of it. "
    "What the policy repository closes stays closed.",
)  # fmt: skip
HOLD_QUEUE: Final = Deed(
    "hold", "hold", True, "No job of it, or of a queue below it, begins. What runs stays, and does not begin again."
)
RELEASE_QUEUE: Final = Deed(
    "release",
    "hold",
    False,
    "Its jobs, and those of queues below it, may begin again, unless another hold is in force.",
)
HOLD: Final = Deed("hold", "hold", True, "It does not begin. If it runs, it stays, and does not begin again.")
RELEASE: Final = Deed("release", "hold", False, "It may begin again, unless its queue is held.")
BOOST: Final = Deed(
    "boost", "boost", True, "It starts before the others of its queue, SLO class and rank that wait. "
    "It is no way around quota, and no job leaves for it that would not otherwise.",
)  # fmt: skip
UNBOOST: Final = Deed("unboost", "boost", False, "It waits in its turn again.")

_ENDS: Final[Mapping[tuple[InterventionKind, str], str]] = {
    ("cordon", "node"): "/nodes/{}/uncordon",
    ("hold", "queue"): "/queues/{}/release",
    ("hold", "job"): "/jobs/{}/release",
    ("boost", "job"): "/jobs/{}/unboost",
}
_ENDED: Final[Mapping[Ending | Literal[""], str]] = {
    "": "its time is over",
    "expired": "its time is over",
    "released": "ended",
    "replaced": "replaced",
    "agreed": "the policy repository says the same",
    "over": "there is nothing left that it is about",
}
_FIELDS: Final[Mapping[str, str]] = {"no-reason": "reason", "unfit-end": "until"}
"""Beside which field a refusal is told, by its code; all others are told above."""


class Target(NamedTuple):
    """What a deed is about: one subject, or the nodes of a rack. `back`: where one goes from there."""

    title: str
    subjects: tuple[Subject, ...]
    back: str


class InterventionRow(NamedTuple):
    """One that is in force or over. `about`: the page of its subject; `end`: where it is ended; "" where the user may not."""

    of: Intervention
    about: str
    end: str
    is_over: bool


class InterventionPages:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services, sights: NodeSights) -> None:
        self._services, self._sights = services, sights
        self._requests = InterventionRequests(services)
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/interventions", self.interventions)
        for path, deeds, target in (
            ("/nodes/{node}", (CORDON, UNCORDON), self._node),
            ("/racks", (CORDON, UNCORDON), self._rack),
            ("/queues/{queue}", (HOLD_QUEUE, RELEASE_QUEUE), self._queue),
            ("/jobs/{name}", (HOLD, RELEASE, BOOST, UNBOOST), self._job),
        ):
            for deed in deeds:
                self.router.add_api_route(f"{path}/{deed.verb}", self._form(deed, target))
                done = self._begun(deed, target) if deed.begins else self._ended(deed, target)
                self.router.add_api_route(f"{path}/{deed.verb}", done, methods=["POST"])

    def interventions(self, request: Request, cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "") -> Response:
        """What is in force, and what was, the newest first, page by page; of jobs, those that the user may see."""
        rights, now = request.state.rights, self._services.clock.now()
        newest = self._services.interventions.newest(PAGE + 1, number_of(cursor))
        open_now = self._services.interventions.in_force()
        in_force = (*(each for each in open_now if each.until > now), *cordons(self._services.health.all()))
        over = [each for each in newest[:PAGE] if each.ended_at is not None or each.until <= now]
        rows = self._rows(in_force, rights, is_over=False)
        older = f"/interventions?cursor={cursor_of(newest[PAGE - 1].number)}" if len(newest) > PAGE else ""
        return page(
            request,
            "interventions.html",
            in_force=rows[:IN_FORCE_MAX],
            count=len(rows),
            shown_max=IN_FORCE_MAX,
            over=self._rows(over, rights, is_over=True),
            older=older,
            is_first=not cursor,
            follows=_FOLLOWS,
            ended=_ENDED,
            never=NEVER,
        )

    def _rows(self, found: Iterable[Intervention], rights: Rights, *, is_over: bool) -> list[InterventionRow]:
        readable = tuple(readable_interventions(found, self._services.jobs, rights))
        names = {JobName(each.subject.name) for each in readable if each.subject.kind == "job"}
        records = self._services.jobs.named(names)

        def end(each: Intervention) -> str:
            may = _may_end(each, rights, records.get(JobName(each.subject.name)))
            return _ENDS[each.kind, each.subject.kind].format(quote(each.subject.name, safe="")) if may else ""

        return [
            InterventionRow(each, _page_of(each.subject), "" if is_over else end(each), is_over) for each in readable
        ]

    # What is asked about what.

    def _node(self, request: Request) -> Target:
        name = request.path_params["node"]
        return Target(f"node {name}", (Subject("node", name),), f"/nodes/{quote(name, safe='')}")

    def _rack(self, request: Request) -> Target:
        label = request.query_params.get("rack", "")
        names = self._sights.latest().index.racks.get(label) if label != NO_RACK else None
        if names is None:
            fix = "The list of nodes names the racks there are."
            raise RequestRefusedError(404, "unknown-rack", f"There is no rack {label}.", fix)
        many = f"{len(names)} nodes" if len(names) > 1 else "1 node"
        back = "/nodes?" + urlencode({"rack": label})
        return Target(f"all of rack {label}: {many}", tuple(Subject("node", name) for name in names), back)

    def _queue(self, request: Request) -> Target:
        name = request.path_params["queue"]
        return Target(f"queue {name}", (Subject("queue", name),), "/queues")

    def _job(self, request: Request) -> Target:
        name = request.path_params["name"]
        return Target(f"job {name}", (Subject("job", name),), f"/jobs/{quote(name, safe='')}")

    # Forms.

    def _form(self, deed: Deed, target: Callable[[Request], Target]) -> Callable[[Request], Response]:
        def form(request: Request) -> Response:
            about = target(request)
            for subject in about.subjects if deed.begins else ():
                self._requests.require(deed.kind, subject)
            return self._shown(request, deed, about)

        return form

    def _begun(self, deed: Deed, target: Callable[[Request], Target]) -> Callable[[Request, dict[str, str]], Response]:
        def begun(request: Request, fields: FormFields) -> Response:
            require_origin(request)
            about = target(request)
            asked = InterventionAsked(fields.get("reason", ""), fields.get("until", "").strip())
            refusals = {_FIELDS[each.problem.code]: each.problem for each in self._requests.refusals(asked)}
            if refusals:
                return self._shown(request, deed, about, HTTPStatus.UNPROCESSABLE_ENTITY, asked, refusals)
            try:
                self._requests.begin(deed.kind, about.subjects, asked, request.state.user)
            except Exception as error:
                told = problem_of(error)
                if told is None:
                    raise
                # Also where the store is full, or away: then the same form is sent again.
                return self._shown(request, deed, about, told[0], asked, {_FIELDS.get(told[1].code, ""): told[1]})
            return _to(about.back)

        return begun

    def _ended(self, deed: Deed, target: Callable[[Request], Target]) -> Callable[[Request], Response]:
        def ended(request: Request) -> Response:
            require_origin(request)
            about = target(request)
            self._requests.release(deed.kind, about.subjects, request.state.user)
            return _to(about.back)

        return ended

    def _shown(
        self,
        request: Request,
        deed: Deed,
        about: Target,
        status: int = HTTPStatus.OK,
        asked: InterventionAsked | None = None,
        refusals: Mapping[str, ApiProblem] | None = None,
    ) -> Response:
        """The form; as it was sent, with what is wrong beside each field, where it was refused."""
        usual = min(DEFAULT_SPAN, self._requests.longest)
        wanted = asked or InterventionAsked("", str(usual))
        return page(
            request,
            "intervene.html",
            status,
            deed=deed,
            about=about,
            asked=wanted,
            refusals=refusals or {},
            longest=self._requests.longest,
            reason_max=REASON_MAX,
            in_force=self._in_force(deed, about),
            never=NEVER,
            address=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        )

    def _in_force(self, deed: Deed, about: Target) -> list[Intervention]:
        """What this one takes the place of, or ends."""
        now, subjects = self._services.clock.now(), frozenset(about.subjects)
        of_health = () if deed.begins or deed.kind != "cordon" else cordons(self._services.health.all())
        found = (*self._services.interventions.in_force(), *of_health)
        return [each for each in found if each.kind == deed.kind and each.subject in subjects and each.until > now]


_FOLLOWS: Final[Mapping[tuple[InterventionKind, str], str]] = {
    ("cordon", "node"): CORDON.follows,
    ("hold", "queue"): HOLD_QUEUE.follows,
    ("hold", "job"): HOLD.follows,
    ("boost", "job"): BOOST.follows,
}


def offered(in_force: Iterable[Intervention], job: JobRecord, rights: Rights, *, takes_turns: bool) -> Iterator[str]:
    """The deeds about a job that the user may do now, by their verbs."""
    own = {each.kind for each in in_force if each.subject == Subject("job", job.name)}
    if job.outcome is not None:
        return
    if rights.may("hold-job", job.spec.queue, job.user):
        yield RELEASE.verb if "hold" in own else HOLD.verb
    if rights.may("operate", job.spec.queue, job.user) and (not takes_turns or "boost" in own):
        yield UNBOOST.verb if "boost" in own else BOOST.verb


def _may_end(each: Intervention, rights: Rights, job: JobRecord | None) -> bool:
    match each.subject.kind:
        case "node":
            return rights.may("operate", None)
        case "queue":
            return rights.may("operate", QueueName(each.subject.name))
        case "job":
            action: Action = "hold-job" if each.kind == "hold" else "operate"
            return job is not None and rights.may(action, job.spec.queue, job.user)


def _page_of(subject: Subject) -> str:
    if subject.kind == "queue":
        return "/queues"
    return f"/{subject.kind}s/{quote(subject.name, safe='')}"


def _to(place: str) -> Response:
    return RedirectResponse(place, HTTPStatus.SEE_OTHER, dict(HEADERS))
