"""Which route needs which right: one line each. A route without a line answers no caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from starlette.requests import HTTPConnection

from reconciler.access.rights import Action

Rule = Action | Literal["anybody", "signed", "open", "stranger"]
"""anybody: a caller with a proven identity. signed: none is needed; the route verifies the signature of what it is sent.
open: none is needed, under any Host; the answer is yes or no. stranger: none is needed; it is how a browser gets one. The actions
on a job are judged by the job that the path names, `operate` also by the queue that it names, or else by all queues; `submit` by
the document in the body, where the route reads it; what may be done to the jobs of a group, by the route for each of them; a
sample of an AlertPolicy by its route, which knows the policy's queues."""

RULES: Final[Mapping[str, Rule]] = {
    "POST /v1/jobs": "submit",
    "GET /v1/jobs": "look",
    "GET /v1/jobs/{name}": "see-job",
    "GET /v1/jobs/{name}/events": "see-job",
    "GET /v1/jobs/{name}/why": "see-job",
    "GET /v1/jobs/{name}/logs": "read-job",
    "POST /v1/jobs/{name}/cancel": "steer-job",
    "POST /v1/jobs/{name}/suspend": "steer-job",
    "POST /v1/jobs/{name}/resume": "steer-job",
    "POST /v1/jobs/{name}/requeue": "steer-job",
    "WEBSOCKET /v1/jobs/{name}/attach": "steer-job",
    "GET /v1/jobs/{name}/checkpoints": "read-job",
    "PUT /v1/jobs/{name}/hold": "hold-job",
    "DELETE /v1/jobs/{name}/hold": "hold-job",
    "PUT /v1/jobs/{name}/boost": "operate",
    "DELETE /v1/jobs/{name}/boost": "operate",
    "PUT /v1/queues/{queue}/hold": "operate",
    "DELETE /v1/queues/{queue}/hold": "operate",
    "PUT /v1/nodes/{node}/cordon": "operate",
    "DELETE /v1/nodes/{node}/cordon": "operate",
    "GET /v1/interventions": "look",
    "POST /v1/jobs:test": "submit",
    "POST /v1/groups": "submit",
    "GET /v1/groups/{group}": "look",
    "POST /v1/groups/{group}/cancel": "look",
    "GET /v1/names/{called}": "look",  # what the caller may not see is left out by the route
    "GET /v1/top": "look",
    "GET /v1/queues": "look",
    "GET /v1/nodes": "look",
    "GET /v1/gpus": "look",
    "GET /v1/nodes/{node}/gpu-use": "look",
    "GET /v1/jobs/{name}/gpu-use": "see-job",
    "GET /v1/rounds": "look",
    "GET /v1/rounds/{number}": "look",
    "GET /v1/snapshot": "look",
    "GET /v1/history": "look",
    "GET /v1/timeline": "look",
    "GET /v1/usage": "look",
    "GET /v1/showback": "look",
    "GET /v1/snapshot/aliased": "plan",
    "GET /v1/status": "look",
    "GET /v1/policy": "look",
    "POST /v1/policy/approve": "steer-policy",
    "GET /v1/policy/approvals": "look",
    "POST /v1/policy/plans": "steer-policy",
    "GET /v1/policy/plan": "look",
    "PUT /v1/policy/suspension": "steer-policy",
    "DELETE /v1/policy/suspension": "steer-policy",
    "POST /v1/policy/reconcile": "operate",
    "POST /v1/webhooks/github": "signed",
    "POST /v1/webhooks/gitlab": "signed",
    "POST /v1/webhooks/gitea": "signed",
    "GET /v1/watch": "look",
    "GET /v1/alerts": "look",
    "POST /v1/alerts/{policy}/test": "look",  # the route asks for `operate` in the queues that the policy is about
    "GET /v1/agents": "look",
    "POST /v1/agents/{node}/token": "admit-nodes",
    "POST /v1/agents/{node}/revoke": "admit-nodes",
    "GET /v1/audit": "audit",
    "GET /v1/audit/events": "audit",
    "GET /v1/whoami": "anybody",
    "GET /v1/openapi.json": "anybody",
    "GET /metrics": "look",
    "GET /healthz": "open",
    "GET /readyz": "open",
}

PAGES: Final[Mapping[str, Rule]] = {
    "GET /": "look",
    "GET /health": "look",
    "GET /interventions": "look",
    "GET /jobs": "look",
    "GET /jobs/new": "submit",
    "POST /jobs/new": "submit",
    "GET /jobs/{name}": "see-job",
    "GET /jobs/{name}/": "see-job",
    "GET /jobs/{name}/logs": "read-job",
    "GET /jobs/{name}/hold": "hold-job",
    "POST /jobs/{name}/hold": "hold-job",
    "GET /jobs/{name}/release": "hold-job",
    "POST /jobs/{name}/release": "hold-job",
    "GET /jobs/{name}/boost": "operate",
    "POST /jobs/{name}/boost": "operate",
    "GET /jobs/{name}/unboost": "operate",
    "POST /jobs/{name}/unboost": "operate",
    "POST /jobs/{name}/{verb}": "steer-job",
    "GET /live": "look",
    "GET /map.json": "look",
    "GET /policy": "look",
    "GET /policy/plan": "look",
    "GET /policy/revisions/{revision}": "look",
    "GET /policy/documents/{path:path}": "look",
    "POST /policy/approve": "steer-policy",
    "GET /nodes": "look",
    "GET /nodes/{node}": "look",
    "GET /nodes/{node}/cordon": "operate",
    "POST /nodes/{node}/cordon": "operate",
    "GET /nodes/{node}/uncordon": "operate",
    "POST /nodes/{node}/uncordon": "operate",
    "GET /queues": "look",
    "GET /queues/{queue}": "look",
    "GET /queues/{queue}/hold": "operate",
    "POST /queues/{queue}/hold": "operate",
    "GET /queues/{queue}/release": "operate",
    "POST /queues/{queue}/release": "operate",
    "GET /racks/cordon": "operate",
    "POST /racks/cordon": "operate",
    "GET /racks/uncordon": "operate",
    "POST /racks/uncordon": "operate",
    "GET /rounds": "look",
    "GET /rounds/{first}..{second}": "look",
    "GET /rounds/{number}": "look",
    "GET /rounds/{number}/replay": "look",
    "POST /rounds/{number}/replay": "look",
    "GET /sign-in": "stranger",
    "POST /sign-in": "stranger",
    "GET /sign-in/with/{place:path}": "stranger",
    "GET /sign-in/callback/{place:path}": "stranger",
    "POST /sign-out": "stranger",
    "GET /time": "look",
    "GET /use": "look",
    "GET /static/{name}": "stranger",
}
"""The routes of the console, likewise. They are for people, and no part of the API's description."""

ANSWERED_BY_ADDRESS: Final = frozenset({"GET /metrics"})
"""Routes that answer requests with an IP address as Host: Prometheus scrapes pods so. DNS rebinding needs a name."""


def rule_of(request: HTTPConnection) -> Rule | None:
    """The rule of the route that a request has found."""
    route = route_of(request)
    return RULES.get(route) or PAGES.get(route)


def route_of(request: HTTPConnection) -> str:
    """Method and path of the route that a request has found. A WebSocket has no method: it is a route of its own."""
    method = str(request.scope.get("method", "WEBSOCKET"))
    return f"{method} {request.scope['route'].path}"
