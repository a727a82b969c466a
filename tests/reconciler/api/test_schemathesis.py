"""Requests that a machine makes up from the OpenAPI document: nothing fails, and every answer is as described."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from reconciler.api.rules import RULES
from reconciler.api.server import ApiServer
from reconciler.protocols.history import Event
from solver.model.workload import JobName, TaskPlacement
from tests.contracts.simulated_worlds import NODES
from tests.drawn import DRAWING
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
ENDLESS = {"GET /v1/watch", "WEBSOCKET /v1/jobs/{name}/attach"}
"""Streams are no answers that can be compared: tests/reconciler/api/test_watch.py and tests/e2e/test_terminal.py read them."""


@pytest.fixture
def furnished(site: Site, server: ApiServer) -> ApiServer:
    """A server that has something of everything to answer with. Its jobs are called 0 and a, which are soon made up."""
    for name in ("0", "a"):
        site.store.jobs.submit(JobName(name), spec(), "alice", NOW, "")
        site.store.history.record_event(Event(NOW, "bound", name, "cause", "loop"))
    site.bind("0", TaskPlacement("worker", 0, NODES[0].name, (NODES[0].gpus[0].id,)))
    site.logs["0", 1, "worker", 0] = b"text"
    site.record_round()
    return server


@pytest.mark.parametrize("route", sorted(set(RULES) - ENDLESS))
def test_answers_are_as_described(furnished: ApiServer, route: str) -> None:
    method, path = route.split()
    document = schemathesis.openapi.from_url(f"{furnished.url}/v1/openapi.json", headers=HEADERS)
    operation = document[path][method]

    @seed(0)
    @settings(
        max_examples=15 if DRAWING.everything else 5,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def check(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(headers=HEADERS, checks=CHECKS)

    check()


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/0", "/v1/jobs/0/events", "/v1/jobs/0/why", "/v1/rounds/1"])
def test_answers_with_something_in_them_are_as_described(furnished: ApiServer, path: str) -> None:
    document = schemathesis.openapi.from_url(f"{furnished.url}/v1/openapi.json", headers=HEADERS)
    template = path.replace("/0", "/{name}").replace("rounds/1", "rounds/{number}")
    given_parameters = {"name": "0"} if "{name}" in template else {"number": 1} if "{number}" in template else {}
    case = document[template]["GET"].Case(path_parameters=given_parameters)
    assert case.call_and_validate(headers=HEADERS, checks=CHECKS).status_code == 200
