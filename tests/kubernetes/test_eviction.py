"""Gangs leave on a real API server: saved first, whole or not at all, and to the same end whenever whoever does it is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import structlog

from hack.kubernetes.attack import POLICIES, POLICY_BINDINGS
from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.binder.budgets import by_namespace
from reconciler.kubernetes.binder.eviction import Evictor, Outcome, Seen
from reconciler.kubernetes.binder.intents import in_flight_of
from reconciler.kubernetes.binder.nominations import Nominator
from reconciler.kubernetes.binder.save_hooks import Hooks
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import RefusedError
from reconciler.kubernetes.objects import wire
from reconciler.kubernetes.objects.disruption import Budget
from reconciler.kubernetes.objects.resource import PODS, Resource
from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import NotLeaderError
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import Evict, Nominate, Release, Shrink
from tests.kubernetes.crashing import Crash, crashing_session
from tests.kubernetes.fencing import as_quorate, led_by
from tests.kubernetes.gangs import Leads, a_gang, seen
from tests.kubernetes.kubelet import kubelet
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, audited, gone_afterwards, session

pytestmark = REAL

BUDGETS = Resource("policy/v1", "poddisruptionbudgets")
SAVES = {"quorate.dev/checkpoint-grace": "5m"}
GRACE = Duration(300_000)


class Hands:
    """A clock that is put forward by hand; it begins at the server's time, more or less."""

    def __init__(self) -> None:
        self.at = Instant.parse("2026-11-21T08:00:00Z")

    def now(self) -> Instant:
        return self.at

    def monotonic_s(self) -> float:
        return self.at / 1000


class _Budgets(wire.Wire, frozen=True):
    items: tuple[Budget, ...]


async def view(api: Api, namespace: str) -> Seen:
    world = await seen(api, namespace)
    budgets = (await api.get(BUDGETS.path(namespace), _Budgets)).items
    return Seen(world.cluster, world.pods, by_namespace(budgets))


@asynccontextmanager
async def evictor(
    api: Api, clock: Hands, leads: Leads | None = None, rest_s: float | None = None
) -> AsyncIterator[Evictor]:
    """`rest_s`: how long a hook that failed is let alone; None: as always."""
    log, leads = structlog.get_logger(), leads or Leads()

    async def rest(seconds: float) -> None:
        await asyncio.sleep(seconds if rest_s is None else rest_s)

    async with Hooks(api, clock, log, rest, may_be=lambda _: True) as hooks:
        yield Evictor(api, leads, Nominator(api, leads, clock, log), hooks, clock, log)


def evict(job: JobName, whom: JobName | None = None, grace: Duration = GRACE) -> Evict:
    return Evict(job, 1, "reclaim", grace, MilliGpu.gpus(2), 7200.0, whom)


async def until_running(api: Api, namespace: str) -> None:
    async with asyncio.timeout(SOON_S):
        while any(
            pod.spec.node_name and pod.status.phase != "Running" for pod in (await seen(api, namespace)).pods.values()
        ):
            await asyncio.sleep(0.01)


async def until_left(api: Api, namespace: str, names: set[str]) -> None:
    async with asyncio.timeout(SOON_S):
        while {name for _, name in (await seen(api, namespace)).pods} != names:
            await asyncio.sleep(0.01)


async def budget(api: Api, namespace: str, allowed: int, name: str = "budget", **labels: str) -> None:
    """As its controller would have it, which does not run here."""
    spec = {"maxUnavailable": allowed, "selector": {"matchLabels": labels}}
    await api.create(BUDGETS.path(namespace), {"metadata": {"name": name}, "spec": spec})
    await allow(api, namespace, allowed, name)


async def allow(api: Api, namespace: str, allowed: int, name: str = "budget") -> None:
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": 2,
        "desiredHealthy": 2,
        "expectedPods": 2,
        "observedGeneration": 1,
    }
    await api.patch(BUDGETS.path(namespace, name, "status"), {"status": status})


def events(outcomes: tuple[Outcome, ...]) -> list[str]:
    return [outcome.event for outcome in outcomes]


def evictions(cluster: Cluster, namespace: str, pod: str) -> list[dict[str, Any]]:
    return audited(cluster, PODS.path(namespace, pod, "eviction"))


