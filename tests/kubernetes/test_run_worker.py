"""Pods whose rounds are decided in a process of their own, which is killed beside the control plane."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import ACCOUNT, GROUPS
from reconciler.kubernetes.objects.resource import PODS
from tests.e2e.control_plane import ControlPlane, until
from tests.e2e.test_round_worker import ALWAYS, workers_of
from tests.kubernetes.sessions import REAL, a_namespace, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, gpu_nodes, until_bound

POLICY = QUEUES

pytestmark = REAL


def test_a_worker_decides_about_pods_and_where_it_is_killed_another_does(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "work"):
            space = await a_namespace(api)
            kubeconfig = str(shipped.kubeconfig(ACCOUNT, GROUPS))
            await asyncio.to_thread(plane.start, *ALWAYS, "--kubernetes", "--kubeconfig", kubeconfig)

            async def binds(count: int) -> None:
                await api.create(PODS.path(space), a_worker(f"p{count}", f"g{count}", 1))
                await until_bound(api, space, count)

            await binds(1)
            (worker,) = workers_of(plane.pid)
            for count in (2, 3):
                await binds(count)
            assert workers_of(plane.pid) == [worker], "what has changed is all that it was sent since"
            os.kill(worker, signal.SIGKILL)
            await binds(4)
            await binds(5)
            lost = lambda: any("the round worker" in line.get("message", "") for line in plane.logged("leading"))  # noqa: E731
            await asyncio.to_thread(until, "it says so", lost)
            await binds(6)
            await asyncio.to_thread(until, "there is another", lambda: workers_of(plane.pid) not in ([], [worker]))
            await binds(7)
            (another,) = workers_of(plane.pid)
            assert await asyncio.to_thread(plane.signal, signal.SIGTERM) == 0
            assert not Path(f"/proc/{another}/cmdline").exists()

    asyncio.run(story())
