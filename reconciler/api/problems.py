"""Every refusal in one JSON form, application/problem+json of RFC 9457: what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Response
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from reconciler.access.discovery import IssuerUnreachableError
from reconciler.access.token_file import TokenFileError
from reconciler.api.answers import answer
from reconciler.api.payloads import ApiProblem
from reconciler.control.control import NoPolicyError
from reconciler.model.problem import InvalidDocumentsError
from reconciler.protocols.backend import BackendUnreachableError
from reconciler.protocols.job_source import DuplicateJobError, JobsAreElsewhereError
from reconciler.protocols.store_errors import StoreFullError, StoreUnreachableError, StoreUnusableError
from solver.plan.reasons import AnyReason

MEDIA_TYPE: Final = "application/problem+json"


class RequestRefusedError(Exception):
    """The request can't be served; the caller is told why and what to do."""

    def __init__(
        self, status: int, code: str, message: str, fix: str = "", reasons: tuple[AnyReason, ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = ApiProblem(code=code, detail=message, fix=fix, reasons=reasons)


class NotReadyError(Exception):
    """The loop has not decided a round yet, so there is nothing to show."""


_ALWAYS: tuple[tuple[type[Exception], int, str, str], ...] = (
    (
        DuplicateJobError,
        409,
        "job-exists",
        "Choose another name; a job's is free again once it has ended. To try again, repeat the idempotency key.",
    ),
    (
        StoreFullError,
        503,
        "store-full",
        "The server's operator frees some space. Then try again, a submission with the same idempotency key.",
    ),
    (
        StoreUnreachableError,
        503,
        "store-unreachable",
        "Try again in a moment, a submission with the same idempotency key.",
    ),
    (StoreUnusableError, 503, "store-unusable", "See the server's log."),
    (NoPolicyError, 503, "no-policy", "`quorate status` says why. Try again once a revision is in force."),
    (NotReadyError, 503, "not-ready", "Try again in a moment."),
    (BackendUnreachableError, 503, "backend-unreachable", "Try again in a moment."),
    (IssuerUnreachableError, 503, "issuer-unreachable", "Try again in a minute, or use a token of the token file."),
    (TokenFileError, 503, "token-file-unusable", "The server's operator has to mend its token file."),
)


def problem_of(error: Exception) -> tuple[int, ApiProblem] | None:
    """How a refusal of this kind is told, with its status; None: it is none, and the server has failed."""
    if isinstance(error, RequestRefusedError):
        return error.status, error.problem
    if isinstance(error, RequestValidationError | WebSocketRequestValidationError):
        told = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return 422, ApiProblem(code="invalid-parameter", detail=told, fix="See /v1/openapi.json.")
    if isinstance(error, JobsAreElsewhereError):
        return 409, ApiProblem(code="jobs-are-elsewhere", detail=str(error), fix=error.fix)
    for kind, status, code, fix in _ALWAYS:
        if isinstance(error, kind):
            return status, ApiProblem(code=code, detail=_message(error) or code, fix=fix)
    return None


def _message(error: Exception) -> str:
    """str() of a KeyError is its message in quotes."""
    return str(error.args[0]) if error.args else ""


_Answer = Callable[[HTTPConnection, Any], Response]


def install(app: FastAPI) -> None:
    """Teach an app to answer errors as ApiProblem documents, to WebSockets too where they were not accepted yet."""
    answers: dict[type[Exception], _Answer] = {
        RequestRefusedError: _refused,
        InvalidDocumentsError: _invalid_document,
        RequestValidationError: _known,
        WebSocketRequestValidationError: _known,
        HTTPException: _by_status,
        JobsAreElsewhereError: _known,
        **dict.fromkeys((kind for kind, *_ in _ALWAYS), _known),
    }
    for kind, answered in answers.items():
        app.exception_handler(kind)(_to_both(answered))
    app.exception_handler(Exception)(_unforeseen)


def _to_both(answered: _Answer) -> Callable[[HTTPConnection, Exception], Awaitable[Response | None]]:
    """A handler for requests, where the framework sends the answer, and for WebSockets, where it is sent here."""

    async def handle(connection: HTTPConnection, error: Exception) -> Response | None:
        response = answered(connection, error)
        if not isinstance(connection, WebSocket):
            return response
        await connection.send_denial_response(response)
        return None

    return handle


def problem_answer(
    request: HTTPConnection, problem: ApiProblem, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer, with what every problem of that status and code has."""
    complete = msgspec.structs.replace(
        problem,
        status=status,
        title=HTTPStatus(status).phrase,
        type=f"urn:quorate:problem:{problem.code}",
        instance=request.url.path,
    )
    return answer(complete, status, headers, MEDIA_TYPE)


def _known(request: HTTPConnection, error: Exception) -> Response:
    told = problem_of(error)
    return _unforeseen(request, error) if told is None else problem_answer(request, told[1], told[0])


def _refused(request: HTTPConnection, error: RequestRefusedError) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if error.status == HTTPStatus.UNAUTHORIZED else {}
    return problem_answer(request, error.problem, error.status, headers)


def _invalid_document(request: HTTPConnection, error: InvalidDocumentsError) -> Response:
    first = error.problems[0]
    problem = ApiProblem(code="invalid-document", detail=str(first), fix=first.fix, problems=error.problems)
    return problem_answer(request, problem, 422)


def _by_status(request: HTTPConnection, error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    code = status.phrase.lower().replace(" ", "-")
    problem = ApiProblem(code=code, detail=str(error.detail), fix="See /v1/openapi.json.")
    return problem_answer(request, problem, status, error.headers)


def _unforeseen(request: HTTPConnection, _: Exception) -> Response:
    """What went wrong is for the server's log, where the error is raised again; the caller learns nothing of the inside."""
    problem = ApiProblem(code="internal", detail="The server failed.", fix="See the server's log.")
    return problem_answer(request, problem, 500)
