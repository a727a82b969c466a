"""Signing in and out, by a form or at an identity provider: a cookie that no script reads stands for the token that was shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import structlog
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from reconciler.access.client_secrets import ClientSecretError
from reconciler.access.code_flow import FLOW_MAX, CodeFlow, Refusal, SignInRefusedError, wanted_by
from reconciler.access.discovery import IssuerUnreachableError
from reconciler.access.oidc import BadTokenError
from reconciler.access.session_keeper import SessionKeeper
from reconciler.api.guard import SESSION_COOKIE, is_loopback
from reconciler.api.problems import RequestRefusedError
from reconciler.protocols.sessions import ConsoleSession
from reconciler.web.forms import form_fields
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import HEADERS, page, require_origin

T = TypeVar("T")

FLOW_COOKIE: Final = "__Host-quorate-sign-in"

_AT_ONCE: Final = 8
"""Identity providers are asked in so many threads at most, and in none of those that pages and the API need."""

_STATUS: Final[dict[Refusal, HTTPStatus]] = {
    "unknown-issuer": HTTPStatus.NOT_FOUND,
    "not-let-in": HTTPStatus.FORBIDDEN,
    "token-refused": HTTPStatus.FORBIDDEN,
    "answer-incomplete": HTTPStatus.BAD_GATEWAY,
    "client-refused": HTTPStatus.BAD_GATEWAY,
}
"""The others are the browser's doing: 400."""


class Hindrance(NamedTuple):
    """Why a browser is not let in, in sentences, and its code for a colleague who may help."""

    told: str
    code: str = ""


