"""The page of a queue: what it held over time, stacked by the queues below it, and what it is guaranteed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from reconciler.access.rights import Rights
from reconciler.api.problems import NotReadyError
from reconciler.api.services import Services
from reconciler.api.timeline import rows_below
from reconciler.api.timeline_routes import queue_asked
from reconciler.api.views import users_seen, weight_hints
from reconciler.control.queue_use import QueueUse
from reconciler.control.use_summary import added_up
from reconciler.web.gpu_use_pages import budgets_seen
from reconciler.web.gpu_use_rows import BudgetRow, UseRow, budget_rows, queue_rows
from reconciler.web.origins import document_link
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import page
from reconciler.web.past import PastReader, by_type
from reconciler.web.queue_colours import QueueColours
from reconciler.web.time_window import FORMS, address, window_asked
from reconciler.web.use_picture import use_picture
from solver.model.cluster import GpuType
from solver.model.workload import QueueName
from solver.policy.tree import QueueTree

SINCE: Final = "7d ago"
TO: Final = "now"
_WORDS_MAX: Final = 40
NOTHING_HELD: Final = QueueUse(0, 0, ())
"""Of a queue that came with a policy by which no round has been decided."""


class QueueUsePages:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services, past: PastReader) -> None:
        self._services, self._past = services, past
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/queues/{queue}", self.queue)

    def queue(
        self,
        queue: str,
        request: Request,
        since: Annotated[str, Query(alias="from", max_length=_WORDS_MAX)] = "",
        to: Annotated[str, Query(max_length=_WORDS_MAX)] = "",
        type: Annotated[str, Query(max_length=200)] = "",  # noqa: A002  (its name in the address)
    ) -> Response:
        """One queue and one GPU type: that of which it held most, unless another is named."""
        policy, name = queue_asked(self._services, queue)
        shown = window_asked(since.strip() or SINCE, to.strip() or TO, self._services.clock.now())
        row_of = rows_below(policy, name)
        used = self._past.use_of_queues(row_of, shown)
        held = by_type(used)
        use = next((use for each, use in self._services.queue_uses() if each.name == name), NOTHING_HELD)
        lines = {line.gpu_type: line for line in use.gpus}
        shows_user = partial(request.state.rights.may, "see-job")
        types = sorted({*lines, *held})
        chosen = GpuType(type) if type else max(types, key=lambda each: _held(held, each), default=GpuType(""))
        own = next(each for each in policy.queues if each.name == name)
        order = list(dict.fromkeys(row_of.values()))
        path, of_type = f"/queues/{queue}", ("type", type)
        stated = {} if (shown.since, shown.to) == (SINCE, TO) else {"from": shown.since, "to": shown.to}
        return page(
            request,
            "queue.html",
            queue=own,
            link=document_link(own.origin),
            picture=use_picture(chosen, used, order, lines.get(chosen), shown, QueueColours.of(policy)),
            line=lines.get(chosen),
            host=use.host,
            used_now=self._used_now(own.name),
            users=users_seen(own.name, use, shows_user),
            hints=weight_hints(own.name, use, shows_user),
            budgets=self._budgets(own.name, request.state.rights),
            types=[(each, address(path, ("type", each), stated)) for each in types],
            chosen=chosen,
            below=[each.name for each in policy.queues if each.parent == name],
            shown=shown,
            step=used.steps.step,
            is_kept=self._past.is_kept,
            forms=FORMS,
            earlier=address(path, of_type, shown.earlier()),
            later=address(path, of_type, shown.later()),
            until_now=address(path, of_type, shown.until_now()),
            lengths=[
                (words, is_this, address(path, of_type, window)) for words, is_this, window in shown.lengths_of_past()
            ],
            in_time=address("/time", ("by", "queue"), ("queue", queue)),
        )

    def _used_now(self, name: QueueName) -> list[UseRow]:
        """What the GPUs do that it holds, with the queues below it, by type; [] before a pass has looked."""
        try:
            use = self._services.use.latest.of(self._services.snapshot())
        except NotReadyError:
            return []
        _, policy = self._services.policy()
        sums = added_up(use.queues, {queue.name: queue.parent for queue in policy.queues})
        return queue_rows({name: sums.get(name, ())})

    def _budgets(self, name: QueueName, rights: Rights) -> list[BudgetRow]:
        """Those that count what it holds: its own, and those of queues above it."""
        _, policy = self._services.policy()
        path = QueueTree.of(policy).path(name)
        return budget_rows((each for each in budgets_seen(self._services, rights) if each.queue in path), document_link)


def _held(held: Mapping[GpuType, Mapping[QueueName, Sequence[int]]], gpu_type: GpuType) -> int:
    return sum(map(sum, held.get(gpu_type, {}).values()))
