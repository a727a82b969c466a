"""Signing in and out: a token is shown once, in the body of a form, and a cookie that no script can read stands for it."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from reconciler.access.oidc import BadTokenError
from reconciler.access.session_keeper import SessionKeeper
from reconciler.api.guard import SESSION_COOKIE
from reconciler.web.forms import form_fields
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import HEADERS, page, require_origin


class SignInRoutes:
    """The endpoints; `router` has them all."""

    def __init__(self, keeper: SessionKeeper) -> None:
        self._keeper = keeper
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        add = self.router.add_api_route
        add("/sign-in", self.form)
        add("/sign-in", self.sign_in, methods=["POST"])
        add("/sign-out", self.sign_out, methods=["POST"])

    def form(self, request: Request) -> Response:
        """The form. What is in the address is shown to nobody but who asked for it, and never a token."""
        return _form(request, _place(request.query_params.get("next", "")), is_over="over" in request.query_params)

    async def sign_in(self, request: Request) -> Response:
        """Begin a session with a token."""
        require_origin(request)
        given = await form_fields(request)
        wanted = _place(given.get("next", ""))
        try:
            secret, session = await run_in_threadpool(self._keeper.begin, given.get("token", "").strip())
        except BadTokenError as error:
            return _form(request, wanted, HTTPStatus.UNAUTHORIZED, problem=f"This token lets nobody in: {error}.")
        answer = RedirectResponse(wanted, HTTPStatus.SEE_OTHER, dict(HEADERS))
        lasts_s = max(0, session.until - session.at) // 1000
        _set_cookie(answer, secret, lasts_s)
        return answer

    async def sign_out(self, request: Request) -> Response:
        """End the session of this browser."""
        require_origin(request)
        secret = request.cookies.get(SESSION_COOKIE, "")
        if secret:
            await run_in_threadpool(self._keeper.end, secret)
        answer = RedirectResponse("/sign-in", HTTPStatus.SEE_OTHER, dict(HEADERS))
        _set_cookie(answer, "", 0)
        return answer


def _set_cookie(answer: Response, value: str, lasts_s: int) -> None:
    """Lax: a link from elsewhere leads to where it says, signed in, and nothing that changes anything is a link."""
    answer.set_cookie(SESSION_COOKIE, value, lasts_s, path="/", secure=True, httponly=True, samesite="lax")


def _form(
    request: Request, wanted: str, status: int = HTTPStatus.OK, problem: str = "", *, is_over: bool = False
) -> Response:
    return page(request, "sign-in.html", status, next=wanted, problem=problem, is_over=is_over)


def _place(wanted: str) -> str:
    """A path of this server; "/" for anything else: browsers take two slashes, or a backslash, for another server."""
    is_path = wanted.startswith("/") and wanted.isprintable() and not wanted.startswith("//") and "\\" not in wanted
    return wanted if is_path and not wanted.startswith("/sign-") else "/"
