"""The past over HTTP, to be replayed under other policies: jobs and their attempts, without what they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from reconciler.access.rights import Rights
from reconciler.analysis.backtest.history_file import RecordedJob, recorded
from reconciler.api.answers import answer, answers
from reconciler.api.cursors import CURSOR_MAX, bad_cursor, cursor_of, link_to, place_of
from reconciler.api.payloads import RecordedJobList
from reconciler.api.redaction import bare_spec
from reconciler.api.services import Services
from reconciler.model.job_record import JobRecord
from reconciler.protocols.history import Event
from reconciler.protocols.job_source import UnknownJobError
from solver.model.workload import JobName

_EVENTS = 500


class HistoryRoutes:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(tags=["jobs"])
        self.router.add_api_route("/v1/history", self.history, responses=answers(RecordedJobList))

    def history(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 200,
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """Every job that the caller may see, live and ended, with its attempts, page by page; never what it runs."""
        rights: Rights = request.state.rights
        now = self._services.clock.now()
        try:
            # One more than wanted says whether there is another page.
            found = self._services.jobs.jobs(limit + 1, JobName(place_of(cursor)) or None)
        except UnknownJobError as error:
            raise bad_cursor() from error
        seen = (record for record in found[:limit] if rights.may("see-job", record.spec.queue, record.user))
        following = cursor_of(found[limit - 1].name) if len(found) > limit else ""
        page = RecordedJobList(items=tuple(map(self._recorded, seen)), at=now, next=following)
        return answer(page, headers=link_to(request, following))

    def _recorded(self, record: JobRecord) -> RecordedJob:
        return recorded(record, bare_spec(record.spec), reversed(list(self._newest(record.name))))

    def _newest(self, job: JobName) -> Iterator[Event]:
        """All events of a job, newest first."""
        before: int | None = None
        while True:
            chunk = self._services.history.events_before(job, before, _EVENTS)
            yield from (kept.event for kept in reversed(chunk))
            if len(chunk) < _EVENTS:
                return
            before = chunk[0].number
