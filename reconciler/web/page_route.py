"""A route of the console: what the API would refuse with a document is told as a page, or leads to signing in."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from reconciler.api.problems import problem_of
from reconciler.web.pages import HEADERS, page


class PageRoute(APIRoute):
    """For `APIRouter(route_class=...)`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with its refusals told."""
        answered = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await answered(request)
            except Exception as error:
                told = problem_of(error)
                if told is None:
                    raise
                status, problem = told
                if status == HTTPStatus.UNAUTHORIZED:
                    return _to_sign_in(request, problem.code == "session-over")
                return page(request, "refused.html", status, problem=problem, title=HTTPStatus(status).phrase)

        return handle


def _to_sign_in(request: Request, is_over: bool) -> Response:
    """And back, once that is done."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    why = "&over=1" if is_over else ""
    return RedirectResponse(f"/sign-in?next={quote(wanted, safe='')}{why}", HTTPStatus.SEE_OTHER, dict(HEADERS))
