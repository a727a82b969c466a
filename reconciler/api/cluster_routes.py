"""The cluster and the control plane over HTTP: queues, nodes, rounds, the policy, the snapshot, status, metrics."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request, Response

from reconciler.access.caller import Caller
from reconciler.access.rights import Rights
from reconciler.api.alert_views import alert_conditions
from reconciler.api.aliases import aliased, users_named_by
from reconciler.api.answers import Responses, answer, answers, refuses
from reconciler.api.cursors import CURSOR_MAX, cursor_of, link_to, number_of
from reconciler.api.payloads import NodeList, PolicyView, QueueList, RoundList, Status, WhoAmI
from reconciler.api.problems import RequestRefusedError
from reconciler.api.redaction import readable_comparison, readable_interventions, readable_round, readable_snapshot
from reconciler.api.services import Services
from reconciler.api.views import live_states, node_views, queue_views
from reconciler.control.metrics import CONTENT_TYPE
from reconciler.control.quiet_gpus import with_quiet_gpus
from reconciler.lifecycle.health.effects import cordons
from reconciler.lifecycle.interventions.effects import about
from reconciler.protocols.rounds import RoundRecord
from solver.model.snapshot import Snapshot

_TEXT: Responses = {200: {"description": "Prometheus's text format.", "content": {"text/plain": {}}}}
_UNCHANGED: Responses = {304: {"description": "The policy is the one of that ETag."}}


class ClusterRoutes:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(tags=["cluster"])
        add = self.router.add_api_route
        add("/v1/queues", self.queues, responses=answers(QueueList))
        add("/v1/nodes", self.nodes, responses=answers(NodeList))
        add("/v1/rounds", self.rounds, responses=answers(RoundList))
        add("/v1/rounds/{number}", self.round, responses=answers(RoundRecord, refuses(404)))
        add("/v1/snapshot", self.snapshot, responses=answers(Snapshot))
        add("/v1/snapshot/aliased", self.aliased_snapshot, responses=answers(Snapshot))
        add("/v1/status", self.status, responses=answers(Status))
        add("/v1/policy", self.policy, responses=answers(PolicyView, _UNCHANGED))
        add("/metrics", self.metrics, responses=_TEXT, response_class=Response)
        add("/v1/whoami", self.who_am_i, responses=answers(WhoAmI))

    def queues(self, request: Request, users: Annotated[bool, Query()] = False) -> Response:
        """The queue tree with what each queue is guaranteed, holds and waits for, and how budgets stand.

        `users`: with the users of queues that these share fairly, as far as the caller may see their jobs.
        """
        holds = about(self._services.interventions.in_force(), "hold", "queue", self._services.clock.now())
        uses, active = self._services.queue_uses(), self._services.use.latest.of(self._services.snapshot()).queues
        rights: Rights = request.state.rights
        shown = tuple(
            known for known in self._services.budgets() if known.queue or rights.may("see-job", None, known.user)
        )
        views = queue_views(uses, holds, active, partial(rights.may, "see-job") if users else None)
        return answer(QueueList(items=views, budgets=shown))

    def nodes(self) -> Response:
        """Every node and the jobs that hold its devices."""
        by_hand = about(self._services.interventions.in_force(), "cordon", "node", self._services.clock.now())
        health = {record.node: record for record in self._services.health.all()}
        facts = self._services.sighted().facts
        return answer(NodeList(items=node_views(self._services.snapshot(), by_hand, health, facts)))

    def rounds(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 20,
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """The newest rounds, a line each, page by page."""
        # One more than wanted says whether there is another page.
        found = self._services.history.rounds(limit + 1, number_of(cursor))
        following = cursor_of(found[limit - 1].number) if len(found) > limit else ""
        return answer(RoundList(items=found[:limit], next=following), headers=link_to(request, following))

    def round(self, number: Annotated[int, Path(ge=1, lt=2**63)], request: Request) -> Response:
        """One round, whole: enough to solve it again. Commands and environments of jobs are there for their own teams."""
        rights: Rights = request.state.rights
        try:
            return answer(readable_round(self._services.history.round(number), rights))
        except KeyError as error:
            fix = "List the rounds to see their numbers."
            raise RequestRefusedError(404, "unknown-round", f"There is no round {number}.", fix) from error

    def snapshot(self, request: Request) -> Response:
        """The world as last observed. Commands and environments of jobs are there for their own teams."""
        rights: Rights = request.state.rights
        return answer(readable_snapshot(self._told(), rights))

    def aliased_snapshot(self) -> Response:
        """The world as last observed, for CI: without commands and environments, under other names of users and jobs."""
        _, policy = self._services.policy()
        return answer(aliased(self._told(), self._services.alias_keys()[0], users_named_by(policy)))

    def _told(self) -> Snapshot:
        """With what GPUs did lately, by which a review says whom an IdlePolicy would warn."""
        return with_quiet_gpus(self._services.snapshot(), self._services.use, self._services.clock.now())

    def status(self, request: Request) -> Response:
        """Conditions, revisions, the leader, how many jobs are in which state, and what is in force by hand."""
        now = self._services.clock.now()
        in_force = (*self._services.interventions.in_force(), *cordons(self._services.health.all()))
        by_hand = readable_interventions(
            (each for each in in_force if each.until > now), self._services.jobs, request.state.rights
        )
        status = self._services.status()
        conditions = (*status.conditions, *alert_conditions(self._services.alerts.standings().values()))
        live, beside = live_states(self._services), readable_comparison(status.beside, request.state.rights)
        shown = {"conditions": conditions, "live_jobs": live, "by_hand": tuple(by_hand), "beside": beside}
        return answer(msgspec.structs.replace(status, **shown))

    def policy(self, if_none_match: Annotated[str, Header()] = "") -> Response:
        """The policy in force; with If-None-Match only if it is another than the one of that ETag."""
        revision, policy = self._services.policy()
        tag = f'"{revision}"'
        # The caller may keep it, and ask for it again.
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if tag in (each.strip() for each in if_none_match.split(",")):
            return Response(status_code=304, headers=headers)
        return answer(PolicyView(revision=revision, digest=policy.digest, policy=policy), headers=headers)

    def who_am_i(self, request: Request) -> Response:
        """The token's user, and the queues in which they may submit."""
        caller: Caller = request.state.caller
        rights: Rights = request.state.rights
        return answer(
            WhoAmI(
                user=caller.user,
                groups=tuple(sorted(caller.groups)),
                owner=caller.owner,
                submits_to=rights.queues_for("submit"),
            )
        )

    def metrics(self) -> Response:
        """Figures for Prometheus."""
        return Response(self._services.metrics.text(), media_type=CONTENT_TYPE)
