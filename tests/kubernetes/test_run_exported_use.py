"""What GPUs of pods do is read from exporters over HTTP by a real `quorate run --kubernetes`, joined to gangs, kept and told.

A minute has to pass, so it runs with the long ones.
"""

from __future__ import annotations

import asyncio
import signal

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import ACCOUNT, GROUPS
from reconciler.kubernetes.objects.resource import PODS
from tests.e2e.control_plane import ControlPlane, until
from tests.kubernetes.sessions import REAL, a_namespace, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, gpu_nodes, until_bound
from tests.reconciler.kubernetes.use.exporter import busy, exporter, text

POLICY = QUEUES
pytestmark = [*REAL, pytest.mark.long]


def test_what_an_exporter_tells_is_what_the_gangs_gpus_do(shipped: Cluster, plane: ControlPlane) -> None:
    answer = [""]

    async def story(port: int) -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "used"):
            space = await a_namespace(api)
            kubeconfig = shipped.kubeconfig(ACCOUNT, GROUPS)
            options = ["--kubernetes", "--kubeconfig", str(kubeconfig), "--dcgm-interval", "2s"]
            url = f"http://127.0.0.1:{port}/metrics"
            await asyncio.to_thread(plane.start, *options, "--dcgm-exporters", url)
            await api.create(PODS.path(space), a_worker("w0", "train", 1, gpus=2))
            node = (await until_bound(api, space, 1))["w0"]
            # The kubelet has chosen other boards than Quorate's first two.
            boards = {0: ("", busy(0.0)), 1: ("w0", busy(0.9)), 2: ("", busy(0.0)), 3: ("w0", busy(0.5))}
            answer[0] = text(node, boards).replace('"team"', f'"{space}"')
            await asyncio.to_thread(told, plane, node)
            await api.delete(PODS.path(space, "w0"))
            assert await asyncio.to_thread(plane.signal, signal.SIGTERM) == 0

    with exporter(lambda: answer[0]) as port:
        asyncio.run(story(port))


def told(plane: ControlPlane, node: str) -> None:
    with plane.client() as client:

        def active() -> dict[str, float]:
            found = client.gpus(node=node).items
            return {gpu.gpu: gpu.use.active.mean for gpu in found if gpu.jobs and gpu.use and gpu.use.active}

        until("its GPUs are measured", lambda: len(active()) == 2)
        assert sorted(active().values()) == [50.0, 90.0]
        (line,) = [each for each in client.gpus().queues if each.name == "research"]
        assert [(each.allocated, each.measured, each.active) for each in line.lines] == [(2, 2, 1.4)]
        assert 'quorate_gpu_use_nodes{state="silent"} 1.0' in client.metrics()
        assert 'quorate_gpus_active{gpu_type="H100-SXM5-80GB",queue="research"} 1.4' in client.metrics()
        until("it is kept", lambda: client.past.gpu_use_of_node(node).items)
    (silent,) = plane.logged("gpu-use-silent")
    assert silent["nodes"] == 1
