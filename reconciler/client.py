"""The one module that speaks HTTP to a server: typed calls, and errors sorted by who must act."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from reconciler.api.payloads import (
    LOG_BYTES_MAX,
    ApiProblem,
    EventList,
    Health,
    JobList,
    JobView,
    NodeList,
    PolicyView,
    QueueList,
    RoundList,
    Status,
    Why,
)
from reconciler.store.protocols import RoundRecord
from reconciler.token_file import default_token_file, read_token
from solver.world.document import API_VERSION, decode, encode
from solver.world.snapshot import Snapshot
from solver.world.workload import JobName, JobSpec

DEFAULT_PORT: Final = 7717
DEFAULT_SERVER: Final = f"http://127.0.0.1:{DEFAULT_PORT}"

_TIMEOUT_S = 30.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

T = TypeVar("T")


class ServerUnreachableError(Exception):
    """No server answers there."""


class ApiError(Exception):
    """The server refused; `problem` says why and what to do, with reasons and problems one by one."""

    def __init__(self, status: int, problem: ApiProblem) -> None:
        super().__init__(f"{problem.detail} {problem.fix}".strip())
        self.status = status
        self.problem = problem


class NotAuthorisedError(ApiError):
    """The token is missing or wrong, or does not allow this."""


class Client:
    """Calls one server. Every method raises ServerUnreachableError, NotAuthorisedError or ApiError.

    Close it, or use it as a context manager.
    """

    def __init__(self, server: str, token: str | None) -> None:
        self.server = server.rstrip("/")
        url = _parsed(self.server)
        self._http = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_TIMEOUT_S,
            # A proxy of the environment can't reach our own machine.
            trust_env=url.host not in _LOOPBACK,
        )

    def submit(self, name: JobName, spec: JobSpec, idempotency_key: str = "") -> JobView:
        """Submit a job; with a key, repeating it is harmless."""
        document = {"apiVersion": API_VERSION, "kind": "Job", "metadata": {"name": name}, "spec": spec}
        return self.submit_document(encode(document), idempotency_key)

    def submit_document(self, document: bytes, idempotency_key: str = "") -> JobView:
        """Submit a Job document, YAML or JSON, as its owner wrote it."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return decode(self._call("POST", "/v1/jobs", content=document, headers=headers), JobView)

    def jobs(self, limit: int = 1_000) -> JobList:
        """The newest jobs."""
        return self._get("/v1/jobs", JobList, limit=limit)

    def job(self, name: str) -> JobView:
        """One job."""
        return self._get(_job_path(name), JobView)

    def events(self, name: str, limit: int = 100) -> EventList:
        """What happened to a job."""
        return self._get(f"{_job_path(name)}/events", EventList, limit=limit)

    def why(self, name: str) -> Why:
        """Why a job is where it is."""
        return self._get(f"{_job_path(name)}/why", Why)

    def log(
        self, name: str, group: str = "", index: int = 0, attempt: int = 0, offset: int = 0, limit: int = LOG_BYTES_MAX
    ) -> bytes:
        """Up to `limit` bytes of a task's log from `offset`; b"" at the end of what there is so far.

        So following is asking again.
        """
        asked: dict[str, str | int] = {
            "group": group, "index": index, "attempt": attempt, "offset": offset, "limit": limit
        }  # fmt: skip
        return self._call("GET", f"{_job_path(name)}/logs", params=asked)

    def cancel(self, name: str) -> JobView:
        """Ask for a job to end."""
        return decode(self._call("POST", f"{_job_path(name)}/cancel"), JobView)

    def queues(self) -> QueueList:
        """The queue tree and its use."""
        return self._get("/v1/queues", QueueList)

    def nodes(self) -> NodeList:
        """Every node and who holds its devices."""
        return self._get("/v1/nodes", NodeList)

    def rounds(self, limit: int = 20) -> RoundList:
        """The newest rounds."""
        return self._get("/v1/rounds", RoundList, limit=limit)

    def round(self, number: int) -> RoundRecord:
        """One round, whole."""
        return self._get(f"/v1/rounds/{number}", RoundRecord)

    def snapshot(self) -> Snapshot:
        """The world as the server last observed it."""
        return self._get("/v1/snapshot", Snapshot)

    def status(self) -> Status:
        """Conditions, revisions and the leader."""
        return self._get("/v1/status", Status)

    def health(self) -> Health:
        """Whether the server decides rounds; that it answers says that it lives."""
        return self._get("/healthz", Health)

    def policy(self) -> PolicyView:
        """The policy in force."""
        return self._get("/v1/policy", PolicyView)

    def metrics(self) -> str:
        """Figures in Prometheus's text format."""
        return self._call("GET", "/metrics").decode()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _get(self, path: str, kind: type[T], **params: int) -> T:
        return decode(self._call("GET", path, params=params), kind)

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None = None,
        content: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> bytes:
        try:
            response = self._http.request(method, path, params=params, content=content, headers=headers)
        except httpx2.TransportError as error:
            raise ServerUnreachableError(
                f"{self.server}: no answer ({error}). Start it with `quorate run`, or name another with --server"
            ) from error
        if response.is_success:
            return response.content
        raise _error(response)


def connect(server: str | None = None) -> Client:
    """A client for the server given, else of QUORATE_SERVER, else on this machine; its token from QUORATE_TOKEN or the file.

    Raises TokenFileError for a token file that others can read. Without any token the server decides.
    """
    return Client(
        server or os.environ.get("QUORATE_SERVER") or DEFAULT_SERVER, os.environ.get("QUORATE_TOKEN") or _token()
    )


def _token() -> str | None:
    path = Path(os.environ.get("QUORATE_TOKEN_FILE") or default_token_file())
    return read_token(path) if path.exists() else None


def _parsed(server: str) -> httpx2.URL:
    try:
        url = httpx2.URL(server)
    except httpx2.InvalidURL as error:
        raise ServerUnreachableError(f"{server}: not a URL ({error}). Write it like {DEFAULT_SERVER}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ServerUnreachableError(f"{server}: not an http or https URL. Write it like {DEFAULT_SERVER}")
    return url


def _job_path(name: str) -> str:
    return f"/v1/jobs/{quote(name, safe='')}"


def _error(response: httpx2.Response) -> ApiError:
    try:
        problem = decode(response.content, ApiProblem)
    except msgspec.MsgspecError:
        problem = ApiProblem(
            code="not-quorate",
            detail=f"{response.url} answered {response.status_code} in words that are not Quorate's.",
            fix="Check the server's URL.",
        )
    kind = NotAuthorisedError if response.status_code in (401, 403) else ApiError
    return kind(response.status_code, problem)