def test_a_gang_saves_its_work_and_leaves_whole(cluster: Cluster) -> None:
    async def story() -> None:
        clock = Hands()
        async with session(cluster) as api, kubelet(api, ["e1", "e2"], {}), evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", ["e1", "e2"], SAVES)
            taker = await a_gang(api, namespace, "waits", [""])
            await until_running(api, namespace)
            (asked,) = await work.begin([evict(job, taker)], await view(api, namespace))
            assert asked == Outcome(job, "waits", "2 pods may save their work until 2026-11-21T08:05:00Z")
            now = await view(api, namespace)
            found = in_flight_of(now.cluster, now.pods)
            (intent,) = found.intents
            assert (intent.id, intent.stage, intent.beneficiary) == (f"stop/{job}/1", "saves", taker)
            by = {pod.metadata.annotations.get("quorate.dev/checkpoint-by") for pod in now.pods.values()}
            assert by == {"2026-11-21T08:05:00Z", None}
            for pod in ("runs-0", "runs-1"):
                assert events(await work.advance(await view(api, namespace))) == ["waits"]
                saved = {"metadata": {"annotations": {"quorate.dev/checkpointed": "2026-11-21T08:01:00Z"}}}
                await api.patch(PODS.path(namespace, pod), saved)
            assert events(await work.advance(await view(api, namespace))) == ["evicting"]
            await until_left(api, namespace, {"waits-0"})
            assert await work.advance(await view(api, namespace)) == ()

    asyncio.run(story())


def test_who_has_not_saved_by_the_deadline_leaves_all_the_same(cluster: Cluster) -> None:
    async def story() -> None:
        clock = Hands()
        async with session(cluster) as api, kubelet(api, ["e3"], {}), evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", ["e3", "e3"], SAVES)
            await until_running(api, namespace)
            await work.begin([evict(job)], await view(api, namespace))
            clock.at = clock.at.after(GRACE - 1)
            assert events(await work.advance(await view(api, namespace))) == ["waits"]
            clock.at = clock.at.after(1)
            assert events(await work.advance(await view(api, namespace))) == ["evicting"]
            await until_left(api, namespace, set())

    asyncio.run(story())


def test_pods_have_the_time_that_is_left_to_end_and_no_other_pod_is_meant(cluster: Cluster) -> None:
    async def story() -> None:
        clock = Hands()
        async with session(cluster) as api, evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(
                api, namespace, "runs", ["nowhere", "nowhere"], spec={"terminationGracePeriodSeconds": 200}
            )
            short = await a_gang(api, namespace, "short", ["nowhere"], spec={"terminationGracePeriodSeconds": 5})
            world = await view(api, namespace)
            await api.delete(PODS.path(namespace, "runs-1"), {"gracePeriodSeconds": 0})
            await api.create(
                PODS.path(namespace),
                {
                    **(await api.get(PODS.path(namespace, "short-0"), dict[str, Any])),
                    "metadata": {"name": "runs-1"},
                    "status": {},
                },
            )
            await work.begin([evict(job, grace=Duration(100_000)), evict(short)], world)
            now = await view(api, namespace)
            told = {name: pod for (_, name), pod in now.pods.items()}
            assert told["runs-1"].metadata.deletion_timestamp is None
            raw = await api.get(PODS.path(namespace, "runs-0"), dict[str, Any])
            assert raw["metadata"]["deletionGracePeriodSeconds"] == 100
            raw = await api.get(PODS.path(namespace, "short-0"), dict[str, Any])
            assert raw["metadata"]["deletionGracePeriodSeconds"] == 5

    asyncio.run(story())


def test_some_tasks_leave_and_the_others_go_on(cluster: Cluster) -> None:
    async def story() -> None:
        clock = Hands()
        async with session(cluster) as api, kubelet(api, ["e4"], {}), evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", ["e4"] * 4, {"quorate.dev/gang-size": "2"})
            await until_running(api, namespace)
            tasks = tuple(TaskPlacement("worker", index, NodeName("e4")) for index in (1, 3))
            shrink = Shrink(job, 1, tasks, "reclaim", GRACE, MilliGpu.gpus(2), 0.0)
            assert events(await work.begin([shrink], await view(api, namespace))) == ["evicting"]
            await until_left(api, namespace, {"runs-0", "runs-2"})
            now = await view(api, namespace)
            assert in_flight_of(now.cluster, now.pods).intents == ()
            assert await work.advance(now) == ()

    asyncio.run(story())


