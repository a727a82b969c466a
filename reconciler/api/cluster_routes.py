"""The cluster and the control plane over HTTP: queues, nodes, rounds, the policy, the snapshot, status, metrics."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from reconciler.api.answers import answer, answers
from reconciler.api.payloads import LEADING, Health, NodeList, PolicyView, QueueList, RoundList, Status
from reconciler.api.problems import RefusedError
from reconciler.api.services import Services
from reconciler.api.views import job_viewer, node_views, queue_views
from reconciler.metrics import CONTENT_TYPE
from reconciler.store.protocols import RoundRecord
from solver.world.snapshot import Snapshot


class ClusterRoutes:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(tags=["cluster"])
        add = self.router.add_api_route
        add("/v1/queues", self.queues, responses=answers(QueueList))
        add("/v1/nodes", self.nodes, responses=answers(NodeList))
        add("/v1/rounds", self.rounds, responses=answers(RoundList))
        add("/v1/rounds/{number}", self.round, responses=answers(RoundRecord))
        add("/v1/snapshot", self.snapshot, responses=answers(Snapshot))
        add("/v1/status", self.status, responses=answers(Status))
        add("/v1/policy", self.policy, responses=answers(PolicyView))
        add("/metrics", self.metrics, responses={200: {"content": {"text/plain": {}}}})
        add("/healthz", self.health, responses=answers(Health))

    def queues(self) -> Response:
        """The queue tree with what each queue is guaranteed, holds and waits for."""
        _, policy = self._services.policy()
        return answer(QueueList(items=queue_views(self._services.snapshot(), policy)))

    def nodes(self) -> Response:
        """Every node and who holds its devices."""
        return answer(NodeList(items=node_views(self._services.snapshot())))

    def rounds(self, limit: Annotated[int, Query(ge=1, le=10_000)] = 20) -> Response:
        """The newest rounds, a line each."""
        return answer(RoundList(items=self._services.history.rounds(limit)))

    def round(self, number: int) -> Response:
        """One round, whole: enough to solve it again."""
        try:
            return answer(self._services.history.round(number))
        except KeyError as error:
            fix = "List the rounds to see their numbers."
            raise RefusedError(404, "unknown-round", f"There is no round {number}.", fix) from error

    def snapshot(self) -> Response:
        """The world as last observed."""
        return answer(self._services.snapshot())

    def status(self) -> Response:
        """Conditions, revisions, the leader, and how many jobs are in which state."""
        view = job_viewer(self._services)
        states = Counter(view(record).state for record in self._services.jobs.live_jobs())
        return answer(msgspec.structs.replace(self._services.status(), live_jobs=dict(states)))

    def policy(self) -> Response:
        """The policy in force."""
        revision, policy = self._services.policy()
        return answer(PolicyView(revision=revision, digest=policy.digest, policy=policy))

    def metrics(self) -> Response:
        """Figures for Prometheus."""
        return Response(self._services.metrics.text(), media_type=CONTENT_TYPE)

    def health(self) -> Response:
        """Whether the server answers, and whether its loop decides rounds."""
        waiting = (state for state in self._services.status().conditions if state.type == LEADING and not state.status)
        unready = next(waiting, None)
        return answer(Health(ready=unready is None, message=unready.message if unready else ""))
