"""Time: what held GPUs of nodes, or in queues, what will, and until when; as bars in a window that its address names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Final, Literal, NamedTuple

from fastapi import APIRouter, Query, Request, Response

from reconciler.access.rights import Rights
from reconciler.api.services import Services
from reconciler.api.timeline import rows_below
from reconciler.api.timeline_routes import queue_asked
from reconciler.web.node_pages import NodeFilter, matching
from reconciler.web.node_sight import NodeSights
from reconciler.web.outlook import Outlooks
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import page
from reconciler.web.pass_memo import PassMemo
from reconciler.web.past import Past
from reconciler.web.queue_colours import QueueColours
from reconciler.web.time_bars import BarMaker
from reconciler.web.time_rows import node_rows, queue_rows
from reconciler.web.time_window import FORMS, ShownWindow, address, window_asked
from solver.model.cluster import NodeName
from solver.model.quantities import MilliGpu
from solver.model.workload import QueueName
from solver.policy.policy import Policy

NODES_SHOWN: Final = 20
QUEUES_SHOWN: Final = 12
SINCE: Final = "12h ago"
TO: Final = "in 12h"
TABLE_MAX: Final = 200
_WORDS_MAX: Final = 40

By = Literal["node", "queue"]


class TimeAsked(NamedTuple):
    """What a picture of time is of, beside its window; "" lets everything through. `page` counts from 1."""

    by: By
    rack: str = ""
    gpu_type: str = ""
    name: str = ""
    queue: str = ""
    page: int = 1

    def at(self, window: dict[str, str]) -> str:
        """Its address in a window."""
        number = str(self.page) if self.page > 1 else ""
        own = ("rack", self.rack), ("type", self.gpu_type), ("name", self.name), ("queue", self.queue), ("page", number)
        return address("/time", ("by", self.by if self.by != "node" else ""), *own, window)


class TimePages:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services, sights: NodeSights, outlooks: Outlooks, memo: PassMemo) -> None:
        self._services, self._sights, self._outlooks, self._memo = services, sights, outlooks, memo
        self._past = Past(services, memo)
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/time", self.time)

    def time(
        self,
        request: Request,
        by: By = "node",
        since: Annotated[str, Query(alias="from", max_length=_WORDS_MAX)] = "",
        to: Annotated[str, Query(max_length=_WORDS_MAX)] = "",
        rack: Annotated[str, Query(max_length=300)] = "",
        type: Annotated[str, Query(max_length=200)] = "",  # noqa: A002  (its name in the address)
        name: Annotated[str, Query(max_length=253)] = "",
        queue: Annotated[str, Query(max_length=63)] = "",
        page_number: Annotated[int, Query(ge=1, le=100_000, alias="page")] = 1,
    ) -> Response:
        """Nodes rack by rack, or the queues right below one, page by page."""
        # A form sends what was left empty, too.
        shown = window_asked(since.strip() or SINCE, to.strip() or TO, self._services.clock.now())
        asked = TimeAsked(by, rack.strip(), type, name.strip(), queue.strip(), page_number)
        policy, top = queue_asked(self._services, asked.queue)
        rights: Rights = request.state.rights
        colours = QueueColours.of(policy)
        outlook = self._outlooks.latest()
        maker = BarMaker(outlook, colours, rights, shown)
        if by == "node":
            names = self._nodes(asked)
            size, count = NODES_SHOWN, len(names)
            some = names[(page_number - 1) * size : page_number * size]
            rows = node_rows(some, self._sights.latest().index, self._past, outlook, maker, shown)
        else:
            rows_of = rows_below(policy, top)
            queues = list(dict.fromkeys(rows_of.values()))
            size, count = QUEUES_SHOWN, len(queues)
            on_page = frozenset(queues[(page_number - 1) * size : page_number * size])
            row_of = {each: row for each, row in rows_of.items() if row in on_page}
            rows = queue_rows(row_of, self._guaranteed(), self._past, outlook, maker, shown)
        bars = [(row.name, each.bar) for row in rows for each in row.bars]
        return page(
            request,
            "time.html",
            rows=rows,
            bars=bars[:TABLE_MAX],
            bar_count=len(bars),
            asked=asked,
            shown=shown,
            as_of=outlook.snapshot.time,
            is_kept=self._past.is_kept,
            legend=colours.named,
            types=sorted({node.gpu_type for node in self._sights.latest().index.nodes.values()}),
            queues=[each.name for each in policy.queues],
            parents={each.parent for each in policy.queues},
            above=_above(policy, top),
            count=count,
            first=(page_number - 1) * size + 1,
            forms=FORMS,
            newer=asked._replace(page=page_number - 1).at(_stated(shown)) if page_number > 1 else "",
            older=asked._replace(page=page_number + 1).at(_stated(shown)) if page_number * size < count else "",
            **_ways(asked, shown),
        )

    def _nodes(self, asked: TimeAsked) -> Sequence[NodeName]:
        """Those with GPUs that are asked for, rack by rack."""
        sight = self._sights.latest()

        def found() -> Sequence[NodeName]:
            within = matching(sight, NodeFilter(asked.rack, asked.gpu_type))
            return [name for name in within if sight.index.nodes[name].gpus and asked.name in name]

        return self._memo.of(("time-nodes", asked.rack, asked.gpu_type, asked.name), found)

    def _guaranteed(self) -> dict[QueueName, MilliGpu]:
        """Of each queue, GPUs of all types together."""
        uses = self._services.queue_uses()
        return {queue.name: MilliGpu(sum(int(line.guaranteed) for line in use.gpus)) for queue, use in uses}


def _ways(asked: TimeAsked, shown: ShownWindow) -> dict[str, object]:
    """Addresses of the windows and pictures around this one."""
    first: Callable[[dict[str, str]], str] = asked._replace(page=1).at
    return {
        "earlier": asked.at(shown.earlier()),
        "later": asked.at(shown.later()),
        "now_at": asked.at(shown.around_now()),
        "lengths": [(words, is_this, asked.at(window)) for words, is_this, window in shown.lengths()],
        "by_node": TimeAsked("node").at(_stated(shown)),
        "by_queue": TimeAsked("queue").at(_stated(shown)),
        "all_of_it": TimeAsked(asked.by).at(_stated(shown)),
        "of_queue": lambda name: asked._replace(queue=name, page=1).at(_stated(shown)),
        "of_node": lambda name: asked._replace(name=name, page=1).at(_stated(shown)),
        "first_page": first(_stated(shown)),
    }


def _stated(shown: ShownWindow) -> dict[str, str]:
    """As it was asked for; what stands for itself is left out."""
    is_usual = shown.since == SINCE and shown.to == TO
    return {} if is_usual else {"from": shown.since, "to": shown.to}


def _above(policy: Policy, queue: QueueName | None) -> list[QueueName]:
    """The queue and those above it, from the top down."""
    parents = {each.name: each.parent for each in policy.queues}

    def climb() -> Iterator[QueueName]:
        at = queue
        while at is not None:
            yield at
            at = parents.get(at)

    return list(climb())[::-1]
