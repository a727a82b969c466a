"""Showback over HTTP: what became of all GPU time of a window, which queue, user, class or job had it, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Semaphore
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response

from reconciler.access.rights import Rights
from reconciler.analysis.showback.account import GpuAccount, GpuKind, account_of, unwatched
from reconciler.analysis.showback.activity import measured_use
from reconciler.analysis.showback.statement import JobFacts, MeasuredUse, ShowbackBy, statement_of
from reconciler.analysis.showback.tariff import Per, Tariff, seconds_of
from reconciler.api.answers import answer, answers, refuses
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import PastRecords, Services
from reconciler.api.showback_payloads import NOT_ON_RECORD, CapacityRow, Showback
from reconciler.api.timeline import TimeWindow
from reconciler.api.timeline_routes import Written, kept_placements, window_of
from reconciler.control.capacity import WATCH_GAP
from reconciler.protocols.gpu_use import STEPS, GpuUses, UseStep
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName
from solver.policy.policy import GpuUseRecords

AT_ONCE_MAX: Final = 2
"""A month of a large cluster takes seconds of a core: more at once would keep other requests waiting."""


class ShowbackRoutes:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns = Semaphore(AT_ONCE_MAX)
        self.router = APIRouter(tags=["cluster"])
        self.router.add_api_route("/v1/showback", self.showback, responses=answers(Showback, refuses(404)))

    def showback(
        self,
        request: Request,
        by: ShowbackBy = "queue",
        since: Annotated[str, Query(alias="from", max_length=40)] = "7d",
        to: Written = "",
        charges: Literal["", "window", "day", "month"] = "",
    ) -> Response:
        """What became of all GPU time, and which queue, user, class, job or GPU type had it."""
        services, now = self._services, self._services.clock.now()
        kept_placements(services)
        asked = window_of(since, to, now)
        if not self._turns.acquire(blocking=False):
            told = f"{AT_ONCE_MAX} others are being worked out."
            raise RequestRefusedError(503, "too-many-statements", told, "Try again in a few seconds.")
        try:
            return answer(_showback(services, request.state.rights, asked, by, charges))
        finally:
            self._turns.release()


def _showback(
    services: Services, rights: Rights, asked: TimeWindow, by: ShowbackBy, charges: Per | Literal[""]
) -> Showback:
    past = services.past
    if past is None:
        raise RequestRefusedError(
            404, "no-placements", "Capacity is not kept here.", "Ask the cluster's own monitoring."
        )
    _, policy = services.policy()
    window = _recorded(past, asked, policy.scheduling.keep_placements)
    spans = past.capacities.spans(window.start, window.end)
    account = account_of(window.start, window.end, spans, past.placements.in_window(window.start, window.end))
    tariff = Tariff(services.operations().rates, window.start, window.end, charges or "window")
    facts = JobFacts(
        {job.name: job for job in past.jobs.between(window.start, window.end)},
        past.jobs.saved(window.start),
        past.placements.of_job,
        _sight_of(rights),
        policy.scheduling.default_priority_class,
        _measured(services.use.past, account, policy.scheduling.gpu_use, asked.now),
    )
    statement = statement_of(account, facts, tariff, by)
    watches = past.capacities.watches(window.start, window.end)
    return Showback(
        by=by,
        asked_from=asked.start,
        start=window.start,
        end=window.end,
        unwatched_seconds=unwatched(window.start, window.end, watches, WATCH_GAP) / 1_000,
        overheld=seconds_of(account.overheld),
        currency=tariff.currency,
        capacity=tuple(_capacity_row(account, kind) for kind in sorted(account.totals)),
        rows=statement.rows,
        charges=statement.charges if charges else (),
    )


def _measured(uses: GpuUses | None, account: GpuAccount, kept: GpuUseRecords, now: Instant) -> MeasuredUse:
    """What is known of what GPUs did while they were held, by all that is kept of it."""
    if uses is None:
        return lambda _: None
    spans: dict[UseStep, Duration] = {"minute": kept.keep_minutes, "hour": kept.keep_hours, "day": kept.keep_days}
    kept_since = {step: Instant(now - span - STEPS[step]) for step, span in spans.items()}
    return measured_use(account.held, kept_since, uses.active)


def _recorded(past: PastRecords, asked: TimeWindow, keep: Duration) -> TimeWindow:
    """The part of a window that is over and on record. Raises RequestRefusedError where there is none."""
    begun, end = past.capacities.begun(), Instant(min(asked.end, asked.now))
    first = None if begun is None else Instant(max(begun, asked.now.after(-keep)))
    start = end if first is None else Instant(max(asked.start, first))
    if start < end:
        return TimeWindow(start, end, asked.now)
    told = "nothing is on record yet" if first is None else f"nothing is on record from before {first}"
    told, code = (told, NOT_ON_RECORD) if asked.start < asked.now else ("it has not begun yet", "invalid-parameter")
    raise RequestRefusedError(422, code, f"from: {told}.", "GET /v1/openapi.json has all parameters.")


def _sight_of(rights: Rights) -> Callable[[QueueName, str], bool]:
    """Whether a caller may see the jobs of a queue and user: asked once for each of them, not for each piece of time."""
    return cache(lambda queue, user: rights.may("see-job", queue, user))


def _capacity_row(account: GpuAccount, kind: GpuKind) -> CapacityRow:
    of = account.totals[kind]
    return CapacityRow(
        kind.pool,
        kind.gpu_type,
        seconds_of(of.total()),
        seconds_of(of["allocated"]),
        seconds_of(of["idle"]),
        seconds_of(of["reserved"]),
        seconds_of(of["unhealthy"]),
        seconds_of(of["partitioning"]),
    )
