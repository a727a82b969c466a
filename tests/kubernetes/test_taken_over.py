"""Gangs that are half bound under `quorate run --kubernetes`: left so too long ago by an earlier leader, and just now."""

from __future__ import annotations

import asyncio
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.binder.binding import GangBinding, PodBinding, binding_of
from reconciler.kubernetes.binder.journal import hold_annotations, journal_of, written
from reconciler.kubernetes.binder.partial_starts import ROLL_FORWARD_S
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import LEASE, NAMESPACE, Leadership
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import LEASES, PODS
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from solver.model.cluster import DeviceId, NodeName
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.fencing import as_quorate, led_by
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, bound, gpu_nodes, running, until_bound

POLICY = QUEUES

pytestmark = REAL

GONE = Leadership("gone", Epoch(1), 0.0)


async def half_bound(
    api: Api, quorate: Api, space: str, name: str, node: str, lead: Leadership, begun_s_ago: float = 0
) -> None:
    """A gang of two whose first pod has its node, and says where the second goes: whoever led did not come to send that."""
    made = (await api.create(PODS.path(space), a_worker(f"{name}0", name, 2, gpus=2)))["metadata"]
    pods = tuple(
        PodBinding(
            space, f"{name}{index}", made["uid"] if index == 0 else "not made yet", made["resourceVersion"],
            NodeName(node), (DeviceId(f"{node}/{2 * index}"), DeviceId(f"{node}/{2 * index + 1}")),
        )
        for index in range(2)
    )  # fmt: skip
    gang = GangBinding(JobName(f"{space}.gang.{name}"), 1, pods)
    journal = journal_of(gang, SystemClock().now().after(-int(begun_s_ago * 1000)))
    said = {**hold_annotations(pods[0], gang), names.GANG_PLAN: written(journal), **lead.stamp}
    await quorate.create(PODS.path(space, pods[0].name, "binding"), binding_of(pods[0], said))
    await api.create(PODS.path(space), a_worker(f"{name}1", name, 2, gpus=2))


async def leader_of_now(api: Api) -> Leadership:
    spec = (await api.get(LEASES.path(NAMESPACE, LEASE), dict[str, Any]))["spec"]
    return Leadership(spec["holderIdentity"], Epoch(spec["leaseTransitions"]), 0.0)


def test_what_was_begun_in_time_is_finished_where_it_was_to_be_and_the_rest_released(
    fenced: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(fenced) as api, as_quorate(fenced) as quorate, gpu_nodes(api, 2, "over") as nodes:
            space = await a_namespace(api)
            await led_by(fenced, GONE)
            await half_bound(api, quorate, space, "late", nodes[0], GONE, 2 * ROLL_FORWARD_S)
            await led_by(fenced, None)
            async with running(plane, fenced), asyncio.timeout(SOON_S):
                while await bound(api, space):
                    await asyncio.sleep(0.05)
                await half_bound(api, quorate, space, "timely", nodes[1], await leader_of_now(api))
                while await bound(api, space) != {"timely0": nodes[1], "timely1": nodes[1]}:
                    await asyncio.sleep(0.05)
                while names.GANG_PLAN in (await notes(api, space, "timely0")):
                    await asyncio.sleep(0.05)
                assert (await notes(api, space, "timely1"))[names.DEVICES] == f"{nodes[1]}/2,{nodes[1]}/3"
                # What made the pod makes it anew: the gang is whole again, and starts whole.
                await api.create(PODS.path(space), a_worker("late0", "late", 2, gpus=2))
                there = await until_bound(api, space, 4)
                assert (there["late0"], there["late1"]) == (nodes[0], nodes[0])

    asyncio.run(story())


async def notes(api: Api, space: str, name: str) -> dict[str, str]:
    found: dict[str, str] = (await api.get(PODS.path(space, name), dict[str, Any]))["metadata"]["annotations"]
    return found