def test_a_gang_that_never_became_ready_is_released(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, evictor(api, Hands()) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "begins", ["nowhere", "nowhere"], SAVES)
            assert events(await work.begin([Release(job, 2)], await view(api, namespace))) == ["refused"]
            assert events(await work.begin([Release(job, 1)], await view(api, namespace))) == ["evicting"]
            now = await view(api, namespace)
            assert all(pod.metadata.deletion_timestamp for pod in now.pods.values())

    asyncio.run(story())


def test_nothing_of_a_gang_is_evicted_if_budgets_do_not_allow_all_of_it(cluster: Cluster) -> None:
    async def story() -> None:
        clock = Hands()
        async with crashing_session(cluster) as api, kubelet(api, ["e5"], {}), evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", ["e5", "e5"], SAVES)
            taker = await a_gang(api, namespace, "waits", ["", ""])
            await until_running(api, namespace)
            await budget(api, namespace, 1, gang="runs")
            world, written = await view(api, namespace), api.writes
            (refused,) = await work.begin([evict(job, taker)], world)
            assert refused == Outcome(
                job, "refused", "PodDisruptionBudget budget allows 1 eviction now, and it takes 2"
            )
            assert api.writes == written
            # It was allowed when it was asked, and is not any more when it has saved its work.
            await allow(api, namespace, 2)
            promises = Nominator(api, Leads(), clock, structlog.get_logger())
            world = await view(api, namespace)
            tasks = tuple(TaskPlacement("worker", n, NodeName("e5")) for n in range(2))
            gangs = {gang.name: gang for gang in world.cluster.gangs}
            await promises.keep([Nominate(taker, 1, tasks, GRACE)], gangs, world.pods)
            await work.begin([evict(job, taker)], await view(api, namespace))
            await allow(api, namespace, 0)
            for pod in ("runs-0", "runs-1"):
                saved = {"metadata": {"annotations": {"quorate.dev/checkpointed": "2026-11-21T08:01:00Z"}}}
                await api.patch(PODS.path(namespace, pod), saved)
            (waits,) = await work.advance(await view(api, namespace))
            assert (
                waits.why
                == "until 2026-11-21T08:05:00Z: PodDisruptionBudget budget allows 0 evictions now, and it takes 2"
            )
            clock.at = clock.at.after(GRACE)
            (called_off,) = await work.advance(await view(api, namespace))
            assert called_off == Outcome(
                job, "called-off", "PodDisruptionBudget budget allows 0 evictions now, and it takes 2"
            )
            now = await view(api, namespace)
            assert in_flight_of(now.cluster, now.pods).intents == ()
            notes = {key for pod in now.pods.values() for key in pod.metadata.annotations}
            assert not notes & {"quorate.dev/evict", "quorate.dev/checkpoint-by", "quorate.dev/promise"}
            assert evictions(cluster, namespace, "runs-0") == []

    asyncio.run(story())


def test_a_refusal_midway_is_tried_again_until_the_gang_is_gone(cluster: Cluster) -> None:
    """The budget of one pod is older in the mirror than on the server: somebody else has used it up meanwhile."""

    async def story() -> None:
        clock = Hands()
        async with session(cluster) as api, kubelet(api, ["e6"], {}), evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", ["e6"] * 3)
            await api.patch(PODS.path(namespace, "runs-2"), {"metadata": {"labels": {"kept": "yes"}}})
            await until_running(api, namespace)
            await budget(api, namespace, 1, kept="yes")
            world = await view(api, namespace)
            await allow(api, namespace, 0)
            (failed,) = await work.begin([evict(job)], world)
            assert failed.event == "failed"
            assert failed.why.startswith("1 pod refused: POST ")
            assert "The disruption budget budget" in failed.why
            await until_left(api, namespace, {"runs-0", "runs-2"})  # who remembers it goes last
            now = await view(api, namespace)
            assert await work.advance(now) == ()  # it rests
            clock.at = clock.at.after(GRACE)
            (failed,) = await work.advance(now)
            assert "past its deadline of 2026-11-21T08:05:00Z" in failed.why
            now = await view(api, namespace)
            assert {"quorate.dev/evict" in pod.metadata.annotations for pod in now.pods.values()} == {True}
            await allow(api, namespace, 1)
            clock.at = clock.at.after(60_000)
            assert events(await work.advance(await view(api, namespace))) == ["evicting"]
            await until_left(api, namespace, set())

    asyncio.run(story())


