"""Showback over HTTP: what became of all GPU time of a window, which queue, user, class or job had it, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from reconciler.access.rights import Rights
from reconciler.analysis.showback.account import GpuAccount, GpuKind, account_of, unwatched
from reconciler.analysis.showback.statement import Charge, JobFacts, ShowbackBy, ShowbackRow, statement_of
from reconciler.analysis.showback.tariff import Tariff, seconds_of
from reconciler.api.answers import answer, answers, refuses
from reconciler.api.payloads import Payload
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import PastRecords, Services
from reconciler.api.timeline import TimeWindow
from reconciler.api.timeline_routes import Written, kept_placements, window_of
from reconciler.control.capacity import WATCH_GAP
from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import QueueName


class CapacityRow(Document, frozen=True, omit_defaults=False):
    """GPU-seconds of one kind of GPUs, exactly: five states, and their sum, `capacity`. `pool` "": of nodes that were not known."""

    pool: str
    gpu_type: GpuType
    capacity: Decimal
    allocated: Decimal
    idle: Decimal
    reserved: Decimal
    unhealthy: Decimal
    partitioning: Decimal


class Showback(Payload, frozen=True, kw_only=True):
    """All GPU time from `start` to `end`: what became of it (`capacity`), and what each row had of what was allocated.

    `start` is later than what was asked for where capacity is on record only from then on (`asked_from`). `unwatched_seconds`: for
    how long no control plane was there to see changes; what was so before counts for that time. `overheld`: GPU-seconds that were
    held beyond what GPUs are, which are counted once; anything but 0 is a fault. `currency` "": nothing has a price.
    `charges`: the same time by period and price, where that is asked for.
    """

    by: ShowbackBy
    asked_from: Instant
    start: Instant
    end: Instant
    unwatched_seconds: float
    overheld: Decimal
    currency: str
    capacity: tuple[CapacityRow, ...]
    rows: tuple[ShowbackRow, ...]
    charges: tuple[Charge, ...] = ()


class ShowbackRoutes:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services) -> None:
        self._services = services
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
        asked, rights = window_of(since, to, now), request.state.rights
        if services.past is None:
            kept_placements(services)  # says why there are none
            raise RequestRefusedError(
                404, "no-capacity", "Capacity is not kept here.", "Ask the cluster's own monitoring."
            )
        window = self._recorded(services.past, asked)
        placements = kept_placements(services)
        spans = services.past.capacities.spans(window.start, window.end)
        account = account_of(window.start, window.end, spans, placements.in_window(window.start, window.end))
        _, policy = services.policy()
        tariff = Tariff(services.operations().rates, window.start, window.end, charges or "window")
        facts = JobFacts(
            {job.name: job for job in services.past.jobs.between(window.start, window.end)},
            services.past.jobs.saved(window.start),
            placements.of_job,
            _sight_of(rights),
            policy.scheduling.default_priority_class,
        )
        statement = statement_of(account, facts, tariff, by)
        watches = services.past.capacities.watches(window.start, window.end)
        return answer(
            Showback(
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
        )

    def _recorded(self, past: PastRecords, asked: TimeWindow) -> TimeWindow:
        """The part of a window that is over and on record. Raises RequestRefusedError where there is none."""
        _, policy = self._services.policy()
        begun, end = past.capacities.begun(), Instant(min(asked.end, asked.now))
        kept = asked.now.after(-policy.scheduling.keep_placements)
        start = end if begun is None else Instant(max(asked.start, begun, kept))
        if start >= end:
            told = (
                "nothing is on record yet" if begun is None else f"nothing is on record from before {max(begun, kept)}"
            )
            told = told if asked.start < asked.now else "it has not begun yet"
            raise RequestRefusedError(
                422, "invalid-parameter", f"from: {told}.", "GET /v1/openapi.json has all parameters."
            )
        return TimeWindow(start, end, asked.now)


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
