"""Devices for gangs before they are bound, on a real API server: what is late, lost or refused, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from hack.kubernetes import devices
from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.binder.journal import GangBinding, PodBinding
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.control.devices import Devices
from reconciler.kubernetes.dra.claims import Claims
from reconciler.kubernetes.dra.pod_claims import PodClaims
from reconciler.kubernetes.dra.wire import CLAIMS, DeviceClass, ResourceClaim, ResourceSlice
from reconciler.kubernetes.objects.wire import KubeNode, Meta, Pod, read
from reconciler.kubernetes.objects.world import ClusterModel
from reconciler.model.clock import SystemClock
from solver.model.cluster import NodeName
from solver.model.workload import JobName
from tests.kubernetes.claiming import NOW, Breaking, leading, made_claim, made_pod, using
from tests.kubernetes.sessions import REAL, a_namespace, session

pytestmark = REAL

JOB = JobName("j")


class Plane:
    """One node with two GPUs, and what is seen of it: what was written is seen when `see` says so."""

    def __init__(self, api: Api, look: Api, slices: list[dict[str, Any]]) -> None:
        self.seen = PodClaims(ClusterModel())
        self.seen.node(None, KubeNode(Meta("n1")))
        for part in slices:
            self.seen.slice(None, read(part, ResourceSlice))
        for known in devices.classes():
            self.seen.device_class(None, read(known, DeviceClass))
        self.notes: list[tuple[str, str]] = []
        self.devices = Devices(Claims(api, leading()), self.seen, self._note, SystemClock(), structlog.get_logger())
        self.look = look
        self.known: dict[tuple[str, str], ResourceClaim] = {}
        self.pods: dict[tuple[str, str], Pod] = {}

    async def add(self, space: str, name: str, claim: dict[str, Any]) -> None:
        made = await made_claim(self.look, space, claim)
        pod = await made_pod(self.look, space, using(name, made.metadata.name))
        self.pods[pod.key] = pod
        self.known[made.key] = made
        self.seen.claim(None, made)
        self.seen.pod(None, pod)

    async def see(self) -> None:
        for key, before in list(self.known.items()):
            self.known[key] = await self.look.get(CLAIMS.path(*key), ResourceClaim)
            self.seen.claim(before, self.known[key])

    async def given(self) -> list[tuple[str, ...]]:
        """The devices of each pod of the one gang; [] if it may not be bound."""
        bindings = tuple(
            PodBinding(*pod.key, pod.metadata.uid, pod.metadata.resource_version, NodeName("n1"))
            for pod in self.pods.values()
        )
        gangs = await self.devices.given([GangBinding(JOB, 1, bindings)], self.pods)
        return [tuple(pod.devices) for gang in gangs for pod in gang.pods]

    @property
    def allocated(self) -> int:
        return sum(claim.status.allocation is not None for claim in self.known.values())

    def _note(self, event: str, _: JobName, why: str) -> None:
        self.notes.append((event, why))


@asynccontextmanager
async def a_plane(
    cluster: Cluster, slices: list[dict[str, Any]] | None = None, breaking: int | None = None, is_done: bool = False
) -> AsyncIterator[tuple[Plane, Api, str]]:
    async with session(cluster, kind=Breaking) as writing, session(cluster) as api:
        if breaking is not None:
            assert isinstance(writing, Breaking)
            writing.broken, writing.is_done = breaking, is_done
        yield Plane(writing, api, slices or devices.mig_slices("n1", 2)), api, await a_namespace(api)


def test_a_gang_has_all_its_devices_or_none_of_them_for_long(cluster: Cluster) -> None:
    async def story() -> None:
        async with a_plane(cluster) as (plane, api, space):
            await plane.add(space, "p", devices.an_instance("a", "7g.80gb"))
            await plane.add(space, "q", devices.an_instance("b", "7g.80gb"))
            # One of the claims goes behind our back.
            await api.delete(CLAIMS.path(space, "b"))
            assert await plane.given() == []
            assert plane.notes[-1][0] == "devices-refused"
            assert await plane.devices.give_back(plane.pods) == 0  # nothing of it is seen yet
            plane.known.pop((space, "b"))
            await plane.see()
            assert plane.allocated == 1
            assert await plane.devices.give_back(plane.pods) == 1
            await plane.see()
            assert plane.allocated == 0

    asyncio.run(story())


@pytest.mark.parametrize("is_done", [True, False])
def test_a_write_that_was_not_answered_is_known_before_anything_else_is_given(cluster: Cluster, is_done: bool) -> None:
    async def story() -> None:
        async with a_plane(cluster, breaking=2, is_done=is_done) as (plane, _, space):
            await plane.add(space, "p", devices.an_instance("a", "7g.80gb"))
            first = await plane.given()
            assert bool(first) == is_done  # where it was done, a look at the claim has shown it
            used = plane.seen.stock.users()
            assert len(used) == 1
            plane.devices.claims = Claims(plane.look, leading())
            await plane.devices.give_back(plane.pods)
            assert (len(plane.seen.stock.users()) == 0) == (not is_done)
            await plane.see()
            second = await plane.given()
            assert second == [("GPU-n1-0/7g.80gb@0",)]

    asyncio.run(story())


@pytest.mark.parametrize("condition", ["attached", "lost"])
def test_a_gang_waits_for_its_devices(cluster: Cluster, condition: str) -> None:
    slices = devices.mig_slices("n1", 1)
    for part in slices:
        for device in part["spec"].get("devices", ()):
            device |= {"bindingConditions": ["attached"], "bindingFailureConditions": ["lost"]}

    async def story() -> None:
        async with a_plane(cluster, slices) as (plane, api, space):
            await plane.add(space, "p", devices.an_instance("a"))
            assert await plane.given() == []
            assert plane.notes[-1][0] == "devices-waiting"
            await plane.see()
            assert await plane.given() == []
            assert len(plane.notes) == 1  # said once
            assert await plane.devices.give_back(plane.pods) == 0
            assert plane.allocated == 1
            (known,) = plane.known.values()
            assert known.status.allocation
            (result,) = known.status.allocation.devices.results
            told = {"type": condition, "status": "True", "reason": "Tested", "message": "", "lastTransitionTime": NOW}
            status = {"driver": result.driver, "pool": result.pool, "device": result.device, "conditions": [told]}
            await api.patch(CLAIMS.path(*known.key, "status"), {"status": {"devices": [status]}})
            await plane.see()
            given = await plane.given()
            assert given == ([("GPU-n1-0/1g.10gb@6",)] if condition == "attached" else [])
            if condition == "lost":
                assert plane.notes[-1][0] == "devices-failed"
                assert await plane.devices.give_back(plane.pods) == 1

    asyncio.run(story())
