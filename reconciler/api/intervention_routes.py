"""What people do by hand over HTTP: a cordon, a hold or a boost is put in force with PUT, and ended with DELETE."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from reconciler.access.rights import Rights
from reconciler.api.answers import answer, answers, refuses
from reconciler.api.cursors import CURSOR_MAX, cursor_of, link_to, number_of
from reconciler.api.intervention_requests import InterventionRequests
from reconciler.api.job_routes import bounded_body
from reconciler.api.payloads import InterventionAsked, InterventionList
from reconciler.api.problems import RequestRefusedError
from reconciler.api.redaction import readable_interventions
from reconciler.api.services import Services
from reconciler.model.intervention_record import InterventionKind, Subject
from solver.model.document import decode
from solver.model.workload import JobName

_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"$ref": "#/components/schemas/InterventionAsked"},
                "example": {"reason": "fan 3 is broken, ticket 4711", "until": "4h"},
            }
        },
    }
}
Body = Annotated[bytes, Depends(bounded_body)]


class InterventionRoutes:
    """The endpoints; `router` has them all. Authority has judged the caller before, by the job, the queue, or all of them."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._requests = InterventionRequests(services)
        self.router = APIRouter(prefix="/v1", tags=["by hand"])
        self.router.add_api_route("/interventions", self.list, responses=answers(InterventionList))
        answered = answers(InterventionList, refuses(404, 413))
        for path, begin, release in (
            ("/nodes/{node}/cordon", self.cordon, self.uncordon),
            ("/queues/{queue}/hold", self.hold_queue, self.release_queue),
            ("/jobs/{name}/hold", self.hold, self.release),
            ("/jobs/{name}/boost", self.boost, self.release_boost),
        ):
            self.router.add_api_route(path, begin, methods=["PUT"], responses=answered, openapi_extra=_BODY)
            self.router.add_api_route(path, release, methods=["DELETE"], responses=answered)

    def list(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """What was ever done by hand, also what is over, newest first, page by page; of jobs, those that the caller may see."""
        rights: Rights = request.state.rights
        # One more than wanted says whether there is another page.
        found = self._services.interventions.newest(limit + 1, number_of(cursor))
        following = cursor_of(found[limit - 1].number) if len(found) > limit else ""
        items = tuple(readable_interventions(found[:limit], self._services.jobs, rights))
        return answer(InterventionList(items=items, next=following), headers=link_to(request, following))

    def cordon(self, node: str, request: Request, body: Body) -> Response:
        """Let nothing new start on a node for a while; what runs there stays."""
        return self._begin("cordon", Subject("node", node), request, body)

    def uncordon(self, node: str, request: Request) -> Response:
        """End a node's cordon, by hand or for its health; harmless where there is none, and without effect on what Git says."""
        return self._release("cordon", Subject("node", node), request)

    def hold_queue(self, queue: str, request: Request, body: Body) -> Response:
        """Let no job of a queue, or of those below it, begin for a while; what runs there stays."""
        return self._begin("hold", Subject("queue", queue), request, body)

    def release_queue(self, queue: str, request: Request) -> Response:
        """End a queue's hold by hand; harmless where there is none, and without effect on what Git says."""
        return self._release("hold", Subject("queue", queue), request)

    def hold(self, name: JobName, request: Request, body: Body) -> Response:
        """Let a job not begin for a while; one that runs stays, and does not begin again."""
        return self._begin("hold", Subject("job", name), request, body)

    def release(self, name: JobName, request: Request) -> Response:
        """End a job's hold; harmless where there is none, and without effect on a hold of its queue."""
        return self._release("hold", Subject("job", name), request)

    def boost(self, name: JobName, request: Request, body: Body) -> Response:
        """Let a job start before the others of its queue, SLO class and rank that wait, for a while."""
        return self._begin("boost", Subject("job", name), request, body)

    def release_boost(self, name: JobName, request: Request) -> Response:
        """End a job's boost; harmless where there is none."""
        return self._release("boost", Subject("job", name), request)

    def _begin(self, kind: InterventionKind, subject: Subject, request: Request, body: bytes) -> Response:
        try:
            asked = decode(body, InterventionAsked)
        except msgspec.MsgspecError as error:
            fix = 'Send JSON such as {"reason": "fan 3 is broken", "until": "4h"}.'
            raise RequestRefusedError(422, "malformed", f"The body is not as described: {error}.", fix) from error
        return answer(InterventionList(items=self._requests.begin(kind, (subject,), asked, request.state.user)))

    def _release(self, kind: InterventionKind, subject: Subject, request: Request) -> Response:
        return answer(InterventionList(items=self._requests.release(kind, (subject,), request.state.user)))
