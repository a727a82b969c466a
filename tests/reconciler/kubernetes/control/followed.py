"""A plane on objects in memory that real watches follow, and passes on it; time is the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import structlog

from hack.kubernetes.served import ServedObjects
from reconciler.control.control import LEASE, PolicyInForce, Solved
from reconciler.control.passes import Pass
from reconciler.control.recording import without_program
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import BACKOFF_S
from reconciler.kubernetes.client.kind_watch import WatchContext
from reconciler.kubernetes.control.cluster_cache import BUDGETS, PRIORITY_CLASSES, ClusterCache
from reconciler.kubernetes.control.plane import Handed, PodPlane
from reconciler.kubernetes.control.pod_site import one_pass
from reconciler.kubernetes.control.quietness import PodQuietness
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.control.state import KubernetesState
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.model.clock import VirtualClock
from reconciler.store.store import SqlStore
from solver.model.cluster import GpuType
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.policy.policy import Policy, Queue, Quota, policy_of
from tests.fresh_store import fresh_store
from tests.reconciler.kubernetes.samples import Sent, node, pod

NOW = Instant.parse("2026-11-20T09:00:00Z")
POLICY = policy_of((Queue(QueueName("q"), quota=(Quota(GpuType("H100-SXM5-80GB"), MilliGpu.gpus(1000)),)),))


class Policies:
    """The policy in force; tests put another one there. `asked`: is told of each time that it is asked for."""

    def __init__(self) -> None:
        self.in_force = PolicyInForce("a" * 40, POLICY, ())
        self.asked: Callable[[], object] = lambda: None

    def current(self) -> PolicyInForce:
        self.asked()
        return self.in_force


class Ticking(VirtualClock):
    """Each look at it takes a millisecond."""

    def monotonic_s(self) -> float:
        self.advance(1)
        return super().monotonic_s()


class Counting:
    """Decides rounds, and counts them."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def __call__(self, snapshot: Snapshot, policy: Policy) -> Solved:
        self.snapshots.append(snapshot)
        return without_program(snapshot, policy)


class Followed:
    """Objects, the mirror that follows them, and the plane. It only looks: nothing in the objects changes but by the test."""

    def __init__(self, folder: Path, objects: ServedObjects, clock: VirtualClock) -> None:
        self.objects = objects
        self.clock = clock
        self.store: SqlStore = fresh_store(folder / "store")
        self.policies, self.solve = Policies(), Counting()
        log = structlog.wrap_logger(structlog.ReturnLogger())
        api = cast("Api", self.objects)
        self.mirror = ClusterCache(WatchContext(api, self.clock, Random(1), log, _rests))
        memory = KubernetesState(self.store.ledger, self.store.history, self.store.gone_pods, self.clock, "here", LEASE)
        self.stalled = ""
        handed = Handed(
            *(memory, self.store.interventions, self.store.health, self.policies, self.solve, self.clock, Random(1)),
            *(lambda: self.stalled, log),
        )
        self.plane = PodPlane(self.mirror, handed)
        self.quietness = PodQuietness(self.plane)

    async def caught_up(self) -> None:
        """Return once the mirror shows all objects as they are."""
        for kind, watch in ((NODES, self.mirror.nodes), (PODS, self.mirror.pods)):
            while not _shows(watch.items, self.objects.there(kind)):
                await asyncio.sleep(0)

    async def taken(self, pass_s: float = 1.0) -> tuple[Pass, Sight]:
        """A pass, which takes its time."""
        self.mirror.changed.clear()
        self.quietness.begin()
        done, sight = await one_pass(self.plane)
        self.clock.advance(int(pass_s * 1_000))
        self.quietness.end(done, sight)
        return done, sight

    async def quiet(self) -> None:
        """Take passes until one would see nothing new."""
        for _ in range(5):
            await self.taken()
            if self.quietness.holds():
                return
        raise AssertionError("it does not become quiet")


@asynccontextmanager
async def followed(
    folder: Path, *objects: Sent, served: ServedObjects | None = None, clock: VirtualClock | None = None
) -> AsyncIterator[Followed]:
    """With these nodes and pods, or what is served already, all of which the mirror shows."""
    none = ServedObjects(NODES, PODS, BUDGETS, PRIORITY_CLASSES)
    made = Followed(folder, served or none, clock or VirtualClock(NOW))
    for sent in objects:
        made.objects.put(NODES if sent["kind"] == "Node" else PODS, sent)
    running = asyncio.create_task(made.mirror.run())
    try:
        await made.mirror.ready()
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        made.store.close()


def a_node(number: int) -> Sent:
    """With 8 H100."""
    return node(f"n{number:03}")


def a_running(name: str, on: str, gpus: int = 8, **said: Any) -> Sent:
    """A pod of its own that runs."""
    at = "2026-11-20T08:01:00Z"
    ready = {"phase": "Running", "startTime": at}
    return pod(name, gpus, on=on, status=ready, phase="Running", **said)


def a_waiting(name: str, gpus: int = 8, **said: Any) -> Sent:
    """A pod of its own without a node."""
    return pod(name, gpus, **said)


def _shows(items: Callable[[], Any], there: dict[Any, Sent]) -> bool:
    shown = {tuple(key): one.metadata.resource_version for key, one in items()}
    return shown == {key: sent["metadata"]["resourceVersion"] for key, sent in there.items()}


async def _rests(seconds: float) -> None:
    """No time passes where a watch is taken up again; a kind that is not there is never looked for again."""
    if seconds > BACKOFF_S[1]:
        await asyncio.Event().wait()
    await asyncio.sleep(0)
