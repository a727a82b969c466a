"""Time: what held GPUs of nodes, or in queues, what will, and until when; as bars in a window that its address names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal, NamedTuple

from fastapi import APIRouter, Query, Request, Response

from reconciler.access.rights import Rights
from reconciler.api.services import Services
from reconciler.api.timeline import rows_below
from reconciler.api.timeline_routes import queue_asked
from reconciler.web.memo import PassMemo
from reconciler.web.node_pages import NodeFilter, matching
from reconciler.web.node_sight import NodeSights
from reconciler.web.outlook import Outlook, Outlooks
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import page
from reconciler.web.past import PastReader
from reconciler.web.queue_colours import QueueColours
from reconciler.web.submit_pages import gpu_types_of
from reconciler.web.time_bars import BarMaker
from reconciler.web.time_rows import TimeRow, node_rows, queue_rows
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

    def __init__(self, services: Services, sights: NodeSights, past: PastReader, memo: PassMemo) -> None:
        self._services, self._sights, self._past, self._memo = services, sights, past, memo
        self._outlooks = Outlooks(services)
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
        policy, named = queue_asked(self._services, asked.queue)
        top = named or _only_root(policy)
        rights: Rights = request.state.rights
        colours, outlook = QueueColours.of(policy), self._outlooks.latest()
        maker = BarMaker(outlook, colours, rights, shown)
        size = NODES_SHOWN if by == "node" else QUEUES_SHOWN
        part = slice((page_number - 1) * size, page_number * size)
        rows, count = (
            self._node_rows(asked, part, outlook, maker, shown)
            if by == "node"
            else self._queue_rows(policy, top, part, outlook, maker, shown)
        )
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
            types=self._memo.of("gpu-types", lambda: gpu_types_of(self._services)),
            queues=[each.name for each in policy.queues],
            parents={each.parent for each in policy.queues},
            above=_above(policy, top),
            top=top or "",
            count=count,
            first=(page_number - 1) * size + 1,
            forms=FORMS,
            **_ways(asked, shown, has_older=page_number * size < count),
        )

    def _node_rows(
        self, asked: TimeAsked, part: slice, outlook: Outlook, maker: BarMaker, shown: ShownWindow
    ) -> tuple[list[TimeRow], int]:
        """Of nodes with GPUs, rack by rack; of the one alone that has just the name that is asked for. And how many there are."""
        sight = self._sights.latest()

        def found() -> Sequence[NodeName]:
            exact = sight.index.nodes.get(NodeName(asked.name))
            within = matching(sight, NodeFilter(asked.rack, asked.gpu_type)) if exact is None else [exact.name]
            return [name for name in within if sight.index.nodes[name].gpus and asked.name in name]

        names = self._memo.of(("time-nodes", asked.rack, asked.gpu_type, asked.name), found)
        # What another pass found may be gone.
        some = [name for name in names[part] if name in sight.index.nodes]
        return node_rows(some, sight.index, self._past, outlook, maker, shown), len(names)

    def _queue_rows(
        self,
        policy: Policy,
        top: QueueName | None,
        part: slice,
        outlook: Outlook,
        maker: BarMaker,
        shown: ShownWindow,
    ) -> tuple[list[TimeRow], int]:
        """Of the queues right below one, and how many there are."""
        row_of = rows_below(policy, top)
        rows = list(dict.fromkeys(row_of.values()))
        on_page = frozenset(rows[part])
        some = {queue: row for queue, row in row_of.items() if row in on_page}
        return queue_rows(some, self._guaranteed(), self._past, outlook, maker, shown), len(rows)

    def _guaranteed(self) -> dict[QueueName, MilliGpu]:
        """Of each queue, GPUs of all types together."""
        uses = self._services.queue_uses()
        return {queue.name: MilliGpu(sum(int(line.guaranteed) for line in use.gpus)) for queue, use in uses}


def _ways(asked: TimeAsked, shown: ShownWindow, *, has_older: bool) -> dict[str, object]:
    """Addresses of the windows and pictures around this one."""
    return {
        "newer": asked._replace(page=asked.page - 1).at(_stated(shown)) if asked.page > 1 else "",
        "older": asked._replace(page=asked.page + 1).at(_stated(shown)) if has_older else "",
        "earlier": asked.at(shown.earlier()),
        "later": asked.at(shown.later()),
        "now_at": asked.at(shown.around_now()),
        "lengths": [(words, is_this, asked.at(window)) for words, is_this, window in shown.lengths()],
        "by_node": TimeAsked("node").at(_stated(shown)),
        "by_queue": TimeAsked("queue").at(_stated(shown)),
        "all_of_it": TimeAsked(asked.by).at(_stated(shown)),
        "of_queue": lambda name: asked._replace(queue=name, page=1).at(_stated(shown)),
    }


def _stated(shown: ShownWindow) -> dict[str, str]:
    """As it was asked for; what stands for itself is left out."""
    is_usual = shown.since == SINCE and shown.to == TO
    return {} if is_usual else {"from": shown.since, "to": shown.to}


def _only_root(policy: Policy) -> QueueName | None:
    """What all of a tree is below: one row of all there is would say little."""
    roots = [queue.name for queue in policy.queues if queue.parent is None]
    return roots[0] if len(roots) == 1 and len(policy.queues) > 1 else None


def _above(policy: Policy, queue: QueueName | None) -> list[QueueName]:
    """The queue and those above it, from the top down."""
    parents = {each.name: each.parent for each in policy.queues}

    def climb() -> Iterator[QueueName]:
        at = queue
        while at is not None:
            yield at
            at = parents.get(at)

    return list(climb())[::-1]
