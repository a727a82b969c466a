"""Rounds as a list, a page of each, and what changed from one to another: what it did, why jobs waited, what is proven of it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.responses import RedirectResponse

from reconciler.api.answers import answer
from reconciler.api.cursors import CURSOR_MAX, cursor_of, number_of
from reconciler.api.services import Services
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import HEADERS, page, require_origin
from reconciler.web.replays import Replays
from reconciler.web.round_reader import RoundReader

PAGE: Final = 50

RoundNumber = Annotated[int, Path(ge=1, lt=2**63)]


class RoundPages:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._reader, self._replays = RoundReader(services.history), Replays(services.history)
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/rounds", self.rounds)
        self.router.add_api_route("/rounds/{first}..{second}", self.changes)
        self.router.add_api_route("/rounds/{number}", self.round)
        self.router.add_api_route("/rounds/{number}/replay", self.replayed)
        self.router.add_api_route("/rounds/{number}/replay", self.replay, methods=["POST"])

    def rounds(self, request: Request, cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "") -> Response:
        """The newest rounds, page by page."""
        # One more than wanted says whether there is another page.
        found = self._services.history.rounds(PAGE + 1, number_of(cursor))
        older = f"/rounds?cursor={cursor_of(found[PAGE - 1].number)}" if len(found) > PAGE else ""
        return page(request, "rounds.html", rounds=found[:PAGE], older=older, is_first=not cursor)

    def round(
        self, number: RoundNumber, request: Request, against: Annotated[int | None, Query(ge=1, lt=2**63)] = None
    ) -> Response:
        """One round, and what changed against another: the one before, unless it is named."""
        told, other = self._reader.told(number), against or self._reader.before(number)
        changes = self._reader.changes(other, number) if other else None
        return page(request, "round.html", round=told, changes=changes, replay=self._replays.of(number))

    def changes(self, first: RoundNumber, second: RoundNumber, request: Request) -> Response:
        """What changed from one round to another."""
        return page(request, "round-changes.html", changes=self._reader.changes(first, second))

    def replay(self, number: RoundNumber, request: Request) -> Response:
        """Have a round decided anew, beside everything else; its page says what came of it."""
        require_origin(request)
        self._reader.told(number)
        self._replays.begin(number)
        return RedirectResponse(f"/rounds/{number}#replay", HTTPStatus.SEE_OTHER, dict(HEADERS))

    def replayed(self, number: RoundNumber) -> Response:
        """How that stands, for the page that waits for it."""
        found = self._replays.of(number)
        return answer(found._asdict() if found else {"state": "none", "words": ""}, headers=HEADERS)
