"""The audit over HTTP: which user did what, and the chain itself, for those who verify it elsewhere."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from reconciler.api.answers import answer, answers, refuses
from reconciler.api.audit_payloads import AuditEventList, AuditPage
from reconciler.api.cursors import CURSOR_MAX, bad_cursor, cursor_of, link_to, number_of, place_of
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.api.timeline_routes import Written, instant_of
from reconciler.model.audit import ChainName
from reconciler.protocols.audit import AuditPlace
from reconciler.protocols.history import EventQuery

LINKS_MAX: Final = 1_000
_KINDS_MAX: Final = 20

Name = Annotated[str, Query(max_length=253)]


class AuditRoutes:
    """The endpoints; `router` has both."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(prefix="/v1/audit", tags=["audit"])
        self.router.add_api_route("", self.chain, responses=answers(AuditPage, refuses(404)))
        self.router.add_api_route("/events", self.events, responses=answers(AuditEventList))

    def chain(
        self,
        request: Request,
        chain: ChainName = "events",
        limit: Annotated[int, Query(ge=1, le=LINKS_MAX)] = 500,
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """One chain, page by page from its begin, with records that have no link."""
        trail = self._services.audit
        if trail is None:
            raise RequestRefusedError(404, "no-audit", "This server keeps no audit chain.", "Ask the one that leads.")
        anchor = trail.anchor(self._services.clock.now())
        items, following = trail.page(chain, _place(cursor), limit)
        cursor = "" if following is None else cursor_of(f"{following.link}-{following.record}")
        return answer(AuditPage(items=items, anchor=anchor, next=cursor), headers=link_to(request, cursor))

    def events(
        self,
        request: Request,
        who: Name = "",
        what: Annotated[list[Annotated[str, Query(max_length=63)]] | None, Query(max_length=_KINDS_MAX)] = None,
        subject: Name = "",
        since: Annotated[str, Query(alias="from", max_length=40)] = "",
        to: Written = "",
        limit: Annotated[int, Query(ge=1, le=LINKS_MAX)] = 100,
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """Events of one user or control plane, of kinds, about one job, node, queue or revision, newest first."""
        now = self._services.clock.now()
        begin, end = (
            instant_of(name, written, now) if written else None for name, written in (("from", since), ("to", to))
        )
        query = EventQuery(who, tuple(what or ()), subject, begin, end)
        # One more than wanted says whether there is another page.
        found = self._services.history.find_events(query, number_of(cursor), limit + 1)
        following = cursor_of(found[limit - 1].number) if len(found) > limit else ""
        return answer(AuditEventList(items=found[:limit], next=following), headers=link_to(request, following))


def _place(cursor: str) -> AuditPlace:
    if not cursor:
        return AuditPlace()
    link, _, record = place_of(cursor).partition("-")
    if not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in (link, record)):
        raise bad_cursor()
    return AuditPlace(int(link), int(record))
