"""Requests for nodes: how far each has come, which are made, taken back or made again, and what is kept for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.wire import KubeNode, read
from reconciler.kubernetes.provisioning.decisions import (
    Requested,
    decided,
    holds,
    nodes_of,
    standings,
    wants_of,
    without_rules,
)
from reconciler.kubernetes.provisioning.requests import KINDS, ProvisioningRequest
from reconciler.kubernetes.provisioning.templates import request_of, template_of
from reconciler.kubernetes.provisioning.words import request_words
from reconciler.kubernetes.status.conditions import AWAITS_NODES, condition_updates, wants_nodes
from solver.model.cluster import GpuType, NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Inadmissible, Verdict, Waits
from solver.plan.reasons import CapacityReason, HeldReason
from solver.plan.refusals import NeverFits
from solver.policy.node_requests import Provisioning
from tests.reconciler.kubernetes.control.test_sight import GANG, a_worker, sight_of
from tests.reconciler.kubernetes.samples import Sent, node, pod

NOW = Instant.parse("2026-11-20T09:00:00Z")
RULES = Provisioning(after=Duration(60_000), max_requests=2, max_nodes=3)
H100 = GpuType("H100-SXM5-80GB")


def waiting() -> Sight:
    """A gang of three pods with 2 GPUs each, and a pod of its own that came later, beside a node that is full."""
    later = pod("later", 8, created="2026-11-20T08:30:00Z")
    return sight_of([node("n1", 8)], [pod("runs", 8, "n1"), *(a_worker(index) for index in range(3)), later])


LATER = JobName("vision.pod.later")


def a_request(world: Sight, job: JobName = GANG, tries: int = 1, *conditions: tuple[str, str], **said: Any) -> Sent:
    """For a job of the world, with conditions (type, since) that are True."""
    made = world.cluster.index.jobs.get(job)
    told = [
        {"type": kind, "status": "True", "reason": "R", "message": "M", "lastTransitionTime": at}
        for kind, at in conditions
    ]
    notes = {
        names.PROVISIONING_JOB: job,
        names.PROVISIONING_FOR: said.get("wants", wants_of(made) if made else "x"),
        names.PROVISIONING_TRY: str(tries),
        names.PROVISIONING_NODES: str(said.get("nodes", 1)),
    }
    name = f"quorate-{job}-{tries}"
    meta = {"name": name, "namespace": "vision", "uid": name, "creationTimestamp": "2026-11-20T08:50:00Z"}
    return {
        "metadata": meta | {"labels": {names.PROVISIONING: "true"}, "annotations": notes},
        "spec": {"podSets": [{"podTemplateRef": {"name": f"{name}-0"}, "count": 3}]},
        "status": {"conditions": told},
    }


def requests(*sent: Sent) -> list[ProvisioningRequest]:
    return [read(one, ProvisioningRequest) for one in sent]


def deeds(
    world: Sight, waits: Mapping[JobName, bool], *sent: Sent, at: Instant = NOW, rules: Provisioning = RULES
) -> Requested:
    return decided(standings(requests(*sent), rules, at), world.cluster, waits, rules, at)


BOTH = {GANG: True, LATER: True}


def test_nodes_are_asked_for_by_jobs_that_wait_for_nothing_else_the_first_before_the_others() -> None:
    wanted = deeds(waiting(), BOTH)
    assert [(one.job, one.tries, one.nodes, one.pods) for one in wanted.asked] == [
        (GANG, 1, 1, (("w0", 3),)),
        (LATER, 1, 1, (("later", 1),)),
    ]
    assert not wanted.taken_back
    assert not wanted.bounded
    assert [one.job for one in deeds(waiting(), {GANG: False, LATER: True}).asked] == [LATER]


def test_a_job_has_waited_for_a_while_before_nodes_are_asked_for() -> None:
    came = Instant.parse("2026-11-20T08:00:00Z")
    assert not deeds(waiting(), {GANG: True}, at=came.after(59_999)).asked
    assert deeds(waiting(), {GANG: True}, at=came.after(60_000)).asked


def test_bounds_are_kept_and_told() -> None:
    one = deeds(waiting(), BOTH, rules=msgspec.structs.replace(RULES, max_requests=1))
    assert [asking.job for asking in one.asked] == [GANG]
    assert one.bounded == ((LATER, "1 request of maxRequests 1 are open"),)
    few = deeds(waiting(), BOTH, rules=msgspec.structs.replace(RULES, max_nodes=1))
    assert few.bounded == ((LATER, "it takes 1 node more than 1 that are asked for, and maxNodes is 1"),)
    world = waiting()
    full = deeds(world, {LATER: True}, a_request(world, nodes=3))
    assert [job for job, _ in full.bounded] == [LATER]
    over = deeds(world, {LATER: True}, a_request(world, GANG, 1, ("Failed", str(NOW)), nodes=3))
    assert [asking.job for asking in over.asked] == [LATER], "what failed is not open"


def test_a_request_is_taken_back_once_its_job_has_started_is_gone_wants_something_else_or_waits_for_something_else() -> (
    None
):
    world = waiting()
    started = sight_of([node("n1", 8)], [a_worker(index, "n1") for index in range(3)])
    why = {
        "its job has started": deeds(started, {}, a_request(started)),
        "its job is gone": deeds(world, {}, a_request(world, JobName("vision.gang.gone"))),
        "its job asks for something else": deeds(world, {GANG: True}, a_request(world, wants="less")),
        "its job waits for something else than nodes": deeds(world, {GANG: False}, a_request(world)),
    }
    assert {key: [taken.why for taken in found.taken_back] for key, found in why.items()} == {key: [key] for key in why}
    assert not deeds(world, {GANG: True}, a_request(world)).taken_back
    assert not deeds(world, {}, a_request(world)).taken_back, "a round that says nothing of it changes nothing"
    assert not deeds(world, {GANG: False}, a_request(world, GANG, 1, ("Provisioned", str(NOW)))).taken_back
    (gone,) = without_rules(requests(a_request(world))).taken_back
    assert gone.why == "policy asks for no nodes"


def test_the_requests_of_others_are_left_alone() -> None:
    world = waiting()
    foreign = a_request(world)
    foreign["metadata"]["labels"] = {}
    assert deeds(world, {GANG: True}, foreign).asked
    assert not deeds(world, {GANG: False}, foreign).taken_back
    assert not without_rules(requests(foreign)).taken_back


@pytest.mark.parametrize(("tries", "wait_s"), [(1, 120), (2, 240), (3, 480), (9, 3_600)])
def test_what_failed_is_made_again_later_each_time(tries: int, wait_s: int) -> None:
    world = waiting()
    failed = a_request(world, GANG, tries, ("Failed", "2026-11-20T09:00:00Z"))
    soon = deeds(world, {GANG: True}, failed, at=NOW.after(wait_s * 1000 - 1))
    assert (soon.asked, soon.taken_back) == ((), ())
    then = deeds(world, {GANG: True}, failed, at=NOW.after(wait_s * 1000))
    assert [(one.job, one.tries) for one in then.asked] == [(GANG, tries + 1)]
    assert [one.why for one in then.taken_back] == ["it is made again"]


@pytest.mark.parametrize(
    ("conditions", "stage"),
    [
        ((), "asked"),
        ((("Accepted", "2026-11-20T08:51:00Z"),), "accepted"),
        ((("Accepted", "2026-11-20T08:51:00Z"), ("Provisioned", "2026-11-20T08:55:00Z")), "provisioned"),
        ((("Provisioned", "2026-11-20T08:30:00Z"),), "over"),
        ((("Provisioned", "2026-11-20T08:55:00Z"), ("BookingExpired", "2026-11-20T08:56:00Z")), "over"),
        ((("Provisioned", "2026-11-20T08:55:00Z"), ("CapacityRevoked", "2026-11-20T08:56:00Z")), "over"),
        ((("Failed", "2026-11-20T08:56:00Z"),), "over"),
    ],
)
def test_conditions_say_how_far_a_request_has_come(conditions: tuple[tuple[str, str], ...], stage: str) -> None:
    (one,) = standings(requests(a_request(waiting(), GANG, 1, *conditions)), RULES, NOW)
    assert one.stage == stage


def kept(
    world: Sight, nodes: list[Sent], *sent: Sent, at: Instant = NOW
) -> dict[JobName | None, tuple[NodeName, ...] | None]:
    wire = {NodeName(one["metadata"]["name"]): read(one, KubeNode) for one in nodes}
    found = holds(standings(requests(*sent), RULES, at), world.cluster, wire.get, at)
    return {one.job: one.nodes for one in found}


def came(name: str, at: str, gpus: int = 8) -> Sent:
    sent = node(name, gpus)
    sent["metadata"]["creationTimestamp"] = at
    return sent


OLD, NEW, NEWER = "2026-11-20T08:00:00Z", "2026-11-20T08:51:00Z", "2026-11-20T08:52:00Z"


def test_nodes_that_came_since_are_kept_for_the_job_that_asked_as_many_as_it_needs() -> None:
    nodes = [came("old", OLD), came("b", NEW, 4), came("a", NEWER, 4), came("c", NEWER, 4), came("cpu", NEW, 0)]
    world = sight_of(nodes, [*(a_worker(index) for index in range(3)), pod("later", 4)])
    first = a_request(world)
    assert kept(world, nodes, first) == {GANG: ("a", "b")}
    second = a_request(world, LATER)
    second["metadata"]["creationTimestamp"] = "2026-11-20T08:50:30Z"
    assert kept(world, nodes, second, first) == {GANG: ("a", "b"), LATER: ("c",)}


def test_nothing_is_kept_longer_than_policy_says_nor_after_the_end_of_a_request_or_for_a_job_that_runs() -> None:
    nodes = [came("new", NEW)]
    world = sight_of(nodes, [a_worker(index) for index in range(3)])
    until = Instant.parse("2026-11-20T09:20:00Z")
    assert kept(world, nodes, a_request(world), at=Instant(until - 1)) == {GANG: ("new",)}
    assert kept(world, nodes, a_request(world), at=until) == {}
    longer = a_request(world, GANG, 1, ("Provisioned", "2026-11-20T09:10:00Z"))
    assert kept(world, nodes, longer, at=until) == {GANG: ("new",)}
    assert kept(world, nodes, a_request(world, GANG, 1, ("Failed", NEW))) == {}
    runs = sight_of(nodes, [a_worker(index, "new") for index in range(3)])
    assert kept(runs, nodes, a_request(runs)) == {}


def test_how_many_nodes_a_job_is_taken_to_need() -> None:
    world = waiting()
    gang, nodes = world.cluster.index.jobs[GANG], world.cluster.nodes
    assert nodes_of(gang, nodes) == 1
    small = sight_of([node("n1", 2)], [a_worker(index) for index in range(3)])
    assert nodes_of(gang, small.cluster.nodes) == 3
    assert nodes_of(gang, ()) == 3


def test_what_is_sent_has_what_says_where_pods_may_be_and_nothing_of_what_they_run() -> None:
    (asking, _) = deeds(waiting(), BOTH).asked
    sent = a_worker(0, spec={"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]})
    sent["spec"]["containers"][0] |= {"command": ["secret"], "env": [{"name": "TOKEN", "value": "x"}]}
    template = template_of(asking, 0, sent)
    spec = template["template"]["spec"]
    assert spec["nodeSelector"] == {"a": "b"}
    assert spec["containers"][0].keys() == {"name", "image", "resources"}
    assert "schedulerName" not in spec
    assert template["metadata"]["ownerReferences"][0]["uid"] == "uid-of-w0"
    request = request_of(asking, RULES, KINDS[1])
    assert request["apiVersion"] == "autoscaling.x-k8s.io/v1beta1"
    assert request["spec"]["podSets"] == [{"podTemplateRef": {"name": template["metadata"]["name"]}, "count": 3}]
    assert "parameters" not in request["spec"]


def test_users_are_told_how_it_stands() -> None:
    nodes = [came("new", NEW)]
    world = sight_of(nodes, [a_worker(index) for index in range(3)])
    wire = {NodeName("new"): read(nodes[0], KubeNode)}

    def words(*conditions: tuple[str, str]) -> str:
        known = standings(requests(a_request(world, GANG, 1, *conditions)), RULES, NOW)
        return request_words(known, tuple(holds(known, world.cluster, wire.get, NOW)), RULES)[GANG]

    asked = "nodes are asked for by ProvisioningRequest vision/quorate-vision.gang.train-1, which is"
    until = "; 1 node that came is kept for it until 2026-11-20T09:20:00Z"
    assert words() == f"{asked} not accepted yet since 2026-11-20T08:50:00Z{until}"
    assert words(("Accepted", NEW)) == f"{asked} accepted since {NEW}{until}"
    assert words(("Failed", NEW)) == (
        "ProvisioningRequest vision/quorate-vision.gang.train-1 gave no nodes: Failed: R: M, at 2026-11-20T08:51:00Z; nodes are "
        "asked for again from 2026-11-20T08:53:00Z on, for the second time"
    )


def never_fits(fit: int) -> NeverFits:
    return NeverFits("worker", H100, 3, MilliGpu.gpus(8), fit, MilliGpu.gpus(8))


@pytest.mark.parametrize(
    ("verdict", "is_so"),
    [
        (Waits(GANG, QueueName("q"), (CapacityReason(H100, MilliGpu(0), MilliGpu.gpus(8)),)), True),
        (Waits(GANG, QueueName("q"), (HeldReason(QueueName("q"), "Hold"),)), False),
        (Inadmissible(GANG, QueueName("q"), (never_fits(1),)), True),
        (Inadmissible(GANG, QueueName("q"), (never_fits(0),)), False),
    ],
)
def test_which_jobs_wait_for_nothing_but_nodes(verdict: Verdict, is_so: bool) -> None:
    assert wants_nodes(verdict) is is_so


def test_pods_that_wait_for_nodes_that_are_asked_for_do_not_say_what_makes_an_autoscaler_add_others() -> None:
    world = waiting()
    verdict = Waits(GANG, QueueName("q"), (CapacityReason(H100, MilliGpu(0), MilliGpu.gpus(8)),))
    gangs = [world.gangs[GANG]]

    def said(awaited: dict[JobName, str] | None) -> tuple[str, str]:
        found = next(iter(condition_updates(gangs, [verdict], world.pods, NOW, {}, awaited)))
        return found.said.reason, found.said.message

    assert said(None)[0] == "Unschedulable"
    assert said({})[0] == AWAITS_NODES
    reason, message = said({GANG: "nodes are asked for"})
    assert reason == AWAITS_NODES
    assert message.startswith("nodes are asked for; waits: needs 8 H100-SXM5-80GB, 0 free")
