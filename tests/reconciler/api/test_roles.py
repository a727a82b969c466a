"""Role by route, for a job of one's own, of one's team and of another: every route of the API stands in the table."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import msgspec
import pytest

from reconciler.alerts.policy import AlertPolicy, Webhook
from reconciler.api.policy_payloads import ApprovalAsked, PlanAsked
from reconciler.api.rules import RULES
from reconciler.api.server import ApiServer
from reconciler.client import ApiError, Client, NotAuthorisedError
from reconciler.documents.operations import Operations
from reconciler.model.git_status import PolicyCondition, PolicyStatus
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.capacity import NodeCapacity
from reconciler.protocols.history import Event
from solver.model.cluster import GpuType
from solver.model.document import encode
from solver.model.workload import JobArray, JobName, TaskPlacement
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, REVISION, TOKEN, Site, spec
from tests.reconciler.api.people import client_of, serving
from tests.reconciler.api.test_plan_routes import ENVELOPE, planned
from tests.reconciler.api.web import WEB

JOB = JobName("job")
GROUP = "sweep"
SECRET = "s3cret"
HELD = "b" * 40
EVERYBODY = {"nobody", "planner", "viewer", "stranger", "mate", "mine", "operator", "lead", "admin", "alice"}
FIRST = {"nobody", "planner", "viewer", "lead"}
"""For whom every route is tried in the quick suite."""
WITH_A_ROLE = EVERYBODY - {"nobody", "planner"}
SEE = WITH_A_ROLE - {"stranger"}
READ = {"mate", "mine", "operator", "lead", "admin", "alice"}
STEER = {"mine", "lead", "admin", "alice"}

SUBMIT = {"mate", "mine", "lead", "admin", "alice"}

TABLE = {
    "POST /v1/jobs:test": SUBMIT,  # before the job of that name is there
    "POST /v1/jobs": SUBMIT,
    "POST /v1/groups": SUBMIT,
    "GET /v1/groups/{group}": SEE,
    "POST /v1/groups/{group}/cancel": STEER,
    "GET /v1/names/{called}": SEE,
    "GET /v1/jobs/{name}/checkpoints": READ,
    "GET /v1/top": WITH_A_ROLE,
    "GET /v1/jobs": WITH_A_ROLE,
    "GET /v1/jobs/{name}": SEE,
    "GET /v1/jobs/{name}/events": SEE,
    "GET /v1/jobs/{name}/why": SEE,
    "GET /v1/jobs/{name}/logs": READ,
    "GET /v1/jobs/{name}/gpu-use": SEE,
    "POST /v1/jobs/{name}/cancel": STEER,
    "POST /v1/jobs/{name}/suspend": STEER,
    "POST /v1/jobs/{name}/resume": STEER,
    "POST /v1/jobs/{name}/requeue": STEER,
    "PUT /v1/jobs/{name}/hold": STEER | {"operator"},
    "DELETE /v1/jobs/{name}/hold": STEER | {"operator"},
    "PUT /v1/jobs/{name}/boost": {"operator", "lead", "admin", "alice"},
    "DELETE /v1/jobs/{name}/boost": {"operator", "lead", "admin", "alice"},
    "PUT /v1/queues/{queue}/hold": {"operator", "lead", "admin", "alice"},
    "DELETE /v1/queues/{queue}/hold": {"operator", "lead", "admin", "alice"},
    "PUT /v1/nodes/{node}/cordon": {"operator", "admin", "alice"},
    "DELETE /v1/nodes/{node}/cordon": {"operator", "admin", "alice"},
    "GET /v1/interventions": WITH_A_ROLE,
    "GET /v1/queues": WITH_A_ROLE,
    "GET /v1/nodes": WITH_A_ROLE,
    "GET /v1/gpus": WITH_A_ROLE,
    "GET /v1/nodes/{node}/gpu-use": WITH_A_ROLE,
    "GET /v1/rounds": WITH_A_ROLE,
    "GET /v1/rounds/{number}": WITH_A_ROLE,
    "GET /v1/snapshot": WITH_A_ROLE,
    "GET /v1/history": WITH_A_ROLE,
    "GET /v1/timeline": WITH_A_ROLE,
    "GET /v1/usage": WITH_A_ROLE,
    "GET /v1/showback": WITH_A_ROLE,
    "GET /v1/snapshot/aliased": EVERYBODY - {"nobody"},
    "GET /v1/status": WITH_A_ROLE,
    "GET /v1/policy": WITH_A_ROLE,
    "POST /v1/policy/approve": {"admin", "alice"},
    "GET /v1/policy/approvals": WITH_A_ROLE,
    "POST /v1/policy/plans": {"admin", "alice"},
    "GET /v1/policy/plan": WITH_A_ROLE,
    "PUT /v1/policy/suspension": {"admin", "alice"},
    "DELETE /v1/policy/suspension": {"admin", "alice"},
    "POST /v1/policy/reconcile": {"operator", "admin", "alice"},
    "GET /v1/watch": WITH_A_ROLE,
    "GET /v1/alerts": WITH_A_ROLE,
    "POST /v1/alerts/{policy}/test": {"operator", "admin", "alice"},
    "GET /v1/agents": WITH_A_ROLE,
    "POST /v1/agents/{node}/token": {"admin", "alice"},
    "POST /v1/agents/{node}/revoke": {"admin", "alice"},
    "GET /v1/audit": {"admin", "alice"},
    "GET /v1/audit/events": {"admin", "alice"},
    "GET /v1/whoami": EVERYBODY,
    "GET /v1/openapi.json": EVERYBODY,
    "GET /metrics": WITH_A_ROLE,
    "GET /healthz": EVERYBODY,
    "GET /readyz": EVERYBODY,
}
"""Who may use each route, for a job that `mine` submitted to the queue `team`."""

REFUSED = {"GET /v1/names/{called}": (404, "unknown-name")}
"""How those are answered who may look, and see nothing of it: what they may not see has no name for them."""

SIGNED = {route for route, rule in RULES.items() if rule == "signed"}
"""Nobody is asked who they are; tests/reconciler/api/test_webhooks.py says what is asked."""

SOCKETS = {"WEBSOCKET /v1/jobs/{name}/attach"}
"""Not in the OpenAPI document, which knows requests alone; tests/reconciler/api/test_attach.py says who may use it."""


def array(name: str) -> bytes:
    """Two jobs at once."""
    elements = msgspec.structs.replace(spec(), array=JobArray("0-1"))
    return encode({"apiVersion": "quorate.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": elements})


@pytest.fixture
def roles(site: Site) -> Iterator[ApiServer]:
    """A job of `mine` that runs and has written something, a round that knows of it, and a webhook whose file is not there."""
    told = PolicyCondition("Stalled", True, "HistoryRewritten", "history was rewritten")
    site.told = PolicyStatus((told,), REVISION, HELD, acceptable=True)
    site.planned = planned()
    site.operations = Operations(alerts=(AlertPolicy("ops", (Webhook("chat", url_file="none"),)),))
    with serving(site) as server:
        with client_of(server, "mine") as mine:
            mine.submit(JOB, msgspec.structs.replace(spec(command=("train", SECRET)), env={"KEY": SECRET}))
            mine.submit_group(array(GROUP), GROUP)
        site.bind(JOB, TaskPlacement("worker", 0, NODES[0].name, (NODES[0].gpus[0].id,)))
        site.logs[JOB, 1, "worker", 0] = SECRET.encode()
        site.store.history.record_event(Event(NOW, "failed", JOB, f"exit code 1\n{SECRET}", "loop"))
        site.record_round()
        there = NodeCapacity("pool", GpuType("H100"), (NODES[0].gpus[0].id,), ("idle",))
        site.store.capacities.keep(site.epoch(), {NODES[0].name: there}, NOW)
        yield server


def test_every_route_has_a_rule_and_stands_in_the_table(roles: ApiServer) -> None:
    document = WEB.get(f"{roles.url}/v1/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    routes = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert routes | SOCKETS == set(RULES) == set(TABLE) | SOCKETS | SIGNED


@pytest.mark.parametrize(
    "who", [who if who in FIRST else pytest.param(who, marks=pytest.mark.thorough) for who in sorted(EVERYBODY)]
)
def test_who_may_use_which_route(roles: ApiServer, who: str) -> None:
    token = TOKEN if who == "alice" else f"token-of-{who}"
    allowed, by_hand = set(), b'{"reason": "ticket 4711"}'
    for route in TABLE:
        method, path = route.split()
        job = {"apiVersion": "quorate.dev/v1", "kind": "Job", "metadata": {"name": f"by-{who}"}, "spec": spec()}
        approving = encode(ApprovalAsked(HELD, "on purpose"))
        bodies = {
            "/v1/policy/approve": approving,
            "/v1/policy/plans": encode(PlanAsked(ENVELOPE, "agreed")),
            "/v1/jobs": encode(job),
            "/v1/jobs:test": encode(job),
            "/v1/groups": array(f"all-by-{who}"),
        }
        with WEB.stream(
            method,
            roles.url
            + path.format(name=JOB, called=JOB, group=GROUP, number=1, policy="ops", queue="team", node=NODES[0].name),
            headers={"Authorization": f"Bearer {token}"},
            content=by_hand if method == "PUT" else bodies.get(path, b"") if method == "POST" else b"",
        ) as response:
            refused = REFUSED.get(route, (403, "not-allowed"))
            assert response.status_code in (200, 403, refused[0]), f"{route}: {response.status_code}"
            if response.status_code == 200:
                allowed.add(route)
            else:
                response.read()
                told = response.status_code, response.json()["code"]
                assert told in (refused, (403, "not-allowed"))
    assert allowed == {route for route, people in TABLE.items() if who in people}


@pytest.mark.parametrize("who", sorted(WITH_A_ROLE))
def test_secrets_of_a_job_are_read_by_its_team_alone(roles: ApiServer, site: Site, who: str) -> None:
    finished = JobOutcome("failed", NOW, 1, f"exit code 1\n{SECRET}", 1)
    site.store.jobs.finish(site.epoch(), JOB, finished)
    token = TOKEN if who == "alice" else f"token-of-{who}"
    told = set()
    for path in ("", f"/{JOB}", f"/{JOB}/events", f"/{JOB}/why", f"/{JOB}/logs"):
        told |= {path} if SECRET in get(roles, f"/v1/jobs{path}", token).text else set()
    for path in ("/v1/snapshot", "/v1/history", "/v1/rounds/1", "/v1/nodes", "/metrics", "/v1/policy", "/v1/queues"):
        told |= {path} if SECRET in get(roles, path, token).text else set()
    readable = {"", f"/{JOB}", f"/{JOB}/events", f"/{JOB}/why", f"/{JOB}/logs", "/v1/rounds/1"}
    assert told == (readable if who in READ else set())


def get(server: ApiServer, path: str, token: str) -> httpx2.Response:
    return WEB.get(server.url + path, headers={"Authorization": f"Bearer {token}"})


def test_a_view_says_that_something_is_left_out(roles: ApiServer) -> None:
    with client_of(roles, "viewer") as viewer, client_of(roles, "mate") as mate:
        seen, whole = viewer.job(JOB), mate.job(JOB)
    assert (seen.redacted, seen.spec.command, seen.spec.env) == (True, (), {})
    assert (whole.redacted, whole.spec.env) == (False, {"KEY": SECRET})
    assert seen.spec.task_groups == whole.spec.task_groups


def test_lists_have_what_one_may_see(roles: ApiServer) -> None:
    with client_of(roles, "stranger") as stranger, client_of(roles, "admin") as admin:
        stranger.submit(JobName("theirs"), spec(queue="other"))
        assert [view.name for view in stranger.jobs().items] == ["theirs"]
        assert [view.name for view in admin.jobs().items] == ["theirs", "sweep-1", "sweep-0", "job"]
        assert stranger.who_am_i().submits_to == ("other",)


def test_a_refusal_says_where_one_may(roles: ApiServer) -> None:
    with (
        client_of(roles, "stranger") as stranger,
        pytest.raises(NotAuthorisedError, match="may not submit to queue team") as no,
    ):
        stranger.submit(JobName("new"), spec())
    assert no.value.status == 403


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/groups"])
def test_nothing_is_read_of_a_user_that_may_submit_nowhere(roles: ApiServer, path: str) -> None:
    """A body beyond all bounds would be refused as such."""
    token = {"Authorization": "Bearer token-of-viewer"}
    refused = httpx2.post(f"{roles.url}{path}", headers=token, content=b" " * 2_000_000)
    assert (refused.status_code, refused.json()["detail"]) == (403, "viewer may submit to no queue.")


def test_a_key_of_somebody_else_shows_nothing_of_their_job(roles: ApiServer) -> None:
    with client_of(roles, "mate") as mate, client_of(roles, "stranger") as stranger:
        mate.submit(JobName("keyed"), spec(), "key")
        with pytest.raises(NotAuthorisedError):
            stranger.submit(JobName("keyed"), spec(queue="other"), "key")


def test_a_change_of_the_policy_holds_at_once(roles: ApiServer, site: Site) -> None:
    with client_of(roles, "viewer") as viewer:
        assert viewer.queues().items
        site.access = None
        with pytest.raises(NotAuthorisedError, match="viewer has no role here"):
            viewer.queues()


def test_a_job_that_is_not_there_is_said_to_be_missing(roles: ApiServer) -> None:
    with client_of(roles, "viewer") as viewer, pytest.raises(ApiError) as missing:
        viewer.job("jbo")
    assert (missing.value.status, missing.value.problem.fix) == (404, "Did you mean job?")


def test_a_user_without_a_role_does_not_learn_which_jobs_there_are(roles: ApiServer) -> None:
    for name in ("jbo", JOB):
        with client_of(roles, "nobody") as nobody, pytest.raises(NotAuthorisedError, match="nobody has no role here"):
            nobody.job(name)


def test_without_a_rule_nobody_gets_in(roles: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.api.rules.RULES", {})
    with Client(roles.url, TOKEN) as alice, pytest.raises(NotAuthorisedError, match="No caller may use this route"):
        alice.queues()
