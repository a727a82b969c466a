"""Writing requests for nodes: what is refused is told and tried later, what was made before is made once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import structlog

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import ConflictError, KubernetesError, NotFoundError
from reconciler.kubernetes.objects.wire import read
from reconciler.kubernetes.provisioning.decisions import Asking, Requested, TakingBack
from reconciler.kubernetes.provisioning.provisioner import REST_S, UNSEEN_S, NodeProvisioner
from reconciler.kubernetes.provisioning.requests import KINDS, ProvisioningRequest
from reconciler.kubernetes.provisioning.templates import name_of
from reconciler.model.clock import VirtualClock
from solver.model.workload import JobName
from solver.policy.node_requests import Provisioning
from tests.reconciler.kubernetes.samples import pod
from tests.reconciler.kubernetes.test_provisioning import NOW, a_request, waiting

ASKING = Asking(JobName("vision.gang.train"), "vision", (("w0", 3),), "x", 1, 2)
RULES = Provisioning()


@dataclass
class Server:
    """Answers as an API server that refuses what it is told to, once or for ever."""

    refuses: dict[str, KubernetesError] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    async def get(self, path: str, kind: type[Any]) -> dict[str, Any]:
        del kind
        if error := self.refuses.get(f"get {path.rpartition('vision/')[2]}"):
            raise error
        return pod("w0", 2)

    async def create(self, path: str, body: object, check: object) -> dict[str, Any]:
        del body, check
        return self._answer("create", path)

    async def delete(self, path: str, body: object = None, check: object = None) -> dict[str, Any]:
        del body, check
        return self._answer("delete", path)

    def _answer(self, verb: str, path: str) -> dict[str, Any]:
        what = f"{verb} {path.rpartition('vision/')[2]}"
        if error := self.refuses.get(what):
            raise error
        self.done.append(what)
        return {}


def provisioner(server: Server, clock: VirtualClock, noted: list[str]) -> NodeProvisioner:
    def note(kind: str, subject: str, cause: str) -> None:
        noted.append(f"{kind} {subject}: {cause}")

    log = structlog.wrap_logger(structlog.ReturnLogger())
    return NodeProvisioner(cast("Api", server), lambda: None, lambda: KINDS[0], clock, note, log)


def test_templates_are_made_before_the_request_that_names_them_and_it_is_on_record() -> None:
    server, noted, clock = Server(), list[str](), VirtualClock(NOW)
    hands = provisioner(server, clock, noted)
    assert asyncio.run(hands.settle(Requested((ASKING,)), RULES)) == 1
    assert server.done == ["create podtemplates", "create provisioningrequests"]
    assert noted == [
        f"nodes-asked-for {ASKING.job}: ProvisioningRequest vision/{name_of(ASKING)} asks for 2 nodes, try 1"
    ]


def test_bounds_are_kept_by_what_is_seen_so_that_what_was_asked_is_waited_for() -> None:
    clock = VirtualClock(NOW)
    hands = provisioner(Server(), clock, [])
    assert hands.has_seen({})
    asyncio.run(hands.settle(Requested((ASKING,)), RULES))
    assert not hands.has_seen({})
    shown = read(a_request(waiting()), ProvisioningRequest)
    assert hands.has_seen({("vision", name_of(ASKING)): shown})
    asyncio.run(hands.settle(Requested((ASKING,)), RULES))
    clock.advance(int(UNSEEN_S * 1000))
    assert hands.has_seen({}), "it was taken away before it was seen"


def test_what_is_there_already_is_not_made_twice_and_no_error() -> None:
    there = ConflictError("POST", 409, "AlreadyExists", "there")
    server = Server({"create podtemplates": there, "create provisioningrequests": there})
    hands = provisioner(server, VirtualClock(NOW), [])
    assert asyncio.run(hands.settle(Requested((ASKING,)), RULES)) == 1
    assert not hands.held_up


def test_a_cluster_without_requests_is_told_and_asked_again_after_a_rest() -> None:
    absent = NotFoundError("POST", 404, "NotFound", "no such kind")
    server, clock, noted = Server({"create provisioningrequests": absent}), VirtualClock(NOW), list[str]()
    hands = provisioner(server, clock, noted)
    assert asyncio.run(hands.settle(Requested((ASKING,)), RULES)) == 0
    assert hands.held_up == {ASKING.job: "it was refused: the cluster has no ProvisioningRequests"}
    tried = len(server.done)
    asyncio.run(hands.settle(Requested((ASKING,)), RULES))
    assert len(server.done) == tried
    clock.advance(int(REST_S * 1000))
    server.refuses.clear()
    assert asyncio.run(hands.settle(Requested((ASKING,)), RULES)) == 1
    assert (hands.held_up, len(noted)) == ({}, 1)


def test_a_request_goes_with_its_templates_and_what_is_gone_already_is_no_error() -> None:
    request = read(a_request(waiting()), ProvisioningRequest)
    name = request.metadata.name
    gone = NotFoundError("DELETE", 404, "NotFound", "gone")
    server, noted = Server({f"delete podtemplates/{name}-0": gone}), list[str]()
    hands = provisioner(server, VirtualClock(NOW), noted)
    wanted = Requested(taken_back=(TakingBack(request, "its job has started"),), bounded=((JobName("b"), "full"),))
    assert asyncio.run(hands.settle(wanted, RULES)) == 1
    assert server.done == [f"delete provisioningrequests/{name}"]
    assert hands.held_up == {"b": "full"}
    assert noted[0].endswith("is taken back: its job has started")


def test_a_pod_that_has_just_gone_is_no_fault_of_the_cluster() -> None:
    server = Server({"get pods/w0": NotFoundError("GET", 404, "NotFound", "gone")})
    hands = provisioner(server, VirtualClock(NOW), [])
    assert asyncio.run(hands.settle(Requested((ASKING,)), RULES)) == 0
    assert (server.done, hands.held_up) == ([], {})