def test_the_gang_stays_if_who_it_would_leave_for_is_gone(cluster: Cluster) -> None:
    async def story() -> None:
        clock = Hands()
        async with session(cluster) as api, kubelet(api, ["e7"], {}), evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", ["e7"], SAVES)
            taker = await a_gang(api, namespace, "waits", [""])
            await until_running(api, namespace)
            await work.begin([evict(job, taker)], await view(api, namespace))
            await api.delete(PODS.path(namespace, "waits-0"), {"gracePeriodSeconds": 0})
            (outcome,) = await work.advance(await view(api, namespace))
            assert outcome == Outcome(job, "called-off", f"{taker} does not wait for what it holds any more")
            assert await work.advance(await view(api, namespace)) == ()

    asyncio.run(story())


def test_who_does_not_lead_evicts_nobody(cluster: Cluster) -> None:
    async def story() -> None:
        clock, leads = Hands(), Leads()
        async with session(cluster) as admin, kubelet(admin, ["e11"], {}), crashing_session(cluster) as api:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", ["e11", "e11"], SAVES)
            other = await a_gang(api, namespace, "other", ["e11", "e11"])
            await until_running(api, namespace)
            async with evictor(api, clock, leads) as work:
                await work.begin([evict(job)], await view(api, namespace))
                written, leads.now = api.writes, False
                with pytest.raises(NotLeaderError):
                    await work.begin([evict(other)], await view(api, namespace))
                clock.at = clock.at.after(GRACE)
                with pytest.raises(NotLeaderError):
                    await work.advance(await view(api, namespace))
                assert api.writes == written

    asyncio.run(story())


def test_what_is_asked_twice_by_who_has_not_seen_the_first_time_stays_as_it_was(cluster: Cluster) -> None:
    async def story() -> None:
        clock = Hands()
        async with session(cluster) as api, kubelet(api, ["e8"], {}), evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", ["e8", "e8"], SAVES)
            await until_running(api, namespace)
            stale = await view(api, namespace)
            await work.begin([evict(job)], stale)
            clock.at = clock.at.after(60_000)
            await work.begin([evict(job)], stale)
            now = await view(api, namespace)
            (intent,) = in_flight_of(now.cluster, now.pods).intents
            assert intent.deadline == Instant.parse("2026-11-21T08:05:00Z")

    asyncio.run(story())


@pytest.mark.parametrize("heard", [True, False], ids=["not sent", "sent"])
@pytest.mark.parametrize("notes", [SAVES, {}], ids=["saves", "saves nothing"])
def test_killed_at_any_write_the_next_one_comes_to_the_same_end(
    cluster: Cluster, notes: dict[str, str], heard: bool
) -> None:
    async def story() -> None:
        node = f"e9-{len(notes)}-{heard}".lower()
        async with session(cluster) as admin, kubelet(admin, [node], {}):
            killed = 0
            while await _killed_after(cluster, admin, node, notes, killed, heard=heard):
                killed += 1
            # Each pod is told (else only the first), one of them tried, the end begun, each evicted.
            assert killed == (3 + 1 + 1 + 3 if notes else 1 + 1 + 3)

    asyncio.run(story())


async def _killed_after(
    cluster: Cluster, admin: Api, node: str, notes: dict[str, str], writes: int, *, heard: bool
) -> bool:
    """Whether it came to be killed. However that was, the gang is gone in the end, whole, and another is not touched."""
    clock, namespace = Hands(), await a_namespace(admin)
    job = await a_gang(admin, namespace, "runs", [node] * 3, notes)
    await a_gang(admin, namespace, "stays", [node])
    await until_running(admin, namespace)
    killed = False
    async with crashing_session(cluster, writes, heard=heard) as api:
        try:
            await _to_the_end(api, clock, namespace, job)
        except Crash:
            killed = True
    async with session(cluster) as api:
        await _to_the_end(api, clock, namespace, job)
    assert {name for _, name in (await seen(admin, namespace)).pods} == {"stays-0"}
    return killed


async def _to_the_end(api: Api, clock: Hands, namespace: str, job: JobName) -> None:
    """Passes, until the gang is gone; the round asks for the eviction where nothing says that it was asked for."""
    async with evictor(api, clock) as work, asyncio.timeout(SOON_S):
        while True:
            now = await view(api, namespace)
            intents = in_flight_of(now.cluster, now.pods).intents
            if job not in {gang.name for gang in now.cluster.gangs}:
                return
            if not intents and len(now.pods) == 4:
                await work.begin([evict(job)], now)
            await work.advance(now)
            clock.at = clock.at.after(GRACE if intents else 0)


