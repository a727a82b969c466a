"""People with roles, for tests of what the API lets them do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from reconciler.access.caller import Caller
from reconciler.access.oidc import BadTokenError
from reconciler.access.policy import AccessPolicy, RoleBinding
from reconciler.api.authorisation import Authorisation
from reconciler.api.guard import Guard
from reconciler.api.server import ApiServer
from reconciler.client import Client
from solver.model.workload import QueueName
from tests.reconciler.api.conftest import TOKEN, Site

TEAM = (QueueName("team"),)
ACCESS = AccessPolicy(
    groups={"team": ("mate", "mine")},
    roles=(
        RoleBinding("planner", ("user:planner",)),
        RoleBinding("viewer", ("user:viewer",)),
        RoleBinding("submitter", ("group:team",), TEAM),
        RoleBinding("operator", ("user:operator",)),
        RoleBinding("admin", ("user:lead",), TEAM),
        RoleBinding("admin", ("user:admin",)),
        RoleBinding("submitter", ("user:stranger",), (QueueName("other"),)),
    ),
)
"""`mine` submitted the job in question, to the queue team; `nobody` has no role."""


def identify(token: str) -> Caller:
    """Tokens are `token-of-NAME`."""
    if not token.startswith("token-of-"):
        raise BadTokenError("no user has this token")
    return Caller(token.removeprefix("token-of-"))


@contextmanager
def serving(site: Site) -> Iterator[ApiServer]:
    """The server under these roles."""
    site.access = ACCESS
    with ApiServer(site.services(), Guard(TOKEN, user="alice", identify=identify)) as running:
        yield running


@contextmanager
def client_of(server: ApiServer, name: str) -> Iterator[Client]:
    """A client with somebody's token."""
    with Client(server.url, TOKEN if name == "alice" else f"token-of-{name}") as client:
        yield client


def request_of(authority: Authorisation) -> Request:
    """Of the owner, as guard and authority leave it."""
    request = Request({"type": "http", "headers": []})
    request.state.user, request.state.rights = "alice", authority.rights(Caller("alice", owner=True))
    return request