class SignInRoutes:
    """The endpoints; `router` has them all. `external_url`: the origin of this server from outside; "": none is known."""

    def __init__(self, keeper: SessionKeeper, flow: CodeFlow, external_url: str = "") -> None:
        self._keeper, self._flow, self._external_url = keeper, flow, external_url
        self._asking = ThreadPoolExecutor(_AT_ONCE, "identity-provider")
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        add = self.router.add_api_route
        add("/sign-in", self.form)
        add("/sign-in", self.sign_in, methods=["POST"])
        add("/sign-in/with/{place:path}", self.to_provider)
        add("/sign-in/callback/{place:path}", self.from_provider)
        add("/sign-out", self.sign_out, methods=["POST"])

    def form(self, request: Request) -> Response:
        """The form. What is in the address is shown to nobody but who asked for it, and never a token."""
        return self._page(request, _place(request.query_params.get("next", "")), is_over="over" in request.query_params)

    async def sign_in(self, request: Request) -> Response:
        """Begin a session with a token."""
        require_origin(request)
        _require_https(request)
        given = await form_fields(request)
        wanted = _place(given.get("next", ""))
        try:
            secret, session = await run_in_threadpool(self._keeper.begin, given.get("token", "").strip())
        except BadTokenError as error:
            problem = Hindrance(f"This token is no good here: {error}.")
            return self._page(request, wanted, HTTPStatus.UNAUTHORIZED, problem)
        return _let_in(wanted, secret, session)

    async def to_provider(self, place: str, request: Request) -> Response:
        """Send the browser to an identity provider: a link, as a form may lead nowhere but here (`form-action`)."""
        wanted, own = _place(request.query_params.get("next", "")), self._own_address(request)
        if not own:
            raise RequestRefusedError(403, "external-url-missing", _NO_ADDRESS, _NO_ADDRESS_FIX)
        redirect_uri = f"{own}/sign-in/callback/{quote(place, safe='/:')}"
        try:
            cookie, url = await self._asked(lambda: self._flow.begin(place, redirect_uri, wanted))
        except (SignInRefusedError, IssuerUnreachableError) as error:
            return self._refused(request, place, wanted, error)
        answer = RedirectResponse(url, HTTPStatus.SEE_OTHER, {**HEADERS, "Cache-Control": "no-store"})
        # Lax: the way back begins at another site.
        _set_cookie(answer, FLOW_COOKIE, cookie, FLOW_MAX // 1000)
        return answer

    async def from_provider(self, place: str, request: Request) -> Response:
        """The way back: begin a session with what the provider says of its user."""
        cookie, given = request.cookies.get(FLOW_COOKIE, ""), _answer_in(request)
        try:
            signed = await self._asked(lambda: self._flow.finish(place, cookie, given))
        except (SignInRefusedError, IssuerUnreachableError, ClientSecretError) as error:
            answer = self._refused(request, place, _place(wanted_by(cookie)), error)
            if getattr(error, "code", "") == "sign-in-unknown":
                # A link from elsewhere may have led here: what is under way goes on.
                return answer
        else:
            secret, session = await run_in_threadpool(self._keeper.begin_at, signed.issuer, signed.caller)
            answer = _let_in(_place(signed.wanted), secret, session)
        _set_cookie(answer, FLOW_COOKIE, "", 0)
        return answer

    async def sign_out(self, request: Request) -> Response:
        """End the session of this browser."""
        require_origin(request)
        secret = request.cookies.get(SESSION_COOKIE, "")
        if secret:
            await run_in_threadpool(self._keeper.end, secret)
        answer = RedirectResponse("/sign-in", HTTPStatus.SEE_OTHER, dict(HEADERS))
        _set_cookie(answer, SESSION_COOKIE, "", 0)
        return answer

    async def _asked(self, ask: Callable[[], T]) -> T:
        """What an identity provider says, beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._asking, ask)

    def _own_address(self, request: Request) -> str:
        """Where browsers come back to; "": they would not have the cookie there."""
        if self._external_url:
            return self._external_url
        is_here = is_loopback(request.url.hostname or "")
        return f"{request.url.scheme}://{request.url.netloc}" if is_here else ""

    def _refused(
        self,
        request: Request,
        place: str,
        wanted: str,
        error: SignInRefusedError | IssuerUnreachableError | ClientSecretError,
    ) -> Response:
        """Told to the user, and to the server's operator where there is something to do."""
        if isinstance(error, SignInRefusedError):
            status, problem = _STATUS.get(error.code, HTTPStatus.BAD_REQUEST), Hindrance(str(error), error.code)
        elif isinstance(error, ClientSecretError):
            # The path of a file is nothing for a stranger.
            told = "This server's secret at the identity provider can't be used. Its operator has to mend that."
            status, problem = HTTPStatus.SERVICE_UNAVAILABLE, Hindrance(told, "client-secret-unusable")
        else:
            status, problem = (
                HTTPStatus.SERVICE_UNAVAILABLE,
                Hindrance(f"{error} Try again in a minute.", "issuer-unreachable"),
            )
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or problem.code == "token-refused":
            structlog.get_logger("quorate").warning("sign-in", place=place, code=problem.code, problem=str(error))
        return self._page(request, wanted, status, problem)

    def _page(
        self,
        request: Request,
        wanted: str,
        status: int = HTTPStatus.OK,
        problem: Hindrance | None = None,
        *,
        is_over: bool = False,
    ) -> Response:
        places = [issuer.place for issuer in self._flow.issuers()]
        query = f"?next={quote(wanted, safe='')}" if wanted != "/" else ""
        ways = [(place, f"{self._external_url}/sign-in/with/{quote(place, safe='/:')}{query}") for place in places]
        can_go = bool(self._own_address(request))
        shown = {"ways": ways if can_go else [], "lacks_url": bool(ways) and not can_go}
        return page(request, "sign-in.html", status, next=wanted, problem=problem, is_over=is_over, **shown)


_NO_ADDRESS: Final = "No identity provider sends its users back to this address."
_NO_ADDRESS_FIX: Final = "The server's operator names its address from outside: quorate run --external-url."


def _require_https(request: Request) -> None:
    """Raises RequestRefusedError where the browser would not keep the cookie, and the token came over the network as it is.

    Only the Origin says what the browser sees: a proxy may speak HTTPS for this server.
    """
    origin = urlsplit(request.headers["origin"])
    if origin.scheme != "https" and not is_loopback(origin.hostname or ""):
        raise RequestRefusedError(
            403,
            "cookie-needs-https",
            "This page came over plain HTTP, and so did your token: other users of the network may have read it. The sign-in "
            "failed: browsers keep the cookie of a session only over HTTPS, or from the machine of the server itself.",
            "Have the token replaced. The server's operator puts a proxy with TLS before it, and names that with --external-url.",
        )


def _let_in(wanted: str, secret: str, session: ConsoleSession) -> Response:
    answer = RedirectResponse(wanted, HTTPStatus.SEE_OTHER, dict(HEADERS))
    _set_cookie(answer, SESSION_COOKIE, secret, max(0, session.until - session.at) // 1000)
    return answer


def _set_cookie(answer: Response, name: str, value: str, lasts_s: int) -> None:
    """Lax: a link from elsewhere leads to where it says, signed in, and nothing that changes anything is a link."""
    answer.set_cookie(name, value, lasts_s, path="/", secure=True, httponly=True, samesite="lax")


def _answer_in(request: Request) -> dict[str, str]:
    """Of a provider, in the address. What is there twice is no answer (RFC 6749, section 3.1)."""
    given = request.query_params
    twice = [name for name in given if len(given.getlist(name)) > 1]
    if twice:
        raise RequestRefusedError(400, "answer-incomplete", "The identity provider's answer says a thing twice.")
    return dict(given)


def _place(wanted: str) -> str:
    """A path of this server; "/" for anything else: browsers take two slashes, or a backslash, for another server."""
    is_path = wanted.startswith("/") and wanted.isprintable() and not wanted.startswith("//") and "\\" not in wanted
    return wanted if is_path and not wanted.startswith("/sign-") else "/"