@pytest.mark.parametrize("heard", [True, False], ids=["not sent", "sent"])
def test_killed_at_any_write_it_is_called_off_all_the_same(cluster: Cluster, heard: bool) -> None:
    async def story() -> None:
        node = "e12" if heard else "e13"
        async with session(cluster) as admin, kubelet(admin, [node], {}):
            killed = 0
            while await _called_off_after(cluster, admin, node, killed, heard=heard):
                killed += 1
            assert killed == 3 + 2  # the promise and the nodes of two pods, then both of the gang's

    asyncio.run(story())


async def _called_off_after(cluster: Cluster, admin: Api, node: str, writes: int, *, heard: bool) -> bool:
    """Whether it came to be killed. However that was, in the end nothing is asked or promised, and all run on."""
    clock, namespace = Hands(), await a_namespace(admin)
    job = await a_gang(admin, namespace, "runs", [node] * 2, SAVES)
    taker = await a_gang(admin, namespace, "waits", ["", ""])
    await until_running(admin, namespace)
    async with evictor(admin, clock) as work:
        world = await view(admin, namespace)
        tasks = tuple(TaskPlacement("worker", n, NodeName(node)) for n in range(2))
        promises = Nominator(admin, Leads(), clock, structlog.get_logger())
        gangs = {gang.name: gang for gang in world.cluster.gangs}
        await promises.keep([Nominate(taker, 1, tasks, GRACE)], gangs, world.pods)
        await work.begin([evict(job, taker)], await view(admin, namespace))
    await budget(admin, namespace, 1, gang="runs")
    clock.at = clock.at.after(GRACE)
    killed = False
    async with crashing_session(cluster, writes, heard=heard) as api, evictor(api, clock) as work:
        try:
            await work.advance(await view(api, namespace))
        except Crash:
            killed = True
    async with evictor(admin, clock) as work:
        await work.advance(await view(admin, namespace))
        now = await view(admin, namespace)
        assert await work.advance(now) == ()
    notes = {key for pod in now.pods.values() for key in pod.metadata.annotations}
    assert not notes & {"quorate.dev/evict", "quorate.dev/checkpoint-by", "quorate.dev/promise"}
    assert not any(pod.metadata.deletion_timestamp or pod.status.nominated_node_name for pod in now.pods.values())
    return killed


def test_the_fence_refuses_the_evictions_of_who_leads_no_more(fenced: Cluster) -> None:
    """Its election does not know it yet, but the Lease is another's."""

    async def story() -> None:
        clock = Hands()
        async with session(fenced) as admin, as_quorate(fenced) as api, evictor(api, clock) as work:
            await led_by(fenced, Leadership("here", Epoch(3), 0))
            namespace = await a_namespace(admin)
            job = await a_gang(admin, namespace, "runs", ["", ""])
            for name in ("runs-0", "runs-1"):
                notes = {"quorate.dev/attempt": "1", "quorate.dev/leader": "here", "quorate.dev/epoch": "3"}
                metadata = {"name": name, "annotations": notes, "labels": {"quorate.dev/fenced": "true"}}
                binding = {"metadata": metadata, "target": {"kind": "Node", "name": "nowhere"}}
                await api.create(PODS.path(namespace, name, "binding"), binding)
            stale = await view(api, namespace)
            await led_by(fenced, Leadership("there", Epoch(4), 0))
            (failed,) = await work.begin([evict(job)], stale)
            assert failed.event == "refused"
            assert "not written by the leader, which is there in epoch 4" in failed.why
            now = await view(api, namespace)
            assert not any(pod.metadata.deletion_timestamp for pod in now.pods.values())
            assert in_flight_of(now.cluster, now.pods).intents == ()
            await led_by(fenced, Leadership("here", Epoch(3), 0))
            assert events(await work.begin([evict(job)], now)) == ["evicting"]

    asyncio.run(story())


BUDGET = "PodDisruptionBudget team/all"


