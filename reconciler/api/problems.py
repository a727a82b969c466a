"""Every refusal in one JSON form: code, message, fix."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from reconciler.api.answers import answer
from reconciler.api.payloads import ApiProblem
from reconciler.backend import BackendUnreachableError
from reconciler.control import NoPolicyError
from reconciler.documents.problem import InvalidDocumentsError
from reconciler.store.job_source import DuplicateJobError
from reconciler.store.protocols import StoreUnusableError
from solver.plan.reasons import AnyReason


class RefusedError(Exception):
    """The request can't be served; the caller is told why and what to do."""

    def __init__(
        self, status: int, code: str, message: str, fix: str = "", reasons: tuple[AnyReason, ...] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = ApiProblem(code=code, message=message, fix=fix, reasons=reasons)


class NotReadyError(Exception):
    """The loop has not decided a round yet, so there is nothing to show."""


_ALWAYS: tuple[tuple[type[Exception], int, str, str], ...] = (
    (DuplicateJobError, 409, "job-exists", "Choose another name; to try again, repeat the idempotency key."),
    (StoreUnusableError, 503, "store-unusable", "See the server's log."),
    (NoPolicyError, 503, "no-policy", "`quorate status` says why. Try again once a revision is in force."),
    (NotReadyError, 503, "not-ready", "Try again in a moment."),
    (BackendUnreachableError, 503, "backend-unreachable", "Try again in a moment."),
)


def install(app: FastAPI) -> None:
    """Teach an app to answer errors as ApiProblem documents."""
    app.exception_handler(RefusedError)(_refused)
    app.exception_handler(InvalidDocumentsError)(_invalid_document)
    app.exception_handler(RequestValidationError)(_invalid_parameter)
    app.exception_handler(HTTPException)(_by_status)
    for kind, status, code, fix in _ALWAYS:
        app.exception_handler(kind)(_always(status, code, fix))
    app.exception_handler(Exception)(_unforeseen)


def _always(status: int, code: str, fix: str) -> Callable[[Request, Exception], Response]:
    def handle(_: Request, error: Exception) -> Response:
        # str() of a KeyError is its message in quotes.
        message = str(error.args[0]) if error.args else code
        return answer(ApiProblem(code=code, message=message, fix=fix), status)

    return handle


def _refused(_: Request, error: RefusedError) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if error.status == HTTPStatus.UNAUTHORIZED else {}
    return answer(error.problem, error.status, headers)


def _invalid_document(_: Request, error: InvalidDocumentsError) -> Response:
    first = error.problems[0]
    problem = ApiProblem(code="invalid-document", message=str(first), fix=first.fix, problems=error.problems)
    return answer(problem, 422)


def _invalid_parameter(_: Request, error: RequestValidationError) -> Response:
    told = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    return answer(ApiProblem(code="invalid-parameter", message=told, fix="See /v1/openapi.json."), 422)


def _by_status(_: Request, error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    code = status.phrase.lower().replace(" ", "-")
    return answer(ApiProblem(code=code, message=str(error.detail), fix="See /v1/openapi.json."), status, error.headers)


def _unforeseen(_: Request, __: Exception) -> Response:
    """What went wrong is for the server's log, where the error is raised again; the caller learns nothing of the inside."""
    return answer(ApiProblem(code="internal", message="The server failed.", fix="See the server's log."), 500)
