"""Asking for partitions on a real API server: killed at the write, not answered, or a node that somebody else has changed."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest
import structlog

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.control.partitioner import MigPartitioner
from reconciler.kubernetes.control.sight import Remembered, Sight, cluster_sight, snapshot_from
from reconciler.kubernetes.control.starts import bindings_of
from reconciler.kubernetes.mig.change import MigChange, change_on
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from solver.model.quantities import Duration
from solver.round.solve import solve
from tests.kubernetes.claiming import Breaking
from tests.kubernetes.crashing import Crash, crashing_session
from tests.kubernetes.mig_manager import CONFIGS, OPERATOR, WHOLE, labels_of, manage, offer, with_configs
from tests.kubernetes.sessions import REAL, a_namespace, session
from tests.kubernetes.test_run import GPU_NODE
from tests.kubernetes.test_run_mig import asking
from tests.reconciler.kubernetes.control.test_geometry import POOL, policy
from tests.reconciler.kubernetes.samples import cluster as cluster_of

pytestmark = REAL

CLOCK = SystemClock()
CONFIG = "first-1g.10gb"


class LeaderAlways:
    """Always."""

    def leadership(self) -> Leadership:
        return Leadership("quorate-1", Epoch(1), 1e12)


class Site(NamedTuple):
    """A node with four whole GPUs that a MIG manager looks after, and a pod that asks for an instance."""

    admin: Api
    node: str
    space: str

    @classmethod
    async def made(cls, admin: Api, node: str) -> Site:
        await with_configs(admin)
        labels = {names.PRODUCT: "NVIDIA-H100-80GB-HBM3", names.POOL: POOL}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"capacity": GPU_NODE, "allocatable": GPU_NODE, "conditions": [ready]}
        await admin.create(NODES.path(), {"metadata": {"name": node, "labels": labels}, "status": status})
        await manage(admin, node)
        site = cls(admin, node, await a_namespace(admin))
        pod = asking("small")
        pod["metadata"]["annotations"][names.QUEUE] = "q"
        await admin.create(PODS.path(site.space), pod)
        return site

    async def looked(self, part: MigPartitioner) -> Sight:
        nodes = [await self.admin.get(NODES.path("", self.node), dict[str, Any])]
        pods = (await self.admin.get(PODS.path(self.space), dict[str, Any]))["items"]
        known = {(one.metadata.namespace, one.metadata.name): one for one in (read(sent, Pod) for sent in pods)}
        wires = {one.metadata.name: one for one in (read(sent, KubeNode) for sent in nodes)}
        assert part.is_seen(wires.get)
        sight = cluster_sight(cluster_of(nodes, pods), known, {}, Duration(300_000), CLOCK.now())
        return await part.looked(policy(), sight, wires.values())

    async def round(self, part: MigPartitioner, sight: Sight | None = None) -> list[str]:
        """One round; who may be bound by it."""
        sight = sight or await self.looked(part)
        plan = solve(snapshot_from(CLOCK.now(), sight, policy(), (), Remembered()), policy(), None)
        ready = await part.ready(plan, sight, bindings_of(plan.steps, sight.gangs))
        return [gang.job for gang in ready]

    async def change(self) -> MigChange | None:
        return change_on(await self.admin.get(NODES.path("", self.node), KubeNode))

    async def gone(self) -> None:
        await self.admin.delete(NODES.path("", self.node))


def partitioner(api: Api) -> MigPartitioner:
    log, told = structlog.get_logger(), lambda *_: None
    return MigPartitioner(api, LeaderAlways(), (OPERATOR, CONFIGS), CLOCK, told, told, log)


@pytest.mark.parametrize("is_written", [False, True])
def test_whoever_leads_after_one_that_was_killed_goes_on(cluster: Cluster, is_written: bool) -> None:
    async def story() -> None:
        async with session(cluster) as admin, session(cluster) as next_api:
            site = await Site.made(admin, f"killed-{is_written}".lower())
            with pytest.raises(Crash):
                async with crashing_session(cluster, 0, heard=not is_written) as api:
                    await site.round(partitioner(api))
            first = await site.change()
            assert (first is not None) == is_written
            successor = partitioner(next_api)
            for _ in range(3):
                assert await site.round(successor) == []
            change = await site.change()
            assert change is not None
            assert (change.attempt, change.config, change.fate) == (1, CONFIG, None)
            assert not is_written or change == first
            await admin.patch(NODES.path("", site.node), {"metadata": {"labels": {names.MIG_STATE: "success"}}})
            assert await site.round(successor) == []
            await offer(admin, site.node, **{"gpu": "3", "mig-1g.10gb": "7"})
            await site.round(successor)  # writes that it is made
            assert await site.round(successor) == [f"{site.space}.gang.small"]
            made = await site.change()
            assert made is not None
            assert made.fate == "made"
            await site.gone()

    asyncio.run(story())


def test_what_was_not_answered_is_not_relied_on_until_the_node_is_seen_to_be_another(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as admin, session(cluster, kind=Breaking) as api:
            assert isinstance(api, Breaking)
            api.broken, api.is_done = 1, False
            site = await Site.made(admin, "unanswered")
            part = partitioner(api)
            assert await site.round(part) == []
            assert "not seen" in "".join((await site.looked(part)).geometry.kept.values())
            assert await site.round(part) == []
            assert api.heard == 1  # it is not asked again while the first may still arrive
            api.broken = 1 << 30
            await admin.patch(NODES.path("", site.node), {"metadata": {"labels": {"new": "version"}}})
            assert await site.round(part) == []
            assert (await labels_of(admin, site.node))[names.MIG_CONFIG] == CONFIG
            await site.gone()

    asyncio.run(story())


def test_a_node_that_was_changed_meanwhile_is_decided_about_anew(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as admin:
            site = await Site.made(admin, "changed")
            part = partitioner(admin)
            sight = await site.looked(part)
            await admin.patch(NODES.path("", site.node), {"metadata": {"labels": {"some": "thing"}}})
            assert await site.round(part, sight) == []
            assert (await labels_of(admin, site.node))[names.MIG_CONFIG] == WHOLE
            assert await site.round(part) == []
            assert (await labels_of(admin, site.node))[names.MIG_CONFIG] == CONFIG
            await site.gone()

    asyncio.run(story())


def test_a_new_leader_waits_until_it_sees_what_the_one_before_wrote(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as admin:
            site = await Site.made(admin, "behind")
            before = await admin.get(NODES.path("", site.node), KubeNode)
            assert await site.round(partitioner(admin)) == []
            part = partitioner(admin)
            await part.follow(lambda _: before)
            assert not part.is_seen(lambda _: before)
            after = await admin.get(NODES.path("", site.node), KubeNode)
            assert part.is_seen(lambda _: after)
            again = partitioner(admin)
            await again.follow(lambda _: after)
            assert again.is_seen(lambda _: after)
            await site.gone()

    asyncio.run(story())