@pytest.mark.parametrize("several", [False, True], ids=["one budget", "two budgets"])
def test_a_budget_that_holds_no_more_is_asked_and_passed_over(cluster: Cluster, several: bool) -> None:
    async def story() -> None:
        clock = Hands()
        node = "held1" if several else "held2"
        async with session(cluster) as api, kubelet(api, [node], {}), evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", [node, node])
            taker = await a_gang(api, namespace, "waits", [""])
            await until_running(api, namespace)
            for name in ("budget", "other") if several else ("budget",):
                await budget(api, namespace, 0, name, gang="runs")
            pods = [PODS.path(namespace, name) for name in ("runs-0", "runs-1")]
            for path in pods:  # so that they can be looked at once they are deleted
                await api.patch(path, {"metadata": {"finalizers": ["example.com/kept"]}})
            now = await view(api, namespace)
            (refused,) = await work.begin([evict(job, taker)], now)
            assert refused.event == "refused"
            assert evictions(cluster, namespace, "runs-0") == []
            overdue = msgspec.structs.replace(evict(job, taker, Duration(0)), past=BUDGET)
            (asked,) = await work.begin([overdue], now)
            assert (asked.event, BUDGET in asked.why) == ("past-budgets", True)
            for name, path in zip(("runs-0", "runs-1"), pods, strict=True):
                # The server was asked first, and has refused.
                codes = {one["responseStatus"]["code"] for one in evictions(cluster, namespace, name)}
                assert codes == {500 if several else 429}
                pod = await api.get(path, dict[str, Any])
                assert pod["metadata"]["deletionTimestamp"]
                (said,) = (one for one in pod["status"]["conditions"] if one["type"] == "DisruptionTarget")
                assert (said["status"], said["reason"]) == ("True", "PreemptionByScheduler")
                assert BUDGET in said["message"]
                await api.patch(path, {"metadata": {"finalizers": None}})
            await until_left(api, namespace, {"waits-0"})

    asyncio.run(story())


def test_a_budget_that_holds_no_more_is_passed_over_by_the_next_leader_too(cluster: Cluster) -> None:
    """It saves first, and its leader dies: what was decided about the budget stands on its pods."""

    async def story() -> None:
        clock = Hands()
        async with session(cluster) as api, kubelet(api, ["held3"], {}), evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", ["held3"], SAVES)
            taker = await a_gang(api, namespace, "waits", [""])
            await until_running(api, namespace)
            await budget(api, namespace, 0, gang="runs")
            overdue = msgspec.structs.replace(evict(job, taker), past=BUDGET)
            assert events(await work.begin([overdue], await view(api, namespace))) == ["waits"]
            async with evictor(api, clock) as successor:
                assert events(await successor.advance(await view(api, namespace))) == ["waits"]
                clock.at = clock.at.after(GRACE)
                assert events(await successor.advance(await view(api, namespace))) == ["past-budgets"]
            await until_left(api, namespace, {"waits-0"})

    asyncio.run(story())


async def refuse_evictions(api: Api, namespace: str) -> list[str]:
    """A site's own admission policy refuses evictions there; returns once it does. What it is made of is to be deleted."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}]
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {
        "matchConstraints": {"namespaceSelector": here, "resourceRules": rules},
        "validations": [{"expression": "false", "message": "this site evicts by hand"}],
    }
    await api.create(POLICIES.path(), {"metadata": {"name": namespace}, "spec": spec})
    bound = {"policyName": namespace, "validationActions": ["Deny"]}
    await api.create(POLICY_BINDINGS.path(), {"metadata": {"name": namespace}, "spec": bound})
    dry = {"metadata": {"name": "none", "namespace": namespace}, "deleteOptions": {"dryRun": ["All"]}}
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                await api.create(PODS.path(namespace, "none", "eviction"), dry)
            except RefusedError as refused:
                if "by hand" in refused.message:
                    return [POLICY_BINDINGS.path("", namespace), POLICIES.path("", namespace)]
            await asyncio.sleep(0.05)


def test_what_others_than_budgets_refuse_is_not_passed_over(cluster: Cluster) -> None:
    async def story() -> None:
        clock = Hands()
        async with session(cluster) as api, kubelet(api, ["held4"], {}), evictor(api, clock) as work:
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "runs", ["held4"])
            taker = await a_gang(api, namespace, "waits", [""])
            await until_running(api, namespace)
            await budget(api, namespace, 0, gang="runs")
            async with gone_afterwards(api, *await refuse_evictions(api, namespace)):
                overdue = msgspec.structs.replace(evict(job, taker, Duration(0)), past=BUDGET)
                (asked,) = await work.begin([overdue], await view(api, namespace))
            assert (asked.event, "this site evicts by hand" in asked.why) == ("failed", True)
            pod = await api.get(PODS.path(namespace, "runs-0"), dict[str, Any])
            assert "deletionTimestamp" not in pod["metadata"]

    asyncio.run(story())
