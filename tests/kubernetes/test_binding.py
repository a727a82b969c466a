"""Bindings of gangs on a real API server: whole or told why not, whatever others do to the pods meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.binder.binding import Binder, GangBinding, GangOutcome, PodBinding
from reconciler.kubernetes.binder.journal import read
from reconciler.kubernetes.client.api import Api, Check
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.client.refusals import UnreachableError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import NotLeaderError
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName
from tests.kubernetes.fencing import as_quorate, led_by
from tests.kubernetes.sessions import REAL, a_namespace, a_pod, audited, session
from tests.kubernetes.test_pace import ManualClock

pytestmark = REAL

LEADER = Leadership("a", Epoch(3), float("inf"))
OTHER = Leadership("b", Epoch(4), float("inf"))


def lead() -> Leadership:
    return LEADER


async def a_gang(api: Api, space: str, name: str, size: int) -> GangBinding:
    """Its pods are there, and are to go to a node each."""
    pods = [await api.create(PODS.path(space), a_pod(f"{name}-{number}")) for number in range(size)]
    bindings = [
        PodBinding(
            space, pod["metadata"]["name"], pod["metadata"]["uid"], pod["metadata"]["resourceVersion"],
            NodeName(f"n{number}"), (DeviceId(f"n{number}/0"), DeviceId(f"n{number}/1")),
        )
        for number, pod in enumerate(pods)
    ]  # fmt: skip
    return GangBinding(JobName(f"{space}.gang.{name}"), 2, tuple(bindings))


async def seen(api: Api, pod: PodBinding) -> dict[str, Any]:
    return await api.get(PODS.path(pod.namespace, pod.name), dict[str, Any])


def answers(outcome: GangOutcome) -> list[str]:
    return [pod.answer for pod in outcome.pods]


@asynccontextmanager
async def scene(
    cluster: Cluster, kind: type[Api] = Api, pace: RateLimiter | None = None
) -> AsyncIterator[tuple[Api, Api, str]]:
    """The server with its fence, as others use it and as Quorate does, and a namespace."""
    await led_by(cluster, LEADER)
    async with session(cluster) as admin, as_quorate(cluster, kind, pace) as api:
        yield admin, api, await a_namespace(admin)


def test_a_gang_is_bound_with_what_it_holds_the_first_pod_with_the_journal_of_all(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced) as (admin, api, space):
            gang = await a_gang(admin, space, "g", 5)
            head, *rest = gang.pods
            shared = rest[0]._replace(devices=(DeviceId("n1/0"),), share=MilliGpu(500), sharing="mps")
            gang = gang._replace(pods=(head, shared, *rest[1:]))
            (outcome,) = await Binder(api, lead, SystemClock()).bind([gang])
            assert outcome.is_whole
            pods = [await seen(admin, pod) for pod in gang.pods]
            assert [pod["spec"]["nodeName"] for pod in pods] == [f"n{number}" for number in range(5)]
            notes = [pod["metadata"]["annotations"] for pod in pods]
            journal = read(notes[0].pop(names.GANG_PLAN))
            assert journal.pods == tuple(pod._replace(resource_version="") for pod in gang.pods)
            assert notes[0] == {names.DEVICES: "n0/0,n0/1", names.ATTEMPT: "2", **LEADER.stamp}
            held = {names.DEVICES: "n1/0", names.SHARE: "0.5", names.SHARING: "mps", names.ATTEMPT: "2"}
            assert notes[1] == {**held, **LEADER.stamp}
            order = [event["objectRef"]["name"] for event in bindings_sent(fenced, space)]
            assert (order[0], sorted(order)) == ("g-0", [pod.name for pod in gang.pods])

    asyncio.run(story())


def bindings_sent(cluster: Cluster, space: str) -> list[dict[str, Any]]:
    under = f"/api/v1/namespaces/{space}/pods/"
    return [
        event
        for event in audited(cluster)
        if event["requestURI"].startswith(under) and event["objectRef"].get("subresource") == "binding"
    ]


def test_many_gangs_are_bound_in_one_go_and_a_gang_of_one_needs_no_journal(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced) as (admin, api, space):
            gangs = [await a_gang(admin, space, f"g{number}", 1 + number % 4) for number in range(40)]
            outcomes = await Binder(api, lead, SystemClock(), at_once_max=7).bind(gangs)
            assert all(outcome.is_whole for outcome in outcomes)
            assert [outcome.gang for outcome in outcomes] == gangs
            alone = await seen(admin, gangs[0].pods[0])
            assert names.GANG_PLAN not in alone["metadata"]["annotations"]
            assert len(bindings_sent(fenced, space)) == sum(len(gang.pods) for gang in gangs)

    asyncio.run(story())


def test_a_pod_that_others_only_touched_is_bound_as_it_is_now(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced) as (admin, api, space):
            gang = await a_gang(admin, space, "g", 3)
            for pod in gang.pods[:2]:
                await admin.patch(PODS.path(space, pod.name), {"metadata": {"labels": {"touched": "yes"}}})
            (outcome,) = await Binder(api, lead, SystemClock()).bind([gang])
            assert outcome.is_whole
            again = await Binder(api, lead, SystemClock()).bind([gang._replace(pods=gang.pods[1:2])])
            assert answers(again[0]) == ["bound"], "so it is already"

    asyncio.run(story())


def test_each_pod_says_what_became_of_it(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced) as (admin, api, space):
            gang = await a_gang(admin, space, "g", 6)
            _, gone, anew, leaving, taken, fine = gang.pods
            for pod in (gone, anew):
                await admin.delete(PODS.path(space, pod.name))
            await admin.create(PODS.path(space), a_pod(anew.name))
            await admin.patch(PODS.path(space, leaving.name), {"metadata": {"finalizers": ["example.org/slow"]}})
            await admin.delete(PODS.path(space, leaving.name))
            other = {"metadata": {"name": taken.name}, "target": {"kind": "Node", "name": taken.node}}
            await admin.create(PODS.path(space, taken.name, "binding"), other)
            (outcome,) = await Binder(api, lead, SystemClock()).bind([gang])
            assert answers(outcome) == ["bound", "gone", "gone", "gone", "conflict", "bound"]
            assert (await seen(admin, fine))["spec"]["nodeName"] == fine.node
            assert "bound to n4, with other devices or by others" in outcome.pods[4].why

    asyncio.run(story())


def test_without_its_first_pod_nothing_of_a_gang_is_bound(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced) as (admin, api, space):
            binder = Binder(api, lead, SystemClock())
            gangs = [await a_gang(admin, space, name, 3) for name in "ab"]
            await admin.delete(PODS.path(space, "a-0"))
            (gone,) = await binder.bind(gangs[:1])
            async with session(fenced, "somebody", ()) as without_rights:
                (refused,) = await Binder(without_rights, lead, SystemClock()).bind(gangs[1:])
            assert answers(gone) == ["gone", "unsent", "unsent"]
            assert answers(refused) == ["refused", "unsent", "unsent"]
            assert not binder.remembered
            left = [await seen(admin, pod) for pod in (*gone.gang.pods[1:], *refused.gang.pods)]
            assert not any("nodeName" in pod["spec"] for pod in left)

    asyncio.run(story())


def test_who_leads_no_more_binds_nothing(fenced: Cluster) -> None:
    async def story() -> None:
        async with scene(fenced) as (admin, api, space):
            gang = await a_gang(admin, space, "g", 3)

            def nobody() -> Leadership:
                raise NotLeaderError("b", Instant(0))

            (outcome,) = await Binder(api, nobody, SystemClock()).bind([gang])
            assert answers(outcome) == ["stale-leader"] * 3
            assert not bindings_sent(fenced, space)
            await led_by(fenced, OTHER)
            (outcome,) = await Binder(api, lead, SystemClock()).bind([gang])
            assert answers(outcome) == ["stale-leader", "unsent", "unsent"]
            assert "not written by the leader, which is b in epoch 4" in outcome.pods[0].why

    asyncio.run(story())


@pytest.mark.parametrize("change", [OTHER, None])
def test_what_waited_for_its_turn_until_another_led_does_not_leave(fenced: Cluster, change: Leadership | None) -> None:
    async def story() -> None:
        manual = ManualClock()
        leads: list[Leadership | None] = [LEADER]

        def leadership() -> Leadership:
            if leads[0] is None:
                raise NotLeaderError("b", Instant(0))
            return leads[0]

        async def rest(seconds: float) -> None:
            await asyncio.sleep(0.05)  # all of them have asked for their turn
            leads[0] = change
            await manual.sleep(seconds)

        async with scene(fenced, pace=RateLimiter(1, 1, manual, rest)) as (admin, api, space):
            gangs = [await a_gang(admin, space, f"g{number}", 1) for number in range(8)]
            outcomes = await Binder(api, leadership, SystemClock()).bind(gangs)
            counted = Counter(answer for outcome in outcomes for answer in answers(outcome))
            assert counted == {"bound": 1, "stale-leader": 7}
            assert len(bindings_sent(fenced, space)) == 1

    asyncio.run(story())


class Deaf(Api):
    """Some answers are lost: after the write was done, or before."""

    done = True
    lost = frozenset[str]()
    blind = False

    async def create(self, path: str, body: object, check: Check | None = None) -> dict[str, Any]:
        if not any(name in path for name in self.lost):
            return await super().create(path, body, check)
        if self.done:
            await super().create(path, body, check)
        raise UnreachableError(f"POST {path}: no answer")

    async def get(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if self.blind:
            raise UnreachableError(f"GET {path}: no answer")
        return await super().get(path, *args, **kwargs)


@pytest.mark.parametrize(
    ("done", "blind", "expected"),
    [
        (True, False, ["bound", "bound", "bound"]),
        (False, False, ["bound", "unknown", "bound"]),
        (True, True, ["bound", "unknown", "bound"]),
    ],
)
def test_where_no_answer_comes_the_pod_says_what_became_of_it(
    fenced: Cluster, done: bool, blind: bool, expected: list[str]
) -> None:
    async def story() -> None:
        async with scene(fenced, Deaf) as (admin, api, space):
            gang = await a_gang(admin, space, "g", 3)
            assert isinstance(api, Deaf)
            api.lost, api.done, api.blind = frozenset({"g-1/"}), done, blind
            binder = Binder(api, lead, SystemClock())
            (outcome,) = await binder.bind([gang])
            assert answers(outcome) == expected
            assert len(binder.remembered) == 1

    asyncio.run(story())


def test_requests_never_leave_faster_than_configured(fenced: Cluster) -> None:
    left: list[float] = []
    clock = SystemClock()

    class Counted(Api):
        def _sent(self, *args: Any, **kwargs: Any) -> Any:
            left.append(clock.monotonic_s())
            return super()._sent(*args, **kwargs)

    async def story() -> None:
        qps, burst = 200.0, 5
        async with scene(fenced, Counted, RateLimiter(qps, burst, clock)) as (admin, api, space):
            gangs = [await a_gang(admin, space, f"g{number}", 4) for number in range(20)]
            outcomes = await Binder(api, lead, clock).bind(gangs)
            assert all(outcome.is_whole for outcome in outcomes)
            assert len(left) == 80
            for first, since_s in enumerate(left):
                for last in range(first, len(left)):
                    # What was allowed to leave may be held up for a moment by the event loop, never brought forward.
                    assert last - first + 1 <= burst + qps * (left[last] - since_s) + qps * 0.05

    asyncio.run(story())
