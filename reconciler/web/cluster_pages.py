"""The cluster at a glance, and its queues as a tree."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from reconciler.api.services import Services
from reconciler.api.views import queue_views
from reconciler.control.queue_use import LatestQueueUses
from reconciler.lifecycle.interventions.effects import about
from reconciler.web.cluster_summary import ClusterSummary
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import page
from reconciler.web.queue_tree import queue_rows
from solver.model.snapshot import Snapshot


class ClusterPages:
    """The endpoints; `router` has them all. What a snapshot says is worked out once, however many look."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._uses = LatestQueueUses()
        self._summary: tuple[Snapshot, ClusterSummary] | None = None
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/", self.cluster)
        self.router.add_api_route("/queues", self.queues)

    def cluster(self, request: Request) -> Response:
        """What there is, what is held, what is out of order, rack by rack."""
        status = self._services.status()
        conditions = [each for each in status.conditions if each.message]
        return page(request, "cluster.html", summary=self._summarised(), conditions=conditions, status=status)

    def queues(self, request: Request) -> Response:
        """What each queue is guaranteed, holds and waits for."""
        revision, policy = self._services.policy()
        holds = about(self._services.interventions.in_force(), "hold", "queue", self._services.clock.now())
        views = queue_views(self._uses.of(self._services.snapshot(), policy), holds)
        return page(request, "queues.html", rows=queue_rows(views), revision=revision)

    def _summarised(self) -> ClusterSummary:
        snapshot, known = self._services.snapshot(), self._summary
        if known is None or known[0] is not snapshot:
            self._summary = known = snapshot, ClusterSummary.of(snapshot)
        return known[1]
