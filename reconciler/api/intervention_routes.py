"""What people do by hand over HTTP: a cordon, a hold or a boost is put in force with PUT, and ended with DELETE."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from reconciler.access.policy import BreakGlass
from reconciler.access.rights import Rights
from reconciler.api.answers import answer, answers, refuses
from reconciler.api.authorisation import Authorisation
from reconciler.api.cursors import CURSOR_MAX, cursor_of, link_to, number_of
from reconciler.api.job_routes import bounded_body
from reconciler.api.payloads import InterventionAsked, InterventionList
from reconciler.api.problems import RequestRefusedError
from reconciler.api.redaction import readable_interventions
from reconciler.api.services import Services
from reconciler.lifecycle.health.effects import ended
from reconciler.lifecycle.interventions.spans import UnfitEndError, end_of
from reconciler.model.intervention_record import REASON_MAX, Intervention, InterventionKind, Subject
from reconciler.model.problem import did_you_mean
from reconciler.protocols.history import Event
from solver.model.cluster import NodeName
from solver.model.document import decode
from solver.model.quantities import Instant
from solver.model.workload import JobName
from solver.policy.precedence import ordering_of
from solver.policy.tree import QueueTree

_BEGUN: Final[dict[InterventionKind, str]] = {"cordon": "cordoned", "hold": "held", "boost": "boosted"}
_RELEASED: Final[dict[InterventionKind, str]] = {
    "cordon": "uncordoned",
    "hold": "hold-released",
    "boost": "boost-released",
}
"""Events, by what is done."""

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

    def __init__(self, services: Services, authority: Authorisation) -> None:
        self._services = services
        self._authority = authority
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
        self._require_node(node)
        return self._begin("cordon", Subject("node", node), request, body)

    def uncordon(self, node: str, request: Request) -> Response:
        """End a node's cordon, by hand or for its health; harmless where there is none, and without effect on what Git says."""
        now, user, subject = self._services.clock.now(), request.state.user, Subject("node", node)
        record = self._services.health.forgive(NodeName(node), now)
        if record is None and not self._is_in_force("cordon", subject):
            self._require_node(node)
        of_health = None if record is None else ended(record, now, user)
        return self._release("cordon", subject, request, of_health)

    def hold_queue(self, queue: str, request: Request, body: Body) -> Response:
        """Let no job of a queue, or of those below it, begin for a while; what runs there stays."""
        self._require_queue(queue)
        return self._begin("hold", Subject("queue", queue), request, body)

    def release_queue(self, queue: str, request: Request) -> Response:
        """End a queue's hold by hand; harmless where there is none, and without effect on what Git says."""
        subject = Subject("queue", queue)
        if not self._is_in_force("hold", subject):
            self._require_queue(queue)
        return self._release("hold", subject, request)

    def hold(self, name: JobName, request: Request, body: Body) -> Response:
        """Let a job not begin for a while; one that runs stays, and does not begin again."""
        self._require_live(name)
        return self._begin("hold", Subject("job", name), request, body)

    def release(self, name: JobName, request: Request) -> Response:
        """End a job's hold; harmless where there is none, and without effect on a hold of its queue."""
        return self._release("hold", Subject("job", name), request)

    def boost(self, name: JobName, request: Request, body: Body) -> Response:
        """Let a job start before the others of its queue, SLO class and rank that wait, for a while."""
        self._require_live(name)
        queue = self._authority.record(name).spec.queue
        if ordering_of(QueueTree.of(self._services.policy()[1]), queue).turns is not None:
            message = f"Jobs of queue {queue} take turns: a boost would change nothing."
            raise RequestRefusedError(422, "takes-turns", message, "Hold others that come before it.")
        return self._begin("boost", Subject("job", name), request, body)

    def release_boost(self, name: JobName, request: Request) -> Response:
        """End a job's boost; harmless where there is none."""
        return self._release("boost", Subject("job", name), request)

    def _begin(self, kind: InterventionKind, subject: Subject, request: Request, body: bytes) -> Response:
        now = self._services.clock.now()
        reason, until = self._asked(body, now)
        asked = Intervention(kind, subject, request.state.user, reason, now, until)
        kept = self._services.interventions.begin(asked)
        if kept.at == now:
            self._record(Event(now, _BEGUN[kind], subject.name, f"until {until}: {reason}", asked.author))
        return answer(InterventionList(items=(kept,)))

    def _release(
        self, kind: InterventionKind, subject: Subject, request: Request, beside: Intervention | None = None
    ) -> Response:
        """`beside`: what has ended with it."""
        now, user = self._services.clock.now(), request.state.user
        released = self._services.interventions.release(kind, subject, now, user)
        over = tuple(each for each in (released, beside) if each is not None)
        for each in over:
            self._record(Event(now, _RELEASED[kind], subject.name, f"the {each} is over", user))
        return answer(InterventionList(items=over))

    def _asked(self, body: bytes, now: Instant) -> tuple[str, Instant]:
        """The reason in one line, and the end. Raises RequestRefusedError."""
        try:
            asked = decode(body, InterventionAsked)
            longest = (access.break_glass if (access := self._services.access()) else BreakGlass()).max_duration
            until = end_of(asked.until, now, longest)
        except msgspec.MsgspecError as error:
            fix = 'Send JSON such as {"reason": "fan 3 is broken", "until": "4h"}.'
            raise RequestRefusedError(422, "malformed", f"The body is not as described: {error}.", fix) from error
        except UnfitEndError as error:
            raise RequestRefusedError(422, "unfit-end", str(error), error.fix) from error
        reason = " ".join(asked.reason.split())
        if not 0 < len(reason) <= REASON_MAX:
            fix = "Say what the next operator needs to know."
            raise RequestRefusedError(422, "no-reason", f"A reason has 1 to {REASON_MAX} characters.", fix)
        return reason, until

    def _require_node(self, node: str) -> None:
        known = [declared.name for declared in self._services.snapshot().nodes]
        if node not in known:
            fix = did_you_mean(node, known) or "List the nodes to see their names."
            raise RequestRefusedError(404, "unknown-node", f"There is no node {node}.", fix)

    def _require_queue(self, queue: str) -> None:
        known = [each.name for each in self._services.policy()[1].queues]
        if queue not in known:
            fix = did_you_mean(queue, known) or "List the queues to see their names."
            raise RequestRefusedError(404, "unknown-queue", f"There is no queue {queue}.", fix)

    def _is_in_force(self, kind: InterventionKind, subject: Subject) -> bool:
        """Also about what is there no more: it may have been lost since."""
        return any((each.kind, each.subject) == (kind, subject) for each in self._services.interventions.in_force())

    def _require_live(self, name: JobName) -> None:
        if self._authority.record(name).outcome is not None:
            raise RequestRefusedError(
                422, "job-ended", f"Job {name} has ended.", "There is nothing left to do about it."
            )

    def _record(self, event: Event) -> None:
        """Put on record which user did what, and let the loop know."""
        self._services.history.record_event(event)
        self._services.wake()
