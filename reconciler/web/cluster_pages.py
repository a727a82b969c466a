"""The cluster at a glance, and its queues as a tree."""

from __future__ import annotations

import json
from http import HTTPStatus

from fastapi import APIRouter, Header, Request, Response

from reconciler.access.rights import Rights
from reconciler.api.services import Services
from reconciler.api.views import queue_views
from reconciler.lifecycle.interventions.effects import about
from reconciler.web.cluster_summary import ClusterSummary
from reconciler.web.conditions import conditions_of, is_in_order
from reconciler.web.latest_map import LatestMap
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import HEADERS, page
from reconciler.web.queue_tree import host_rows, queue_rows
from solver.model.snapshot import Snapshot
from solver.policy.windows import policy_at


class ClusterPages:
    """The endpoints; `router` has them all. What a snapshot says is worked out once, however many look."""

    def __init__(self, services: Services, latest: LatestMap) -> None:
        self._services = services
        self._latest = latest
        self._summary: tuple[Snapshot, ClusterSummary] | None = None
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/", self.cluster)
        self.router.add_api_route("/map.json", self.map)
        self.router.add_api_route("/queues", self.queues)

    def cluster(self, request: Request) -> Response:
        """What there is, what is held, what is out of order, rack by rack."""
        troubles = [each for each in conditions_of(self._services) if not is_in_order(each)]
        rights: Rights = request.state.rights
        queues, _ = rights.where("see-job")
        seen = None if queues is None else json.dumps(sorted(queues))
        return page(request, "cluster.html", summary=self._summarised(), conditions=troubles, seen_queues=seen)

    def map(self, if_none_match: str = Header("")) -> Response:
        """Every GPU and its holder, for the map: made and packed once for a pass, whoever asks."""
        made = self._latest.now()
        headers = {**HEADERS, "ETag": made.tag, "Cache-Control": "private, no-cache"}
        if made.tag in (each.strip() for each in if_none_match.split(",")):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(made.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type="application/json")

    def queues(self, request: Request) -> Response:
        """What each queue is guaranteed, holds and waits for."""
        revision, policy = self._services.policy()
        now = self._services.clock.now()
        holds = about(self._services.interventions.in_force(), "hold", "queue", now)
        views = queue_views(self._services.queue_uses(), holds)
        rights: Rights = request.state.rights
        may_hold = frozenset(rights.queues_for("operate"))
        in_force = policy_at(policy, now)
        rows, host = queue_rows(views, in_force), host_rows(views, in_force)
        return page(request, "queues.html", rows=rows, host=host, revision=revision, may_hold=may_hold)

    def _summarised(self) -> ClusterSummary:
        snapshot, known = self._services.snapshot(), self._summary
        if known is None or known[0] is not snapshot:
            self._summary = known = snapshot, ClusterSummary.of(snapshot)
        return known[1]
