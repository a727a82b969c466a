"""A typed client of the API, for the command line, programs and notebooks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar
from urllib.parse import quote

from reconciler.access.token_file import default_token_file, read_token, token_in_environment
from reconciler.api.gpu_payloads import GpuList
from reconciler.api.group_payloads import GroupView, NameView, TrialList
from reconciler.api.payloads import (
    LOG_BYTES_MAX,
    NEXT_OFFSET,
    CheckpointList,
    EventList,
    JobList,
    JobView,
    NodeList,
    PolicyView,
    QueueList,
    RoundList,
    Status,
    WhoAmI,
    Why,
)
from reconciler.api.top import Top
from reconciler.client.calls import AgentCalls, AlertCalls, AuditCalls, ByHand, FollowingCalls, PastCalls
from reconciler.client.transport import (
    DEFAULT_SERVER,
    SERVER_VARIABLE,
    ApiError,
    Transport,
)
from reconciler.client.watch import Watching
from reconciler.model.job_record import JobState
from reconciler.model.job_runs import as_id
from reconciler.model.task_log import piece_at
from reconciler.protocols.history import KeptEvent
from reconciler.protocols.rounds import RoundRecord, RoundSummary
from solver.model.document import API_VERSION, decode, encode
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, JobSpec

if TYPE_CHECKING:
    from reconciler.client.terminal import Attachment

T = TypeVar("T")

SILENCE_S: Final = 2.0
"""A job that is waited for is looked at again after so long without an event: it may change a moment after its event is told."""


class Client:
    """Calls one server, as a context manager. Every method raises ServerUnreachableError, NotAuthorisedError or ApiError.

    `variable`: of the environment, which names the server, for errors; "": none does.
    """

    def __init__(self, server: str, token: str | None, variable: str = "") -> None:
        self._transport = Transport(server, token, variable)
        self.server = self._transport.server
        self.agents = AgentCalls(self._transport)
        self.alerts = AlertCalls(self._transport)
        self.audit = AuditCalls(self._transport)
        self.by_hand = ByHand(self._transport)
        self.following = FollowingCalls(self._transport)
        self.past = PastCalls(self._transport)

    def submit(self, name: JobName, spec: JobSpec, idempotency_key: str = "") -> JobView:
        """Submit a job; with a key, repeating it is harmless."""
        document = {"apiVersion": API_VERSION, "kind": "Job", "metadata": {"name": name}, "spec": spec}
        return self.submit_document(encode(document), idempotency_key)

    def submit_document(self, document: bytes, idempotency_key: str = "") -> JobView:
        """Submit a Job document, YAML or JSON, as its owner wrote it."""
        return decode(self._submitted("/v1/jobs", document, idempotency_key), JobView)

    def submit_group(self, document: bytes, idempotency_key: str = "") -> GroupView:
        """Submit an array (a Job document with one) or a Pipeline document, YAML or JSON, whole or not at all."""
        return decode(self._submitted("/v1/groups", document, idempotency_key), GroupView)

    def test(self, document: bytes) -> TrialList:
        """What would become of a Job or Pipeline document if it were submitted now. Nothing is kept."""
        return decode(self._transport.call("POST", "/v1/jobs:test", content=document), TrialList)

    def group(self, name: str) -> GroupView:
        """One array or pipeline with its jobs."""
        return self._get(_group_path(name), GroupView)

    def cancel_group(self, name: str) -> GroupView:
        """Ask for every job of an array or pipeline to end."""
        return decode(self._transport.call("POST", f"{_group_path(name)}/cancel"), GroupView)

    def jobs(
        self,
        limit: int = 1_000,
        cursor: str = "",
        *,
        queue: str = "",
        user: str = "",
        states: Iterable[JobState] = (),
        prefix: str = "",
        since: str = "",
        to: str = "",
        group: str = "",
    ) -> JobList:
        """A page of the newest jobs that the caller may see: of a queue and those below it, of a user, in one of these states,
        with a name that begins so, that had not ended at `since`, and had been submitted before `to` (each a time, or a span before
        now), of an array or pipeline. `next` of a page is the cursor of the one after it.
        """
        named = {
            "cursor": cursor,
            "queue": queue,
            "user": user,
            "prefix": prefix,
            "from": since,
            "to": to,
            "group": group,
        }
        given = {name: value for name, value in named.items() if value}
        return self._get("/v1/jobs", JobList, limit=limit, state=list(states), **given)

    def all_jobs(
        self,
        *,
        queue: str = "",
        user: str = "",
        states: Iterable[JobState] = (),
        prefix: str = "",
        since: str = "",
        to: str = "",
        group: str = "",
    ) -> Iterator[JobView]:
        """All of these, page by page, newest first."""
        wanted, cursor = tuple(states), ""
        while True:
            page = self.jobs(
                cursor=cursor, queue=queue, user=user, states=wanted, prefix=prefix, since=since, to=to, group=group
            )
            yield from page.items
            cursor = page.next
            if not cursor:
                return

    def newest(self, name: str) -> str:
        """The id of the newest job, array or pipeline that is called so, of those the caller may see; `train#2` is an id already.

        A name that nothing has stays as it is.
        """
        exact = as_id(JobName(name))
        if exact is not None:
            return exact
        try:
            return self._get(f"/v1/names/{quote(name, safe='')}", NameView).id
        except ApiError as error:
            # A server of an older release does not know the route: there a name was used once, and is the id.
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return name

    def job(self, name: str) -> JobView:
        """One job."""
        return self._get(_job_path(name), JobView)

    def top(self) -> Top:
        """What runs now."""
        return self._get("/v1/top", Top)

    def events(self, name: str, limit: int = 100, cursor: str = "") -> EventList:
        """What happened to a job: the newest, oldest first. `next` is the cursor of those before them."""
        return self._get(f"{_job_path(name)}/events", EventList, limit=limit, **_cursor(cursor))

    def watch(self, subject: str = "", after: int | None = None) -> Iterator[KeptEvent]:
        """Events as they happen, of all or of one job, node or revision: from now on, or from behind a number.

        It has no end, and outlives connections and restarts of the server: no event comes twice, none is left out.
        """
        return Watching(self._transport, subject, after).events()

    def changes(self, name: str, until_s: float | None = None) -> Iterator[JobView]:
        """A job now, and again whenever it may have changed, until a time of the monotonic clock."""
        left_s = None if until_s is None else until_s - time.monotonic()
        silence_s = SILENCE_S if left_s is None else max(0.05, min(SILENCE_S, left_s))
        for _ in Watching(self._transport, name, silence_s=silence_s).signs():
            yield self.job(name)
            if until_s is not None and time.monotonic() >= until_s:
                return

    def wait(self, name: str, timeout_s: float | None = None) -> JobView:
        """The job once it has ended, however it did. Raises TimeoutError."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        for view in self.changes(name, until_s):
            if view.outcome is not None:
                return view
        raise TimeoutError(f"{name} has not ended within {timeout_s} seconds")

    def checkpoints(self, name: str) -> CheckpointList:
        """What a job has saved."""
        return self._get(f"{_job_path(name)}/checkpoints", CheckpointList)

    def why(self, name: str) -> Why:
        """Why a job is where it is."""
        return self._get(f"{_job_path(name)}/why", Why)

    def log(
        self, name: str, group: str = "", index: int = 0, attempt: int = 0, offset: int = 0, limit: int = LOG_BYTES_MAX
    ) -> bytes:
        """Up to `limit` bytes of a task's log from `offset`; b"" at its end so far. The next: `offset_after(offset, piece)`."""
        task: dict[str, str | int] = {"group": group, "index": index, "attempt": attempt}
        answer = self._transport.answer("GET", f"{_job_path(name)}/logs", task | {"offset": offset, "limit": limit})
        return piece_at(offset, answer.content, int(answer.headers.get(NEXT_OFFSET, 0)))

    def attach(self, name: str, group: str = "", index: int = 0) -> AbstractContextManager[Attachment]:
        """Attached to the terminal of a task that runs, by default of the first group's first, within a `with` block."""
        from reconciler.client.terminal import attachment

        return attachment(self._transport, f"{_job_path(name)}/attach", {"group": group, "index": index})

    def cancel(self, name: str) -> JobView:
        """Ask for a job to end."""
        return self._ask(name, "cancel")

    def suspend(self, name: str) -> JobView:
        """Let a job give back what it holds, and wait until it is resumed."""
        return self._ask(name, "suspend")

    def resume(self, name: str) -> JobView:
        """Let a suspended job go on."""
        return self._ask(name, "resume")

    def requeue(self, name: str) -> JobView:
        """Let a job give back what it holds, and begin anew. Not repeated: it may have begun anew by then."""
        return self._ask(name, "requeue", repeatable=False)

    def queues(self, *, users: bool = False) -> QueueList:
        """The queue tree and its use. `users`: with the users of queues that these share fairly."""
        return self._get("/v1/queues", QueueList, **({"users": "true"} if users else {}))

    def nodes(self) -> NodeList:
        """Every node and the jobs that hold its devices."""
        return self._get("/v1/nodes", NodeList)

    def gpus(self, limit: int = 1_000, cursor: str = "", **chosen: str) -> GpuList:
        """A page of GPUs with what they do. `chosen`: of a `node`, `queue` or `job`, or of a type (`gpuType`)."""
        return self._get("/v1/gpus", GpuList, limit=limit, **_cursor(cursor), **chosen)

    def rounds(self, limit: int = 20, cursor: str = "") -> RoundList:
        """A page of the newest rounds; `next` is the cursor of the one after it."""
        return self._get("/v1/rounds", RoundList, limit=limit, **_cursor(cursor))

    def all_rounds(self) -> Iterator[RoundSummary]:
        """Every round, page by page, newest first."""
        page = self.rounds(1_000)
        yield from page.items
        while page.next:
            page = self.rounds(1_000, page.next)
            yield from page.items

    def round(self, number: int) -> RoundRecord:
        """One round, whole."""
        return self._get(f"/v1/rounds/{number}", RoundRecord)

    def snapshot(self, aliased: bool = False) -> Snapshot:
        """The world as the server last observed it; `aliased`: without names of users and jobs."""
        return self._get("/v1/snapshot/aliased" if aliased else "/v1/snapshot", Snapshot)

    def status(self) -> Status:
        """Conditions, revisions and the leader."""
        return self._get("/v1/status", Status)

    def ready(self) -> bool:
        """Whether the server decides rounds, observes, or stands by to lead; where not, `status` says why."""
        return self._transport.says_yes("/readyz")

    def policy(self) -> PolicyView:
        """The policy in force."""
        return self._get("/v1/policy", PolicyView)

    def metrics(self) -> str:
        """Figures in Prometheus's text format."""
        return self._transport.call("GET", "/metrics").decode()

    def who_am_i(self) -> WhoAmI:
        """The token's user, and where they may submit."""
        return self._get("/v1/whoami", WhoAmI)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submitted(self, path: str, document: bytes, key: str) -> bytes:
        headers = {"Idempotency-Key": key} if key else {}
        return self._transport.call("POST", path, content=document, headers=headers, repeatable=bool(key))

    def _ask(self, name: str, verb: str, *, repeatable: bool = True) -> JobView:
        return decode(self._transport.call("POST", f"{_job_path(name)}/{verb}", repeatable=repeatable), JobView)

    def _get(self, path: str, kind: type[T], **params: str | int | list[str]) -> T:
        return decode(self._transport.call("GET", path, params=params), kind)


def connect(server: str | None = None) -> Client:
    """A client for the server given, else of QUORATE_SERVER, else on this machine; its token from QUORATE_TOKEN or the file.

    Raises TokenFileError for no token, and a file of one that others can read or is not there. Without one the server decides.
    """
    named = os.environ.get(SERVER_VARIABLE)
    variable = SERVER_VARIABLE if named and not server else ""
    return Client(server or named or DEFAULT_SERVER, token_in_environment() or _token(), variable)


def _token() -> str | None:
    named = os.environ.get("QUORATE_TOKEN_FILE")
    path = Path(named or default_token_file())
    # A named file is meant. A usual one in a folder that is closed to us is another user's, where Path.exists would raise.
    return read_token(path) if named or os.path.exists(path) else None


def _cursor(cursor: str) -> dict[str, str]:
    return {"cursor": cursor} if cursor else {}


def _job_path(name: str) -> str:
    return f"/v1/jobs/{quote(name, safe='')}"


def _group_path(name: str) -> str:
    return f"/v1/groups/{quote(name, safe='')}"
